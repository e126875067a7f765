"""`judge`: tables from anywhere -> the report that a study's record gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from lr_sweep.analysis.judge.columns import (
    FRACTIONS,
    PERCENTS,
    SPLITS,
    Columns,
    find_columns,
    has_word,
    is_higher_better,
    listed,
)
from lr_sweep.analysis.judge.rows import read_rows, whole_steps
from lr_sweep.analysis.judge.runs import Runs, check_tests, runs_of
from lr_sweep.analysis.judge.table_file import MOST_NAME, TableFile, printable, raise_mistakes, read_table_file
from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.read import StudyInfo
from lr_sweep.analysis.statistics.aggregate import StudySummary, summarise, without_selection
from lr_sweep.analysis.statistics.checks import check_sweep
from lr_sweep.analysis.statistics.finding import CheckFinding, finding_of, problems_first
from lr_sweep.analysis.statistics.unequal import unequal_tuning
from lr_sweep.analysis.study_files import Study
from lr_sweep.common.errors import UserError

ALL = "all"
"""The model, or the variant, of a table that names none."""
FAR = 10
"""Of two columns of percents the greatest values are no further apart than by this factor."""
FIXES = {
    "missing": "train them and add their rows, or write `nan` where they diverged",
    "improving": "train for more steps",
    "stopped": "train them to the end, unless a rule that treats all alike stopped them",
    "stuck": "look at the data: do inputs differ between examples, and are they scaled?",
    "identical": "two ways of training never agree so: look at how the rows were written",
}
"""What to do about findings, by check, where the record's advice names its own commands."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How the user wants a table read."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """Column by what it means; the rest is found by name."""
    metric: str | None = None
    higher_is_better: bool | None = None
    select_on_test: bool = False


def judge(paths: Sequence[Path], reading: Reading) -> Study:
    """Read tables as one study; raises UserError with every mistake in them."""
    tables = [read_table_file(path) for path in paths]
    found = [_find(table, reading) for table in tables]
    first = found[0]
    for table, columns in zip(tables, found, strict=True):
        if (columns.of.keys(), columns.metric) != (first.of.keys(), first.metric):
            raise UserError(f"{table.path} has other columns than {tables[0].path}: judge them one by one")
    rows, mistakes = _read_all(tables, found)
    raise_mistakes(mistakes)
    rows, parts = whole_steps(rows)
    if reading.select_on_test:
        rows = _selected_on_test(rows, first)
    metric, rows, remarks = _measure(rows, first, reading)
    runs = runs_of(rows, "validation" if "validation" in rows else "test")
    check_tests(runs, list(first.of))
    about = (*_about_tables(tables, found), *remarks, *parts, *runs.remarks, *_lacking(first, metric))
    name = printable(paths[0].stem) or ALL
    return _study(StudyInfo(study=name, title=name, metric=metric, from_table=True), runs, about)


def _find(table: TableFile, reading: Reading) -> Columns:
    try:
        found = find_columns(list(table.columns), reading.columns, reading.metric)
    except UserError as error:
        raise UserError(f"{table.path}: {error}") from error
    names = listed(list(table.columns))
    if "learning_rate" not in found.of:
        raise UserError(f"{table.path}: no column of learning rates in {names}: give --columns learning_rate=NAME")
    if not {"validation", "test"} & found.of.keys():
        raise UserError(f"{table.path}: no column of validation or test in {names}: give --columns validation=NAME")
    if len(name := reading.metric or found.metric) > MOST_NAME:
        raise UserError(
            f"got the name of a metric of {len(name):,} characters, want at most {MOST_NAME}: --metric NAME"
        )
    return found


def _read_all(tables: Sequence[TableFile], found: Sequence[Columns]) -> tuple[pd.DataFrame, list[str]]:
    """Read the rows of all tables, with a task, a model and a variant each."""
    frames, mistakes = [], []
    for table, columns in zip(tables, found, strict=True):
        rows, wrong = read_rows(table, columns)
        mistakes += wrong
        if "variant" not in rows and "model" in rows:  # what is compared is called a variant here
            rows = rows.rename(columns={"model": "variant"})
        given = {"task": printable(table.path.stem) or ALL, "model": ALL, "variant": ALL}
        frames.append(rows.assign(**{name: text for name, text in given.items() if name not in rows}))
    return pd.concat(frames, ignore_index=True), mistakes


