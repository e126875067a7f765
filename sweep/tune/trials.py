"""What a trial gets from the driver, a cohort, and what the driver learns of it: events of runs and of whole trials."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from lr_sweep.sweep.plan.placement import Group, trial_name
from lr_sweep.trainables.own.exactness import Probe
from lr_sweep.trainables.run import engine_of
from lr_sweep.trainables.worker.messages import Cohort, Report

from .work import Options

REPORT_EVERY_S = 2.0
"""Seconds between two reports of a trial to the driver, while trials are few."""
REPORTS_PER_S = 100
"""Reports a second of all trials, beside evaluations: each costs the driver up to 8 ms (benchmarks.driver_events)."""
WORKER_DID_NOT_START = "the worker did not start"
"""Begins the reason of a trial whose process failed before it trained."""


def report_every_s(num_trials: int) -> float:
    """Return the seconds between the reports of each of so many trials at once: many would fill the driver's core."""
    return max(REPORT_EVERY_S, num_trials / REPORTS_PER_S)


def cohort_of(
    group: Group,
    options: Options,
    *,
    runs_at_once: int | None = None,
    code: dict[str, str] | None = None,
    probe: Probe | None = None,
    report_every_s: float = REPORT_EVERY_S,
) -> Cohort:
    """Return what a worker needs to train runs of one cell, which start in this order.

    `runs_at_once` None: all; `code`: as of `sweep.results.changes`; `probe`: what a trial of the function found.
    """
    first, placement = group[0], options.placement
    engine = engine_of(first.run, placement.resources.engine)
    return Cohort(
        name=trial_name(group),
        runs=tuple(wanted.run for wanted in group),
        num_steps=first.num_steps,
        runs_at_once=runs_at_once or len(group),
        size_given=placement.resources.runs_per_trial is not None,
        engine=engine,
        device=placement.device,
        device_share=placement.devices_per_trial,
        checkpoints=options.results.checkpoints(first.run_id).parent,
        store=options.results.uri,
        data_dir=options.data_dir,
        weights=first.weights,
        checkpoint_every_s=options.checkpoint_every_s,
        code=code,
        probe=probe,
        report_every_s=report_every_s,
    )


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
class TrialStarted:
    """The worker of a trial is there; its runs start next."""

    run_ids: Sequence[str]
    node: str | None = None
    """Ray's id of the node where it trains; None: this machine alone."""


@dataclass(frozen=True, kw_only=True)
class TrialInterrupted:
    """A trial crashed or lost its machine. Its runs resume, in a retry or in the next pass."""

    run_ids: Sequence[str]
    reason: str | None = None
    """Why it crashed; None: it lost its machine."""
    node: str | None = None
    """Ray's id of the node where it crashed; None: not known, or this machine alone."""


@dataclass(frozen=True, kw_only=True)
class TrialFailed(TrialInterrupted):
    """A trial ran out of memory, or failed and has no retries left."""


@dataclass(frozen=True, kw_only=True)
class StorageFailed:
    """A worker cannot write checkpoints, for a reason that a retry will not change, such as a full disk."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Reported:
    """A trial has reported evaluations, of all of its runs that had one: what follows is of a later moment."""


TrialEvent = Report | Reported | TrialStarted | TrialInterrupted | StorageFailed
