"""A table of texts with the place of each row, as every reader returns it, and the limits of what is read."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import IO

import pandas as pd

from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import ReadFields, open_plain

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
MOST_NAME = 200  # characters, in reports and figures
MOST_MISTAKES = 5  # that are listed; the rest are counted


@dataclass(frozen=True, kw_only=True)
class TableFile:
    """Content of one file or of several, before any of it is understood."""

    path: Path
    frame: pd.DataFrame
    """Texts by the names of their columns, in the file's order; empty: nothing. Its index has the place of each row."""
    reader: str = ""  # what was read of a folder or a database
    known: dict[str, str] = field(default_factory=dict)
    """Columns by the meaning that the format itself gives them, as `{"status": "state"}` of Optuna."""
    higher_is_better: bool | None = None
    """Whether more is better, where the format says so, as a study of Optuna does."""
    remarks: tuple[str, ...] = ()  # what was left out, or may be damaged, a sentence each

    @property
    def name(self) -> str:
        """The file's name as reports write it."""
        return printable(self.path.name)

    def beside(self, values: ReadFields) -> TableFile:
        """Return the table below columns that have one value each, in place of those with their names."""
        rest = self.frame.drop(columns=[*values], errors="ignore")
        check_size(self.path, len(rest), len(values))
        fields = {name: as_field(value) for name, value in values.items()}
        return replace(self, frame=pd.concat([_frame(fields, rest.index), rest], axis=1))


def _frame(columns: ReadFields, places: Iterable[object]) -> pd.DataFrame:
    return pd.DataFrame({**columns}, pd.Index(list(places)), dtype=object)


def without_values(path: Path) -> TableFile:
    """Return a table of one row without columns: a run that wrote nothing."""
    return TableFile(path=path, frame=_frame({}, [f"{path}:row 1"]))


def stem_of(path: Path) -> str:
    """Return a file's name without its ending, as reports write it."""
    name = printable(path.stem)
    return name if name.strip(".") else "all"


def printable(text: str) -> str:
    """Return text without control characters and bytes that are no text, which reports cannot show."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+", " ", text).strip()


def raise_mistakes(mistakes: list[str]) -> None:
    """Raise UserError with all mistakes, if there are any; very many are counted."""
    if mistakes:
        more = len(mistakes) - MOST_MISTAKES
        rest = [f"and {more} more like these: correct them"] if more > 0 else []
        raise UserError("\n".join(mistakes[:MOST_MISTAKES] + rest))


def joined(tables: Sequence[TableFile]) -> TableFile:
    """Make one table of several, with the columns of all: a field that a file has no column of is empty."""
    first, *others = tables
    frames = [table.frame for table in tables]
    num_names = len({name for frame in frames for name in frame})
    check_size(first.path, sum(map(len, frames)), num_names)
    if not others:
        return first
    path = first.path.with_name(f"{first.path.name} and {len(others)} more")
    return replace(first, path=path, frame=pd.concat(frames).fillna(""))


def table_of_rows(path: Path, rows: Sequence[ReadFields] | Mapping[int, ReadFields]) -> TableFile:
    """Return rows with any columns, or rows by their lines; raises UserError if there are none, or too many."""
    shown = str(path).encode(errors="backslashreplace").decode()  # a file's name may be no text
    if isinstance(rows, Mapping):
        numbered = {f"{shown}:{number}": row for number, row in rows.items()}
    else:
        numbered = {f"{shown}:row {number}": row for number, row in enumerate(rows, 1)}
    names = dict.fromkeys(chain.from_iterable(numbered.values()))
    check_size(path, len(rows), len(names))
    if not names:
        raise UserError(f"{path} has no runs to read: write a row for each run or evaluation")
    columns = {str(name): [as_field(row.get(name)) for row in numbered.values()] for name in names}
    return TableFile(path=path, frame=_frame(columns, numbered))


@contextmanager
def damage_named(path: object, advice: str = "is it damaged, or cut?") -> Iterator[None]:
    """Raise UserError in place of any error of a reader."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of a library, or of content that no reader expects
        raise UserError(f"{path} cannot be read ({reason(error)}): {advice}") from error


def as_field(value: object) -> str:
    """Write a value as a field, and a list of one as this one; NaN is `nan`, nothing is empty."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], list | dict):
        (value,) = value
    if isinstance(value, list | dict):
        return json.dumps(value, default=str)
    return "" if value is None else str(value)


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