def _selected_on_test(rows: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    if "validation" in columns.of:
        raise UserError("--select-on-test: the table has validation data, which selects: leave the option out")
    return rows.assign(validation=rows["test"])


def _measure(rows: pd.DataFrame, columns: Columns, reading: Reading) -> tuple[Metric, pd.DataFrame, list[str]]:
    """Find the metric, and turn percents into fractions; a table without test data shows its validation data."""
    name = reading.metric or columns.metric or "score"
    higher = is_higher_better(name) if reading.higher_is_better is None else reading.higher_is_better
    if higher is None:
        raise UserError(f"is more {name} better or worse? give --higher-is-better or --lower-is-better")
    rows, remarks = _as_fractions(rows, name)
    is_fraction = has_word(name, FRACTIONS) and _within(rows, 1)
    metric = Metric(name=name, higher_is_better=higher, is_fraction=is_fraction)
    if "test" not in columns.of:
        metric, rows = replace(metric, reported_on="validation"), rows.assign(test=rows["validation"])
    if "validation" not in columns.of:
        metric = replace(metric, chosen_on="test" if reading.select_on_test else "")
    said = is_higher_better(columns.metric)
    against = ", as given; the column's name says otherwise" if said not in (None, higher) else ""
    return metric, rows, [f"{name}: {metric.better} is better{against}", *remarks]


def _splits(rows: pd.DataFrame) -> list[str]:
    return [split for split in SPLITS if split in rows]


def _within(rows: pd.DataFrame, most: float) -> bool:
    """Return whether every value is from 0 to a number, and there is one."""
    values = rows[_splits(rows)].to_numpy(dtype=float)
    known = values[~np.isnan(values)]
    return bool(len(known) and known.min() >= 0 and known.max() <= most)


def _as_fractions(rows: pd.DataFrame, name: str) -> tuple[pd.DataFrame, list[str]]:
    if not has_word(name, PERCENTS) or _within(rows, 1) or not _within(rows, 100):
        return rows, []
    highest = {split: float(rows[split].max()) for split in _splits(rows)}
    low = [split for split, value in highest.items() if value <= 1 and FAR * value < max(highest.values())]
    if low:
        text = ", ".join(f"{split} up to {value:g}" for split, value in highest.items())
        raise UserError(f"{name} is a fraction in one column and percent in another ({text}): write all as fractions")
    scaled = {split: rows[split] / 100 for split in _splits(rows)}
    return rows.assign(**scaled), [f"some values of {name} are above 1: all are read as percent"]


def _about_tables(tables: Sequence[TableFile], found: Sequence[Columns]) -> list[str]:
    files = [f"{table.name}: {len(table.lines)} rows, sha256 {table.sha256[:16]}" for table in tables]
    cut = [f"{table.name}: no line end after the last row; was the file cut?" for table in tables if table.unfinished]
    read = [f"read {role} from {printable(name)}" for role, name in found[0].of.items()]
    unread = [f"not read: {printable(listed(found[0].unread))}"] if found[0].unread else []
    return [*files, *cut, *read, *unread]


def _lacking(columns: Columns, metric: Metric) -> list[str]:
    """Say what the table has no columns of, and what follows."""
    has = columns.of.keys()
    lacking = []
    if not {"model", "variant"} & has:
        lacking.append("no column of variants or models: there is nothing to compare")
    elif "variant" not in has:
        lacking.append("no column of variants: the models are compared, as variants")
    if "task" not in has:
        lacking.append("no column of tasks: each file is one, by its name")
    if not metric.chosen_on:
        lacking.append(
            "NO VALIDATION DATA: NO LEARNING RATE IS CHOSEN, because choosing on test data makes a result look better "
            "than it is; --select-on-test does so all the same"
        )
    if metric.chosen_on == "test":
        lacking.append("STEPS AND LEARNING RATES ARE CHOSEN ON TEST DATA: THE RESULTS LOOK BETTER THAN THEY ARE")
    if "test" not in has:
        lacking.append(
            f"no column of test {metric.name}: validation is shown, which chose and so looks better than a test would"
        )
    return lacking


def _study(info: StudyInfo, runs: Runs, about: Sequence[str]) -> Study:
    metric, frames = info.metric, (runs.wanted, runs.ended, runs.curves)
    summary = summarise(*frames, metric) if metric.chosen_on else without_selection(*frames, metric)
    found = [*check_sweep(summary, runs.curves), *unequal_tuning(summary), *_unselected(summary)]
    found += _differing(summary, runs.settings)
    fixed = [replace(each, fix=FIXES.get(each.check, each.fix)) if each.fix else each for each in found]
    return Study(
        info=info, summary=summary, curves=runs.curves, findings=problems_first(fixed), about_table=tuple(about)
    )


def _unselected(summary: StudySummary) -> list[CheckFinding]:
    chosen_on = summary.metric.chosen_on
    if chosen_on == "validation":
        return []
    message = "its learning rate was chosen on test data" if chosen_on else "no learning rate is chosen"
    fix = "measure validation data, and choose by them"
    return [
        finding_of(cell, "chosen-on-test" if chosen_on else "not-chosen", "problem", message, fix)
        for cell in summary.cells.to_dict("records")
    ]


def _differing(summary: StudySummary, settings: Mapping[tuple[str, str, str], Sequence[str]]) -> Iterator[CheckFinding]:
    for cell in summary.cells.to_dict("records"):
        if names := settings.get((cell["task"], cell["model"], cell["variant"])):
            message = (
                f"runs of one learning rate differ in {listed(names)} besides their seeds: the spread is not noise"
            )
            yield finding_of(cell, "settings", "problem", message, "judge a table for each value")
