"""The listing of a table, by which its user names the columns: `judge` prints it where names leave a doubt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import pandas as pd

from lr_sweep.common.errors import UserError
from lr_sweep.common.text import counted

from .meanings import SEPARATOR
from .names import Column, shortened
from .table_file import TableFile, printable

MOST_COLUMNS = 30
"""Columns that are shown; those that vary come first."""
NUM_SAMPLES = 3
LONGEST = 24
"""Characters of a sample."""
MOST_GRID = 6
"""Columns of a grid whose combinations are counted."""
MOST_LEVELS = 10
"""Combinations of values for each row up to which their number is shown."""
MOST_ROWS = 20_000
"""Rows up to which rows that are alike are searched."""


@dataclass(frozen=True)
class ColumnLine:
    """One column of a table, as the listing shows it."""

    position: int
    name: str
    num_values: int
    samples: Sequence[str]
    parts: Sequence[str]
    """Samples of the parts of names, as `file.1 = adam, sgd`; empty: the texts have no parts, or not equally many."""
    num_empty: int
    empty_where: str
    """Value that all rows share which are empty there, as `estimator=PopEst`."""
    suggests: str
    """Meaning of the name by the table of synonyms; empty: none is known."""


@dataclass(frozen=True)
class Listing:
    """The columns of a table, what its rows are, what is in doubt, and a command to complete."""

    table: str
    num_rows: int
    columns: Sequence[ColumnLine]
    rows: Sequence[str]
    doubts: Sequence[str]
    options: str

    def text(self, command: str) -> str:
        """Write the listing; `command`: the words before the options."""
        width = max(len(shortened(column.name)) for column in self.columns)
        lines = [
            f"{self.table}: {counted(self.num_rows, 'row')}, {counted(len(self.columns), 'column')}"
        ]
        for column in self.columns[:MOST_COLUMNS]:
            lines.append(_line(column, width))
            lines += [f"         {'; '.join(column.parts)}"] * bool(column.parts)
        if (more := len(self.columns) - MOST_COLUMNS) > 0:
            lines.append(f"  and {counted(more, 'column')} more, which vary less: --json lists all")
        lines += self.rows
        lines += ["What is in doubt:", *(f"- {doubt}" for doubt in self.doubts)]
        lines += ["A command to complete:", f"  {command} {self.options}"]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Return the listing as content for JSON."""
        return asdict(self)


class ListingError(UserError):
    """A table whose columns the user is to name."""

    def __init__(self, listing: Listing, command: str = "lr-sweep judge TABLE") -> None:
        super().__init__(listing.text(command))
        self.listing = listing


def listing_of(table: TableFile, doubts: Sequence[str], options: str) -> Listing:
    """List a table, with what is in doubt and options to complete."""
    frame = table.frame.reset_index(drop=True)
    columns = [Column(str(name), texts) for name, texts in frame.items()]
    lines = [_column(frame, place, column) for place, column in enumerate(columns, 1)]
    lines.sort(key=lambda line: line.num_values < 2)
    return Listing(
        table=table.name,
        num_rows=len(frame),
        columns=lines,
        rows=list(_about_rows(frame, columns)),
        doubts=doubts,
        options=options,
    )


def _column(frame: pd.DataFrame, place: int, column: Column) -> ColumnLine:
    is_empty = column.texts.eq("")
    texts = column.texts[~is_empty].drop_duplicates()
    return ColumnLine(
        position=place,
        name=printable(column.name),
        num_values=column.num_values,
        samples=_samples(texts),
        parts=[] if column.is_numeric else _parts(column.name, texts),
        num_empty=int(is_empty.sum()),
        empty_where=_shared(frame, is_empty) if is_empty.any() else "",
        suggests=column.meaning,
    )


def _samples(texts: pd.Series[str]) -> list[str]:
    return [printable(text)[:LONGEST] for text in texts.unique()[:NUM_SAMPLES]]


def _parts(name: str, texts: pd.Series[str]) -> list[str]:
    """Describe the parts of names that have equally many, two or more, and differ in several."""
    parts = texts[:MOST_ROWS].str.split(SEPARATOR, regex=True, expand=True)
    varying = [place for place in range(parts.shape[1]) if parts[place].nunique() > 1]
    if parts.isna().any(axis=None) or len(varying) < 2:
        return []
    return [f"{name}.{place + 1} = {', '.join(_samples(parts[place]))}" for place in varying]


def _shared(frame: pd.DataFrame, is_empty: pd.Series[bool]) -> str:
    """Return a value that exactly the rows have which are empty in another column; empty: there is none."""
    for name in map(str, frame):
        values = frame[name][is_empty].unique()
        if len(values) == 1 and values[0] and frame[name].eq(values[0]).equals(is_empty):
            return f"{name}={values[0]}"
    return ""


def _line(column: ColumnLine, width: int) -> str:
    empty = f"; empty in {counted(column.num_empty, 'row')}" if column.num_empty else ""
    empty += f", all {column.empty_where}" if column.empty_where else ""
    means = f"{column.suggests}? " if column.suggests else ""
    values = counted(column.num_values, "value")
    name = shortened(column.name).ljust(width)
    return f"  #{column.position:<3} {name}  {values:<11} {means}{', '.join(column.samples)}{empty}"


def _about_rows(frame: pd.DataFrame, columns: Sequence[Column]) -> Iterator[str]:
    """Yield what columns and rows show together: a grid, drawn values, rows that differ in one column alone."""
    num_rows = len(frame)
    settings = [column for column in columns if not column.is_measurement]
    levels = {
        column.name: column.num_values
        for column in settings
        if 1 < column.num_values <= num_rows / 2 and not column.split
    }
    distinct = [column for column in settings if column.num_values > num_rows / 2]
    product = prod(levels.values())
    if 1 < len(levels) <= MOST_GRID and product <= MOST_LEVELS * num_rows:
        kind = ": a grid" if num_rows % product == 0 else ""
        counts = " x ".join(map(str, levels.values()))
        yield f"{' x '.join(levels)}: {counts} = {product:,} of {num_rows:,} rows{kind}"
    if 0 < len(levels) <= MOST_GRID:
        sizes = frame.groupby(list(levels)).size()
        if sizes.max() > 1:
            rows = " to ".join(map(str, sorted({sizes.min(), sizes.max()})))
            yield f"each combination of {', '.join(levels)}: {rows} rows"
    for column in distinct:
        if column.num_values > 2 and column.role == "learning_rate":
            yield f"{column.num_values:,} values of {column.name} in {num_rows:,} rows: drawn"
    if levels and num_rows <= MOST_ROWS:
        names = [column.name for column in distinct]
        for name in names[:MOST_COLUMNS]:
            others = frame[[*levels, *names]].drop(columns=name)
            alike = others[others.duplicated(keep=False)]
            if len(alike):
                first, second = alike.index[alike.eq(alike.iloc[0]).all(axis=1)][:2] + 1
                yield f"rows {first} and {second} differ in {name} alone"
