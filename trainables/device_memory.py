"""What a trial may take of the memory of the device that it is on."""

from __future__ import annotations

import os

import torch

USABLE = 0.85
"""Of a trial's share; the rest is for what is not predicted: libraries' workspaces, the allocator's holes."""
PROCESS_BYTES = 1.0e9
"""Of a worker on a CPU before it trains anything: Python, torch, Ray (measured: 0.95 GB)."""


def share_memory(device: str, share: float) -> float:
    """Return the bytes a trial may plan with; on a GPU that trials share, hold this process to its part as well.

    Args:
        device: `cpu` or `cuda`.
        share: GPUs that the trial holds, at most 1, or CPUs.
    """
    if device == "cuda":
        if share < 1:  # Ray only counts fractions; nothing else divides a GPU's memory
            torch.cuda.set_per_process_memory_fraction(share)
        return USABLE * share * torch.cuda.get_device_properties(0).total_memory
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return USABLE * physical * min(1.0, share / (os.cpu_count() or 1)) - PROCESS_BYTES
