"""What a process keeps of the runs that it has trained."""

from __future__ import annotations

import platform
import re

import pytest
import torch

from lr_sweep.trainables import memory
from lr_sweep.trainables.memory import KeptMemory

MIB = 2**20


class Cycle:
    """Memory that is freed by Python's collector alone."""

    def __init__(self) -> None:
        self.own, self.memory = self, touched(200)


def touched(mib: int) -> list[torch.Tensor]:
    return [torch.ones(2**12) for _ in range(64 * mib)]


def test_what_stays_is_counted_and_what_is_freed_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_KEPT_BYTES", 100 * MIB)
    kept = KeptMemory()
    library = touched(150)  # by the first run: a library's own, for one
    assert kept.excess() is None
    Cycle()
    assert kept.excess() is None
    leaked = [touched(60)]
    assert kept.excess() is None
    leaked += [touched(60)]
    said = kept.excess()
    assert said is not None
    assert said.startswith(f"a worker on {platform.node()} is replaced: it holds ")
    assert re.search(r" GiB between two runs, 0\.1 more than 3 runs ago\. ", said)
    assert len(library) + len(leaked) > 0
