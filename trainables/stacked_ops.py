"""Layers of R runs at once, each run with parameters of its own; gradients are written where Adam reads them.

A run's slice of every result has, on a CPU, the same bits whatever R is and whoever shares the stack: the products here are
batched ones, whose slices the libraries compute alike (products of runs folded into more rows are not: their kernels
follow the number of rows). `tests/test_stacked_bits.py` holds that.

Every trained tensor is used once a step, so backward passes overwrite `parameter.grad`, which the engine points at a
slice of one buffer, and hand autograd nothing.

Shape legend: `R` runs, `N` rows of a run (batch x tokens), `I` numbers in, `O` numbers out, `D` width, `V` symbols.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

Shared = list[tuple[slice, Tensor, Tensor]]
"""Frozen layers: which runs share a weight (I, O) and a bias (O,)."""


class _Linear(Function):
    """x (R, N, I), weight (R, I, O), bias (R, O) -> (R, N, O)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.bias = bias
        return _affine_product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        if weight.grad is not None:
            _weight_gradient(x, grad, weight.grad)
            torch.sum(grad, 1, out=ctx.bias.grad)
        return (torch.bmm(grad, weight.mT) if ctx.needs_input_grad[0] else None), None, None


def _affine_product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if x.shape[-1] == 1:  # the one shape whose batched product has other bits with other R
        return torch.addcmul(bias.unsqueeze(1), x, weight)  # (R, N, O)
    return torch.baddbmm(bias.unsqueeze(1), x, weight)  # (R, N, O)


def _weight_gradient(x: Tensor, grad: Tensor, out: Tensor) -> None:
    if x.shape[-1] == 1:
        torch.sum(x * grad, 1, keepdim=True, out=out)  # (R, 1, O)
    else:
        torch.bmm(x.mT, grad, out=out)  # (R, I, O)


class _SharedLinear(Function):
    """x (R, N, I) -> (R, N, O) through frozen layers, each shared by a slice of the runs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shared: Shared) -> Tensor:
        ctx.shared = shared
        parts = [_shared_product(x[runs], weight, bias) for runs, weight, bias in shared]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        parts = [_shared_product(grad[runs], weight.mT, None) for runs, weight, _ in ctx.shared]
        return (parts[0] if len(parts) == 1 else torch.cat(parts)), None


def _shared_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if x.device.type == "cuda":  # one product of more rows keeps a GPU busier than many small ones
        rows = x.reshape(-1, x.shape[-1])  # (R N, I)
        flat = torch.mm(rows, weight) if bias is None else torch.addmm(bias, rows, weight)
        return flat.view(*x.shape[:-1], -1)
    weights = weight.expand(len(x), *weight.shape)  # (R, I, O)
    return torch.bmm(x, weights) if bias is None else torch.baddbmm(bias.expand(len(x), 1, -1), x, weights)


class _Affine(Function):
    """x (R, N, D) * weight (R, D) + bias (R, D)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.bias = bias
        return torch.addcmul(bias.unsqueeze(1), x, weight.unsqueeze(1))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        x, weight = ctx.saved_tensors
        if weight.grad is not None:
            torch.sum(grad * x, 1, out=weight.grad)
            torch.sum(grad, 1, out=ctx.bias.grad)
        return grad * weight.unsqueeze(1), None, None


class _AddPositions(Function):
    """x (R, B, T, D) + positions (R, T, D)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, positions: Tensor) -> Tensor:
        ctx.positions = positions
        return x + positions.unsqueeze(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        if ctx.positions.grad is not None:
            torch.sum(grad, 1, out=ctx.positions.grad)
        return grad, None


class _Embed(Function):
    """Rows of table (R, V, D) for ids (R, N) -> (R, N, D)."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(table, ids)
        return table.gather(1, ids.unsqueeze(-1).expand(-1, -1, table.shape[-1]))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None]:
        table, ids = ctx.saved_tensors
        if table.grad is not None:
            symbols = torch.arange(table.shape[1], device=ids.device)  # (V,)
            chosen = (ids.unsqueeze(-2) == symbols.unsqueeze(-1)).to(grad.dtype)  # (R, V, N)
            torch.bmm(chosen, grad, out=table.grad)  # a product: scattered sums have no fixed order on a GPU
        return None, None


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Map (R, N, I) to (R, N, O) with weight (R, I, O) and bias (R, O) of each run."""
    return _Linear.apply(x, weight, bias)


def shared_linear(x: Tensor, shared: Shared) -> Tensor:
    """Map (R, N, I) to (R, N, O) with frozen weights."""
    return _SharedLinear.apply(x, shared)


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Scale and shift (R, N, D) by (R, D) each."""
    return _Affine.apply(x, weight, bias)


def add_positions(x: Tensor, positions: Tensor) -> Tensor:
    """Add (R, T, D) to (R, B, T, D)."""
    return _AddPositions.apply(x, positions)


def embed(table: Tensor, ids: Tensor) -> Tensor:
    """Look ids (R, N) up in (R, V, D)."""
    return _Embed.apply(table, ids)
