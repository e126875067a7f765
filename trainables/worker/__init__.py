"""A worker's life: the Ray trainable, the session of its cohort, its memory, its messages."""

from __future__ import annotations

import sys
from pathlib import Path


def hide_checkout() -> None:
    """Remove the checkout's folder from the import path, where `datasets` would be ours, not Hugging Face's package.

    `python -m` and Ray (2.60) add it as the current folder.
    """
    checkout = Path(__file__).resolve().parents[2]
    sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != checkout]
