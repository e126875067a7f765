"""A table of texts with the place of each row, before any of it is understood: what every reader returns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import ReadFields
from lr_sweep.common.network import without_secrets

from .limits import check_size

MOST_NAME = 200  # characters, in reports and figures
MOST_MISTAKES = 5  # that are listed; the rest are counted


class Line(NamedTuple):
    """Where a row is."""

    path: Path
    number: int  # of the row's last line in the file or, where it has no lines, of the row, from 1
    what: str = ""  # that the number counts: `row ` where the file has no lines

    def __str__(self) -> str:
        path = (
            str(self.path).encode(errors="backslashreplace").decode()
        )  # a file's name may be no text
        return f"{path}:{self.what}{self.number}"


@dataclass(frozen=True, kw_only=True)
class TableFile:
    """Content of one file or of several, before any of it is understood."""

    path: Path
    columns: dict[
        str, list[str]
    ]  # fields by the name of their column, in the file's order; empty text: nothing
    lines: list[Line]  # the place of each row
    sha256: str = ""  # of the file, or of what was read where it is no single file
    reader: str = ""  # what it is, where it is no file of CSV or Parquet
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
        """Return the table with columns that have one value each, in place of those with their names."""
        check_size(self.path, len(self.lines), len(values))
        columns = {str(name): [as_field(value)] * len(self.lines) for name, value in values.items()}
        return replace(self, columns=columns | self.columns | columns)

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
        rest = [f"and {more} more like these: correct them"] if more > 0 else []
        raise UserError("\n".join(mistakes[:MOST_MISTAKES] + rest))


def joined(tables: Sequence[TableFile]) -> TableFile:
    """Make one table of several, with the columns of all: a field that a file has no column of is empty."""
    first, *others = tables
    names = dict.fromkeys(name for table in tables for name in table.columns)
    check_size(first.path, sum(len(table.lines) for table in tables), len(names))
    columns = {
        name: [
            text for table in tables for text in table.columns.get(name) or [""] * len(table.lines)
        ]
        for name in names
    }
    path = (
        first.path.with_name(f"{first.path.name} and {len(others)} more") if others else first.path
    )
    return replace(
        first, path=path, columns=columns, lines=[line for table in tables for line in table.lines]
    )


def table_of_rows(
    path: Path, rows: Sequence[ReadFields], reader: str, numbers: Sequence[int] = ()
) -> TableFile:
    """Return rows with any columns as a table; raises UserError if there are none, or too many.

    `numbers`: the line of each row in the file, where it has lines.
    """
    names = dict.fromkeys(chain.from_iterable(rows))
    check_size(path, len(rows), len(names))
    if not names:
        kind = f", as {reader}" if reader else ""
        raise UserError(f"{path} has no runs to read{kind}: write a row for each run or evaluation")
    columns = {str(name): _fields(row.get(name) for row in rows) for name in names}
    lines = [
        Line(path, row, "" if numbers else "row ") for row in numbers or range(1, len(rows) + 1)
    ]
    return TableFile(path=path, columns=columns, lines=lines, reader=reader)


def _fields(values: Iterable[object]) -> list[str]:
    return [value if isinstance(value, str) else as_field(value) for value in values]


@contextmanager
def damage_named(
    path: object, opened: object = "", advice: str = "is it damaged, or cut?"
) -> Iterator[None]:
    """Raise UserError in place of any error of a reader; `opened`: what it opened in place of the path."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of a library, or of content that no reader expects
        why = reason(error, partial(without_secrets, str(opened)))
        why = why.replace(str(opened), str(path)) if opened else why
        raise UserError(f"{path} cannot be read ({why}): {advice}") from error


def as_field(value: object) -> str:
    """Write a value as a field, and a list of one as this one; NaN is `nan`, nothing is empty."""
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], list | dict):
        (value,) = value
    if isinstance(value, list | dict):
        return json.dumps(value, default=str)
    return "" if value is None else str(value)
