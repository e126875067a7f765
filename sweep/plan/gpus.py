"""GPUs that `plan --device` knows, by their makers' figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lr_sweep.trainables.run import Precision


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """What a GPU is said to do."""

    title: str
    marking: str
    """Part of the name by which torch calls it, so that timings of it are recognised."""
    memory_bytes: float
    bytes_per_s: float
    """Bandwidth of its memory."""
    flops: Mapping[Precision, float]
    """Peak arithmetic per second by what matrix products are computed in, dense."""
    source: str


def _gpu(title: str, marking: str, memory_gb: float, gb_per_s: float, tflops: tuple[float, ...], source: str) -> Gpu:
    precisions: tuple[Precision, ...] = ("fp32", "tf32", "bf16")
    flops = {precision: 1e12 * each for precision, each in zip(precisions, tflops, strict=True)}
    memory, bandwidth = 1e9 * memory_gb, 1e9 * gb_per_s
    return Gpu(title=title, marking=marking, memory_bytes=memory, bytes_per_s=bandwidth, flops=flops, source=source)


GPUS = {
    "a100": _gpu("A100 SXM 80 GB", "A100", 80, 2039, (19.5, 156, 312), "NVIDIA A100 data sheet"),
    "h100": _gpu("H100 SXM 80 GB", "H100", 80, 3350, (67, 494.5, 989.5), "NVIDIA H100 data sheet; half of 'sparse'"),
    "h200": _gpu("H200 SXM 141 GB", "H200", 141, 4800, (67, 494.5, 989.5), "NVIDIA H200 data sheet; half of 'sparse'"),
    "l4": _gpu("L4 24 GB", "L4", 24, 300, (30.3, 60, 121), "NVIDIA L4 data sheet; half of 'sparse'"),
    "a10g": _gpu("A10G 24 GB", "A10G", 24, 600, (31.2, 35, 70), "NVIDIA A10G data sheet; fp32 as of the A10"),
    "rtx4090": _gpu("RTX 4090 24 GB", "RTX 4090", 24, 1008, (82.6, 82.6, 165.2), "NVIDIA Ada architecture white paper"),
}
