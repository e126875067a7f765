"""What `run` takes besides the study, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analysis.report import Report
from sweep.placement import Placement
from sweep.results import Results


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `run` takes besides the study."""

    results: Results
    data_dir: Path
    placement: Placement
    max_attempts: int = 0
    """Failed runs that were started fewer times than this are trained again."""
    checkpoint_every_s: float = 60.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a sweep ended."""

    report: Report
    trained: int
    """Runs that ended in this sweep."""
    failed: int
    """Wanted runs whose last end was a failure, in this sweep or before."""
    stopped: bool
    """Whether it was asked to stop before the end."""
