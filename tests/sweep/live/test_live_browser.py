"""A sweep that is watched in the live page by a real browser, and resumed and stopped by the commands shown there."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from lr_sweep.common.files import write_json
from lr_sweep.common.network import check_answers
from lr_sweep.sweep.results.directory import Results, read_state
from lr_sweep.sweep.results.recorder import write_wanted
from lr_sweep.sweep.study.file import load_study
from lr_sweep.tests.support.records import SyntheticRecord
from lr_sweep.tests.support.servers.headless_browser import Browser, browser, executable
from lr_sweep.tests.support.servers.live_page import live_page
from lr_sweep.tests.support.tiny_study import ROOT, command_line, environment, rows, runs_of, write_study
from lr_sweep.tests.support.waiting import wait_until

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
    with live_page(results.root) as ui:
        link = ui.link()
        with browser(profile) as window:
            wait_until(lambda: answers(ui.port), "the server")
            window.open(link)
            shows(window, "runs ended")
            window.wait_until("location.search === '' && document.readyState === 'complete'")
            yield window, link.partition("?")[0]
    assert ui.process.returncode == 0


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


@contextmanager
def shown_command(window: Browser, place: str) -> Iterator[None]:
    """Run a command of the page, as a user who copies it."""
    window.wait_until(f"document.querySelector('{place}') !== null")
    words = shlex.split(str(window.evaluate(f"document.querySelector('{place}').innerText")))
    command = words if words[0] == "kill" else command_line(*words[1:])
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL) as process:
        yield
        process.wait(timeout=120)


def test_a_sweep_is_watched_and_its_commands_resume_and_stop_it(results: Results, tmp_path: Path) -> None:
    with page(results, tmp_path / "profile") as (window, address):
        shows(window, "0 of 2 runs ended")
        with shown_command(window, "#state > .copy code"):  # resume
            shows(window, "Training now")
            window.open(address + "runs/" + window.evaluate("document.querySelector('.runs li').id").partition("-")[2])
            shows(window, "Log")
            window.open(address)
            with shown_command(window, "#activity .copy code"):  # stop the sweep
                shows(window, "No sweep is running")
        with shown_command(window, "#state > .copy code"):  # train both
            shows(window, "2 of 2 runs ended 2 complete")
        shows(window, "No sweep is running")
        assert {row["status"] for row in rows(results.root).values()} == {"complete"}
        window.open(f"{address}studies/tiny/report")
        assert "2 runs wanted: all complete" in window.text()
        assert window.events_of("Runtime.exceptionThrown", "Log.entryAdded") == []
        asked = [urlsplit(event["request"]["url"]) for event in window.events_of("Network.requestWillBeSent")]
        assert {url.netloc for url in asked if url.scheme != "data"} == {urlsplit(address).netloc}


def test_it_is_usable_by_the_keyboard_and_fits_a_phone(results: Results, tmp_path: Path) -> None:
    with page(results, tmp_path / "profile") as (window, address):
        window.open(address, 390, 800, phone=True)
        assert window.evaluate("document.documentElement.scrollWidth") == 390
        window.press("Tab")
        assert window.evaluate("document.activeElement.innerText") == "Report so far"


@pytest.fixture
def large(tmp_path: Path) -> Iterator[SyntheticRecord]:
    """A sweep of 5,000 runs: 60 train, 40 have failed, 4,900 are complete."""
    made = SyntheticRecord(tmp_path / "large")
    grid = list(product(("a", "b", "c", "d"), [10 ** (-n / 10) for n in range(25)], range(50)))
    for number, (variant, rate, seed) in enumerate(grid):
        if number < 60:
            run_id = made.want(rate, seed, 75_000, variant=variant)
            made.write_curve(run_id, [(100 * n, n / 1000, 0.5) for n in range(1, 750)])
        elif number < 100:
            made.add(rate, seed, [], "failed", 10, failure="CUDA out of memory " * 20, variant=variant)
        else:
            made.add(rate, seed, [(300, 0.5 + seed / 1000, 0.5)], variant=variant)
    made.write()
    with Results(made.results).writing("small"):
        progress(made, 74_900)
        yield made


def progress(made: SyntheticRecord, step: int) -> None:
    """What a sweep writes of itself: its first 60 runs are at a step."""
    ids = [str(row["run_id"]) for row in made.wanted[:60]]
    state = {"steps_per_s": 10.0, "time_left_s": 60.0, "updated_at": time.time()}
    write_json(Results(made.results).progress("small"), state | {"training": dict.fromkeys(ids, step)})


LOADED_BYTES = """performance.getEntriesByType("resource").concat(performance.getEntriesByType("navigation"))
    .reduce((sum, each) => sum + each.decodedBodySize, 0)"""
WATCH = """void new MutationObserver(list => { window.changed = (window.changed ?? 0) + list.length; })
    .observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
void new PerformanceObserver(list => { window.longest = Math.max(...list.getEntries().map(each => each.duration)); })
    .observe({ type: "longtask", buffered: true })"""


def test_a_study_of_five_thousand_runs_is_no_more_than_what_is_shown(large: SyntheticRecord, tmp_path: Path) -> None:
    """24 runs and 24 failures in the page; an update changes what is new alone."""
    with page(Results(large.results), tmp_path / "profile") as (window, address):
        shows(window, "4940 of 5000 runs ended")
        assert window.evaluate(LOADED_BYTES) < 250_000
        assert window.evaluate("document.querySelectorAll('*').length") < 1000
        window.evaluate("document.querySelector('#lists details').open = true")
        window.evaluate(WATCH)
        progress(large, 74_990)
        shows(window, "74990 of 75000")
        assert 0 < window.evaluate("window.changed") < 24 * 3 + 10
        overview_ms = window.evaluate("window.longest ?? 0")
        window.open(f"{address}studies/small/report")
        assert window.evaluate(LOADED_BYTES) < 2_000_000
        print(f"longest task of the overview {overview_ms:.0f} ms (0: below 50)")
