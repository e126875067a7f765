"""The copy on this machine of a results directory that is in an object store: all code but this works on the copy.

Data flows one way at a time. A reader pulls: the copy becomes what the store holds. A `run` pulls before it begins, and
from then on the store follows the copy (`sweep.store.writing`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from filelock import FileLock

from .errors import reason
from .files import cache_folder, is_locked, make_folder, remove_tree, write_bytes
from .object_store import PATIENCE_S, ObjectStore, StoreError, checked, reachable

KEPT = {
    "runs": re.compile(r"runs/[^/.][^/]*\.parquet"),
    "curves": re.compile(r"curves/[^/.][^/]*\.parquet"),
    "studies": re.compile(r"studies/[^/.][^/]*/[^/.][^/]*"),
    "pretrained": re.compile(r"pretrained/(?!\.|[^/]*\.partial-)[^/]+/[^/.][^/]*"),
}
"""What of each folder is copied. Reports are left out, which are made again, and checkpoints, which workers fetch."""
FORMAT_FILE, WRITER_LOCK = "format.json", "writer.lock"
LOCK = "writer.json"
"""In the store: the process that writes there (`sweep.store.writing`), as a directory has it; `{}`: there is none."""

THREADS = 16
"""Objects fetched at once: they are small, and a store takes some ten milliseconds for each."""
INCOMING = ".incoming"
"""In the copy: the objects that a pull has fetched before it ends, by name and version. The next pull uses them."""
FETCHED = ".fetched.json"
"""In the copy: the version and the time of change of each file that was fetched."""


def working_copy(uri: str) -> Path:
    """Return the folder of a store's copy, below `stores` in the cache folder."""
    readable = re.sub(r"[^a-z0-9]+", "-", uri.lower()).strip("-")[:60]
    digest = hashlib.sha256(checked(uri).encode()).hexdigest()[:12]
    return cache_folder() / "stores" / f"{readable}-{digest}"


def refresh(
    uri: str, *, weights: bool = False, curves: bool = True, patience_s: float = PATIENCE_S
) -> Path:
    """Make this machine's copy what the store holds, unless a `run` here writes to it: then the copy is ahead.

    `weights`: fetch pretrained weights, too. `curves`: see `pull`. Raises StoreError if the store gives no answer for
    `patience_s`, or there is none.
    """
    copy = working_copy(uri)
    make_folder(copy)
    with FileLock(copy / ".pull.lock"):
        if not is_locked(copy / WRITER_LOCK):
            pull(ObjectStore(uri, patience_s=patience_s), copy, weights=weights, curves=curves)
    return copy


def pull(store: ObjectStore, copy: Path, *, weights: bool = False, curves: bool = True) -> None:
    """Fetch what differs, remove what the store does not have; the copy changes once all has been fetched.

    At any moment each row in the copy has its curve, unless no pull has fetched all curves so far, and `curves` is
    False: then only those of runs without a row are fetched. Raises StoreError if the store cannot be reached, or
    holds something else.
    """
    with reachable(store.uri):
        known, has_curves = _fetched(copy), _has_curves(copy)
        if (format_file := store.find(FORMAT_FILE)) is not None:
            write_bytes(copy / FORMAT_FILE, format_file.content, durable=False)
        elif strange := next((name for name, _ in store.listed() if name != LOCK), None):
            raise StoreError(
                f"{store.uri} holds {strange!r} and no record of ours (no {FORMAT_FILE}): choose another prefix"
            )
        gone, wanted = _differing(store, copy, "runs", known)
        # Before curves are listed: a writer uploads a run's curve before its row.
        _fetch(store, copy, wanted)
        ended = _files_of(copy, "runs") - _names(gone) | _names(wanted)
        for folder in ("curves", "studies", *(["pretrained"] if weights else [])):
            gone_here, changed = _differing(store, copy, folder, known)
            if folder == "curves" and not (curves or has_curves):
                left_out = [name for name in changed if Path(name).name in ended]
                for name in left_out:
                    del changed[name]
            gone += gone_here if folder != "pretrained" else []
            wanted |= changed
        _fetch(store, copy, wanted)
        _place(copy, gone, wanted, known)


def _has_curves(copy: Path) -> bool:
    """Return whether the copy has the curve of each row: commands that read curves may be at work there."""
    rows = _files_of(copy, "runs")
    return bool(rows) and rows <= _files_of(copy, "curves")


def _files_of(copy: Path, folder: str) -> set[str]:
    return {path.name for path in (copy / folder).glob("*.parquet")}


def _names(files: Iterable[str]) -> set[str]:
    return {Path(name).name for name in files}


def _fetch(store: ObjectStore, copy: Path, versions: Mapping[str, str]) -> None:
    """Fetch objects into `INCOMING`, many at once; those that were removed since they were listed are left out."""

    def fetch(name: str) -> None:
        path = _incoming(copy, name, versions[name])
        if path.exists():
            return
        if name.endswith(".safetensors"):
            with suppress(FileNotFoundError):
                store.download(name, path)
        elif (stored := store.find(name)) is not None:
            write_bytes(path, stored.content, durable=False)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(fetch, versions))


def _incoming(copy: Path, name: str, version: str) -> Path:
    return copy / INCOMING / f"{name}.{hashlib.sha256(version.encode()).hexdigest()[:16]}"


def _place(copy: Path, gone: Iterable[str], versions: Mapping[str, str], known: Fetched) -> None:
    """Move what was fetched to its place; each file comes after what it refers to, and rows go before their curves."""
    rows = [name for name in versions if name.startswith("runs/")]
    for name in (*rows, *sorted(gone, key=lambda name: not name.startswith("runs/"))):
        (copy / name).unlink(missing_ok=True)
    for name in sorted(
        versions, key=lambda name: (name.startswith("runs/"), name.endswith(".safetensors"))
    ):
        with suppress(FileNotFoundError):
            make_folder((copy / name).parent)
            _incoming(copy, name, versions[name]).replace(copy / name)
            known[name] = (versions[name], (copy / name).stat().st_mtime_ns)
    write_bytes(copy / FETCHED, json.dumps(known).encode(), durable=False)
    remove_tree(copy / INCOMING)


Fetched = dict[str, tuple[str, int]]
"""The version of each file of a copy in the store, and its time of change on this machine, in ns."""


def _fetched(copy: Path) -> Fetched:
    try:
        known = json.loads((copy / FETCHED).read_text())
        return {name: tuple(versions) for name, versions in known.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _differing(
    store: ObjectStore, copy: Path, folder: str, known: Fetched
) -> tuple[list[str], dict[str, str]]:
    """Return the files of a folder that the store does not have, and the versions of those that are to be fetched."""
    kept, here = KEPT[folder].fullmatch, dict[str, int]()
    there = {name: version for name, version in store.names(folder).items() if kept(name)}
    for path in (copy / folder).rglob("*"):
        name = str(path.relative_to(copy))
        if path.is_file() and kept(name):
            here[name] = path.stat().st_mtime_ns
    changed = {
        name: version
        for name, version in there.items()
        if known.get(name) != (version, here.get(name))
    }
    return sorted(here.keys() - there.keys()), changed


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
