"""What a process keeps: of memory that a step frees, for the next one; and of the runs that it has trained."""

from __future__ import annotations

import ctypes
import platform
import re
import subprocess
import sys

import pytest
import torch

from lr_sweep.trainables.worker import memory
from lr_sweep.trainables.worker.memory import KeptMemory

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


FAULTS = """
import resource, torch
from lr_sweep.trainables.worker.memory import keep_freed_memory
keep_freed_memory()
def step():  # as an evaluation does: many tensors of megabytes, freed together
    tensors = [torch.zeros(2**18 * n) for n in (1, 5, 3, 7) * 4]
for _ in range(5): step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20): step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc")
def test_memory_that_was_freed_is_used_again_without_page_faults() -> None:
    """Without `keep_freed_memory` about half of such processes fault 200,000 times and more, by their layout."""
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
        assert int(done.stdout) < 100
