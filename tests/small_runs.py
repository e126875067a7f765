"""Small tasks and runs for tests of models and training."""

from __future__ import annotations

from typing import Any

import torch

from datasets.task import Split, TaskData, TaskShape
from trainables.parts import VARIANTS
from trainables.run import ModelSize, Protocol, Run

SIZE = ModelSize(layers=2, heads=2, width=16, positions=12)
CPU = torch.device("cpu")


def real_valued_task(num_examples: int = 40) -> TaskData:
    """Three classes told apart by the mean of their tokens; 6 tokens of 4 numbers."""
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
        origin="test",
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
    return TaskData(shape=shape, train=split(40), validation=split(20), test=split(20), origin="test")


def run_of(variant: str = "unfrozen-random", *, size: ModelSize = SIZE, **changes: Any) -> Run:
    """A run of a variant; `changes` go to the run, or to its protocol if the run has no such field."""
    run_fields: dict[str, Any] = {"learning_rate": 1e-2, "seed": 0}
    protocol_fields: dict[str, Any] = {"evaluate_every": 10, "train_examples_evaluated": 20}
    for name, value in changes.items():
        (run_fields if name in Run.__dataclass_fields__ else protocol_fields)[name] = value
    kind = VARIANTS[variant]
    return Run(
        task="digits",
        task_options={},
        data_checksum="data",
        model=size,
        initialisation=kind.initialisation,
        weights_checksum="weights" if kind.initialisation == "pretrained" else None,
        trained=kind.trained,
        protocol=Protocol(**protocol_fields),
        **run_fields,
    )


def random_weights(size: ModelSize = SIZE) -> dict[str, torch.Tensor]:
    """A body's tensors, as a pretrained model would have them."""
    from trainables.gpt2 import GPT2

    generator = torch.Generator().manual_seed(7)
    return {
        name: torch.empty_like(tensor).normal_(0, 0.2, generator=generator)
        for name, tensor in GPT2(size).state_dict().items()
    }
