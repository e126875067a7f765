"""`plan --measure`: trains each cell that has no timing for a few steps on this machine, as `run` would."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from lr_sweep.common.errors import UserError
from lr_sweep.common.text import Say, counted
from lr_sweep.sweep.plan.cost import Cost
from lr_sweep.sweep.plan.placement import Group, check_beforehand, cohorts
from lr_sweep.sweep.plan.plan import Plan
from lr_sweep.sweep.plan.timings import keep_measured, timing_key, timing_keys
from lr_sweep.sweep.results.directory import storage_problems
from lr_sweep.trainables.engine import Engine, RecentMean, Slot
from lr_sweep.trainables.own.run import OwnCodeError, OwnRun, TrainingFunctionError
from lr_sweep.trainables.run import AnyRun, Run
from lr_sweep.trainables.worker.memory import share_memory
from lr_sweep.trainables.worker.session import Session, device_name

from .trials import cohort_of
from .work import Options

NUM_STEPS = 5
"""Gradient steps before each evaluation; the first of three evaluations is not timed, nor are the steps before it."""
CANNOT_TRAIN = (UserError, OwnCodeError, TrainingFunctionError, MemoryError, torch.OutOfMemoryError)


def measure_cells(plan: Plan, cost: Cost, say: Say) -> None:
    """Time the largest cohort of each cell that has no timing, and keep the timings; a line a cell goes to `say`."""
    placement, results, to_train = plan.placement, plan.results, plan.reconciled.to_train
    check_beforehand(placement, plan.study.for_gpus)
    results.prepare()
    groups = sorted(cohorts(to_train, placement.resources, cost.at_once), key=len)
    largest = {timing_key(group[0].run, placement): group for group in groups}
    keys, device = timing_keys(to_train, placement), device_name(placement.device)
    with storage_problems(results.root), results.writing(plan.study.study):
        for cell in cost.not_timed:
            try:
                step_s, together = _time(plan, largest[keys[cell]])
            except CANNOT_TRAIN as error:
                say(f"{' '.join(cell)}: not measured: {error}")
            else:
                keep_measured(results, keys[cell], step_s, device)
                say(
                    f"{' '.join(cell)}: {step_s:.3g} s a step of a run, {counted(together, 'run')} together, {device}"
                )


def _time(plan: Plan, group: Group) -> tuple[float, int]:
    """Return the seconds of a step of one run with its share of the evaluations, and how many runs train together."""
    first = group[0]
    if first.weights is not None and not plan.backbones[first.model].here:  # a plan fetches nothing
        raise UserError("its weights are not here; `data` fetches or, with --pretrain, trains them")
    options = Options(results=plan.results, data_dir=plan.data_dir, placement=plan.placement)
    cohort = cohort_of(group, options)
    memory = (
        share_memory(cohort.device, cohort.device_share) if cohort.engine == "stacked" else None
    )
    longer = replace(cohort, num_steps=4 * NUM_STEPS)  # an own function does not come to its end
    session = Session(longer, memory_bytes=None if cohort.size_given else memory)
    slots: list[Slot] = session.engine.add(
        [_shortened(run) for run in cohort.runs[: session.num_slots]]
    )
    try:
        _to_evaluation(session.engine, slots[0])  # allocates memory and chooses kernels
        pace = session.engine.pace
        pace.steps, pace.evaluations = RecentMean(), RecentMean()
        for _ in range(2):
            _to_evaluation(session.engine, slots[0])
        timed = {name: seconds or 0.0 for name, seconds in pace.as_event().items()}
    finally:
        session.engine.remove(slots)
    return timed["step_s"] + timed["evaluation_s"] / first.run.steps_between_evaluations, len(slots)


def _to_evaluation(engine: Engine[Any], slot: Slot) -> None:
    """Train to the next evaluation; step by step by an own function, whose evaluation is then timed by itself."""
    while not engine.advance(for_s=0.0 if isinstance(slot.run, OwnRun) else math.inf):
        if slot.progress.diverged:
            raise UserError("it diverged")


def _shortened(run: AnyRun) -> AnyRun:
    """Return a run with few steps between evaluations; one of a built-in model learns too slowly to diverge."""
    if isinstance(run, Run):
        return replace(
            run, learning_rate=1e-9, protocol=replace(run.protocol, evaluate_every=NUM_STEPS)
        )
    assert isinstance(run, OwnRun)
    return replace(run, evaluate_every=NUM_STEPS)
