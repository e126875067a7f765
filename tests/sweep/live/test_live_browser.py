"""A sweep that is started, watched and stopped in the live page, by a real browser."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from lr_sweep.common.network import check_answers
from lr_sweep.sweep.results.directory import Results, read_state
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.tune.prepare import write_wanted
from lr_sweep.tests.support.servers.headless_browser import Browser, browser, executable
from lr_sweep.tests.support.tiny_study import ROOT, command_line, environment, rows, runs_of, write_study
from lr_sweep.tests.support.waiting import free_port, wait_until

pytestmark = [
    pytest.mark.skipif(executable() is None, reason="no chromium or google-chrome on PATH"),
    pytest.mark.slow,  # minutes: Ray starts three times
    pytest.mark.cluster,
]


@pytest.fixture
def results(tmp_path: Path) -> Iterator[Results]:
    """A recorded study of two runs, none of which has trained."""
    study = write_study(tmp_path, variants=("unfrozen-random",), num_steps=1500)
    results = Results(tmp_path / "results")
    results.prepare()
    write_wanted(results, load_study(study), runs_of(study, results.root))
    yield results
    with suppress(ProcessLookupError):
        if results.being_written():
            os.kill(read_state(results.holder)["pid"], signal.SIGKILL)


@contextmanager
def page(results: Results, profile: Path) -> Iterator[tuple[Browser, str]]:
    """The page in a browser, and its address."""
    command = command_line("ui", "--results", results.root, "--port", str(free_port()))
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as ui:
        try:
            assert ui.stdout
            link = next(found[0] for line in ui.stdout if (found := re.search(r"http://\S+/\?token=\w+", line)))
            with browser(profile) as window:
                wait_until(lambda: answers(int(urlsplit(link).port or 0)), "the server")
                window.open(link)
                shows(window, "Studies")
                window.wait_until("location.search === '' && document.readyState === 'complete'")
                yield window, link.partition("?")[0]
        finally:
            ui.send_signal(signal.SIGTERM)
    assert ui.returncode == 0


def answers(port: int) -> bool:
    """Return whether a server is up."""
    try:
        check_answers("127.0.0.1", port)
    except OSError:
        return False
    return True


def shows(window: Browser, text: str) -> None:
    """Wait until the page shows a text, without reading it again by hand."""
    script = f"(document.body?.innerText ?? '').replace(/\\s+/g, ' ').includes({json.dumps(text)})"
    wait_until(lambda: window.evaluate(script), text)


def test_a_sweep_is_started_watched_stopped_and_resumed_by_clicks(results: Results, tmp_path: Path) -> None:
    with page(results, tmp_path / "profile") as (window, address):
        shows(window, "0 of 2 runs ended")
        window.click(".links button")  # resume
        shows(window, "Training now")
        window.click(".runs button")
        shows(window, "1 stopped")
        shows(window, "1 of 2 runs ended")
        window.click("#activity button")
        shows(window, "Stopping: running runs save checkpoints first")
        shows(window, "Report Resume Retry 1 failed or stopped")
        window.click(".links form:last-of-type button")  # trains both
        shows(window, "2 of 2 runs ended 2 complete")
        shows(window, "No sweep is running")
        assert {row["status"] for row in rows(results.root).values()} == {"complete"}
        window.open(f"{address}studies/tiny/report")
        assert "2 runs wanted: 2 complete" in window.text()
        assert window.events_of("Runtime.exceptionThrown", "Log.entryAdded") == []
        asked = [urlsplit(event["request"]["url"]) for event in window.events_of("Network.requestWillBeSent")]
        assert {url.netloc for url in asked if url.scheme != "data"} == {urlsplit(address).netloc}


def test_it_is_usable_by_the_keyboard_and_fits_a_phone(results: Results, tmp_path: Path) -> None:
    with page(results, tmp_path / "profile") as (window, address):
        window.open(address, 390, 800, phone=True)
        assert window.evaluate("document.documentElement.scrollWidth") == 390
        reached = []
        for _ in range(2):
            window.press("Tab")
            reached.append(window.evaluate("document.activeElement.innerText"))
        assert reached == ["Report", "Resume"]
        box = window.evaluate("(b => [b.height, b.width])(document.activeElement.getBoundingClientRect())")
        assert min(box) >= 24
