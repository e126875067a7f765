"""`python -m lr_sweep.sweep.cluster.recorded ARGUMENTS OF run`: prints a digest that changes with progress."""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

from lr_sweep.common.object_store import ObjectStore, local_path

FOLDERS = ("runs", "curves", "checkpoints", "pretrained")
"""Of a results directory: what grows as something is trained."""


def main(*arguments: str) -> int:
    """Print the digest of the results directory that the arguments name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", default="results")
    results = parser.parse_known_args(arguments)[0].results
    print(hashlib.sha256(repr(sorted(_files(results))).encode()).hexdigest())
    return 0


def _files(results: str) -> list[tuple[str, str]]:
    """Return the names of files in `FOLDERS`, which have steps in them, each with its size or version."""
    if (root := local_path(results)) is None:
        store = ObjectStore(results)
        return [item for folder in FOLDERS for item in store.names(folder).items()]
    found = [path for folder in FOLDERS for path in Path(root, folder).rglob("*")]
    return [(str(path), str(path.stat().st_size)) for path in found if path.is_file()]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
