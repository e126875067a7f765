"""The listing of a table, by which its user names the columns: `judge` prints it where names leave a doubt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import pandas as pd

from lr_sweep.analysis.judge import names
from lr_sweep.common.errors import UserError
from lr_sweep.common.text import counted

from .fields import are_numbers
from .meanings import parts_in
from .names import shortened
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
    lines = [_column(frame, place, str(name)) for place, name in enumerate(frame, 1)]
    lines.sort(key=lambda line: line.num_values < 2)
    return Listing(
        table=table.name,
        num_rows=len(frame),
        columns=lines,
        rows=list(_about_rows(frame)),
        doubts=doubts,
        options=options,
    )


def _column(frame: pd.DataFrame, place: int, name: str) -> ColumnLine:
    counts = Counter(frame[name])
    num_empty = counts.pop("", 0)
    may_be_metric = len(counts) > 1 and not names.is_setting(name)
    suggests = names.role_of(name) or (names.split_of(name) if may_be_metric else "")
    return ColumnLine(
        position=place,
        name=printable(name),
        num_values=len(counts),
        samples=_samples(counts),
        parts=_parts(name, list(counts)),
        num_empty=num_empty,
        empty_where=_common(frame, name) if num_empty else "",
        suggests=suggests,
    )


def _samples(texts: Iterable[str]) -> list[str]:
    return [printable(text)[:LONGEST] for text in list(dict.fromkeys(texts))[:NUM_SAMPLES]]


def _parts(name: str, texts: Sequence[str]) -> list[str]:
    """Describe the parts of names that have equally many, two or more, and differ in several."""
    parts = pd.DataFrame(map(parts_in, texts[:MOST_ROWS]))
    if are_numbers(texts) or parts.isna().any(axis=None):
        return []
    varying = [place for place in range(parts.shape[1]) if parts[place].nunique() > 1]
    described = [f"{name}.{place + 1} = {', '.join(_samples(parts[place]))}" for place in varying]
    return described if len(described) > 1 else []


def _common(frame: pd.DataFrame, name: str) -> str:
    """Return a column that says which rows are empty in another one; empty: there is none."""
    is_empty = frame[name].eq("")
    for other in map(str, frame):
        values = frame[other][is_empty].unique()
        if len(values) == 1 and values[0] and frame[other].eq(values[0]).equals(is_empty):
            return f"{other}={values[0]}"
    return ""


def _line(column: ColumnLine, width: int) -> str:
    empty = f"; empty in {counted(column.num_empty, 'row')}" if column.num_empty else ""
    empty += f", all {column.empty_where}" if column.empty_where else ""
    means = f"{column.suggests}? " if column.suggests else ""
    values = counted(column.num_values, "value")
    name = shortened(column.name).ljust(width)
    return f"  #{column.position:<3} {name}  {values:<11} {means}{', '.join(column.samples)}{empty}"


def _about_rows(frame: pd.DataFrame) -> Iterator[str]:
    """Yield what columns and rows show together: a grid, drawn values, rows that differ in one column alone."""
    settings = [name for name in map(str, frame) if not names.is_measurement(name)]
    numbers = {name: len(set(frame[name]) - {""}) for name in settings}
    grid = {
        name: number
        for name, number in numbers.items()
        if 1 < number <= len(frame) / 2 and not names.split_of(name)
    }
    others = [name for name, number in numbers.items() if number > len(frame) / 2]
    product = prod(grid.values())
    if 1 < len(grid) <= MOST_GRID and product <= MOST_LEVELS * len(frame):
        levels = f"{' x '.join(map(str, grid.values()))} = {product:,}"
        kind = ": a grid" if len(frame) % product == 0 else ""
        yield f"{' x '.join(grid)}: {levels} of {len(frame):,} rows{kind}"
    sizes = frame.groupby(list(grid)).size() if grid else pd.Series([1])
    if sizes.max() > 1 and len(grid) <= MOST_GRID:
        rows = " to ".join(map(str, sorted({sizes.min(), sizes.max()})))
        yield f"each combination of {', '.join(grid)}: {rows} rows"
    for name in others:
        if numbers[name] > 2 and names.role_of(name) == "learning_rate":
            yield f"{numbers[name]:,} values of {name} in {len(frame):,} rows: drawn"
    if grid and len(frame) <= MOST_ROWS:
        yield from _alike_rows(frame[[*grid, *others]], others[:MOST_COLUMNS])


def _alike_rows(settings: pd.DataFrame, columns: Sequence[str]) -> Iterator[str]:
    """Yield for some columns the first two rows that differ in that one alone."""
    for name in columns:
        others = settings.drop(columns=name)
        alike = others[others.duplicated(keep=False)]
        if len(alike):
            first, second = alike.index[alike.eq(alike.iloc[0]).all(axis=1)][:2] + 1
            yield f"rows {first} and {second} differ in {name} alone"
