"""Small tasks and runs for tests of models and training."""

from __future__ import annotations

from typing import Any

import torch

from lr_sweep.datasets.task import Split, TaskData, TaskShape
from lr_sweep.trainables.parts import VARIANTS
from lr_sweep.trainables.run import BodySize, ModelSize, Protocol, Run

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
