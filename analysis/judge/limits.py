"""Limits of what `judge` and `gate` read: the bytes of a file, the rows of a table."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import IO

from lr_sweep.common.errors import UserError
from lr_sweep.common.files import Fields, ReadFields, open_plain

MOST_FILES = 100_000
MOST_BYTES = 100_000_000
"""Bytes of a file, and of what is packed in it."""
MOST_FOLDER = 2_000_000_000
"""Bytes of a database, and of the files of a folder."""
MOST_ROWS = 1_000_000
MOST_COLUMNS = 100_000
MOST_FIELDS = 20_000_000
"""Fields of a table; equal rows take next to no space in a packed file."""
MOST_TEXT = 10_000_000
"""Bytes of a field; exports hold whole notebooks in their tags."""


def read_bounded(path: Path) -> bytes:
    """Read a file; raises UserError if it is too large, and OSError as `open_plain`."""
    with open_plain(path) as file:
        return unpacked(path, file)


def unpacked(path: Path, file: IO[bytes] | gzip.GzipFile) -> bytes:
    """Read a file that may have no end, or only one after more than memory holds; raises UserError."""
    if len(content := file.read(MOST_BYTES + 1)) > MOST_BYTES:
        raise UserError(
            f"{path} has more than {MOST_BYTES:,} bytes: write it again, with fewer columns or evaluations"
        )
    return content


def check_size(path: object, num_rows: int, num_columns: int) -> None:
    """Raise UserError for a table that would fill the memory."""
    if num_rows > MOST_ROWS or num_columns > MOST_COLUMNS or num_rows * num_columns > MOST_FIELDS:
        most = (
            f"want at most {MOST_ROWS:,} rows, {MOST_COLUMNS:,} columns and {MOST_FIELDS:,} fields"
        )
        raise UserError(
            f"{path} has {num_rows:,} rows of {num_columns:,} columns, {most}: leave out evaluations"
        )


def with_settings(path: object, settings: ReadFields, rows: Sequence[ReadFields]) -> list[Fields]:
    """Return rows with the settings of all of them; raises UserError as `check_size`."""
    check_size(path, len(rows), len(settings))
    return [{**settings, **row} for row in rows]


def check_folder(folder: Path, files: Iterable[Path]) -> None:
    """Raise UserError for files of a folder that take too long to read."""
    if sum(path.stat().st_size for path in files) > MOST_FOLDER:
        raise UserError(
            f"{folder} has more than {MOST_FOLDER:,} bytes: name the folder of one sweep, or a table"
        )


def files_below(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the plain files below a folder, and the links, which may lead anywhere and are not followed.

    Raises UserError for too many.
    """
    paths = sorted(islice(folder.rglob("*"), MOST_FILES + 1))
    if len(paths) > MOST_FILES:
        raise UserError(
            f"{folder} has more than {MOST_FILES:,} files: name the folder of one sweep"
        )
    links = [path for path in paths if path.is_symlink()]
    return [path for path in paths if path.is_file() and not path.is_symlink()], links
