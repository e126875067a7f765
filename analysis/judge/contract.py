"""The contract of `judge`: names, or the user, give each column its meaning; what is left open is listed, not guessed.

A table is read at once only if nothing is in doubt: each meaning has one column, the metric's direction is known, and
every other column is a measurement, or the same in all rows of one task, model, variant, learning rate and seed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from lr_sweep.common.text import counted

from .listing import ListingError, listing_of
from .meanings import JOIN, ROWS, Columns, possible_columns, turned, with_given
from .names import SPLITS, Column, are_numbers, listed, plain
from .reading import MEANINGS, OPEN, Reading, options_text
from .rows import Rows, rows_of
from .table_file import TableFile

_NUMBERS = re.compile(r"\b[0-9a-f]{6,}\b|\d+")
"""Parts of the names of runs in which repeats may differ."""
MOST_POSSIBLE = 3
"""Columns that are named where all may have a meaning."""
WIDE = "; columns of one seed, rate or variant each are joined, as in validation=A+B,seed=names"
"""Way to read several columns of the metric."""
MOST_COUNTS = 10
"""Columns that are named in a doubt with the number of their values."""
CELL = ("task", "model", "variant", "tuned", "learning_rate")


@dataclass(frozen=True, kw_only=True)
class Contract:
    """The columns of a table by what they mean."""

    table: TableFile
    columns: Columns
    unused: Sequence[Column]
    """The columns without a meaning."""
    rows: Rows
    metric: str
    higher_is_better: bool | None
    """Direction of the metric; None: nothing says so."""
    rows_are_seeds: bool

    @property
    def options(self) -> dict[str, str]:
        """The meanings as `--columns` takes them."""
        names = {
            meaning: JOIN.join(column.name for column in columns)
            for meaning, columns in self.columns.items()
        }
        return names | ({"seed": ROWS} if self.rows_are_seeds else {})


@dataclass(frozen=True)
class Doubt:
    """Something that names leave open."""

    text: str
    open: str = ""
    """Part of `--columns` that the user is to complete, as `variant=...`."""


def contract_of(table: TableFile, reading: Reading) -> Contract:
    """Find what each column means; raises UserError for names that are not there, and ListingError for doubts."""
    table, texts = turned(table, reading.columns)
    rows_are_seeds = texts.get("seed") == ROWS and ROWS not in table.frame
    table, given = with_given(table, {**texts, "seed": ""} if rows_are_seeds else texts)
    taken = {column.name for columns in given.values() for column in columns}
    free = [Column(str(name), texts) for name, texts in table.frame.items() if name not in taken]
    possible = possible_columns(free, given, table.known)
    certain = {meaning: columns for meaning, columns in possible.items() if len(columns) == 1}
    columns = {meaning: named for meaning in MEANINGS if (named := (certain | given).get(meaning))}
    unused = [column for column in free if [column] not in certain.values()]
    measured = columns.get("validation") or columns.get("test")
    metric = measured[0] if measured else Column("", pd.Series())
    ways = (reading.higher_is_better, table.higher_is_better, metric.higher_is_better)
    contract = Contract(
        table=table,
        columns=columns,
        unused=unused,
        rows=rows_of(table, columns, unused),
        metric=metric.metric or plain(metric.name),
        higher_is_better=next((way for way in ways if way is not None), None),
        rows_are_seeds=rows_are_seeds,
    )
    several = {meaning: named for meaning, named in possible.items() if len(named) > 1}
    doubts = [
        *_doubts_of_names(contract, several, given),
        *_doubts_of_labels(contract, given),
        *_doubts_of_rows(contract, [column.name for named in several.values() for column in named]),
    ]
    if doubts:
        raise _listed(contract, reading, doubts)
    return contract


def _listed(contract: Contract, reading: Reading, doubts: Sequence[Doubt]) -> ListingError:
    """Return the error that lists a table, with a command of which only what is in doubt is open."""
    opened = [doubt.open for doubt in doubts if doubt.open]
    known = [
        f"{meaning}={text}"
        for meaning, text in {**contract.options, **reading.columns}.items()
        if f"{meaning}={OPEN}" not in opened
    ]
    options = options_text(replace(reading, columns={}), [*known, *opened])
    return ListingError(listing_of(contract.table, [doubt.text for doubt in doubts], options))


def _doubts_of_names(contract: Contract, several: Columns, given: Columns) -> Iterator[Doubt]:
    """Yield meanings that several columns may have, or none, and a metric of no known direction."""
    for meaning, columns in several.items():
        wide = WIDE if meaning in SPLITS else ""
        names = listed([column.name for column in columns], MOST_POSSIBLE)
        yield Doubt(f"{meaning} may be {names}: name one{wide}", f"{meaning}={OPEN}")
    ways = "add --higher-is-better or --lower-is-better"
    splits = [split for split in ("validation", "test") if split in contract.columns | several]
    if not splits:
        text = "no name says which column has the metric on validation data, or on test data"
        way = f"{ways} if its name does not say it"
        yield Doubt(f"{text}: name it, and {way}{WIDE}", f"validation={OPEN}")
    elif splits[0] in contract.columns and contract.higher_is_better is None:
        (column,) = contract.columns[splits[0]]
        opened = "" if splits[0] in given else f"{splits[0]}={OPEN}"
        yield Doubt(f"{column.name} is no known metric: {ways}", opened)


def _doubts_of_labels(contract: Contract, given: Columns) -> Iterator[Doubt]:
    """Yield columns of means, labels that some rows lack, and names of runs that may say more than a repeat does."""
    columns = contract.columns
    spread = [column.name for column in contract.unused if "spread" in column.kinds]
    if spread and not (contract.rows_are_seeds or {"seed", "run"} & columns.keys()):
        values = f"{listed(spread)} may be the spread of means over seeds"
        text = f"{values}, and single runs are needed: seed=rows says that each row is one run"
        yield Doubt(text, f"seed={OPEN}")
    for role in ("task", "model", "variant", "run"):
        if role in given or role not in columns:
            continue
        (column,) = columns[role]
        number = int(column.texts.eq("").sum())
        if number and role != "run":
            text = f"{column.name} is empty in {counted(number, 'row')}, which may be no {role}"
            yield Doubt(f"{text}: --where '{column.name}!=' leaves them out", f"{role}={OPEN}")
        names = column.texts.drop_duplicates()
        differ = names.str.replace(_NUMBERS, "", regex=True).nunique() > 1
        is_compared = differ or "learning_rate" not in columns
        if role == "run" and is_compared and not {"variant", "model"} & columns.keys():
            text = f"{column.name} has names such as {listed(sorted(names)[:2])}, which may hold settings"
            parts = f"{column.name}.1 is their first part, and run={column.name} says that they are repeats"
            yield Doubt(f"{text}: {parts}", f"run={OPEN}")


def _doubts_of_rows(contract: Contract, in_doubt: Sequence[str]) -> Iterator[Doubt]:
    """Yield doubts where rows of one learning rate and seed differ in a column without a meaning, or repeat.

    `in_doubt`: columns that may have a meaning.
    """
    rows, columns = _measured(contract.rows.values), contract.columns
    settings = contract.rows.settings.loc[rows.index]
    differing = _differing_settings(rows, settings.drop(columns=in_doubt, errors="ignore"), columns)
    roles = [role for role in (*CELL, "seed") if role in columns]
    same = f"the same {', '.join(roles)}" if roles else "the table"
    if differing:
        counts = [f"{name} ({counted(settings[name].nunique(), 'value')})" for name in differing]
        text = f"rows of {same} differ in {listed(counts, MOST_COUNTS)}: say what each is"
        lacking = [role for role in ("learning_rate", "seed") if role not in columns]
        means = ", ".join(["variant", "task", *lacking, "run", "tuned (as the rate is)"])
        opened = ",".join(f"{OPEN}={name}" for name in differing)
        yield Doubt(f"{text}, {means} or ignored (a result)", opened)
    if {"learning_rate", "step"} <= columns.keys() and _has_schedule(rows):
        rate, steps = columns["learning_rate"][0].name, columns["step"][0].name
        text = f"{rate} changes with {steps} within one run, as a schedule does"
        way = f"name the rate that runs were started with, or write learning_rate=,ignored={rate}"
        numbered = f"or, if {steps} numbers runs, write step="
        yield Doubt(f"{text}: {way}; {numbered}", f"learning_rate={OPEN}")
    parts = settings.filter(items=[*differing, *in_doubt])
    cells = parts.assign(**{"": _groups(rows, *CELL, "step")})
    num_repeats = int(cells.duplicated(keep=False).sum())
    if not num_repeats:
        return
    if contract.rows_are_seeds and "step" in columns and rows["step"].nunique() > 1:
        steps = columns["step"][0].name
        text = f"rows are evaluations at several {steps}, which make one run together"
        yield Doubt(f"{text}: name what the rows of a run share, as run=NAME", f"seed={OPEN}")
    elif not (contract.rows_are_seeds or {"seed", "run"} & columns.keys()):
        text = f"{counted(num_repeats, 'row')} repeat others of {same}, and no column numbers them"
        yield Doubt(f"{text}: if they are seeds, write seed={ROWS}", f"seed={OPEN}")


def _differing_settings(rows: pd.DataFrame, settings: pd.DataFrame, columns: Columns) -> list[str]:
    """Return the settings that differ in rows of one cell and seed; and texts, where nothing else is compared."""
    if "step" in rows and not _groups(rows, *CELL, "seed", "run", "step").duplicated().any():
        # Each run is one curve: numbers that change along it are measured.
        along = _differing(settings, _groups(rows, *CELL, "seed", "run"))
        settings = settings.drop(columns=[name for name in along if are_numbers(settings[name])])
    step = () if "run" in rows else ("step",)
    differing = _differing(settings, _groups(rows, *CELL, "seed", *step))
    if columns.keys() & {"variant", "model"}:
        return differing
    named = [column.name for columns in columns.values() for column in columns]
    divided = {name.rpartition(".")[0] for name in named}
    texts = [
        name
        for name in map(str, settings)
        if name not in divided and not are_numbers(settings[name])
    ]
    varying = _differing(settings[texts], _groups(rows))
    return [*differing, *(name for name in varying if name not in differing)]


def _has_schedule(rows: pd.DataFrame) -> bool:
    """Return whether some rates of a run have later first steps than others."""
    curves = _groups(rows, "task", "model", "variant", "tuned", "seed", "run")
    first = rows["step"].groupby([curves, rows["learning_rate"]]).min()
    return bool(first.groupby(level=0).nunique().gt(1).any())


def _measured(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a value of the metric; all rows, if it is not known."""
    values = rows.filter(items=["validation", "test"])
    return rows if values.empty else rows[values.notna().any(axis=1) | rows["diverged"]]


def _differing(settings: pd.DataFrame, groups: pd.Series[int]) -> list[str]:
    """Return the columns that have several values in a group of rows."""
    return [
        name for name in map(str, settings) if settings[name].groupby(groups).nunique().gt(1).any()
    ]


def _groups(rows: pd.DataFrame, *roles: str) -> pd.Series[int]:
    """Number the rows by those of the roles that they have; without any all are of one group."""
    keys = [role for role in roles if role in rows]
    return rows.assign(all=0).groupby(["all", *keys], sort=False, dropna=False).ngroup()
