"""`Sweep` and `judge`, for scripts and notebooks; what they need is imported when the first of them is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lr_sweep.sweep.api import Sweep, judge

__all__ = ["Sweep", "judge"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lr_sweep.sweep import api

    return getattr(api, name)
