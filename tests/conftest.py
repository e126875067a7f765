"""Order of the tests."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what starts Ray first: it takes longest, and processes that share the tests out should end together."""
    items.sort(key=lambda item: item.get_closest_marker("cluster") is None)
