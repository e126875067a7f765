"""ListOps examples on disk, generated or read from the release: one folder for whatever determines them."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from datasets import files
from datasets.listops_tokens import Examples
from datasets.task import DataError

_ARRAYS = ("inputs", "labels", "lengths")
_MANIFEST = "sha256.json"
_log = logging.getLogger(__name__)


class NoPlaceError(DataError):
    """No folder can be written."""


def ensure(data_dir: Path, name: str, make: Callable[[], Examples]) -> Path:
    """Find the folder of examples below the data directory or the user's cache, or make it; once, under a lock.

    A data directory that can't be written gets its examples in the user's cache folder (`files.cache_dir`).

    Args:
        data_dir: the data directory.
        name: of the folder; identifies the examples.
        make: makes the examples.

    Returns:
        The folder, for `read`.

    Raises:
        NoPlaceError: no folder can be written.
        DataError: the data directory does not exist, or `make` fails.
    """
    files.require_folder(data_dir)
    for place in (data_dir, files.cache_dir()):
        if _folder(place, name).exists():
            return _folder(place, name)
    place = _choose_writable(data_dir)
    folder = _folder(place, name)
    with files.locked(place, "listops"):
        if not folder.exists():
            _log.info("making ListOps examples in %s", folder)
            _write(folder, make())
    return folder


def read(folder: Path) -> Examples:
    """Read and verify what `ensure` wrote.

    Raises:
        DataError: a file is missing or corrupted.
    """
    wanted = _read_manifest(folder)
    for name in _ARRAYS:
        path = folder / f"{name}.npy"
        if not path.is_file() or files.hash_file(path) != wanted.get(name):
            raise _corrupted(path)
    return Examples(**{name: np.load(folder / f"{name}.npy", allow_pickle=False) for name in _ARRAYS})


def _choose_writable(data_dir: Path) -> Path:
    if files.is_writable(data_dir):
        return data_dir
    fallback = files.cache_dir()
    files.require_folder(fallback)
    if not files.is_writable(fallback):
        raise NoPlaceError(
            f"listops: examples can be written neither to {data_dir} nor to {fallback}. Name a folder that can."
        )
    return fallback


def _folder(place: Path, name: str) -> Path:
    return place / "listops" / name


def _write(folder: Path, examples: Examples) -> None:
    """Write beside, then rename: the folder is there with all its files or not at all."""
    folder.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".generating-") as scratch:
        whole = Path(scratch) / "whole"  # a folder of its own, as the temporary one is closed to other users
        whole.mkdir()
        for name in _ARRAYS:
            np.save(whole / f"{name}.npy", getattr(examples, name), allow_pickle=False)
        hashes = {name: files.hash_file(whole / f"{name}.npy") for name in _ARRAYS}
        (whole / _MANIFEST).write_text(json.dumps(hashes, indent=1) + "\n")
        whole.replace(folder)


def _read_manifest(folder: Path) -> dict[str, str]:
    try:
        manifest = json.loads((folder / _MANIFEST).read_text())
    except (FileNotFoundError, ValueError) as error:
        raise _corrupted(folder / _MANIFEST) from error
    if not isinstance(manifest, dict):
        raise _corrupted(folder / _MANIFEST)
    return manifest


def _corrupted(path: Path) -> DataError:
    return DataError(
        f"listops: {path} is missing or corrupted: it is not as it was written. Delete the folder {path.parent} "
        "and run again: the same examples will be made."
    )
