"""What happens to trials, as the driver reads it: reports of runs, by workers, and these of whole trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lr_sweep.trainables.events import Report


@dataclass(frozen=True, kw_only=True)
class TrialFailed:
    """A trial ran out of memory, or failed and has no retries left."""

    run_ids: Sequence[str]
    reason: str


@dataclass(frozen=True, kw_only=True)
class TrialInterrupted:
    """A trial crashed or lost its machine. Its runs resume, in a retry or in the next pass."""

    run_ids: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class StorageFailed:
    """A worker cannot write checkpoints, for a reason that a retry will not change, such as a full disk."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Reported:
    """A trial has reported evaluations, of all of its runs that had one: what follows is of a later moment."""


TrialEvent = Report | Reported | TrialFailed | TrialInterrupted | StorageFailed
