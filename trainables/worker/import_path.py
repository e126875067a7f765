"""Removes the checkout from the import path, where `datasets` would be ours instead of Hugging Face's package."""

from __future__ import annotations

import sys
from pathlib import Path


def hide_checkout() -> None:
    """Remove the checkout's folder, which `python -m` and Ray (2.60) add as the current folder."""
    checkout = Path(__file__).resolve().parents[2]
    sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != checkout]
