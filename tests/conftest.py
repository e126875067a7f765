"""The order of the tests, how long they may take together, and a check of what they imported."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

SHORT_NAMES = ("analysis", "common", "datasets", "sweep", "trainables")
"""Folders of the checkout; everything in them is imported below `lr_sweep`."""
STARTED = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let CI bound the time of the slow tests, whatever the machine's speed."""
    what = "seconds after which no further test starts; the rest is skipped, and said to be"
    parser.addoption("--time-budget-s", type=float, default=float("inf"), help=what)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Note when the time begins; each process of xdist has its own."""
    session.config.stash[STARTED] = time.monotonic()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test for which no time is left."""
    budget_s = item.config.getoption("--time-budget-s")
    if time.monotonic() - item.config.stash[STARTED] > budget_s:
        pytest.skip(f"not run: --time-budget-s {budget_s:g} was over")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what starts Ray first: it takes longest, and processes that share the tests out should end together."""
    items.sort(key=lambda item: item.get_closest_marker("cluster") is None)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if a module of ours was imported by its short name: it would exist twice."""
    root = Path(__file__).resolve().parent.parent
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    ours = [name for name, file in files.items() if file and name.split(".")[0] in SHORT_NAMES]
    twice = [name for name in ours if Path(str(files[name])).resolve().is_relative_to(root)]
    if twice:
        pytest.exit(f"imported by a short name, want lr_sweep.NAME: {', '.join(twice)}", returncode=1)
