"""What the engines are measured on: cells with made-up data, so that nothing has to be downloaded.

Imports `datasets` and `trainables` alone, and through them torch: it also runs where the rest is not installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from lr_sweep.datasets.task import Split, TaskData, TaskShape
from lr_sweep.trainables.models.gpt2 import GPT2
from lr_sweep.trainables.parts import VARIANTS
from lr_sweep.trainables.run import ModelSize, Protocol, Run

TOKEN_DIM = 16


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A model on tokens of 16 numbers, and what is trained of it."""

    size: ModelSize
    num_tokens: int
    variant: str

    @property
    def shape(self) -> TaskShape:
        """What the model must know of the task."""
        return TaskShape(num_tokens=self.num_tokens, num_classes=10, token_dim=TOKEN_DIM)


TINY = ModelSize(layers=2, heads=4, width=64, positions=256)
"""The quickstart's."""
SMALL = ModelSize(layers=4, heads=4, width=256)
BASE = ModelSize(layers=12, heads=12, width=768)

CELLS = {
    "tiny-frozen": Cell(size=TINY, num_tokens=4, variant="frozen-pretrained"),
    "tiny-unfrozen": Cell(size=TINY, num_tokens=4, variant="unfrozen-pretrained"),
    "small-frozen": Cell(size=SMALL, num_tokens=64, variant="frozen-random"),
    "small-unfrozen": Cell(size=SMALL, num_tokens=64, variant="unfrozen-random"),
    "base-frozen": Cell(size=BASE, num_tokens=64, variant="frozen-pretrained"),
    "base-unfrozen": Cell(size=BASE, num_tokens=64, variant="unfrozen-pretrained"),
}


def made_up_data(cell: Cell, num_examples: int = 64) -> TaskData:
    """Draw a task of noise."""
    generator = torch.Generator().manual_seed(0)

    def split(number: int) -> Split:
        inputs = torch.randint(256, (number, cell.num_tokens, TOKEN_DIM), generator=generator).to(
            torch.uint8
        )
        return Split(inputs=inputs, labels=torch.randint(10, (number,), generator=generator))

    return TaskData(
        shape=cell.shape,
        train=split(num_examples),
        validation=split(16),
        test=split(16),
        scale=torch.full((TOKEN_DIM,), 1 / 128),
        shift=torch.full((TOKEN_DIM,), -1.0),
    )


@lru_cache(maxsize=1)
def made_up_weights(size: ModelSize) -> dict[str, Tensor]:
    """Draw a body's tensors, as if pretrained."""
    generator = torch.Generator().manual_seed(1)
    return {
        name: t.normal_(0.0, 0.02, generator=generator)
        for name, t in GPT2(size).state_dict().items()
    }


def weights_of(cell: Cell) -> dict[str, Tensor] | None:
    """Return made-up weights where the variant starts from pretrained ones."""
    return (
        made_up_weights(cell.size)
        if VARIANTS[cell.variant].initialisation == "pretrained"
        else None
    )


def run_of(cell: Cell, *, seed: int, learning_rate: float, **protocol: Any) -> Run:
    """Return a run of the cell."""
    variant = VARIANTS[cell.variant]
    return Run(
        task="digits",
        task_options={},
        data_checksum="made up",
        model=cell.size,
        initialisation=variant.initialisation,
        weights_checksum=None,
        trained=variant.trained,
        learning_rate=learning_rate,
        seed=seed,
        protocol=Protocol(**protocol),
    )


def sweep_of(cell: Cell, number: int, **protocol: Any) -> list[Run]:
    """Return runs of up to 3 seeds with learning rates from 1e-6 up."""
    return [
        run_of(cell, seed=n % 3, learning_rate=10 ** (-6 + n / 9), **protocol)
        for n in range(number)
    ]
