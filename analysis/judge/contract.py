"""The contract of `judge`: names, or the user, give each column its meaning; what is left open is listed, not guessed.

A table is read at once only if nothing is in doubt: each meaning has one column, the metric's direction is known, and
every other column is a measurement, or the same in all rows of one task, model, variant, learning rate and seed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pandas as pd

from lr_sweep.analysis.judge import names
from lr_sweep.common.text import counted

from .fields import NOTHING, are_numbers
from .listing import ListingError, listing_of
from .meanings import (
    JOIN,
    ROWS,
    Columns,
    possible_columns,
    turned,
    with_given,
)
from .names import SPLITS, listed
from .reading import MEANINGS, OPEN, Reading, options_text
from .table_file import TableFile
from .text_rows import SETTING, beside, text_rows

_NUMBERS = re.compile(r"\b[0-9a-f]{6,}\b|\d+")
"""Parts of the names of runs in which repeats may differ."""
_SETTINGS = re.compile(r"=|\d\.\d|\de-\d|lr", re.IGNORECASE)
"""Signs of settings in the name of a run."""
MOST_POSSIBLE = 3
"""Columns that are named where all may have a meaning."""
WIDE = "; columns of one seed, rate or variant each are joined, as in validation=A+B,seed=names"
"""Way to read several columns of the metric."""
MOST_COUNTS = 10
"""Columns that are named in a doubt with the number of their values."""
CELL_ROLES = ("task", "model", "variant", "tuned", "learning_rate")


@dataclass(frozen=True, kw_only=True)
class Contract:
    """The columns of a table by what they mean."""

    table: TableFile
    columns: Columns
    rows: pd.DataFrame
    """Its texts: `text_rows`."""
    metric: str
    higher_is_better: bool
    rows_are_seeds: bool = False

    def options(self) -> dict[str, str]:
        """Return the meanings as `--columns` takes them."""
        columns = {meaning: JOIN.join(named) for meaning, named in self.columns.items()}
        return columns | ({"seed": ROWS} if self.rows_are_seeds else {})

    @property
    def unused(self) -> list[str]:
        """The columns without a meaning."""
        taken = {name for columns in self.columns.values() for name in columns}
        return [name for name in map(str, self.table.frame) if name not in taken]


@dataclass(frozen=True)
class Doubt:
    """Something that names leave open."""

    text: str
    open: str = ""
    """Part of `--columns` that the user is to complete, as `variant=...`."""


def contract_of(table: TableFile, reading: Reading) -> Contract:
    """Find what each column means; raises UserError for names that are not there, and ListingError for doubts."""
    table, given = with_given(*turned(table, reading.columns))
    rows_are_seeds = given.get("seed") == [ROWS] and ROWS not in table.frame
    if rows_are_seeds:
        given["seed"] = []
    possible = possible_columns(table, given)
    columns = given | {meaning: named for meaning, named in possible.items() if len(named) == 1}
    columns = {meaning: columns[meaning] for meaning in MEANINGS if columns.get(meaning)}
    metric, higher = _metric(table, columns, reading)
    doubts = [*_several(possible), *_missing(columns, possible, given, higher)]
    doubts += [] if rows_are_seeds else _means(table, columns)
    doubts += _empty_labels(table, columns, given)
    doubts += _names_of_runs(table, columns, given)
    frame = text_rows(table, columns)
    in_doubt = [SETTING + name for named in possible.values() if len(named) > 1 for name in named]
    in_doubt = [name for name in in_doubt if name in frame]
    doubts += _doubts_of_rows(_measured(frame), columns, in_doubt, rows_are_seeds)
    if doubts:
        raise _listed(table, reading, columns, doubts)
    return Contract(
        table=table,
        columns=columns,
        rows=frame,
        metric=metric,
        higher_is_better=bool(higher),
        rows_are_seeds=rows_are_seeds,
    )


def _listed(
    table: TableFile, reading: Reading, columns: Columns, doubts: list[Doubt]
) -> ListingError:
    """Return the error that lists a table, with a command of which only what is in doubt is open."""
    named = {meaning: JOIN.join(names_) for meaning, names_ in columns.items()}
    said = {**named, **reading.columns}
    opened = [doubt.open for doubt in doubts if doubt.open]
    known = [
        f"{meaning}={text}" for meaning, text in said.items() if f"{meaning}={OPEN}" not in opened
    ]
    options = options_text(replace(reading, columns={}), [*known, *opened])
    return ListingError(listing_of(table, [doubt.text for doubt in doubts], options))


def _metric(table: TableFile, columns: Columns, reading: Reading) -> tuple[str, bool | None]:
    """Return the metric's name, and whether more of it is better; None: nothing says so."""
    named = columns.get("validation") or columns.get("test") or [""]
    metric = names.metric_of(named[0]) or names.plain(named[0])
    said = (reading.higher_is_better, table.higher_is_better, names.is_higher_better(metric))
    return metric, next((way for way in said if way is not None), None)


