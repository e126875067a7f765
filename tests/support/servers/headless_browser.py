"""A headless Chromium over its debugging pipe: the Chrome DevTools Protocol with nothing but the standard library."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TIMEOUT_S = 20.0
OPTIONS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--hide-scrollbars"),
    # No requests of the browser's own.
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
    # Containers often have a small /dev/shm, and Chromium has no sandbox for root.
    *("--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])),
)
MIDDLE = """(element => {
    element.scrollIntoView({block: "center", behavior: "instant"});
    const box = element.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
})"""


def executable() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page, and every event that it has sent."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading, self.writing = reading, writing
        self.events: list[dict[str, Any]] = []
        self._unread = b""
        self._calls = 0
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, page: Path | str, width: int = 1100, height: int = 900, phone: bool = False) -> None:
        """Load a file or an address and wait until it is whole; events of pages before are forgotten."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri() if isinstance(page, Path) else page)
        self.wait_for("Page.loadEventFired")

    def wait_until(self, script: str) -> None:
        """Wait for what a page's own scripts bring: until a JavaScript expression is true."""
        until = time.monotonic() + TIMEOUT_S
        while not self.evaluate(script):
            assert time.monotonic() < until, f"not true after {TIMEOUT_S} s: {script}\n{self.text()}"
            time.sleep(0.1)

    def text(self) -> str:
        return str(self.evaluate("document.body.innerText"))

    def evaluate(self, script: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def point_at(self, selector: str) -> None:
        x, y = self._middle(selector)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        x, y = self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def tap(self, selector: str) -> None:
        x, y = self._middle(selector)
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def drag(self, selector: str, right: float, touch: bool = False) -> None:
        """Drag an element by so many pixels to the right, with the mouse or a finger, in ten steps."""
        x, y = self._middle(selector)
        for step in range(12):
            here = {"x": x + right * min(step, 10) / 10, "y": y}
            if touch:
                kind = ("touchStart", "touchEnd")[step == 11] if step in (0, 11) else "touchMove"
                self.call("Input.dispatchTouchEvent", type=kind, touchPoints=[] if step == 11 else [here])
            else:
                kind = ("mousePressed", "mouseReleased")[step == 11] if step in (0, 11) else "mouseMoved"
                self.call("Input.dispatchMouseEvent", type=kind, button="left", buttons=1, clickCount=1, **here)

    def press(self, key: str) -> None:
        codes = {"Tab": 9, "End": 35, "Home": 36, "Escape": 27}
        codes |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key])

    def choose(self, selector: str, value: str) -> None:
        """Choose an option of a select as its user does: the value, then a change event."""
        self.evaluate(
            f"((s) => {{ s.value = {json.dumps(value)}; s.dispatchEvent(new Event('change')); }})"
            f"(document.querySelector({json.dumps(selector)}))"
        )

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def events_of(self, *methods: str) -> list[dict[str, Any]]:
        """Return the parameters of the events of these kinds since the page was opened."""
        self.evaluate("new Promise((done) => setTimeout(done, 50))")  # what is under way arrives
        return [event["params"] for event in self.events if event["method"] in methods]

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": params}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self.writing, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._calls:
            self.events.append(answer)
        assert "error" not in answer, (method, answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def wait_for(self, method: str) -> None:
        while not any(event["method"] == method for event in self.events):
            self.events.append(self._receive())

    def _receive(self) -> dict[str, Any]:
        until = time.monotonic() + TIMEOUT_S
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self.reading], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"the browser said nothing for {TIMEOUT_S} s"
            more = os.read(self.reading, 1 << 16)
            assert more, "the browser has ended"
            self._unread += more
        message, self._unread = self._unread.split(b"\0", 1)
        event: dict[str, Any] = json.loads(message)
        return event

    def _middle(self, selector: str) -> tuple[float, float]:
        x, y = self.evaluate(f"{MIDDLE}(document.querySelector({json.dumps(selector)}))")
        return x, y


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start a browser with an empty profile; it is gone afterwards, with all its processes."""
    found = executable()
    assert found
    # Chromium reads commands from descriptor 3 and answers on 4; ours must not be these two already.
    pipes = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (*os.pipe(), *os.pipe())]
    its_input, our_output, our_input, its_output = pipes
    silent = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    wiring = [(os.POSIX_SPAWN_DUP2, its_input, 3), (os.POSIX_SPAWN_DUP2, its_output, 4)]
    command = [found, *OPTIONS, f"--user-data-dir={profile}"]
    pid = os.posix_spawn(found, command, dict(os.environ), file_actions=[*silent, *wiring], setpgroup=0)
    os.close(its_input)
    os.close(its_output)
    try:
        yield Browser(our_input, our_output)
    finally:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(our_input)
        os.close(our_output)
