"""The copy on this machine of a results directory that is in an object store: all code but this works on the copy.

Data flows one way at a time. A reader pulls: the copy becomes what the store holds. A `run` pulls before it begins, and
from then on the store follows the copy (`sweep.store_push`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from analysis.record import new_index
from analysis.run_index import index_path
from analysis.store import Stamp, Store, StoreError, checked, told

KEPT = {
    "runs": re.compile(r"runs/[^/.][^/]*\.parquet"),
    "curves": re.compile(r"curves/[^/.][^/]*\.parquet"),
    "studies": re.compile(r"studies/[^/]+/[^/.][^/]*"),
    "pretrained": re.compile(r"pretrained/(?!\.|[^/]*\.partial-)[^/]+/[^/.][^/]*"),
}
"""What of each folder is copied. Reports are left out: they are made anew; and checkpoints: workers fetch theirs."""
FORMAT_FILE = "format.json"

THREADS = 16
"""Objects fetched at once: they are small, and a store takes some ten milliseconds for each."""
SETTLED_NS = 60_000_000_000
"""Stamps have whole seconds: an object younger than this may change and keep its stamp, and is fetched again."""
STAMPS = ".stamps.json"
"""In the copy: the stamps of what was fetched."""


def working_copy(uri: str) -> Path:
    """Return the folder of a store's copy: below `lr-sweep/stores` in `$XDG_CACHE_HOME`, else in `~/.cache`."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    readable = re.sub(r"[^a-z0-9]+", "-", uri.partition("?")[0].lower()).strip("-")[:60]
    digest = hashlib.sha256(checked(uri).encode()).hexdigest()[:12]
    return base / "lr-sweep" / "stores" / f"{readable}-{digest}"


def refresh(uri: str, *, weights: bool = False) -> Path:
    """Make this machine's copy what the store holds, unless a `run` here writes to it: then the copy is ahead.

    Args:
        uri: of the store.
        weights: fetch pretrained weights, too.

    Raises:
        StoreError: the store cannot be reached, or there is none.
    """
    copy = working_copy(uri)
    copy.mkdir(parents=True, exist_ok=True)
    with FileLock(copy / ".pull.lock"):
        if not _is_written(copy):
            pull(Store(uri), copy, weights=weights)
            with suppress(OSError):  # an index only saves time
                if (index := new_index(copy, time.time_ns())) is not None:
                    write_whole(index_path(copy), index)
    return copy


def _is_written(copy: Path) -> bool:
    if not (copy / "writer.lock").exists():
        return False
    try:
        with FileLock(copy / "writer.lock", timeout=0):
            return False
    except Timeout:
        return True


def pull(store: Store, copy: Path, *, weights: bool = False) -> None:
    """Fetch what differs, remove what the store does not have; at any moment each row in the copy has its curve.

    Raises:
        StoreError: the store cannot be reached, or holds something else.
    """
    with told(store.uri):
        stamps = _Stamps(copy)
        rows = stamps.differing(store, "runs")
        for name in (*rows.gone, *rows.changed):
            (copy / name).unlink(missing_ok=True)
        # Content of rows first, then curves: a writer's curve comes before its row.
        contents = _read_all(store, rows.changed)
        curves, studies = stamps.differing(store, "curves"), stamps.differing(store, "studies")
        others = curves.changed | studies.changed
        if (found := store.stamp(FORMAT_FILE)) is not None:
            others[FORMAT_FILE] = found
        elif not store.has_bucket():
            raise StoreError(f"cannot use {store.uri}: there is no such bucket, or it is not yours to list")
        elif strange := sorted(store.top() - {"writers"}):
            raise StoreError(
                f"{store.uri} holds {strange[0]!r} and no record of ours (no {FORMAT_FILE}): choose another prefix"
            )
        if weights:
            others |= stamps.differing(store, "pretrained").changed
        for name in (*curves.gone, *studies.gone):
            (copy / name).unlink(missing_ok=True)
        contents = _read_all(store, others) | contents
        for name in sorted(contents, key=_place):
            write_whole(copy / name, contents[name])
        stamps.remember(rows.changed | others)


def _place(name: str) -> tuple[bool, bool]:
    """Order files so that each comes after what it speaks of: rows last, weights after the facts about them."""
    return name.startswith("runs/"), name.endswith(".safetensors")


@dataclass(frozen=True)
class _Differing:
    """Files of a folder of the copy that are not what the store holds."""

    gone: list[str]
    """That the store does not have."""
    changed: dict[str, Stamp]
    """That are to be fetched."""


class _Stamps:
    """What is known of the files of a copy: the stamp of the object that each was, and its own time when it was."""

    def __init__(self, copy: Path) -> None:
        self.copy = copy
        try:
            self._known = {name: tuple(known) for name, known in json.loads((copy / STAMPS).read_text()).items()}
        except (OSError, ValueError, TypeError):
            self._known = {}

    def differing(self, store: Store, folder: str) -> _Differing:
        """Compare a folder of the store with the copy's."""
        there = {name: stamp for name, stamp in store.names(folder).items() if KEPT[folder].fullmatch(name)}
        paths = {str(path.relative_to(self.copy)) for path in (self.copy / folder).rglob("*") if path.is_file()}
        here = {name for name in paths if KEPT[folder].fullmatch(name)}
        changed = {
            name: stamp
            for name, stamp in there.items()
            if name not in here or self._known.get(name) != (*astuple(stamp), self._modified_ns(name))
        }
        return _Differing(sorted(here - there.keys()), changed)

    def remember(self, fetched: dict[str, Stamp]) -> None:
        """Write down what was fetched, but for what may still change within its second."""
        now = time.time_ns()
        for name, stamp in fetched.items():
            self._known.pop(name, None)
            if stamp.modified_ns < now - SETTLED_NS and (self.copy / name).exists():
                self._known[name] = (*astuple(stamp), self._modified_ns(name))
        write_whole(self.copy / STAMPS, json.dumps(self._known).encode())

    def _modified_ns(self, name: str) -> int:
        return (self.copy / name).stat().st_mtime_ns


def _read_all(store: Store, names: Iterable[str]) -> dict[str, bytes]:
    """Read objects at once; those that were removed since they were listed are left out."""

    def read(name: str) -> tuple[str, bytes | None]:
        try:
            return name, store.read(name)
        except FileNotFoundError:
            return name, None

    with ThreadPoolExecutor(THREADS) as pool:
        return {name: content for name, content in pool.map(read, names) if content is not None}


def write_whole(path: Path, content: bytes) -> None:
    """Write a file of the copy, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_bytes(content)
    partial.replace(path)


def publish(uri: str, copy: Path, folder: Path) -> str:
    """Put a report that was written into the copy into the store; return where it is, or why not.

    Args:
        uri: of the store.
        copy: its working copy.
        folder: of the report.
    """
    name, store = str(folder.relative_to(copy)), Store(uri)
    here = {str(path.relative_to(copy)): path for path in folder.rglob("*") if path.is_file()}
    try:
        for path in here:
            store.write(path, here[path].read_bytes())
        for gone in store.names(name).keys() - here:
            store.remove(gone)
    except OSError as problem:  # who may read may not be one who may write
        return f"not put into {store.uri} ({str(problem).splitlines()[0]})"
    return f"{store.uri.partition('?')[0]}/{name}"
