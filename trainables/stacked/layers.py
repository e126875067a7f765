"""Matrix products and layers of R runs at once, each run with the bits that it has alone.

On a CPU, a run's slice of every result has the same bits for any R and any other runs of the stack: MKL computes all
slices of a batched product alike. It does not where runs are folded into more rows, whose number picks the kernel.

Every trained tensor is used once a step, so backward passes overwrite `parameter.grad`, a slice of one buffer, and hand
autograd nothing. A small step takes as long as its launches, and autograd would need more of them.

Shape legend: `R` runs, `n` matrices of a run, `P` products in all, `N` rows of a run (batch x tokens),
`I` numbers in, `O` numbers out, `D` width, `V` symbols.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from lr_sweep.trainables.numerics import product_dtype

LARGE_PRODUCT = 2**24
"""Multiplications of a run from which products of single runs are faster on a CPU than MKL's batched ones."""
ONEDNN_FROM = 2**21
"""Multiplications of one product from which oneDNN is faster than MKL where `onednn_is_faster`."""
ZEN_5 = 0x1A
"""AMD's number of the family."""
ALIGNED = 4
"""Numbers in 16 bytes. MKL on AVX2 rounds otherwise where a run's matrices do not start at multiples of these."""


def aligned(a: Tensor, b: Tensor, num_runs: int) -> bool:
    """Return whether each run's part of a (..., N, I), b (..., I, O) and their product is a multiple of 16 bytes."""
    num_rows = a.numel() // a.shape[-1]
    sizes = (a.numel(), b.numel(), num_rows * b.shape[-1])
    return not any(size // num_runs % ALIGNED for size in sizes)


def product(a: Tensor, b: Tensor, bias: Tensor | None = None, *, num_runs: int) -> Tensor:
    """Multiply (R n, N, I) by (R n, I, O) and add (R n, 1, O), if given: each run has the bits that it has alone."""
    if num_runs > 1 and a.device.type == "cpu" and not aligned(a, b, num_runs):
        operands = (a, b) if bias is None else (a, b, bias)
        of_operands = [operand.chunk(num_runs) for operand in operands]
        products = []
        for of_run in zip(*of_operands, strict=True):
            copies = [chunk.clone() for chunk in of_run]
            products.append(product(*copies, num_runs=1))
        return torch.cat(products)
    return batched(a, b, bias)


def batched(
    a: Tensor, b: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None
) -> Tensor:
    """Multiply (P, N, I) by (P, I, O) and add (P, 1, O), if given, as torch does or faster; `out` (P, N, O)."""
    on_cpu = a.device.type == "cpu" and a.dtype == torch.float32
    if on_cpu and multiplications(a, b) >= ONEDNN_FROM and onednn_is_faster():
        if out is None:
            out = a.new_empty(*a.shape[:2], b.shape[2])
        return by_onednn(a, b, bias, out)
    return torch.bmm(a, b, out=out) if bias is None else torch.baddbmm(bias, a, b, out=out)


def multiplications(a: Tensor, b: Tensor) -> int:
    """Return how many each product of a (P, N, I) and b (P, I, O) takes."""
    return a.shape[1] * b.shape[1] * b.shape[2]


@cache
def onednn_is_faster() -> bool:
    """Return whether this is an AMD CPU with an AVX-512 worth using: MKL uses it on Intel's only, oneDNN on both."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.is_file() or not is_zen_5(cpuinfo.read_text()):
        return False
    return (
        torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512"
    )


def is_zen_5(cpuinfo: str) -> bool:
    """Return whether /proc/cpuinfo is of an AMD CPU of Zen 5 or later; Zen 4 computes AVX-512 in two halves."""
    family = re.search(r"^cpu family\s*:\s*(\d+)$", cpuinfo, re.MULTILINE)
    return "AuthenticAMD" in cpuinfo and family is not None and int(family[1]) >= ZEN_5


def by_onednn(a: Tensor, b: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    """Do `batched`, one matrix after the other, by the operation that torch's compiler calls for fp32 layers."""
    for index, (rows, weight) in enumerate(zip(a, b.mT, strict=True)):
        its_bias = None if bias is None else bias[index, 0]
        out[index] = torch.ops.mkldnn._linear_pointwise(
            _whole(rows), _whole(weight), its_bias, "none", [], ""
        )
    return out


def _whole(matrix: Tensor) -> Tensor:
    """Return a matrix without gaps in memory: of others, oneDNN has but a slow reference (0.1 GFLOP/s was seen)."""
    return matrix if matrix.is_contiguous() or matrix.mT.is_contiguous() else matrix.contiguous()


@dataclass(frozen=True, kw_only=True)
class Shared:
    """A frozen layer of runs that stand side by side."""

    runs: slice
    weight: Tensor
    """(1, I, O)"""
    transposed: Tensor
    """(1, O, I); on a CPU a copy, because batched products of small transposed matrices take up to 4 times as long."""
    bias: Tensor
    """(1, 1, O)"""

    def columns(self, columns: slice) -> Shared:
        """Return some of its outputs as a layer."""
        weight, bias = self.weight[:, :, columns], self.bias[:, :, columns]
        return replace(self, weight=weight, transposed=self.transposed[:, columns], bias=bias)


class _Linear(Function):
    """x (R, N, I), weight (R, I, O), bias (R, O) -> (R, N, O)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        dtype = product_dtype(x)
        x = x.to(dtype)
        low = weight.to(dtype)
        ctx.save_for_backward(x, low)
        ctx.weight = weight
        ctx.bias = bias
        return _affine_product(x, low, bias.to(dtype))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None]:
        x, low = ctx.saved_tensors
        grad = grad.contiguous()  # it is, but for a single run of few examples
        if ctx.weight.grad is not None:
            _weight_gradient(x, grad, ctx.weight.grad)
            torch.sum(grad, 1, dtype=ctx.bias.dtype, out=ctx.bias.grad)
        of_x = _affine_product(grad, low.mT, None) if ctx.needs_input_grad[0] else None
        return of_x, None, None


def _affine_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    added = None if bias is None else bias.unsqueeze(1)  # (R, 1, O)
    # A batched product with one number in or out has other bits with other R.
    if x.shape[-1] == 1:
        return x * weight if added is None else torch.addcmul(added, x, weight)  # (R, N, O)
    if weight.shape[-1] == 1 and added is None:
        return (x * weight.mT).sum(-1, keepdim=True)  # (R, N, 1)
    return product(x, weight, added, num_runs=len(x))  # (R, N, O)


def _weight_gradient(x: Tensor, grad: Tensor, out: Tensor) -> None:
    if 1 in (x.shape[-1], grad.shape[-1]):
        row = out if x.shape[-1] == 1 else out.mT  # (R, 1, I or O)
        torch.sum(x * grad, 1, keepdim=True, dtype=out.dtype, out=row)
    elif grad.dtype == out.dtype:
        batched(x.mT, grad, out=out)  # (R, I, O)
    else:
        out.copy_(torch.bmm(x.mT, grad))


class _SharedLinear(Function):
    """x (R, N, I) -> (R, N, O) through frozen layers, each shared by a slice of the runs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shared: Sequence[Shared]) -> Tensor:
        ctx.shared = shared
        num_out = shared[0].weight.shape[2]
        out = x.new_empty(*x.shape[:-1], num_out, dtype=product_dtype(x))  # (R, N, O)
        for layer in shared:
            _shared_product(x[layer.runs], layer.weight, layer.bias, out[layer.runs])
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.contiguous()  # it is, but for a single run of few examples
        out = grad.new_empty(*grad.shape[:-1], ctx.shared[0].weight.shape[1])  # (R, N, I)
        for layer in ctx.shared:
            _shared_product(grad[layer.runs], layer.transposed, None, out[layer.runs])
        return out, None


