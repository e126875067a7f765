"""What the runs to train cost: device time and wall time with a range, and disk."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lr_sweep.common.errors import UserError
from lr_sweep.common.text import aligned, counted, duration, gigabytes
from lr_sweep.sweep.plan.placement import Placement, cohorts
from lr_sweep.sweep.plan.timings import NO_TIME, Span, Timing
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.run_state import State, checkpoint_step
from lr_sweep.sweep.search.state import Reconciled
from lr_sweep.sweep.study.runs import Cell, WantedRun, by_cell
from lr_sweep.trainables.checkpoint import NUM_KEPT
from lr_sweep.trainables.pretraining.fit import body_shapes
from lr_sweep.trainables.pretraining.recipe import NUM_BYTES
from lr_sweep.trainables.run import ModelSize

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
    timings: dict[Cell, Timing]
    device_s: dict[str, Span]
    """By run id, of the runs whose cells are timed."""
    wall_s: Span
    """From the start of the first trial to the end of the last, for the same runs; starting Ray is not in it."""
    price: float | None = None
    """What an hour of a device costs, in any currency."""

    def of(self, runs: Iterable[WantedRun]) -> Span:
        """Return the device seconds of those of the runs that are timed."""
        return sum((self.device_s[run.run_id] for run in runs if run.run_id in self.device_s), NO_TIME)


def estimate_cost(
    reconciled: Reconciled, timings: dict[Cell, Timing], placement: Placement, at_once: int, results: Results
) -> Cost:
    """Estimate what the runs to train take; steps before a run's newest checkpoint cost nothing."""
    run_s = {}
    for run in reconciled.to_train:
        if run.cell in timings:
            started = reconciled.states[run.run_id] is not State.WAITING
            steps = run.num_steps - ((checkpoint_step(results, run.run_id) or 0) if started else 0)
            run_s[run.run_id] = timings[run.cell].step_s * max(0, steps)
    groups = cohorts(reconciled.to_train, placement.resources, at_once)
    trials = [sum((run_s.get(run.run_id, NO_TIME) for run in group), NO_TIME) for group in groups]
    ends = [wall_time(bounds, at_once) for bounds in zip(*trials, strict=True)] or NO_TIME
    return Cost(
        to_train=reconciled.to_train,
        num_trials=len(groups),
        at_once=min(at_once, max(1, len(groups))),
        device=placement.device,
        timings=timings,
        device_s={run_id: span * placement.devices_per_trial for run_id, span in run_s.items()},
        wall_s=Span(*ends),
    )


def wall_time(trials_s: Sequence[float], at_once: int) -> float:
    """Return when the last trial ends if they start in this order, `at_once` of them, each next one as another ends."""
    ends = [0.0] * at_once
    for trial_s in trials_s:
        heapq.heapreplace(ends, ends[0] + trial_s)
    return max(ends)


def cost_lines(cost: Cost) -> list[str]:
    """Return the cost for the terminal."""
    if not cost.to_train:
        return ["cost       nothing: everything is trained"]
    cells = by_cell(cost.to_train)
    missing = len(cells.keys() - cost.timings.keys())
    untimed = f"{counted(missing, 'cell')} not timed yet; `plan --measure` times a few steps of each on this machine"
    if not cost.device_s:
        return [f"cost       not known: {untimed}"]
    unit = "GPU-hours" if cost.device == "cuda" else "core-hours"
    total, wall_s, at_least = cost.of(cost.to_train), cost.wall_s, "at least " if missing else ""
    rows = [("", "task", "model", "variant", "to train", unit, "range", "timed by")]
    for cell, runs in cells.items():
        device_s, timing = cost.of(runs), cost.timings.get(cell)
        known = (_hours(device_s.middle), _range(device_s), timing.source) if timing else ("unknown", "", "")
        rows.append(("", *cell, str(len(runs)), *known))
    lines = [
        f"cost       {at_least}{_hours(total.middle)} {unit} ({_range(total)}) for what is left, if no run diverges",
        *aligned(rows, right=(4, 5)),
        *([f"           {untimed}"] if missing else []),
        f"wall time  {at_least}{duration(wall_s.middle)} ({duration(wall_s.low)} to {duration(wall_s.high)}) with "
        f"{counted(cost.at_once, 'trial')} at once; starting Ray is not in it",
    ]
    if cost.price is not None:
        low, middle, high = (_three_digits(cost.price * seconds / 3600) for seconds in total)
        lines.append(f"price      {middle} ({low} to {high}) at {cost.price:g} for each of the {unit}")
    return [*lines, *_range_lines(cost)]


