"""In what numbers matrix products are computed; parameters, Adam, norms, softmax and losses are fp32 in any case."""

from __future__ import annotations

import torch
from torch import Tensor

from lr_sweep.trainables.run import Precision


def products_in(precision: Precision, device: torch.device) -> torch.autocast:
    """Set what fp32 products are made of in this process; return the context of forward passes. A CPU has no tf32."""
    if device.type == "cuda":
        torch.backends.cuda.matmul.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    elif precision == "tf32":
        raise ValueError("precision tf32 needs a GPU; a CPU has fp32 and bf16")
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def product_dtype(x: Tensor) -> torch.dtype:
    """Return the type that products of x are computed in here."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def wide_dtype(x: Tensor) -> torch.dtype:
    """Return the type of numbers that are not to be rounded as products are: fp32 for one of fewer bits."""
    return torch.promote_types(x.dtype, torch.float32)


def widened(logits: Tensor) -> Tensor:
    """Return bf16 logits as fp32, others as they are: losses are not to be rounded."""
    return logits.to(wide_dtype(logits))
