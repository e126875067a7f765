"""How much of this machine other processes use while something is timed."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

PROC_STAT = Path("/proc/stat")
MOST = 0.9
"""Others are never taken to use more: what a process itself did not get is no longer a measure then."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Clocks at one moment, in seconds."""

    wall_s: float
    own_s: float
    """CPU time of this process."""
    all_s: float | None
    """CPU time of all processes and of other virtual machines on the same CPUs; None: the system does not say."""
    cpus: int

    @classmethod
    def now(cls, proc_stat: Path = PROC_STAT) -> Moment:
        """Read the clocks."""
        all_s, cpus = _all_cpu_s(proc_stat)
        return cls(wall_s=time.monotonic(), own_s=time.process_time(), all_s=all_s, cpus=cpus)


def others_share(before: Moment, after: Moment, *, wants_a_cpu: bool) -> float:
    """Return the share of the machine's CPUs that other processes used between two moments, at most `MOST`.

    Args:
        before: when the timing began.
        after: when it ended.
        wants_a_cpu: whether this process had work for one CPU all the time; what it did not get, others had.
    """
    wall_s = max(after.wall_s - before.wall_s, 1e-9)
    own_s = after.own_s - before.own_s
    missed = 1 - own_s / wall_s if wants_a_cpu else 0.0
    if before.all_s is None or after.all_s is None:
        used = max(0.0, os.getloadavg()[0] - 1) / after.cpus
    else:
        used = (after.all_s - before.all_s - own_s) / (wall_s * after.cpus)
    return min(MOST, max(0.0, used, missed))


def _all_cpu_s(proc_stat: Path) -> tuple[float | None, int]:
    """Return the busy time of all CPUs together, and their number, from the counters of Linux."""
    try:
        lines = [line.split() for line in proc_stat.read_text().splitlines() if line.startswith("cpu")]
    except OSError:
        return None, os.cpu_count() or 1
    user, nice, system, _idle, _waiting, irq, softirq, steal = map(int, lines[0][1:9])
    ticks = user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK"), len(lines) - 1
