"""How fast a report's page is in a headless Chromium: `python -m benchmarks.page_speed PAGE`."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from lr_sweep.tests.support.servers.headless_browser import Browser, browser

DRAWN = (
    "new Promise(done => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))"
)
STEPS = """(() => {
    const handle = document.querySelector(".handle");
    const took = [];
    for (let step = 0; step < 100; step++) {
        const began = performance.now();
        const key = step % 2 ? "Home" : "End";
        handle.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
        document.body.getBoundingClientRect();
        took.push(performance.now() - began);
    }
    return took;
})()"""
"""Milliseconds of moving the handle from end to end, with the layout that follows, 100 times."""
PANEL = """(() => {
    const began = performance.now();
    document.querySelector("#task").dispatchEvent(new Event("change"));
    document.body.getBoundingClientRect();
    return performance.now() - began;
})()"""


def speed_text(page: Path, profile: Path) -> str:
    """Open a page and say how long it takes until it is drawn, to draw a panel anew, and to move the handle."""
    with browser(profile) as window:
        window.open(page, width=1280)
        drawn_ms, panel_ms, steps_ms = _measure(window)
    return (
        f"drawn {drawn_ms:.0f} ms after it was asked for; a panel drawn anew {panel_ms:.0f} ms; a step of the handle "
        f"{statistics.median(steps_ms):.1f} ms in the median, {max(steps_ms):.1f} at most"
    )


def _measure(window: Browser) -> tuple[float, float, list[float]]:
    return (
        float(window.evaluate(DRAWN)),
        float(window.evaluate(PANEL)),
        list(window.evaluate(STEPS)),
    )


def main() -> None:
    """Print the speed of a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    with tempfile.TemporaryDirectory() as profile:
        print(speed_text(parser.parse_args().page.resolve(), Path(profile)))


if __name__ == "__main__":
    main()
