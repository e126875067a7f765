"""What the runs to train cost: device time, wall time and disk."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from lr_sweep.common.errors import UserError
from lr_sweep.common.text import counted, duration, gigabytes
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.run_state import State, checkpoint_step
from lr_sweep.sweep.search.state import Reconciled
from lr_sweep.sweep.study.runs import Cell, WantedRun, by_cell
from lr_sweep.trainables.checkpoint import NUM_KEPT
from lr_sweep.trainables.pretraining.fit import body_shapes
from lr_sweep.trainables.pretraining.recipe import NUM_BYTES
from lr_sweep.trainables.run import ModelSize

from .placement import Placement, cohorts
from .timings import find_timings

COPIES_A_CHECKPOINT = 4
"""How often a checkpoint has the trained tensors, as float32: model, Adam's two moments, best model so far."""
COPIES_PRETRAINING = 3
"""How often a checkpoint of a pretraining has the model: itself and AdamW's two moments."""
BYTES_A_POINT = 8 * 10
"""An evaluation in a curve, uncompressed."""
BYTES_A_FILE = 12_000
"""Overhead of a run's two Parquet files, rounded up."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What training takes, at most: runs that diverge stop early."""

    to_train: Sequence[WantedRun]
    num_trials: int
    at_once: int
    device: str
    device_s: float
    """Device seconds of the runs whose cells are timed."""
    wall_s: float
    """From the start of the first trial to the end of the last, for the same runs; starting Ray is not in it."""
    not_timed: Sequence[Cell]


def estimate_cost(
    reconciled: Reconciled, placement: Placement, at_once: int, results: Results
) -> Cost:
    """Estimate what the runs to train take; steps before a run's newest checkpoint cost nothing."""
    timings = find_timings(reconciled, results, placement)

    def run_s(run: WantedRun) -> float:
        started = reconciled.states[run.run_id] is not State.WAITING
        done = (checkpoint_step(results, run.run_id) or 0) if started else 0
        return timings.get(run.cell, 0.0) * max(0, run.num_steps - done)

    groups = cohorts(reconciled.to_train, placement.resources, at_once)
    trials_s = [sum(map(run_s, group)) for group in groups]
    return Cost(
        to_train=reconciled.to_train,
        num_trials=len(groups),
        at_once=min(at_once, max(1, len(groups))),
        device=placement.device,
        device_s=sum(trials_s) * placement.devices_per_trial,
        wall_s=wall_time(trials_s, at_once),
        not_timed=[cell for cell in by_cell(reconciled.to_train) if cell not in timings],
    )


def wall_time(trials_s: Sequence[float], at_once: int) -> float:
    """Return when the last trial ends if they start in this order, `at_once` of them, each next one as another ends."""
    ends = [0.0] * at_once
    for trial_s in trials_s:
        heapq.heapreplace(ends, ends[0] + trial_s)
    return max(ends)


def cost_text(cost: Cost) -> str:
    """Return the cost for the terminal, and the cells whose cost is unknown."""
    if not cost.to_train:
        return "cost       nothing: everything is trained"
    if not cost.device_s:
        return "cost       unknown: no cell is timed yet; `plan --measure` times a few steps of each on this machine"
    unit, hours = "GPU-hours" if cost.device == "cuda" else "core-hours", cost.device_s / 3600
    line = (
        f"cost       {'at least' if cost.not_timed else 'about'} {_three_digits(hours)} {unit}, "
        f"{duration(cost.wall_s)} with {counted(cost.at_once, 'trial')} at once"
        f"{'; `plan --measure` times the other cells' if cost.not_timed else ''}"
    )
    return "\n".join([line, *(f"unknown    {' '.join(cell)}" for cell in cost.not_timed)])


def _three_digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def disk_bytes(
    to_train: Sequence[WantedRun], num_at_once: int, to_pretrain: Sequence[ModelSize] = ()
) -> int:
    """Estimate the bytes that pretraining these models and training these runs adds to the results directory.

    A run that has ended keeps one checkpoint; one that trains has up to `NUM_KEPT`, and writes another. A pretraining
    does the same and keeps none. Of training functions of the user's own it is not known how large checkpoints are.
    """
    numbers = sorted((run.trained_parameters or 0 for run in to_train), reverse=True)
    checkpoints = 4 * COPIES_A_CHECKPOINT * (sum(numbers) + NUM_KEPT * sum(numbers[:num_at_once]))
    points = sum(run.num_steps // run.run.steps_between_evaluations for run in to_train)
    runs = checkpoints + points * BYTES_A_POINT + len(to_train) * BYTES_A_FILE
    bodies = [sum(map(math.prod, body_shapes(size).values())) for size in to_pretrain]
    weights = [
        4 * (body + NUM_BYTES * size.width) for body, size in zip(bodies, to_pretrain, strict=True)
    ]
    return sum(weights) + max(runs, (NUM_KEPT + 1) * COPIES_PRETRAINING * max(weights, default=0))


def check_disk(
    to_train: Sequence[WantedRun], results: Results, to_pretrain: Sequence[ModelSize] = ()
) -> None:
    """Raise `UserError` if the disk cannot hold weights and checkpoints even if one run trains at a time."""
    stored = (
        results.uri is not None
    )  # a store has no limit, but pretraining uses this machine's disk
    needed, free = disk_bytes(() if stored else to_train, 1, to_pretrain), results.free_bytes()
    if needed > free:
        what = f"the {'weights to pretrain and the ' if to_pretrain else ''}runs to train"
        raise UserError(
            f"{results.root} has {gigabytes(free)} free and {what} may need {gigabytes(needed)}. "
            f"Free some space, or use another disk with --results."
        )
