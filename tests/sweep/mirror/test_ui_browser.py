"""The MLflow pages of a swept study as a reader has them: `sweep ui`, and a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from lr_sweep.tests.support.mirrored_record import new_mirror
from lr_sweep.tests.support.records import SyntheticRecord
from lr_sweep.tests.support.servers.headless_browser import Browser, browser, executable
from lr_sweep.tests.support.servers.live_page import live_page

pytestmark = [
    pytest.mark.skipif(executable() is None, reason="no chromium or google-chrome on PATH"),
    pytest.mark.slow,  # half a minute, most of it MLflow's start
]
STUDY_ROW = '.ag-row [role="gridcell"] button'
"""Shows what is below a study; the rows of the table are its runs then."""
WITHIN = """name => [...document.querySelectorAll(`.ag-cell[col-id$='.\\`${name}\\`']`)].filter(cell => {
  const {left, right, top, bottom} = cell.getBoundingClientRect();
  return document.elementFromPoint((left + right) / 2, (top + bottom) / 2)?.closest('.ag-cell') === cell;
}).map(cell => cell.innerText)"""
"""Returns the texts of a column's cells that can be seen: inside the window, and below nothing."""
MLFLOW_S_OWN = (
    *("/ajax-api/2.0/mlflow/users/current", "/ajax-api/3.0/mlflow/assistant/", "/ajax-api/2.0/mlflow/gateway-proxy"),
    "ResizeObserver loop completed with undelivered notifications.",
)
"""Problems of its own: its page asks who is logged in, and for its assistant and language models, and is refused; its
charts resize each other."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, window: Browser) -> Iterator[str]:
    """The address of all runs that `sweep ui` prints, once the browser has its token."""
    results = tmp_path_factory.mktemp("mirrored") / "results"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        assert new_mirror(swept_study(results)).sync_all() == 4
        with live_page(results) as ui:
            link, runs = ui.link(), ui.mlflow()
            window.open(link)
            window.wait_until("location.search === '' && document.querySelector('h1')?.innerText === 'small'")
            yield runs


def swept_study(results: Path) -> Path:
    """Two variants at two learning rates, three evaluations each; the last accuracies are 0.62, 0.64, 0.72, 0.74."""
    record = SyntheticRecord(results)
    for variant, last in (("frozen-random", 0.62), ("unfrozen-pretrained", 0.72)):
        for rate, better in ((1e-4, 0.0), (1e-3, 0.02)):
            curve = [(100, 0.25, 0.2), (200, 0.5, 0.4), (300, last + better, 0.6)]
            record.add(rate, 0, curve, variant=variant)
    return record.write()


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


def test_the_link_of_a_study_shows_its_own_runs_with_their_numbers(window: Browser, address: str) -> None:
    """Without the run of the study itself."""
    visit(window, "{0.scheme}://{0.netloc}/".format(urlsplit(address)))
    link = "[...document.querySelectorAll('.links a')].find(link => link.innerText === 'MLflow')"
    window.wait_until(f"Boolean({link})")
    window.call("Emulation.setDeviceMetricsOverride", width=1280, height=800, deviceScaleFactor=1, mobile=False)
    window.open(window.evaluate(f"{link}.href"))
    window.wait_until(shows("4 matching runs"))
    window.wait_until("document.querySelectorAll('.ag-row a').length >= 4")
    assert "small" not in run_names(window)
    window.wait_until(f"({WITHIN})('variant').length === 4")
    assert sorted(window.evaluate(f"({WITHIN})('variant')")) == ["frozen-random"] * 2 + ["unfrozen-pretrained"] * 2
    assert sorted(window.evaluate(f"({WITHIN})('learning_rate')")) == ["0.0001", "0.0001", "0.001", "0.001"]
    assert window.evaluate(f"({WITHIN})('seed')") == ["0"] * 4
    assert window.evaluate(f"({WITHIN})('test_at_best')") == ["0.6"] * 4
    window.call("Emulation.clearDeviceMetricsOverride")


def test_the_link_to_the_learning_curves_shows_them_of_its_own_runs(window: Browser, address: str) -> None:
    """Each chart has the name of a metric; those below the window are drawn later."""
    visit(window, "{0.scheme}://{0.netloc}/".format(urlsplit(address)))
    link = "[...document.querySelectorAll('.links a')].find(link => link.innerText === 'Learning curves')"
    window.wait_until(f"Boolean({link})")
    window.open(window.evaluate(f"{link}.href"))
    window.wait_until(shows("4 matching runs"))
    window.wait_until("document.querySelectorAll('.js-plotly-plot').length > 0")
    window.wait_until(shows("test_accuracy"))


def test_the_page_of_a_study_shows_its_results(window: Browser, address: str) -> None:
    open_study(window, address)
    window.wait_until(shows("Metrics (6)"))
    text = re.sub(r"\s+", " ", window.text())
    assert "test_mean/mnist/gpt2/unfrozen-pretrained 0.6" in text
    assert "learning_rate/mnist/gpt2/unfrozen-pretrained 0.001" in text


def test_the_address_shows_the_study_and_below_it_its_runs(window: Browser, address: str) -> None:
    open_experiment(window, address)
    assert run_names(window) == ["small"]
    assert "5 matching runs" in window.text()  # the study's own is one
    window.click(STUDY_ROW)
    window.wait_until("document.querySelectorAll('.ag-row a').length >= 5")
    assert sorted(run_names(window)[1:]) == [
        *("lr 1e-3, seed 0, frozen-random, gpt2, mnist", "lr 1e-3, seed 0, unfrozen-pretrained, gpt2, mnist"),
        *("lr 1e-4, seed 0, frozen-random, gpt2, mnist", "lr 1e-4, seed 0, unfrozen-pretrained, gpt2, mnist"),
    ]
    assert problems(window) == []
    assert hosts(window) == {urlsplit(address).netloc}


def visit(window: Browser, address: str) -> None:
    """Load a page as if it were the first one: MLflow keeps in the browser which studies are unfolded."""
    window.open("about:blank")  # an address that differs after the # alone would not be loaded again
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(address))
    window.call("Storage.clearDataForOrigin", origin=origin, storageTypes="local_storage,indexeddb")
    window.open(address)


def open_experiment(window: Browser, address: str) -> None:
    visit(window, address)
    window.wait_until(shows("matching runs"))
    window.wait_until(shows("small"))


def open_study(window: Browser, address: str) -> None:
    """Follow the link of the study's own run in the experiment's page."""
    open_experiment(window, address)
    window.evaluate("[...document.querySelectorAll('.ag-row a')].find(link => link.innerText === 'small').click()")


def shows(text: str) -> str:
    """Return a script for whether the page shows a text; its lines and columns are separated by single spaces."""
    return f"document.body.innerText.replace(/\\s+/g, ' ').includes({json.dumps(text)})"


def run_names(window: Browser) -> list[str]:
    return list(window.evaluate("[...document.querySelectorAll('.ag-row a')].map(link => link.innerText)"))


def problems(window: Browser) -> list[Any]:
    """Exceptions, errors on the console, and the browser's own errors, without those that MLflow causes by itself."""
    said = [event for event in window.events_of("Runtime.consoleAPICalled") if event["type"] in ("error", "assert")]
    logged = [event["entry"] for event in window.events_of("Log.entryAdded") if event["entry"]["level"] == "error"]
    found = [*window.events_of("Runtime.exceptionThrown"), *said, *logged]
    return [each for each in found if not any(own in json.dumps(each) for own in MLFLOW_S_OWN)]


def hosts(window: Browser) -> set[str]:
    """Return the hosts that got a request; `data:` and `blob:` addresses request nothing."""
    urls = [urlsplit(event["request"]["url"]) for event in window.events_of("Network.requestWillBeSent")]
    return {url.netloc for url in urls if url.scheme not in ("data", "blob")}
