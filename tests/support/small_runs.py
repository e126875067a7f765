"""Small tasks and runs for tests of models and training; how curves and states of the two engines compare."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from lr_sweep.datasets.task import Split, TaskData, TaskShape
from lr_sweep.trainables.engine import Evaluation
from lr_sweep.trainables.parts import VARIANTS
from lr_sweep.trainables.plain.engine import Training
from lr_sweep.trainables.run import BodySize, ModelSize, Protocol, Run
from lr_sweep.trainables.stacked.engine import StackedSlot, StackedTraining

SIZE = ModelSize(layers=2, heads=2, width=16, positions=12)
CPU = torch.device("cpu")


def real_valued_task(num_examples: int = 40) -> TaskData:
    """Three classes that differ in the mean of their tokens; 6 tokens of 4 numbers."""
    generator = torch.Generator().manual_seed(5)

    def split(number: int) -> Split:
        labels = torch.randint(3, (number,), generator=generator)  # (N,)
        noise = torch.randint(60, (number, 6, 4), generator=generator)  # (N, T, D)
        return Split(inputs=(noise + 60 * labels[:, None, None]).to(torch.uint8), labels=labels)

    return TaskData(
        shape=TaskShape(num_tokens=6, num_classes=3, token_dim=4),
        train=split(num_examples),
        validation=split(20),
        test=split(20),
        scale=torch.full((4,), 1 / 128),
        shift=torch.full((4,), -1.0),
    )


def symbol_task() -> TaskData:
    """Two classes: whether the first symbol is even; up to 6 tokens out of 5 and padding."""
    generator = torch.Generator().manual_seed(6)

    def split(number: int) -> Split:
        lengths = torch.randint(2, 7, (number,), generator=generator)  # (N,)
        symbols = torch.randint(5, (number, 6), generator=generator)  # (N, T)
        inputs = torch.where(torch.arange(6) < lengths[:, None], symbols, 5)  # (N, T)
        return Split(inputs=inputs.to(torch.uint8), labels=inputs[:, 0] % 2, lengths=lengths)

    shape = TaskShape(num_tokens=6, num_classes=2, num_token_ids=6)
    return TaskData(shape=shape, train=split(40), validation=split(20), test=split(20))


def pairs_task() -> TaskData:
    """Whether each of the last two symbols is even, and whether it is 0: four answers at two positions."""
    task = symbol_task()

    def asked(split: Split) -> Split:
        assert split.lengths is not None
        last = torch.stack([split.lengths - 2, split.lengths - 1], 1)  # (N, 2)
        symbols = split.inputs.gather(1, last)  # (N, 2)
        labels = torch.stack([symbols % 2, (symbols == 0).to(torch.uint8)], 2).flatten(1).long()  # (N, 4)
        return Split(inputs=split.inputs, labels=labels, lengths=split.lengths)

    shape = TaskShape(num_tokens=6, num_classes=2, num_token_ids=6, num_answers=4, num_read=2)
    return TaskData(shape=shape, train=asked(task.train), validation=asked(task.validation), test=asked(task.test))


def xor_task() -> TaskData:
    """Endless: the XOR of two strings of three bits, one bit a token."""

    def draw(number: int, generator: torch.Generator) -> Split:
        bits = torch.randint(2, (number, 6), generator=generator, device=generator.device)  # (N, T)
        return Split(inputs=bits.unsqueeze(-1).to(torch.int8), labels=bits[:, :3] ^ bits[:, 3:])

    generator = torch.Generator().manual_seed(8)
    train, validation, test = (draw(20, generator) for _ in range(3))
    shape = TaskShape(num_tokens=6, num_classes=2, token_dim=1, num_answers=3, num_read=3)
    scale, shift = torch.full((1,), 2.0), torch.full((1,), -1.0)
    return TaskData(shape=shape, train=train, validation=validation, test=test, scale=scale, shift=shift, draw=draw)


def run_of(variant: str = "unfrozen-random", *, size: BodySize = SIZE, **changes: Any) -> Run:
    """A run of a variant; `changes` go to the run, or to its protocol if the run has no such field."""
    kind = VARIANTS[variant]
    run_fields: dict[str, Any] = {
        "task": "digits",
        "task_options": {},
        "data_checksum": "data",
        "initialisation": kind.initialisation,
        "weights_checksum": "weights" if kind.needs_weights else None,
        "trained": kind.trained,
        "learning_rate": 1e-2,
        "seed": 0,
    }
    protocol_fields: dict[str, Any] = {"evaluate_every": 10, "train_examples_evaluated": 20}
    for name, value in changes.items():
        (run_fields if name in Run.__dataclass_fields__ else protocol_fields)[name] = value
    return Run(model=size, protocol=Protocol(**protocol_fields), **run_fields)


def random_weights(size: ModelSize = SIZE) -> dict[str, torch.Tensor]:
    """A body's tensors, as a pretrained model would have them."""
    from lr_sweep.trainables.models.gpt2 import GPT2

    generator = torch.Generator().manual_seed(7)
    return {
        name: torch.empty_like(tensor).normal_(0, 0.2, generator=generator)
        for name, tensor in GPT2(size).state_dict().items()
    }


LOSSES = ("train_loss", "validation_loss", "test_loss")
TASKS = {"numbers": real_valued_task(), "symbols": symbol_task(), "pairs": pairs_task(), "xor": xor_task()}
EACH_VARIANT = ["frozen-pretrained", "unfrozen-random"]
EACH_VARIANT += [pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS if name not in EACH_VARIANT]  # type: ignore[misc]

Tensors = dict[str, torch.Tensor]
Alone = dict[str, tuple[object, Tensors]]
"""By run id: the numbers of a curve, and the state at its end."""


def weights_for(run: Run) -> Tensors | None:
    return random_weights() if run.initialisation == "pretrained" else None


def plain_of(run: Run, data: TaskData | None = None) -> Training:
    return Training(run, data or TASKS["numbers"], weights_for(run), CPU, wall_clock=lambda: 1000.0)


def plain(run: Run, num_steps: int = 20, data: TaskData | None = None) -> Training:
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
    runs: Sequence[Run], num_steps: int = 20, data: TaskData | None = None
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
        assert [each.validation for each in ours] == [each.validation for each in theirs]


def same_bits(one: Tensors, other: Tensors) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def numbers(curve: Sequence[Evaluation]) -> list[dict[str, object]]:
    """A curve without what the clock put in it."""
    return [dataclasses.asdict(evaluation) | {"elapsed_s": 0.0} for evaluation in curve]


def alone_of(runs: Sequence[Run], data: TaskData | None = None, num_steps: int = 10) -> Alone:
    found = {}
    for run in runs:
        stack, (slot,) = stacked([run], num_steps, data)
        found[run.run_id] = numbers(slot.progress.curve), stack.state(slot)[0]
    return found


def assert_same_in(group: Sequence[Run], alone: Alone, data: TaskData | None = None, num_steps: int = 10) -> None:
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
    from lr_sweep.trainables.models.classifier import build_classifier

    for module in ("lr_sweep.trainables.plain.engine", "lr_sweep.trainables.stacked.weights"):
        monkeypatch.setattr(f"{module}.build_classifier", lambda *arguments: build_classifier(*arguments).double())


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]
    path.write_bytes({"torn": content[:middle], "empty": b"", "flipped": flipped}[how])