def _several(possible: Columns) -> Iterator[Doubt]:
    for meaning, named in possible.items():
        if len(named) > 1:
            wide = WIDE if meaning in SPLITS else ""
            text = f"{meaning} may be {listed(named, MOST_POSSIBLE)}: name one{wide}"
            yield Doubt(text, f"{meaning}={OPEN}")


def _missing(
    columns: Columns, possible: Columns, given: Columns, higher: bool | None
) -> Iterator[Doubt]:
    ways = "add --higher-is-better or --lower-is-better"
    splits = [split for split in ("validation", "test") if split in {**columns, **possible}]
    if not splits:
        text = "no name says which column has the metric on validation data, or on test data"
        way = f"{ways} if its name does not say it"
        yield Doubt(f"{text}: name it, and {way}{WIDE}", f"validation={OPEN}")
    elif splits[0] in columns and higher is None:
        (name,) = columns[splits[0]][:1]
        opened = "" if splits[0] in given else f"{splits[0]}={OPEN}"
        yield Doubt(f"{name} is no known metric: {ways}", opened)


def _means(table: TableFile, columns: Columns) -> Iterator[Doubt]:
    """Yield columns that may be the spread of means."""
    spread = [name for name in map(str, table.frame) if names.has_word(name, "spread")]
    if spread and not {"seed", "run"} & columns.keys():
        values = f"{listed(spread)} may be the spread of means over seeds"
        text = f"{values}, and single runs are needed: seed=rows says that each row is one run"
        yield Doubt(text, f"seed={OPEN}")


def _empty_labels(table: TableFile, columns: Columns, given: Columns) -> Iterator[Doubt]:
    """Yield labels that some rows lack, unless the user named their column."""
    for role in ("task", "model", "variant"):
        for name in columns.get(role, []) if role not in given else []:
            if number := int(table.frame[name].eq("").sum()):
                text = f"{name} is empty in {counted(number, 'row')}, which may be no {role}"
                yield Doubt(f"{text}: --where '{name}!=' leaves them out", f"{role}={OPEN}")


def _names_of_runs(table: TableFile, columns: Columns, given: Columns) -> Iterator[Doubt]:
    """Yield runs whose names say more than that they are repeats, where nothing else is compared."""
    if columns.keys() & {"variant", "model"} or "run" in given:
        return
    for name in columns.get("run", []):
        texts = table.frame[name].unique()
        differ = len({_NUMBERS.sub("", text) for text in texts}) > 1
        if differ or ("learning_rate" not in columns and any(map(_SETTINGS.search, texts))):
            text = f"{name} has names such as {listed(sorted(texts)[:2])}, which may hold settings"
            parts = f"{name}.1 is their first part, and run={name} says that they are repeats"
            yield Doubt(f"{text}: {parts}", f"run={OPEN}")


