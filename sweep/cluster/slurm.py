"""`python -m lr_sweep.sweep.cluster.slurm HOST:PORT NODES SECONDS`: waits for nodes in docs/cluster/sweep.sbatch.

`ray symmetric-run` (2.60) waits for nodes, too. But it passes no signal to the command that it runs, so a time limit
would end it before the runs are saved, and its `ray stop` ends the Ray of the user's other jobs on the node.
"""

from __future__ import annotations

import sys
import time

from lr_sweep.trainables.worker.ray_internals import num_nodes

POLL_S = 1.0


def wait(address: str, number: str, patience_s: str) -> int:
    """Wait until the Ray at HOST:PORT has so many nodes; return 1 if some are missing after `patience_s`, else 0."""
    deadline = time.monotonic() + float(patience_s)
    while (there := num_nodes(address)) < int(number) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    if there >= int(number):
        return 0
    print(
        f"error: Ray started on {there} of {number} nodes within {patience_s} s; its messages are above. Leave nodes "
        f"that are broken out with `sbatch --exclude`.",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(wait(*sys.argv[1:]))
