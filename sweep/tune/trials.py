"""Cohorts -> Ray Tune trials; what happens to them comes out as a sequence of events."""

from __future__ import annotations

import queue
import shutil
import threading
import time
import traceback
from collections.abc import Generator, Sequence
from pathlib import Path

from lr_sweep.common.errors import UserError, reason
from lr_sweep.sweep.plan.packing import Group, trial_name
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.tune.nodes import Machines
from lr_sweep.sweep.tune.options import Options
from lr_sweep.sweep.tune.ray_session import RayLostError, lost_processes, was_killed
from lr_sweep.sweep.tune.trial_events import Leave, TrialEvent
from lr_sweep.trainables.run import engine_of
from lr_sweep.trainables.worker.cohort import Cohort

REPORT_EVERY_S = 2.0
"""Seconds between two reports of a trial to the driver, while trials are few."""
REPORTS_PER_S = 100
"""Reports a second of all trials, beside evaluations: each costs the driver up to 8 ms (benchmarks.driver_events)."""
TICK_S = 0.2
"""The longest time between two events that `train_cohorts` yields; None is the event of no event."""
LEAVING_S = 20.0
"""Seconds that Tune may take to stop after Ray has died. Without its GCS, Ray (2.60) ends this process after 60 s."""
LEAVING_AT_ONCE_S = 1.0
"""Seconds that Tune may take to stop where no run trains and the user waits; Tune looks about every 0.1 s."""


def report_every_s(num_trials: int) -> float:
    """Return the seconds between the reports of each of so many trials at once: many would fill the driver's core."""
    return max(REPORT_EVERY_S, num_trials / REPORTS_PER_S)


def cohort_of(
    group: Group,
    options: Options,
    *,
    runs_at_once: int | None = None,
    code: dict[str, str] | None = None,
    report_every_s: float = REPORT_EVERY_S,
) -> Cohort:
    """Return what a worker needs to train runs of one cell, which start in this order.

    `runs_at_once` None: all; `code`: as of `sweep.results.changes`.
    """
    first, placement = group[0], options.placement
    engine = engine_of(first.run, placement.resources.engine)
    return Cohort(
        name=trial_name(group),
        runs=tuple(each.run for each in group),
        num_steps=first.num_steps,
        runs_at_once=runs_at_once or len(group),
        size_given=placement.resources.runs_per_trial is not None,
        engine=engine,
        compiled=placement.resources.compile and engine == "stacked",
        device=placement.device,
        device_share=placement.devices_per_trial,
        rank_timeout_s=placement.resources.rank_timeout_s,
        checkpoints=options.results.checkpoints(first.run_id).parent,
        store=options.results.uri,
        data_dir=options.data_dir,
        weights=first.weights,
        checkpoint_every_s=options.checkpoint_every_s,
        code=code,
        report_every_s=report_every_s,
    )


def train_cohorts(
    cohorts: Sequence[Cohort],
    placement: Placement,
    scratch: Path,
    machines: Machines,
    leave: Leave,
    at_most: int | None,
) -> Generator[TrialEvent | None, None, None]:
    """Train every cohort as one trial, in the order given, as many at once as fit. Needs a `ray_session`.

    Tune runs in a thread, where it cannot take over the handling of signals. Its callback puts events in a queue
    without bound: training never waits for the reader, and all that was reported before a stop is read after it.
    Closing the iterator stops Tune, too.

    Args:
        scratch: folder for Tune's own state, which is removed.
        machines: knows the machines of trials, over several calls.
        leave: when set, trials save their runs, and the sequence ends when all have, or at once.
        at_most: trials at once, however many fit; None: as many as fit.

    Yields what happens, in order; None at least every `TICK_S` while nothing does. Raises RayLostError if Ray died; the
    runs that it trained resume from their checkpoints in another session. Raises UserError if Tune itself failed.
    """
    from lr_sweep.sweep.tune import tuner

    events: queue.SimpleQueue[TrialEvent] = queue.SimpleQueue()
    problems: list[Exception] = []
    callback = tuner.EventCallback(events.put, leave, machines)
    tune = tuner.new_tuner(cohorts, placement, scratch, callback, at_most)

    def run_tune() -> None:
        try:
            tune.fit()
        except (tuner.SweepStoppedError, tuner.SweepLeftError):
            pass
        except Exception as problem:  # raised in the reader's thread
            traceback.print_exc()
            problems.append(problem)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    thread = threading.Thread(target=run_tune, name="tune", daemon=True)
    thread.start()
    try:
        while thread.is_alive() and not (leave.at_once or lost_processes()):
            yield _next(events, TICK_S)
    finally:
        leave.set()
        _wait(thread, leave)
    while (event := _next(events, 0.0)) is not None:
        yield event
    if leave.at_once:
        return
    if died := lost_processes():
        raise RayLostError(f"Ray died ({', '.join(died)} ended unexpectedly)", killed=was_killed())
    if problems:
        raise UserError(
            f"Ray Tune failed ({reason(problems[0])}); its log has the traceback. What is recorded is intact, and the "
            f"same command resumes from the runs' checkpoints."
        ) from problems[0]


def _next(events: queue.SimpleQueue[TrialEvent], timeout_s: float) -> TrialEvent | None:
    try:
        return events.get(timeout=timeout_s)
    except queue.Empty:
        return None


def _wait(thread: threading.Thread, leave: Leave) -> None:
    """Wait until Tune has stopped, but leave it behind if it hangs in a dead Ray, or has nothing to save."""
    if leave.at_once:
        thread.join(LEAVING_AT_ONCE_S)
        return
    patience_s = LEAVING_S
    while thread.is_alive() and patience_s > 0:
        began = time.monotonic()
        thread.join(TICK_S)
        patience_s -= time.monotonic() - began if lost_processes() else 0.0
