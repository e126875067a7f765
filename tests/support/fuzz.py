"""The limits of a case of random tests."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager

MOST_S, MOST_BYTES = 20.0, 1e9


@contextmanager
def limited(case: object) -> Iterator[None]:
    """Fail if the block takes more than a case may; the time is that of the CPU, whatever else the machine does."""
    began, memory = time.process_time(), _peak_bytes()
    yield
    assert time.process_time() - began < MOST_S, case
    assert _peak_bytes() - memory < MOST_BYTES, case


def _peak_bytes() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
