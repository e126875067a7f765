"""The options of `run`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.only import Only

ANOTHER_NAME = "If this is another question, give the study another name"


def refuse(line: str) -> bool:
    """Refuse to replace what is recorded of a study."""
    raise UserError(f"{line}. {ANOTHER_NAME}; to replace what it wanted, pass replace=True")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `run` takes besides the study."""

    results: Results
    data_dir: Path
    placement: Placement
    max_attempts: int = 0
    """Failed runs that were started fewer times than this are trained again."""
    checkpoint_every_s: float = 60.0
    only: Only = field(default_factory=dict)
    """The part of the study to train."""
    replace: Callable[[str], bool] = refuse
    """Called with a line about recorded runs that the study would no longer want; false: nothing is changed."""
