"""Reports of searched studies have no drawn figures."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _undrawn(undrawn: None) -> None: ...
