"""GPUs that `plan --device` knows, by their makers' figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lr_sweep.trainables.run import Precision


@dataclass(frozen=True)
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


def _peaks(fp32: float, tf32: float, bf16: float) -> dict[Precision, float]:
    """Give peaks in TFLOP/s."""
    return {"fp32": 1e12 * fp32, "tf32": 1e12 * tf32, "bf16": 1e12 * bf16}


_HOPPER, _SHEET = _peaks(67, 494.5, 989.5), "data sheet; half of 'sparse'"
GPUS = {
    "a100": Gpu("A100 SXM 80 GB", "A100", 80e9, 2039e9, _peaks(19.5, 156, 312), "NVIDIA A100 data sheet"),
    "h100": Gpu("H100 SXM 80 GB", "H100", 80e9, 3350e9, _HOPPER, f"NVIDIA H100 {_SHEET}"),
    "h200": Gpu("H200 SXM 141 GB", "H200", 141e9, 4800e9, _HOPPER, f"NVIDIA H200 {_SHEET}"),
    "l4": Gpu("L4 24 GB", "L4", 24e9, 300e9, _peaks(30.3, 60, 121), f"NVIDIA L4 {_SHEET}"),
    "a10g": Gpu("A10G 24 GB", "A10G", 24e9, 600e9, _peaks(31.2, 35, 70), "NVIDIA A10G data sheet; fp32 as of the A10"),
    "rtx4090": Gpu(
        "RTX 4090 24 GB", "RTX 4090", 24e9, 1008e9, _peaks(82.6, 82.6, 165.2), "NVIDIA Ada architecture white paper"
    ),
}
