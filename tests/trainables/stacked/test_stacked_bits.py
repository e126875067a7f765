"""On a CPU a run's bits do not depend on the other runs of its stack: their number, slots and health."""

from __future__ import annotations

import dataclasses
import random

import pytest
import torch

from lr_sweep.datasets.task import Split, TaskData
from lr_sweep.tests.support.small_runs import (
    EACH_VARIANT,
    TASKS,
    alone_of,
    assert_same_in,
    go_on,
    numbers,
    real_valued_task,
    same_bits,
    stack_of,
    stacked,
    sweep_of,
)
from lr_sweep.trainables.run import ModelSize

NUM_STEPS = 20


@pytest.mark.parametrize("dropout", [pytest.param(0.0, marks=pytest.mark.slow), 0.1])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("variant", EACH_VARIANT)
def test_sizes_slots_and_other_runs_change_no_bit(variant: str, task: str, dropout: float) -> None:
    runs = sweep_of(variant, dropout=dropout)
    alone = alone_of(runs, TASKS[task])
    shuffled = random.Random(3).sample(runs, len(runs))
    for group in (shuffled[:3], runs[2:]):
        assert_same_in(group, alone, TASKS[task])


@pytest.mark.parametrize("variant", ["frozen-random", "unfrozen-random"])
@pytest.mark.parametrize(
    ("size", "token_dim", "batch_size"),
    [
        (ModelSize(layers=1, heads=4, width=64, positions=4), 1, 8),  # one pixel a token, as in CIFAR-10 LRA
        (ModelSize(layers=2, heads=2, width=24, positions=40), 5, 3),  # nothing is a multiple of a vector's length
        (ModelSize(layers=3, heads=3, width=48, positions=8), 2, 1),
        (ModelSize(layers=2, heads=2, width=20, positions=8), 4, 3),  # nor is the feedforward's width
    ],
)
def test_shapes_change_no_bit(variant: str, size: ModelSize, token_dim: int, batch_size: int) -> None:
    data = _narrow(token_dim)
    runs = sweep_of(variant, size=size, batch_size=batch_size)
    alone = alone_of(runs, data)
    for group in (runs, runs[1:3]):
        assert_same_in(group, alone, data)


def _narrow(token_dim: int) -> TaskData:
    """The task with tokens of another length."""
    data = real_valued_task()
    assert data.scale is not None
    assert data.shift is not None

    def cut(split: Split) -> Split:
        return dataclasses.replace(split, inputs=split.inputs.repeat(1, 1, 2)[:, :, :token_dim])

    shape = dataclasses.replace(data.shape, token_dim=token_dim)
    splits = {name: cut(getattr(data, name)) for name in ("train", "validation", "test")}
    scale, shift = (each[:1].expand(token_dim) for each in (data.scale, data.shift))
    return dataclasses.replace(data, shape=shape, scale=scale, shift=shift, **splits)


@pytest.mark.parametrize("variant", ["frozen-pretrained", "unfrozen-random"])
def test_a_companion_that_diverges_changes_no_bit(variant: str) -> None:
    runs = sweep_of(variant)
    alone = alone_of(runs, num_steps=NUM_STEPS)
    stack, slots = stack_of(runs)
    sick = slots[1]
    stack._rows.values[stack.slots.index(sick)] = torch.nan
    stack.advance()
    assert sick.progress.diverged_at_step == 1
    stack.remove([sick])
    go_on(stack, NUM_STEPS)
    for run, slot in zip(runs, slots, strict=True):
        if slot is not sick:
            assert numbers(slot.progress.curve) == alone[run.run_id][0]
            assert same_bits(stack.state(slot)[0], alone[run.run_id][1])


@pytest.mark.parametrize("variant", ["frozen-pretrained", "unfrozen-random"])
def test_runs_that_leave_and_join_in_between_change_no_bit(variant: str) -> None:
    """A waiting run takes the free slot; runs are then at different steps, and evaluated at different times."""
    runs = sweep_of(variant)
    alone = alone_of(runs, num_steps=NUM_STEPS)
    stack, slots = stacked(runs[:3], 10)
    stack.train_chunk(3)
    saved = stack.state(slots[0])
    stack.remove([slots[0], slots[2]])
    stack.add([runs[3], runs[0]])
    by_id = {slot.run.run_id: slot for slot in stack.slots}
    stack.load_state(by_id[runs[0].run_id], *saved)
    while stack.slots:
        over = [slot for slot in stack.slots if slot.progress.step == NUM_STEPS]
        for slot in over:
            expected, tensors = alone[slot.run.run_id]
            assert numbers(slot.progress.curve) == expected
            assert same_bits(stack.state(slot)[0], tensors)
        stack.remove(over)
        if stack.slots:
            stack.advance()
