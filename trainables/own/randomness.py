"""The random generators that a training function draws from without naming them: seeded, saved, restored."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

LARGEST_NUMPY_SEED = 2**32


def seed_generators(seed: int) -> None:
    """Seed torch (all devices), numpy and `random`."""
    torch.manual_seed(seed)
    np.random.seed(seed % LARGEST_NUMPY_SEED)
    random.seed(seed)


def generator_states() -> dict[str, Any]:
    """Return the states of these generators: tensors, arrays, lists and numbers."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return {
        "torch": torch.get_rng_state(),
        "cuda": cuda,
        "numpy": np.random.get_state(legacy=False),
        "random": random.getstate(),
    }


def restore_generators(states: dict[str, Any]) -> None:
    """Restore what `generator_states` returned."""
    torch.set_rng_state(states["torch"])
    if states["cuda"]:
        torch.cuda.set_rng_state_all(states["cuda"])
    np.random.set_state(states["numpy"])
    random.setstate(states["random"])
