"""On a CPU a run's bits do not depend on who trains beside it: how many, in which places, in what health."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import pytest
import torch

from datasets.task import TaskData
from tests.small_runs import real_valued_task, run_of
from tests.test_stacked_training import TASKS, go_on, same_bits, stack_of, stacked, sweep_of
from trainables.parts import VARIANTS
from trainables.run import ModelSize, Run
from trainables.stacked_training import Member

NUM_STEPS = 20

Alone = dict[str, tuple[object, dict[str, torch.Tensor]]]


def numbers(member: Member) -> list[dict[str, object]]:
    return [dataclasses.asdict(evaluation) | {"elapsed_s": 0.0} for evaluation in member.progress.curve]


def assert_same_in(group: Sequence[Run], data: TaskData | None, alone: Alone) -> None:
    stack, members = stacked(group, NUM_STEPS, data)
    for run, member in zip(group, members, strict=True):
        assert numbers(member) == alone[run.run_id][0], run.learning_rate
        assert same_bits(stack.state(member)[0], alone[run.run_id][1])


def alone_of(runs: Sequence[Run], data: TaskData | None) -> Alone:
    found = {}
    for run in runs:
        stack, (member,) = stacked([run], NUM_STEPS, data)
        found[run.run_id] = numbers(member), stack.state(member)[0]
    return found


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_sizes_places_and_companions_change_no_bit(variant: str, task: str, dropout: float) -> None:
    runs = sweep_of(variant, dropout=dropout, readout="last_token")
    alone = alone_of(runs, TASKS[task])
    shuffled = random.Random(3).sample(runs, len(runs))
    for group in (runs, shuffled, runs[2:], shuffled[:3]):
        assert_same_in(group, TASKS[task], alone)


@pytest.mark.parametrize("variant", ["frozen-random", "unfrozen-random"])
@pytest.mark.parametrize(
    ("size", "token_dim", "batch_size"),
    [
        (ModelSize(layers=1, heads=4, width=64, positions=4), 1, 8),  # one pixel a token, as in CIFAR-10 LRA
        (ModelSize(layers=2, heads=2, width=24, positions=40), 5, 3),  # nothing is a multiple of a vector's length
        (ModelSize(layers=3, heads=3, width=48, positions=8), 2, 1),
    ],
)
def test_shapes_change_no_bit(variant: str, size: ModelSize, token_dim: int, batch_size: int) -> None:
    data = _narrow(token_dim)
    runs = sweep_of(variant, size=size, batch_size=batch_size)
    alone = alone_of(runs, data)
    for group in (runs, runs[1:3]):
        assert_same_in(group, data, alone)


def _narrow(token_dim: int) -> TaskData:
    """The task with tokens of another length."""
    data = real_valued_task()
    assert data.scale is not None
    assert data.shift is not None

    def cut(split: object) -> object:
        inputs = split.inputs.repeat(1, 1, 2)[:, :, :token_dim]  # type: ignore[attr-defined]
        return dataclasses.replace(split, inputs=inputs)  # type: ignore[type-var]

    return dataclasses.replace(
        data,
        shape=dataclasses.replace(data.shape, token_dim=token_dim),
        train=cut(data.train),
        validation=cut(data.validation),
        test=cut(data.test),
        scale=data.scale[:1].expand(token_dim),
        shift=data.shift[:1].expand(token_dim),
    )


@pytest.mark.parametrize("variant", ["frozen-random", "frozen-pretrained", "unfrozen-random"])
def test_a_companion_that_diverges_changes_no_bit(variant: str) -> None:
    runs = sweep_of(variant)
    alone = alone_of(runs, None)
    stack, members = stack_of(runs)
    sick = members[1]
    stack._rows.values[stack.members.index(sick)] = torch.nan
    stack.advance()
    assert sick.progress.diverged_at_step == 1
    stack.remove([sick])
    go_on(stack, NUM_STEPS)
    for run, member in zip(runs, members, strict=True):
        if member is not sick:
            assert numbers(member) == alone[run.run_id][0]
            assert same_bits(stack.state(member)[0], alone[run.run_id][1])


@pytest.mark.parametrize("variant", VARIANTS)
def test_runs_that_leave_and_join_in_between_change_no_bit(variant: str) -> None:
    """Another that waited takes the place; runs are then at different steps, and evaluated at different times."""
    runs = sweep_of(variant)
    alone = alone_of(runs, None)
    stack, members = stacked(runs[:3], 10)
    stack._train_chunk(3)
    saved = stack.state(members[0])
    stack.remove([members[0], members[2]])
    stack.add([runs[3], runs[0]])
    by_id = {member.run.run_id: member for member in stack.members}
    stack.load_state(by_id[runs[0].run_id], *saved)
    while stack.members:
        over = [member for member in stack.members if member.progress.step == NUM_STEPS]
        for member in over:
            expected, tensors = alone[member.run.run_id]
            assert numbers(member) == expected
            assert same_bits(stack.state(member)[0], tensors)
        stack.remove(over)
        if stack.members:
            stack.advance()


def test_random_companies() -> None:
    draw = random.Random(7)
    runs = [
        run_of("unfrozen-pretrained", learning_rate=10.0 ** -draw.uniform(1, 5), seed=draw.randrange(4))
        for _ in range(12)
    ]
    alone = alone_of(runs, None)
    for size in (3, 8):
        assert_same_in(draw.sample(runs, size), None, alone)
