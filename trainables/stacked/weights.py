"""The tensors of R runs: trained ones in one row a run, frozen ones shared.

All trained numbers of a run stand in one row of a buffer: the optimizer, clipping and the best model are then each one
operation a run. Position rows beyond the tokens in use never get a gradient and are left out: they stay as at step 0.

Shape legend: `R` runs, `P` numbers in a run's row, `T` tokens in use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from lr_sweep.datasets.task import TaskShape
from lr_sweep.trainables.factors import matrix_rate_factor
from lr_sweep.trainables.models.classifier import build_classifier
from lr_sweep.trainables.models.gpt2 import Conv1D
from lr_sweep.trainables.numerics import Tensors
from lr_sweep.trainables.plain.optimizers import hidden_matrices, moments_of, step_row
from lr_sweep.trainables.run import Protocol, Run

from .layers import Shared

ALIGNMENT = 16
"""Numbers to a multiple of which tensors are padded: each starts at 64 bytes, so that products read every row alike."""
POSITIONS = "body.wpe.weight"


class Layout:
    """Where each trained tensor stands in a run's row."""

    def __init__(self, shapes: dict[str, torch.Size], rate_factors: dict[str, float]) -> None:
        """Place tensors of one factor of the learning rate side by side; a factor that is not given is 1."""
        self.spans, self.row_size = dict[str, tuple[int, torch.Size]](), 0
        self.stretches: list[tuple[slice, float]] = []
        """Where tensors of one factor stand, and the factor."""
        by_factor = {
            factor: [name for name in shapes if rate_factors.get(name, 1.0) == factor]
            for factor in dict.fromkeys([1.0, *rate_factors.values()])
        }
        for factor, names in by_factor.items():
            began = self.row_size
            for name in names:
                self.spans[name] = (self.row_size, shapes[name])
                self.row_size += math.ceil(shapes[name].numel() / ALIGNMENT) * ALIGNMENT
            self.stretches.append((slice(began, self.row_size), factor))

    def views(self, rows: Tensor) -> Tensors:
        """Return the tensors in rows (R, P), each (R, ...), sharing memory."""
        spans = self.spans.items()
        return {
            name: rows[:, at : at + shape.numel()].view(len(rows), *shape)
            for name, (at, shape) in spans
        }

    def tensors(self, row: Tensor) -> Tensors:
        """Return the tensors in one row (P,), sharing memory."""
        return {name: view[0] for name, view in self.views(row.unsqueeze(0)).items()}

    def row(self, tensors: Tensors) -> Tensor:
        """Return tensors as a row (P,)."""
        row = next(iter(tensors.values())).new_zeros(self.row_size)
        for name, view in self.tensors(row).items():
            view.copy_(tensors[name][: len(view)])
        return row


@dataclass(frozen=True, kw_only=True)
class Start:
    """What the runs of one cell and seed begin with, on the device."""

    layout: Layout
    row: Tensor
    """(P,), the trained tensors at step 0."""
    unused: Tensors
    """Rows of trained tensors beyond those in use."""
    constants: Tensors
    """Frozen tensors that are small; stacked like trained ones."""
    body: dict[str, Shared]
    """Frozen linear layers by name."""
    body_key: int
    """Equal where `body` is."""

    def whole(self, row: Tensor, *, fill_unused: bool) -> Tensors:
        """Return a row's tensors at full size; unused rows are as at step 0, or 0 (an optimizer's moments)."""
        tensors = self.layout.tensors(row)
        for name, rest in self.unused.items():
            tensors[name] = torch.cat(
                [tensors[name], rest if fill_unused else torch.zeros_like(rest)]
            )
        return tensors


@torch.no_grad()
def start_of(run: Run, task: TaskShape, weights: Tensors | None, device: torch.device) -> Start:
    """Build a run's tensors at step 0, as `build_classifier` does."""
    model = build_classifier(run, task, weights).to(device)
    trained = {name: p.detach() for name, p in model.trained_parameters()}
    frozen = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
    body = {
        name: _layer(frozen.pop(f"{name}.weight"), frozen.pop(f"{name}.bias"))
        for name, module in model.named_modules()
        if isinstance(module, Conv1D) and f"{name}.weight" in frozen
    }
    unused: Tensors = {}
    if POSITIONS in trained:
        # A view would keep the whole table alive.
        unused[POSITIONS] = trained[POSITIONS][task.num_tokens :].clone()
    used = _in_use(trained, task)
    factor = matrix_rate_factor(run.protocol, run.model.width)
    factors = dict.fromkeys(hidden_matrices(model), factor)
    layout = Layout({name: tensor.shape for name, tensor in used.items()}, factors)
    return Start(
        layout=layout,
        row=layout.row(used),
        unused=unused,
        constants=_in_use(frozen, task),
        body=body,
        # Pretrained weights replace every linear layer of the body, whatever the seed.
        body_key=run.seed if body and run.initialisation != "pretrained" else 0,
    )


