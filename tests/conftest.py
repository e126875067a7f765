"""The order of the tests, how long they may take, their signals, what they imported; and reports without figures."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SHORT_NAMES = ("analysis", "common", "datasets", "sweep", "trainables")
"""Folders of the checkout; everything in them is imported below `lr_sweep`."""
STARTED = pytest.StashKey[float]()
LONG = ("slow", "gpu", "hosts", "slurm", "chaos")
LONG_TEST_S = 3600.0
"""Seconds after which a test with one of these marks has failed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let CI bound the time of the slow tests, whatever the machine's speed."""
    what = "seconds after which no further test starts; the rest is skipped, and said to be"
    parser.addoption("--time-budget-s", type=float, default=float("inf"), help=what)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Note when the time begins, and answer signals; each process of xdist has its own.

    `nohup make test &` starts this process with some of them ignored, and its children would ignore them, too.
    """
    session.config.stash[STARTED] = time.monotonic()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test for which no time is left."""
    budget_s = item.config.getoption("--time-budget-s")
    if time.monotonic() - item.config.stash[STARTED] > budget_s:
        pytest.skip(f"not run: --time-budget-s {budget_s:g} was over")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what starts Ray first: it takes longest, and processes that share the tests out should end together.

    Long tests get more time before they count as hanging (`timeout` in pyproject.toml is for the others).
    """
    for item in items:
        if any(item.get_closest_marker(name) for name in LONG):
            item.add_marker(pytest.mark.timeout(LONG_TEST_S))
    items.sort(key=lambda item: item.get_closest_marker("cluster") is None)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if a module of ours was imported by its short name: it would exist twice."""
    root = Path(__file__).resolve().parent.parent
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    ours = [name for name, file in files.items() if file and name.split(".")[0] in SHORT_NAMES]
    twice = [name for name in ours if Path(str(files[name])).resolve().is_relative_to(root)]
    if twice:
        pytest.exit(f"imported by a short name, want lr_sweep.NAME: {', '.join(twice)}", returncode=1)


@contextmanager
def without_figures() -> Iterator[None]:
    def empty(_: object, path: Path) -> None:
        path.write_bytes(b"")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("lr_sweep.analysis.report.figure_frame.save", empty)
        yield


@pytest.fixture
def undrawn() -> Iterator[None]:
    """Figures are made and not drawn, which would take nearly all of the time."""
    with without_figures():
        yield


@pytest.fixture(scope="module")
def undrawn_module() -> Iterator[None]:
    """The same for a module's own fixtures, and for its tests from then on."""
    with without_figures():
        yield
