"""What happens to trials, as the driver reads it: workers report runs, and the events here are of whole trials."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from lr_sweep.trainables.worker.events import Report


class Leave(threading.Event):
    """Set to make trials save their runs, and Tune end."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once = False
        """Whether no run trains, so that there is nothing to save, and nothing to wait for."""

    def set_at_once(self) -> None:
        """Make Tune end without waiting for its trials."""
        self.at_once = True
        self.set()


@dataclass(frozen=True, kw_only=True)
class TrialFailed:
    """A trial ran out of memory, or failed and has no retries left."""

    run_ids: Sequence[str]
    reason: str
    node: str | None = None
    """Ray's id of the node where it failed; None: not known, or this machine alone."""


@dataclass(frozen=True, kw_only=True)
class TrialInterrupted:
    """A trial crashed or lost its machine. Its runs resume, in a retry or in the next pass."""

    run_ids: Sequence[str]
    reason: str | None = None
    """Why it crashed; None: it lost its machine."""
    node: str | None = None
    """Ray's id of the node where it crashed; None: not known, or this machine alone."""


@dataclass(frozen=True, kw_only=True)
class StorageFailed:
    """A worker cannot write checkpoints, for a reason that a retry will not change, such as a full disk."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class WorkerReplaced:
    """A worker has ended with its trial, because it keeps memory of the runs that it has trained."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Reported:
    """A trial has reported evaluations, of all of its runs that had one: what follows is of a later moment."""


TrialEvent = Report | Reported | TrialFailed | TrialInterrupted | StorageFailed | WorkerReplaced