def _in_use(tensors: Tensors, task: TaskShape) -> Tensors:
    """Return tensors without position rows beyond a task's tokens."""
    return {
        name: tensor[: task.num_tokens] if name == POSITIONS else tensor
        for name, tensor in tensors.items()
    }


def _layer(weight: Tensor, bias: Tensor) -> Shared:
    transposed = weight.mT.contiguous() if weight.device.type == "cpu" else weight.mT
    return Shared(
        runs=slice(0, 1), weight=weight[None], transposed=transposed[None], bias=bias[None, None]
    )


class Rows:
    """Values, gradients and the optimizer's state of R runs."""

    def __init__(self, starts: Sequence[Start], protocol: Protocol) -> None:
        """Begin at step 0."""
        self.layout, self.protocol = starts[0].layout, protocol
        self.values = torch.stack([start.row for start in starts])  # (R, P)
        self.moments = {name: torch.zeros_like(self.values) for name in moments_of(protocol)}
        # (R,), float32 as Adam's kernel wants it
        self.steps = torch.zeros(len(starts), device=self.values.device)
        self._point()

    def _point(self) -> None:
        """Make the gradients, and what points into the buffers."""
        self.gradients = torch.zeros_like(self.values)
        gradients = self.layout.views(self.gradients)
        self.parameters = {
            name: view.detach().requires_grad_()
            for name, view in self.layout.views(self.values).items()
        }
        for name, parameter in self.parameters.items():
            parameter.grad = gradients[name].detach()
        moments = list(self.moments.values())
        self._by_run: list[list[tuple[float, tuple[Any, ...]]]] = []
        """Values, gradients, moments and steps of each run, by factor of the learning rate."""
        for row, steps in enumerate(self.steps):
            stretches: list[tuple[float, tuple[Any, ...]]] = []
            for at, factor in self.layout.stretches:
                own_moments = [moment[row, at] for moment in moments]
                tensors = self.values[row, at], self.gradients[row, at], own_moments, steps
                stretches.append((factor, tensors))
            self._by_run.append(stretches)

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order."""
        if list(rows) != list(range(len(self.values))):
            chosen = torch.tensor(rows, device=self.values.device)
            self._change(lambda _, buffer: buffer[chosen])

    def join(self, other: Rows) -> None:
        """Add the other's rows below these."""
        others = other.buffers()
        self._change(lambda name, buffer: torch.cat([buffer, others[name]]))

    def buffers(self) -> Tensors:
        """Return what is kept of the runs between steps, by name, each with a row a run."""
        return {"values": self.values, "steps": self.steps} | self.moments

    def _change(self, change: Callable[[str, Tensor], Tensor]) -> None:
        """Replace the buffers one after the other, so that no more than one is there twice."""
        del self.parameters, self._by_run, self.gradients
        self.values, self.steps = change("values", self.values), change("steps", self.steps)
        for name in self.moments:
            self.moments[name] = change(name, self.moments[name])
        self._point()

    def clip(self, largest_norm: float) -> None:
        """Scale each run's gradient to a norm of at most this, as `torch.nn.utils.clip_grad_norm_` does for one."""
        norms = torch.linalg.vector_norm(self.gradients, dim=1, keepdim=True)  # (R, 1)
        self.gradients.mul_((largest_norm / (norms + 1e-6)).clamp(max=1.0))

    def step(self, rates: Sequence[float], stopped: Tensor) -> None:
        """Take a step of each run by its learning rate; those with `stopped` (R,) float32 = 1 stay as they are."""
        self.steps += 1 - stopped
        for of_run, rate, skip in zip(self._by_run, rates, stopped.unbind(), strict=True):
            for factor, tensors in of_run:
                step_row(self.protocol, *tensors, lr=rate, skip=skip, rate_factor=factor)


def shared_layers(starts: Sequence[Start]) -> dict[str, list[Shared]]:
    """Return every frozen linear layer with the neighbouring runs that share it."""
    groups = [
        list(rows) for _, rows in groupby(range(len(starts)), key=lambda row: starts[row].body_key)
    ]
    return {
        name: [
            replace(starts[rows[0]].body[name], runs=slice(rows[0], rows[-1] + 1))
            for rows in groups
        ]
        for name in starts[0].body
    }


def stacked_constants(starts: Sequence[Start]) -> Tensors:
    """Return every small frozen tensor, (R, ...)."""
    return {
        name: torch.stack([start.constants[name] for start in starts])
        for name in starts[0].constants
    }
