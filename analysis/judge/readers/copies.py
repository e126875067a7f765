"""Copies of what is read by a library that may write to what it opens, as MLflow upgrades databases."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from lr_sweep.common.errors import UserError

TRIES = 5
JOURNALS = ("-wal", "-journal")
"""Endings of the files beside a database of SQLite that hold its last changes."""


@contextmanager
def copied(path: Path) -> Iterator[Path]:
    """Copy a file, a database with its journals, into a temporary folder; raises UserError while another writes it."""
    path = path.resolve()  # SQLite, too, has the journals beside the file that a link leads to
    with TemporaryDirectory(prefix="lr-sweep-") as folder:
        copy = Path(folder) / "copy"
        copies = {path.with_name(path.name + end): Path(f"{copy}{end}") for end in ("", *JOURNALS)}
        for _ in range(TRIES):
            before = _states(copies)
            for file, to in copies.items():
                to.unlink(missing_ok=True)
                if file.is_file():
                    shutil.copyfile(file, to)
            if _states(copies) == before:
                break
        else:
            raise UserError(f"{path} changed while it was copied, {TRIES} times: read it once no program writes to it")
        yield copy


def _states(files: Iterable[Path]) -> list[tuple[int, int] | None]:
    found = [file.stat() if file.is_file() else None for file in files]
    return [stat and (stat.st_size, stat.st_mtime_ns) for stat in found]
