"""Where tests find real data: the data directory named by SWEEP_DATA_DIR."""

import os
from pathlib import Path

import pytest


def require(*paths: str) -> Path:
    """Return the data directory; skips the test if it isn't named or lacks one of `paths`."""
    configured = os.environ.get("SWEEP_DATA_DIR")
    if not configured:
        pytest.skip("needs real data: SWEEP_DATA_DIR is not set")
    missing = [path for path in paths if not (Path(configured) / path).exists()]
    if missing:
        pytest.skip(f"needs real data: {configured} has no {', '.join(missing)}")
    return Path(configured)
