"""The copy on this machine of a results directory that is in an object store: all code but this works on the copy.

Data flows one way at a time. A reader pulls: the copy becomes what the store holds. A `run` pulls before it begins, and
from then on the store follows the copy (`sweep.store.push`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from filelock import FileLock

from lr_sweep.analysis.record.index import write_index
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.common.errors import reason
from lr_sweep.common.files import cache_folder, is_locked, write_bytes
from lr_sweep.common.object_store import ObjectStore, StoreError, checked, reachable

KEPT = {
    "runs": re.compile(r"runs/[^/.][^/]*\.parquet"),
    "curves": re.compile(r"curves/[^/.][^/]*\.parquet"),
    "studies": re.compile(r"studies/[^/.][^/]*/[^/.][^/]*"),
    "pretrained": re.compile(r"pretrained/(?!\.|[^/]*\.partial-)[^/]+/[^/.][^/]*"),
}
"""What of each folder is copied. Reports are left out, which are made again, and checkpoints, which workers fetch."""
FORMAT_FILE = "format.json"
LOCK = "writer.json"
"""In the store: the process that writes there (`sweep.store.lock`), as a directory has it; `{}`: there is none."""

THREADS = 16
"""Objects fetched at once: they are small, and a store takes some ten milliseconds for each."""
FETCHED = ".fetched.json"
"""In the copy: the version and the time of change of each file that was fetched."""


def working_copy(uri: str) -> Path:
    """Return the folder of a store's copy, below `stores` in the cache folder."""
    readable = re.sub(r"[^a-z0-9]+", "-", uri.lower()).strip("-")[:60]
    digest = hashlib.sha256(checked(uri).encode()).hexdigest()[:12]
    return cache_folder() / "stores" / f"{readable}-{digest}"


def refresh(uri: str, *, weights: bool = False) -> Path:
    """Make this machine's copy what the store holds, unless a `run` here writes to it: then the copy is ahead.

    `weights`: fetch pretrained weights, too. Raises StoreError if the store cannot be reached, or there is none.
    """
    copy = working_copy(uri)
    copy.mkdir(parents=True, exist_ok=True)
    with FileLock(copy / ".pull.lock"):
        if not is_locked(Paths(copy).writer_lock):
            pull(ObjectStore(uri), copy, weights=weights)
            write_index(copy)
    return copy


def pull(store: ObjectStore, copy: Path, *, weights: bool = False) -> None:
    """Fetch what differs, remove what the store does not have; at any moment each row in the copy has its curve.

    Raises StoreError if the store cannot be reached, or holds something else.
    """
    with reachable(store.uri):
        known = _fetched(copy)
        gone, rows = _differing(store, copy, "runs", known)
        for name in (*gone, *rows):
            (copy / name).unlink(missing_ok=True)
        contents = _read_all(store, rows)  # before curves: a writer uploads a run's curve before its row
        gone_curves, curves = _differing(store, copy, "curves", known)
        gone_studies, studies = _differing(store, copy, "studies", known)
        others = curves | studies
        if weights:
            others |= _differing(store, copy, "pretrained", known)[1]
        if (found := store.find(FORMAT_FILE)) is not None:
            contents[FORMAT_FILE] = found.content
        elif strange := next((name for name, _ in store.listed() if name != LOCK), None):
            raise StoreError(
                f"{store.uri} holds {strange!r} and no record of ours (no {FORMAT_FILE}): choose another prefix"
            )
        for name in (*gone_curves, *gone_studies):
            (copy / name).unlink(missing_ok=True)
        contents = _read_all(store, others) | contents
        # Each file comes after what it refers to: rows last, weights after the facts about them.
        for name in sorted(contents, key=lambda name: (name.startswith("runs/"), name.endswith(".safetensors"))):
            write_bytes(copy / name, contents[name], durable=False)
        known |= {
            name: (version, (copy / name).stat().st_mtime_ns)
            for name, version in (rows | others).items()
            if name in contents
        }
        write_bytes(copy / FETCHED, json.dumps(known).encode(), durable=False)


Fetched = dict[str, tuple[str, int]]
"""The version of each file of a copy in the store, and its time of change on this machine, in ns."""


def _fetched(copy: Path) -> Fetched:
    try:
        return {name: tuple(known) for name, known in json.loads((copy / FETCHED).read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _differing(store: ObjectStore, copy: Path, folder: str, known: Fetched) -> tuple[list[str], dict[str, str]]:
    """Return the files of a folder that the store does not have, and the versions of those that are to be fetched."""
    there = {name: version for name, version in store.names(folder).items() if KEPT[folder].fullmatch(name)}
    paths = {str(path.relative_to(copy)): path for path in (copy / folder).rglob("*") if path.is_file()}
    here = {name: path.stat().st_mtime_ns for name, path in paths.items() if KEPT[folder].fullmatch(name)}
    changed = {
        name: version for name, version in there.items() if name not in here or known.get(name) != (version, here[name])
    }
    return sorted(here.keys() - there.keys()), changed


def _read_all(store: ObjectStore, names: Iterable[str]) -> dict[str, bytes]:
    """Read objects at once; those that were removed since they were listed are left out."""
    listed = list(names)
    with ThreadPoolExecutor(THREADS) as pool:
        return {name: found.content for name, found in zip(listed, pool.map(store.find, listed), strict=True) if found}


def publish(uri: str, copy: Path, folder: Path) -> str:
    """Put the folder of a report in a store's working copy into the store; return where it is, or why not."""
    name, store = str(folder.relative_to(copy)), ObjectStore(uri)
    here = {str(path.relative_to(copy)): path for path in folder.rglob("*") if path.is_file()}
    try:
        for path in here:
            store.write(path, here[path].read_bytes())
        for gone in store.names(name).keys() - here:
            store.remove(gone)
    except OSError as problem:  # who may read may not be one who may write
        return f"not put into {store.uri} ({reason(problem)})"
    return f"{store.uri}/{name}"
