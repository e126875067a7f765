"""The order of the tests, and a check of what they imported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

SHORT_NAMES = ("analysis", "datasets", "sweep", "trainables")
"""Folders of the checkout; everything in them is imported below `lr_sweep`."""


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
