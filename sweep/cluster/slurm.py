"""`python -m lr_sweep.sweep.cluster.slurm wait|recorded ...`: what docs/cluster/sweep.sbatch asks of the program."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lr_sweep.analysis.record.paths import Paths
from lr_sweep.common.object_store import ObjectStore, local_path
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


def recorded(*arguments: str) -> int:
    """Print a digest that changes with progress, for the results directory that these arguments of `run` name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", default="results")
    results = parser.parse_known_args(arguments)[0].results
    print(hashlib.sha256(repr(sorted(_files(results))).encode()).hexdigest())
    return 0


def _files(results: str) -> list[tuple[str, str]]:
    """Return what grows as something is trained: names of files, which have steps in them, with sizes or versions."""
    root = local_path(results)
    paths = Paths(root or Path())
    folders = (paths.runs, paths.curves, paths.all_checkpoints, paths.pretrained)
    if root is None:
        store = ObjectStore(results)
        return [item for folder in folders for item in store.names(str(folder)).items()]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return [(str(path), str(path.stat().st_size)) for path in files]


if __name__ == "__main__":
    actions: dict[str, Callable[..., int]] = {"wait": wait, "recorded": recorded}
    sys.exit(actions[sys.argv[1]](*sys.argv[2:]))
