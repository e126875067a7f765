"""Small runs trained by either engine, and how their curves and states compare."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from lr_sweep.datasets.task import TaskData
from lr_sweep.tests.support.small_runs import (
    CPU,
    pairs_task,
    random_weights,
    real_valued_task,
    run_of,
    symbol_task,
    xor_task,
)
from lr_sweep.trainables.curve import Evaluation
from lr_sweep.trainables.plain.engine import Training
from lr_sweep.trainables.run import Run
from lr_sweep.trainables.stacked.engine import StackedSlot, StackedTraining

LOSSES = ("train_loss", "validation_loss", "test_loss")
TASKS = {"numbers": real_valued_task(), "symbols": symbol_task(), "pairs": pairs_task(), "xor": xor_task()}

Tensors = dict[str, torch.Tensor]
Alone = dict[str, tuple[object, Tensors]]
"""By run id: the numbers of a curve, and the state at its end."""


def weights_for(run: Run) -> Tensors | None:
    return random_weights() if run.initialisation == "pretrained" else None


def plain_of(run: Run, data: TaskData | None = None) -> Training:
    return Training(run, data or TASKS["numbers"], weights_for(run), CPU, wall_clock=lambda: 1000.0)


def plain(run: Run, num_steps: int = 50, data: TaskData | None = None) -> Training:
    training = plain_of(run, data)
    while not training.progress.diverged and training.progress.step < num_steps:
        training.advance()
    return training


def stack_of(runs: Sequence[Run], data: TaskData | None = None) -> tuple[StackedTraining, list[StackedSlot]]:
    stack = StackedTraining(data or TASKS["numbers"], weights_for(runs[0]), CPU, wall_clock=lambda: 1000.0)
    stack.add(runs)
    by_id = {slot.run.run_id: slot for slot in stack.slots}
    return stack, [by_id[run.run_id] for run in runs]


def stacked(
    runs: Sequence[Run], num_steps: int = 50, data: TaskData | None = None
) -> tuple[StackedTraining, list[StackedSlot]]:
    stack, slots = stack_of(runs, data)
    go_on(stack, num_steps)
    return stack, slots


def go_on(stack: StackedTraining, num_steps: int) -> None:
    while any(not slot.progress.diverged and slot.progress.step < num_steps for slot in stack.slots):
        stack.advance()


def sweep_of(variant: str, **changes: Any) -> list[Run]:
    return [run_of(variant, learning_rate=rate, seed=seed, **changes) for seed in (0, 1) for rate in (1e-3, 3e-3)]


def assert_close(ours: Sequence[Evaluation], theirs: Sequence[Evaluation], relative: float) -> None:
    assert [evaluation.step for evaluation in ours] == [evaluation.step for evaluation in theirs]
    for one, other in zip(ours, theirs, strict=True):
        for loss in LOSSES:
            close = pytest.approx(getattr(other, loss), rel=relative, abs=relative)
            assert getattr(one, loss) == close, (one.step, loss)


def assert_both_engines_agree(runs: Sequence[Run], data: TaskData | None = None, relative: float = 1e-4) -> None:
    """Of four runs that train together, the middle two have the plain engine's curves."""
    for slot, run in zip(stacked(runs, data=data)[1][1:3], runs[1:3], strict=True):
        assert_close(slot.progress.curve, plain(run, data=data).progress.curve, relative)


def assert_one_curve_in_float64(
    runs: Sequence[Run], data: TaskData, monkeypatch: pytest.MonkeyPatch, num_steps: int = 20
) -> None:
    """In double precision, runs that train together have the plain engine's curves to nine digits."""
    double_models(monkeypatch)
    data = in_float64(data)
    for slot, run in zip(stacked(runs, num_steps, data)[1], runs, strict=True):
        ours, theirs = slot.progress.curve, plain(run, num_steps, data).progress.curve
        assert_close(ours, theirs, 1e-9)
        assert [each.validation_accuracy for each in ours] == [each.validation_accuracy for each in theirs]


def same_bits(one: Tensors, other: Tensors) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def numbers(curve: Sequence[Evaluation]) -> list[dict[str, object]]:
    """A curve without what the clock put in it."""
    return [dataclasses.asdict(evaluation) | {"elapsed_s": 0.0} for evaluation in curve]


def alone_of(runs: Sequence[Run], data: TaskData | None = None, num_steps: int = 20) -> Alone:
    """Train each run in a stack of its own."""
    found = {}
    for run in runs:
        stack, (slot,) = stacked([run], num_steps, data)
        found[run.run_id] = numbers(slot.progress.curve), stack.state(slot)[0]
    return found


def assert_same_in(group: Sequence[Run], alone: Alone, data: TaskData | None = None, num_steps: int = 20) -> None:
    """Train a group of runs together; each has the bits that it has alone."""
    stack, slots = stacked(group, num_steps, data)
    for run, slot in zip(group, slots, strict=True):
        assert numbers(slot.progress.curve) == alone[run.run_id][0], run.learning_rate
        assert same_bits(stack.state(slot)[0], alone[run.run_id][1])


def in_float64(data: TaskData) -> TaskData:
    """The task in double precision; models are made double by `double_models`."""
    if data.scale is None or data.shift is None:
        return data
    return dataclasses.replace(data, scale=data.scale.double(), shift=data.shift.double())


def double_models(monkeypatch: pytest.MonkeyPatch) -> None:
    from lr_sweep.trainables.models.initialise import build_classifier

    for module in ("lr_sweep.trainables.plain.engine", "lr_sweep.trainables.stacked.weights"):
        monkeypatch.setattr(f"{module}.build_classifier", lambda *arguments: build_classifier(*arguments).double())


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]
    path.write_bytes({"torn": content[:middle], "empty": b"", "flipped": flipped}[how])
