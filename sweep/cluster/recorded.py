"""`python -m lr_sweep.sweep.cluster.recorded ARGUMENTS OF run`: prints a digest that changes with progress."""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

from lr_sweep.analysis.record.paths import Paths
from lr_sweep.common.object_store import ObjectStore, local_path


def main(*arguments: str) -> int:
    """Print the digest of the results directory that the arguments name."""
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
    sys.exit(main(*sys.argv[1:]))
