"""Random numbers keyed by (seed, purpose, step), so that they depend on nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def global_generator_keyed(seed: int, purpose: str, device: torch.device) -> Iterator[None]:
    """Key torch's global generator of a device, for code that takes no generator, and put its state back afterwards.

    What is drawn is a function of seed and purpose. The purpose keeps it apart from what a generator with this very
    seed draws.
    """
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng([device] if on_gpu else []):
        of_device = torch.cuda.default_generators[device.index] if on_gpu else torch.default_generator
        rekey(of_device, seed, purpose, 0)
        yield
