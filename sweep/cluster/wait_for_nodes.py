"""`python -m lr_sweep.sweep.cluster.wait_for_nodes HOST:PORT NUMBER SECONDS`: waits for Ray on a job's nodes."""

from __future__ import annotations

import sys
import time

from lr_sweep.trainables.ray_internals import num_nodes

POLL_S = 1.0


def wait_for_nodes(address: str, number: int, patience_s: float) -> int:
    """Return how many nodes a Ray cluster has, as soon as it has `number` of them, or after `patience_s`."""
    deadline, there = time.monotonic() + patience_s, 0
    while there < number and time.monotonic() < deadline:
        there = num_nodes(address)
        time.sleep(POLL_S if there < number else 0.0)
    return there


def main(address: str, number: str, patience_s: str) -> int:
    """Print how many nodes are there where some are missing; return the exit code, 1 then."""
    there = wait_for_nodes(address, int(number), float(patience_s))
    if there == int(number):
        return 0
    print(
        f"error: Ray started on {there} of {number} nodes within {patience_s} s; its messages are above. Leave nodes "
        f"that are broken out with `sbatch --exclude`.",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