def _doubts_of_rows(
    frame: pd.DataFrame, columns: Columns, in_doubt: list[str], rows_are_seeds: bool
) -> Iterator[Doubt]:
    """Yield doubts where rows of one learning rate and seed differ in a column without a meaning, or repeat."""
    cell, seed, run, step = (
        [role for role in roles if role in frame]
        for roles in (CELL_ROLES, ["seed"], ["run"], ["step"])
    )
    settings = [name for name in beside(frame, SETTING) if name not in in_doubt]
    if step and not _repeat(frame, [*cell, *seed, *run, *step]).any():
        # Each run is one curve: numbers that change along it are measured.
        along = _differing(frame, settings, [*cell, *seed, *run])
        settings = [name for name in settings if name not in along or not are_numbers(frame[name])]
    differing = _differing(frame, settings, [*cell, *seed] + ([] if run else step))
    if not columns.keys() & {"variant", "model"}:  # otherwise nothing would be compared
        texts = _uncompared(frame, columns, settings)
        differing += [name for name in texts if name not in differing]
    roles = [*cell, *seed]
    same = f"the same {', '.join(roles)}" if roles else "the table"
    if differing:
        yield _doubt_of_differing(frame, columns, differing, same)
    curves = [role for role in (*cell, *seed, *run) if role != "learning_rate"]
    if "learning_rate" in frame and step and _begin_later(frame, curves):
        yield _doubt_of_schedule(columns)
    repeats = _repeat(frame, [*cell, *step, *differing, *in_doubt])
    if rows_are_seeds and repeats.any() and _differing(frame, step, []):
        text = f"rows are evaluations at several {columns['step'][0]}, which make one run together"
        yield Doubt(f"{text}: name what the rows of a run share, as run=NAME", f"seed={OPEN}")
    elif not (seed or run or rows_are_seeds) and repeats.any():
        rows = counted(int(repeats.sum()), "row")
        text = f"{rows} repeat others of {same}, and no column numbers them"
        yield Doubt(f"{text}: if they are seeds, write seed={ROWS}", f"seed={OPEN}")


def _uncompared(frame: pd.DataFrame, columns: Columns, settings: list[str]) -> list[str]:
    """Return the settings of several texts, without those of which parts have a meaning."""
    parts = (name for named in columns.values() for name in named)
    divided = {SETTING + name.rpartition(".")[0] for name in parts}
    texts = [name for name in settings if name not in divided and not are_numbers(frame[name])]
    return _differing(frame, texts, [])


def _doubt_of_differing(
    frame: pd.DataFrame, columns: Columns, differing: list[str], same: str
) -> Doubt:
    shown = {name.removeprefix(SETTING): frame[name].nunique() for name in differing}
    counts = [f"{name} ({counted(number, 'value')})" for name, number in shown.items()]
    text = f"rows of {same} differ in {listed(counts, MOST_COUNTS)}: say what each is"
    roles = [role for role in ("learning_rate", "seed") if role not in columns]
    means = ", ".join(["variant", "task", *roles, "run", "tuned (as the rate is)"])
    return Doubt(
        f"{text}, {means} or ignored (a result)", ",".join(f"{OPEN}={name}" for name in shown)
    )


def _doubt_of_schedule(columns: Columns) -> Doubt:
    rate, steps = columns["learning_rate"][0], columns["step"][0]
    text = f"{rate} changes with {steps} within one run, as a schedule does"
    way = f"name the rate that runs were started with, or write learning_rate=,ignored={rate}"
    return Doubt(
        f"{text}: {way}; or, if {steps} numbers runs, write step=", f"learning_rate={OPEN}"
    )


def _begin_later(frame: pd.DataFrame, curves: list[str]) -> bool:
    """Return whether some rates of a run have later first steps than others, as those of a schedule."""
    steps = pd.to_numeric(frame["step"], errors="coerce")
    keys = [frame[name] for name in [*curves, "learning_rate"]]
    first = steps.groupby(keys).min().reset_index()
    return bool(_differing(first, ["step"], curves))


def _measured(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a value of the metric; all rows, if it is not known."""
    values = [split for split in ("validation", "test") if split in frame]
    return frame[~frame[values].isin(NOTHING).all(axis=1)] if values else frame


def _differing(frame: pd.DataFrame, columns: list[str], key: list[str]) -> list[str]:
    """Return those of some columns that have several values in a group of rows."""
    if not key:
        return [name for name in columns if frame[name].nunique() > 1]
    groups = frame.groupby(key, sort=False)
    return [name for name in columns if groups[name].nunique().gt(1).any()]


def _repeat(frame: pd.DataFrame, key: list[str]) -> pd.Series[bool]:
    """Return which rows have the key of another one; without a key all have, if they are several."""
    if not key:
        return pd.Series(len(frame) > 1, frame.index)
    return frame.duplicated(key, keep=False)
