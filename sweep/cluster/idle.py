"""`python -m lr_sweep.sweep.cluster.idle MINUTES COMMAND...`: on a head, runs a command once the cluster is idle."""

from __future__ import annotations

import subprocess
import sys
import time

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cluster.jobs import ClusterJobs

CHECK_EVERY_S = 60.0


def is_busy() -> bool:
    """Return whether a driver runs or a worker machine is there.

    A head whose job server does not answer is idle: nothing trains without Ray, and `ray up` repairs it in minutes.
    """
    try:
        cluster = ClusterJobs()
        return cluster.machines() > 1 or cluster.drivers() > 0
    except UserError as problem:
        print(f"not busy: {problem}", flush=True)
        return False


def main(minutes: str, *command: str) -> int:
    """Wait until the cluster has been idle for so many minutes; run the command and return its exit code."""
    busy_at = time.monotonic()
    while True:
        if is_busy():
            busy_at = time.monotonic()
        elif time.monotonic() - busy_at >= 60 * float(minutes):
            break
        time.sleep(CHECK_EVERY_S)
    print(f"idle for {minutes} minutes: {' '.join(command)}", flush=True)
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
