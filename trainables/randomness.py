"""Random numbers keyed by (seed, purpose, step), so that they depend on nothing else."""

from __future__ import annotations

import hashlib

import torch


def keyed_generator(seed: int, purpose: str, step: int = 0, *, device: torch.device | None = None) -> torch.Generator:
    """Return a generator whose stream is a function of its key alone.

    Restarts, worker counts and other runs in the process cannot shift it: nothing is drawn from a shared stream.
    """
    return rekey(torch.Generator(device or "cpu"), seed, purpose, step)


def rekey(generator: torch.Generator, seed: int, purpose: str, step: int) -> torch.Generator:
    """Point an existing generator at another key; cheaper than a new one in the training step."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{step}".encode(), digest_size=8).digest()
    return generator.manual_seed(int.from_bytes(digest, "little") >> 1)  # 63 bits: manual_seed takes a signed integer
