"""A table of texts with the place of each row, before any of it is understood: what every reader returns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import ReadFields

MOST_BYTES = 100_000_000
MOST_ROWS = 1_000_000
MOST_FIELDS = 20_000_000
"""Fields of a table that may have equal rows in next to no space."""
MOST_NAME = 200
"""Characters of a name; longer ones make lines of a report, and figures, without end."""
MOST_MISTAKES = 5
"""Mistakes that are listed; the rest are counted."""


class Line(NamedTuple):
    """Where a row is."""

    path: Path
    number: int
    """Number of the row's last line in the file; in Parquet and in folders of other tools number of the row, from 1."""

    what: str = ""
    """Unit that the number counts, where the file has no lines: `row `."""

    def __str__(self) -> str:
        return f"{self.path}:{self.what}{self.number}"


@dataclass(frozen=True, kw_only=True)
class TableFile:
    """Content of one file or of several, before any of it is understood."""

    path: Path
    columns: dict[str, list[str]]
    """Fields by the name of their column, in the file's order; empty text: nothing."""
    lines: list[Line]
    """The number of each row."""
    sha256: str = ""
    """Checksum of the file, or of what was read where it is no single file."""
    reader: str = ""
    """What it is, where it is no file of CSV or Parquet."""
    unfinished: bool = False
    """Whether the last line has no end: the file may have been cut there."""

    @property
    def name(self) -> str:
        """The file's name as reports write it."""
        return printable(self.path.name)

    def beside(self, values: ReadFields) -> TableFile:
        """Return the table with columns that have one value each, in place of those with their names."""
        columns = {str(name): [as_field(value)] * len(self.lines) for name, value in values.items()}
        return replace(
            self, columns=columns | {name: self.columns[name] for name in self.columns if name not in columns}
        )

    def rows_at(self, places: Sequence[int]) -> TableFile:
        """Return the rows at some places, which may be there several times."""
        columns = {name: [texts[place] for place in places] for name, texts in self.columns.items()}
        return replace(self, columns=columns, lines=[self.lines[place] for place in places])


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
        listed = mistakes[:MOST_MISTAKES] + ([f"and {more} more like these: correct them"] if more > 0 else [])
        raise UserError("\n".join(listed))


def joined(tables: Sequence[TableFile]) -> TableFile:
    """Make one table of several, with the columns of all: a field that a file has no column of is empty."""
    first, *others = tables
    if not others:
        return first
    columns = {
        name: [text for table in tables for text in table.columns.get(name) or [""] * len(table.lines)]
        for name in dict.fromkeys(name for table in tables for name in table.columns)
    }
    return replace(
        first,
        path=first.path.with_name(f"{first.path.name} and {len(others)} more"),
        columns=columns,
        lines=[line for table in tables for line in table.lines],
    )


def table_of_rows(path: Path, rows: Sequence[ReadFields], reader: str, numbers: Sequence[int] = ()) -> TableFile:
    """Return rows with any columns as a table; raises UserError if there are none, or too many.

    `numbers`: the line of each row in the file, where it has lines.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    check_size(path, len(rows), len(names))
    return table_of_columns(path, {name: [row.get(name) for row in rows] for name in names}, reader, numbers)


def table_of_columns(
    path: Path, columns: Mapping[Any, Sequence[Any]], reader: str, numbers: Sequence[int] = ()
) -> TableFile:
    """Return columns of any values as a table; raises as `table_of_rows`."""
    texts = {str(name): list(map(as_field, values)) for name, values in columns.items()}
    number = len(next(iter(texts.values()), ()))
    if not number:
        raise UserError(f"{path} has no runs to read{', as ' if reader else ''}{reader}")
    lines = [Line(path, row, "" if numbers else "row ") for row in numbers or range(1, number + 1)]
    return TableFile(path=path, columns=texts, lines=lines, reader=reader)


@contextmanager
def damage_named(path: object, opened: object = "", advice: str = "is it damaged, or cut?") -> Iterator[None]:
    """Raise UserError in place of any error of a reader; `opened`: what it opened in place of the path."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of a library, or of content that no reader expects
        why = reason(error).replace(str(opened), str(path)) if opened else reason(error)
        raise UserError(f"{path} cannot be read ({why}): {advice}") from error


def check_size(path: Path, num_rows: int, num_columns: int) -> None:
    """Raise UserError for a table that would fill the memory."""
    if num_rows > MOST_ROWS or num_rows * num_columns > MOST_FIELDS:
        most = f"{MOST_ROWS:,} rows and {MOST_FIELDS:,} fields"
        raise UserError(
            f"{path} has {num_rows:,} rows of {num_columns} columns, want at most {most}: leave out evaluations"
        )


def as_field(value: object) -> str:
    """Write a value as a field, and a list of one as this one; NaN is `nan`, nothing is empty."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], list | dict):
        (value,) = value
    if value is None:
        return ""
    return json.dumps(value, default=str) if isinstance(value, list | dict) else str(value)
