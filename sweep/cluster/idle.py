"""`python -m lr_sweep.sweep.cluster.idle MINUTES COMMAND...`: on a head, runs a command once the cluster is idle."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cluster.jobs import ClusterJobs

CHECK_EVERY_S = 60.0


class IdleClock:
    """How long a cluster has been idle; `clock` is in seconds."""

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s, self._clock, self._busy_at = limit_s, clock, clock()

    def expired(self, busy: bool) -> bool:
        """Return whether the cluster has been idle for the limit, at every call since."""
        if busy:
            self._busy_at = self._clock()
        return self._clock() - self._busy_at >= self._limit_s


def is_busy(connect: Callable[[], ClusterJobs] = ClusterJobs) -> bool:
    """Return whether a driver runs or a worker machine is there.

    A head whose job server does not answer is idle: nothing trains without Ray, and `ray up` repairs it in minutes.
    """
    try:
        cluster = connect()
        return cluster.machines() > 1 or cluster.drivers() > 0
    except UserError as problem:
        print(f"not busy: {problem}", flush=True)
        return False


def main(minutes: str, *command: str) -> int:
    """Wait until the cluster has been idle for so many minutes; run the command and return its exit code."""
    idle = IdleClock(60 * float(minutes))
    while not idle.expired(is_busy()):
        time.sleep(CHECK_EVERY_S)
    print(f"idle for {minutes} minutes: {' '.join(command)}", flush=True)
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
