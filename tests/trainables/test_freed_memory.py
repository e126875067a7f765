"""What a step frees, the next one gets without the kernel's help."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from lr_sweep.trainables.memory import keep_freed_memory
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
