"""Matrix products of R runs, each run with the bits that it has alone.

Shape legend: `R` runs, `n` matrices of a run, `P` products in all, `N` rows, `I` numbers in, `O` numbers out.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.compiler import is_compiling

LARGE_PRODUCT = 2**24
"""Multiplications of a run from which products of single runs are faster on a CPU than MKL's batched ones."""
ONEDNN_FROM = 2**21
"""Multiplications of one product from which oneDNN is faster than MKL where `onednn_is_faster`."""
ZEN_5 = 0x1A
"""AMD's number of the family."""
ALIGNED = 4
"""In numbers. Where a run's matrices do not start at multiples of 16 bytes, MKL on AVX2 (seen on an AMD EPYC, not on
Intel's with AVX-512) rounds otherwise; those of a run alone always do."""


def aligned(a: Tensor, b: Tensor, num_runs: int) -> bool:
    """Return whether each run's part of a (..., N, I), b (..., I, O) and their product is a multiple of 16 bytes."""
    sizes = (a.numel(), b.numel(), a.numel() // a.shape[-1] * b.shape[-1])
    return not any(size // num_runs % ALIGNED for size in sizes)


def product(a: Tensor, b: Tensor, bias: Tensor | None = None, *, num_runs: int) -> Tensor:
    """Multiply (R n, N, I) by (R n, I, O) and add (R n, 1, O), if given: each run has the bits that it has alone."""
    if num_runs > 1 and a.device.type == "cpu" and not aligned(a, b, num_runs):
        operands = (a, b) if bias is None else (a, b, bias)
        each = zip(*[operand.chunk(num_runs) for operand in operands], strict=True)
        return torch.cat([product(*[chunk.clone() for chunk in chunks], num_runs=1) for chunks in each])
    return batched(a, b, bias)


def batched(a: Tensor, b: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """Multiply (P, N, I) by (P, I, O) and add (P, 1, O), if given, as torch does or faster; `out` (P, N, O)."""
    on_cpu = a.device.type == "cpu" and a.dtype == torch.float32 and not is_compiling()
    if on_cpu and multiplications(a, b) >= ONEDNN_FROM and onednn_is_faster():
        return by_onednn(a, b, bias, a.new_empty(*a.shape[:2], b.shape[2]) if out is None else out)
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
    return torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512"


def is_zen_5(cpuinfo: str) -> bool:
    """Return whether /proc/cpuinfo is of an AMD CPU of Zen 5 or later; Zen 4 computes AVX-512 in two halves."""
    family = re.search(r"^cpu family\s*:\s*(\d+)$", cpuinfo, re.MULTILINE)
    return "AuthenticAMD" in cpuinfo and family is not None and int(family[1]) >= ZEN_5


def by_onednn(a: Tensor, b: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    """Do `batched`, one matrix after the other, by the operation that torch's compiler calls for fp32 layers."""
    for index, (rows, weight) in enumerate(zip(a, b.mT, strict=True)):
        its_bias = None if bias is None else bias[index, 0]
        out[index] = torch.ops.mkldnn._linear_pointwise(_whole(rows), _whole(weight), its_bias, "none", [], "")
    return out


def _whole(matrix: Tensor) -> Tensor:
    """Return a matrix without gaps in memory: of others, oneDNN has but a slow reference (0.1 GFLOP/s was seen)."""
    return matrix if matrix.is_contiguous() or matrix.mT.is_contiguous() else matrix.contiguous()
