"""The numbers that engines compute with: the precision of matrix products, and random numbers keyed by their use.

Parameters, optimizers, norms, softmax and losses are fp32 in any precision. Random numbers are a function of
(seed, purpose, step) and depend on nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from .run import Precision

Tensors = dict[str, Tensor]
"""Tensors by name."""
State = tuple[Tensors, dict[str, Any]]
"""What is needed to resume: tensors, and JSON values, which may refer to them."""


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
    """Return the type of what is not to be rounded as products are: fp32 for numbers of fewer bits."""
    return torch.promote_types(x.dtype, torch.float32)


def widened(x: Tensor) -> Tensor:
    """Return bf16 numbers as fp32, others as they are."""
    return x.to(wide_dtype(x))


def keyed_generator(
    seed: int, purpose: str, step: int = 0, *, device: torch.device | None = None
) -> torch.Generator:
    """Return a generator whose stream is a function of its key alone."""
    return rekey(torch.Generator(device or "cpu"), seed, purpose, step)


def rekey(generator: torch.Generator, seed: int, purpose: str, step: int) -> torch.Generator:
    """Point an existing generator at another key; cheaper than a new one in the training step."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{step}".encode(), digest_size=8).digest()
    # 63 bits: manual_seed takes a signed integer.
    return generator.manual_seed(int.from_bytes(digest, "little") >> 1)


@contextmanager
def global_generator_keyed(seed: int, purpose: str, device: torch.device) -> Iterator[None]:
    """Key torch's global generator of a device, for code that takes no generator, and put its state back afterwards.

    The purpose keeps it apart from what a generator with this very seed draws.
    """
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng([device] if on_gpu else []):
        of_device = (
            torch.cuda.default_generators[device.index] if on_gpu else torch.default_generator
        )
        rekey(of_device, seed, purpose, 0)
        yield
