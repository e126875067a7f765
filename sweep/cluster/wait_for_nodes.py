"""`python -m lr_sweep.sweep.cluster.wait_for_nodes HOST:PORT NUMBER SECONDS`: waits for Ray on a job's nodes."""

from __future__ import annotations

import sys
import time

POLL_S = 1.0


def wait_for_nodes(address: str, number: int, patience_s: float) -> int:
    """Return how many nodes a Ray cluster has, as soon as it has `number` of them, or after `patience_s`."""
    deadline, there = time.monotonic() + patience_s, 0
    while there < number and time.monotonic() < deadline:
        there = nodes_there(address)
        time.sleep(POLL_S if there < number else 0.0)
    return there


def nodes_there(address: str) -> int:
    """Return how many nodes a Ray cluster has; 0: its head does not answer yet."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # Ray's stub lacks it
    from ray.core.generated.gcs_pb2 import GcsNodeInfo
    from ray.exceptions import RpcError

    try:
        nodes = GcsClient(address=address).get_all_node_info(timeout=5).values()
    except RpcError:
        return 0
    return sum(node.state == GcsNodeInfo.GcsNodeState.ALIVE for node in nodes)


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