def fresh_lines(cost: Cost, expected: float) -> list[str]:
    """Return what fresh seeds cost at most; `expected`: how many runs these are likely to be, NaN: not known."""
    fresh = [run for run in cost.to_train if run.fresh]
    if not (most_s := cost.of(fresh).middle):
        return []
    unit = "GPU-hours" if cost.device == "cuda" else "core-hours"
    likely = "" if math.isnan(expected) else f"; expected are {_hours(most_s * expected / len(fresh))}"
    return [f"decide     {_hours(most_s)} {unit} of that are fresh seeds, at most{likely}"]


def _range_lines(cost: Cost) -> list[str]:
    timed = sorted({timing.device for timing in cost.timings.values()})
    lines = [f"from the fastest to the slowest of the steps that were timed; timed on {' and '.join(timed)}"]
    if any(timing.is_measured for timing in cost.timings.values()):
        lines.append("measured alone on this machine; beside other trials and Ray, runs are slower")
    return [f"{'' if index else 'range':11}{line}" for index, line in enumerate(lines)]


def _range(device_s: Span) -> str:
    return f"{_hours(device_s.low)} to {_hours(device_s.high)}"


def _hours(seconds: float) -> str:
    return _three_digits(seconds / 3600)


def _three_digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def disk_bytes(to_train: Sequence[WantedRun], num_at_once: int, to_pretrain: Sequence[ModelSize] = ()) -> int:
    """Estimate the bytes that pretraining these models and training these runs adds to the results directory.

    A run that has ended keeps one checkpoint; one that trains has up to `NUM_KEPT`, and writes another. A pretraining
    does the same and keeps none. Of training functions of the user's own it is not known how large checkpoints are.
    """
    numbers = sorted((each.trained_parameters or 0 for each in to_train), reverse=True)
    checkpoints = 4 * COPIES_A_CHECKPOINT * (sum(numbers) + NUM_KEPT * sum(numbers[:num_at_once]))
    points = sum(each.num_steps // each.run.steps_between_evaluations for each in to_train)
    runs = checkpoints + points * BYTES_A_POINT + len(to_train) * BYTES_A_FILE
    bodies = [sum(map(math.prod, body_shapes(size).values())) for size in to_pretrain]
    weights = [4 * (body + NUM_BYTES * size.width) for body, size in zip(bodies, to_pretrain, strict=True)]
    return sum(weights) + max(runs, (NUM_KEPT + 1) * COPIES_PRETRAINING * max(weights, default=0))


def check_disk(to_train: Sequence[WantedRun], results: Results, to_pretrain: Sequence[ModelSize] = ()) -> None:
    """Raise `UserError` if the disk cannot hold weights and checkpoints even if one run trains at a time."""
    stored = results.uri is not None  # a store has no limit, but pretraining uses this machine's disk
    needed, free = disk_bytes(() if stored else to_train, 1, to_pretrain), results.free_bytes()
    if needed > free:
        what = f"the {'weights to pretrain and the ' if to_pretrain else ''}runs to train"
        raise UserError(
            f"{results.root} has {gigabytes(free)} free and {what} may need {gigabytes(needed)}. "
            f"Free some space, or use another disk with --results."
        )
