"""A report's folder: written beside, then renamed; a study's by one process at a time. Leftovers are found."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from lr_sweep.common.errors import UserError
from lr_sweep.common.files import Fields, is_locked, read_plain, remove_tree

LOCK = ".report.lock"
"""Lock in a study's folder while its report is written. The system releases it when a process dies."""
LIST = "judged.json"
"""Lists the files of a judged table's report: a folder with any other file is never replaced."""
MOST_LISTED = 10_000_000
"""Bytes of `LIST`."""
_SCRATCH = ".report-"


@contextmanager
def new_report(study_dir: Path) -> Iterator[Path]:
    """Yield an empty folder to write to; it replaces `report/` when done.

    Waits for another process that writes the same report, then removes what processes that were killed left.
    """
    with FileLock(study_dir / LOCK):
        for folder in _scratch(study_dir):
            remove_tree(folder)
        with replacing(study_dir / "report") as new:
            yield new


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to write to; it replaces `folder` when done."""
    # Beside its destination, so that renaming does not cross file systems.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        new = Path(scratch) / "new"
        new.mkdir()
        yield new
        _swap(new, folder, Path(scratch) / "old")


@contextmanager
def replacing_ours(folder: Path, about: Fields) -> Iterator[Path]:
    """As `replacing`, with a list of the report's files, and what it is about; raises UserError if others are there."""
    try:
        ours = {LIST, *json.loads(read_plain(folder / LIST, MOST_LISTED))["files"]}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        ours = set()
    if others := sorted({path.name for path in folder.iterdir()} - ours if folder.exists() else ()):
        strange = f"it has files that are not of an earlier `judge`, such as {others[0]}"
        raise UserError(f"--out {folder}: {strange}: name another folder")
    with replacing(folder) as new:
        yield new
        content = {"format": 1, **about, "files": sorted(path.name for path in new.iterdir())}
        (new / LIST).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def abandoned(study_dir: Path) -> list[Path]:
    """Return the folders that killed processes left; none while a report is being written, or that may be so."""
    try:
        return [] if is_locked(study_dir / LOCK) else _scratch(study_dir)
    except OSError:
        return []


def _scratch(study_dir: Path) -> list[Path]:
    return sorted(study_dir.glob(f"{_SCRATCH}*"))


def _swap(new: Path, current: Path, old: Path) -> None:
    """Replace `current` by `new`; on failure the old report stays."""
    if current.exists():
        current.rename(old)
    try:
        new.rename(current)
    except OSError:
        if old.exists():
            old.rename(current)
        raise
