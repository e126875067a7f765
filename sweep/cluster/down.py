"""`cluster down`: ends all that a cluster file starts, from any machine that has the key, and looks for what is left.

`ray down` reaches machines of one's own only from where `ray up` ran, and reports success in any case (2.60).
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path

from lr_sweep.common.files import Fields
from lr_sweep.trainables.worker.ray_internals import end_cloud_machines

from .ssh import head_address, read_cluster, ssh

SCRIPT = Path(__file__).with_name("end.sh")
ENDED = "left:\n"
"""The line that the script prints before it lists what is left."""


def end_cluster(cluster_file: Path) -> list[str]:
    """End a cluster's machines, or Ray and MLflow on machines of one's own; return what is left or unknown, as lines.

    Raises UserError for another file, or if Ray cannot end the machines of a cloud.
    """
    cluster = read_cluster(cluster_file)
    provider = cluster["provider"]
    if "head_ip" not in provider:
        return [f"machine {name} is left" for name in end_cloud_machines(cluster_file, cluster)]
    head = head_address(cluster_file, cluster)  # first: it would start Ray on the workers again
    return [*_end(cluster, head), *end_machines(cluster, provider["worker_ips"])]


def end_machines(cluster: Fields, addresses: Sequence[str]) -> list[str]:
    """End Ray on machines of one's own, at once; return what is left or unknown, as lines."""
    with ThreadPoolExecutor() as threads:
        left = threads.map(partial(_end, cluster), addresses)
        return list(chain.from_iterable(left))


def _end(cluster: Fields, address: str) -> list[str]:
    words = [*ssh(cluster, "ConnectTimeout=10"), address, "sh -s"]
    with SCRIPT.open() as script:
        done = subprocess.run(words, stdin=script, stdout=subprocess.PIPE, check=False)
    _, ended, left = done.stdout.decode(errors="replace").partition(ENDED)
    if not ended:
        return [
            f"{address}: not known what is left: ssh failed (code {done.returncode}); its reason is above"
        ]
    return [f"{address}: process {line} is left" for line in left.splitlines()]