def _shared_product(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
    on_cpu = x.device.type == "cpu"
    unaligned = x[0].numel() % ALIGNED or out[0].numel() % ALIGNED
    if on_cpu and len(x) > 1 and (multiplications(x, weight) > LARGE_PRODUCT or unaligned):
        for run_x, run_out in zip(x, out, strict=True):
            _shared_product(run_x[None], weight, bias, run_out[None])
        return
    if on_cpu and not (_starts_aligned(x) and _starts_aligned(out)):
        fresh = torch.empty_like(out)
        _shared_product(x.clone(), weight, bias, fresh)
        out.copy_(fresh)
        return
    if not on_cpu:  # one large product keeps a GPU busier than many small ones
        x = x.reshape(1, -1, x.shape[-1])  # (1, R N, I)
        out = out.flatten(0, 1).unsqueeze(0)  # (1, R N, O)
    x = x.to(out.dtype)  # (R, N, I)
    weight = weight.to(out.dtype).expand(len(x), -1, -1)  # (R, I, O)
    if bias is not None:
        bias = bias.to(out.dtype).expand(len(x), -1, -1)  # (R, 1, O)
    batched(x, weight, bias, out=out)


def _starts_aligned(x: Tensor) -> bool:
    return x.data_ptr() % (ALIGNED * x.element_size()) == 0


_GELU_CUBIC = 0.044715
_GELU_SCALE = math.sqrt(2.0 / math.pi)
_VECTOR = 32
"""Numbers that torch's sigmoid computes at once on a CPU; those left over at the end it computes otherwise."""


def _sigmoid_(z: Tensor) -> Tensor:
    """Compute 1 / (1 + exp(-z)) in place: each number's bits are the same whatever stands beside it."""
    if z.shape[-1] % _VECTOR == 0:
        return z.sigmoid_()
    return z.mul_(0.5).tanh_().add_(1.0).mul_(0.5)


class _Gelu(Function):
    """GPT-2's approximation (Hendrycks and Gimpel 2016): x / 2 (1 + tanh(c (x + 0.044715 x^3))), c = sqrt(2 / pi).

    Computed as x sigmoid(2 c (x + 0.044715 x^3)): torch's tanh took ten times as long on an AMD EPYC (torch 2.15).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        scale = x.new_tensor(2.0 * _GELU_SCALE)
        s = _sigmoid_(torch.addcmul(scale, x, x, value=2.0 * _GELU_CUBIC * _GELU_SCALE).mul_(x))
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, s = ctx.saved_tensors
        scale = x.new_tensor(2.0 * _GELU_SCALE)
        # x times the argument's slope; then s (1 + slope (1 - s)).
        slope = torch.addcmul(scale, x, x, value=6.0 * _GELU_CUBIC * _GELU_SCALE).mul_(x)
        return slope.addcmul_(slope, s, value=-1.0).add_(1.0).mul_(s).mul_(grad)


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
            # A product: scattered sums have no fixed order on a GPU.
            torch.bmm(chosen, grad, out=table.grad)
        return None, None


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Map (R, N, I) to (R, N, O) with weight (R, I, O) and bias (R, O) of each run."""
    return _Linear.apply(x, weight, bias)


def gelu(x: Tensor) -> Tensor:
    """GPT-2's activation; any shape."""
    # torch's own takes three times as long on a CPU, and the bits of its last numbers follow how many there are.
    return _Gelu.apply(x) if x.device.type == "cpu" else F.gelu(x, approximate="tanh")


def shared_linear(x: Tensor, shared: Sequence[Shared]) -> Tensor:
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
