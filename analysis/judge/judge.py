"""`judge`: tables from anywhere -> the report that a study's record gets.

Files are read as text (`table_file`), their columns get a meaning (`columns`), the fields become numbers (`rows`), rows
become runs (`runs`), and runs a study that `write` reports on. `remarks` collects what was read, assumed and lacking.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from lr_sweep.analysis.judge.columns import Columns, columns_of
from lr_sweep.analysis.judge.layouts import arranged
from lr_sweep.analysis.judge.means import refuse_means
from lr_sweep.analysis.judge.names import FRACTIONS, PERCENTS, SEVERAL, SPLITS
from lr_sweep.analysis.judge.offers import asking
from lr_sweep.analysis.judge.read_as import read_as
from lr_sweep.analysis.judge.readers.sources import read_sources
from lr_sweep.analysis.judge.reading import Choice, QuestionError, Reading
from lr_sweep.analysis.judge.rows import refuse_cut, rows_of, whole_steps
from lr_sweep.analysis.judge.runs import Runs, refuse_schedules, runs_of, with_one_rate
from lr_sweep.analysis.judge.settings import RATE, Moved, with_settings
from lr_sweep.analysis.judge.table_file import TableFile, joined
from lr_sweep.analysis.judge.tuned import best_settings, tuned_remarks, with_nuisance
from lr_sweep.analysis.judge.words import has_word, is_higher_better, listed
from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.read import StudyInfo
from lr_sweep.analysis.statistics.checks.finding import CheckFinding, Level, finding_of, problems_first
from lr_sweep.analysis.statistics.checks.sweep import check_sweep
from lr_sweep.analysis.statistics.checks.unequal import unequal_tuning
from lr_sweep.analysis.statistics.selection.axes import of_labels
from lr_sweep.analysis.statistics.selection.best import CELL, Cell
from lr_sweep.analysis.statistics.selection.summary import StudySummary, summarise
from lr_sweep.analysis.study_files import Study
from lr_sweep.analysis.study_summary import with_options
from lr_sweep.common.errors import UserError

FAR = 10
"""If the greatest values of two columns differ by more than this factor, one column is a fraction."""
LEAST_SHARED = 3
"""Seeds from which on comparing by seed is offered."""
SHARED_SEEDS = "the variants share their seeds: --paired compares them by seed, which may decide more"
MIXED = 0.2
"""If more than this share of accuracies is up to 1, and others are above, some are fractions and some percent."""
ALIKE = 0.05
"""An accuracy is in fractions if a hundred times it is so near the median at its rate."""
FIXES = {
    "missing": "train them and add their rows, or write `nan` where they diverged",
    "improving": "train for more steps",
    "stopped": "train them to the end, unless a rule that treats all alike stopped them",
    "stuck": "look at the data: do inputs differ between examples, and are they scaled?",
    "identical": "two ways of training never agree so: look at how the rows were written",
}
"""What to do about findings, by check, where the record's advice names its own commands."""


def judge(paths: Sequence[str | Path], reading: Reading) -> Study:
    """Read tables as one study; raises as `judged`."""
    return judged(paths, reading).study


class Judged(NamedTuple):
    """A study, and how its tables were read."""

    study: Study
    reading: Reading
    """With nothing left to guess."""


class RunsRead(NamedTuple):
    """The runs of tables, and how these were read."""

    info: StudyInfo
    runs: Runs
    remarks: Sequence[str]
    """How the tables were read first."""
    reading: Reading
    """With nothing left to guess."""
    has_seeds: bool
    is_tuned: bool
    """Whether variants have settings that are tuned as the rate is, until `best_settings`."""


def judged(paths: Sequence[str | Path], reading: Reading) -> Judged:
    """Read tables as one study; raises as `runs_read`."""
    read = runs_read(read_sources(paths), reading)
    remarks = list(read.remarks)
    if read.has_seeds and not reading.paired and _shares_seeds(read.runs):
        remarks.append(SHARED_SEEDS)
    study = _tuned_study if read.is_tuned else _study
    return Judged(study(read.info, read.runs, remarks), read.reading)


def runs_read(tables: Sequence[TableFile], reading: Reading) -> RunsRead:
    """Read tables of one study as runs.

    Raises:
        UserError: with every mistake in them.
        QuestionError: there are readings that are equally good, and work.
    """
    return asking(partial(_runs_read, tables), reading)


def _runs_read(tables: Sequence[TableFile], reading: Reading) -> RunsRead:
    tables, said = zip(*(arranged(table, reading.columns) for table in tables), strict=True)
    table = joined(tables)
    columns = columns_of(table, reading)
    _refuse_unlike(tables, columns)
    refuse_means(table, columns, reading)
    remarks = _about_tables(tables)
    metric, rows = _measured(rows_of(table, columns, remarks), columns, _with_direction(reading, columns), remarks)
    rows = with_one_rate(rows, remarks)
    refuse_schedules(rows, columns.of["learning_rate"])
    decisive, guessed = "validation" if "validation" in rows else "test", dict(columns.guessed)
    guessed |= {role: why for role, why in said[0].items() if role in columns.of}
    rows = with_settings(rows, columns, decisive, guessed)
    remarks.insert(0, read_as(table, columns, guessed, metric))
    rows = whole_steps(with_nuisance(rows, metric), remarks)
    runs = runs_of(rows, decisive, remarks)
    remarks += _lacking(columns, guessed, metric)
    name = tables[0].stem
    info = StudyInfo(study=name, title=name, metric=metric, from_table=True)
    info = replace(info, paired=reading.paired, equal_within=reading.equal_within)
    mapping = replace(
        reading,
        columns={**{role: name for role, name in guessed.items() if role not in columns.of}, **columns.of},
        metric=metric.name,
        higher_is_better=metric.higher_is_better,
    )
    return RunsRead(info, runs, remarks, mapping, has_seeds="seed" in columns.of, is_tuned="nuisance" in rows)


def _refuse_unlike(tables: Sequence[TableFile], columns: Columns) -> None:
    """Raise UserError for a file that is cut, or lacks a column that is read in the others."""
    for table in tables:
        refuse_cut(table)
        for role, name in columns.of.items():
            if role not in SEVERAL and name not in table.columns:
                other = next(each for each in tables if name in each.columns)
                raise UserError(
                    f"{table.path} has other columns than {other.path}, where {role} is {name}: "
                    "judge them one by one, or write the same names in all"
                )


def _with_direction(reading: Reading, columns: Columns) -> Reading:
    """Return a reading with the direction that the table says, where the user says none."""
    said = reading.higher_is_better
    return reading if said is not None else replace(reading, higher_is_better=columns.higher_is_better)


def _shares_seeds(runs: Runs) -> bool:
    """Return whether several variants have the same seeds, at least three, so that they can be compared by them."""
    seeds = runs.wanted.groupby(CELL)["seed"].agg(frozenset)
    several = runs.wanted["variant"].nunique() > 1
    return several and seeds.nunique() == 1 and len(seeds.iloc[0]) >= LEAST_SHARED


def _tuned_study(info: StudyInfo, runs: Runs, remarks: Sequence[str]) -> Study:
    """Summarise the runs of the best settings."""
    tuned = best_settings(runs, info.metric)
    study = _study(info, tuned.runs, remarks)
    said = (*study.about_table, *tuned_remarks(tuned, study.summary.cells))
    return replace(study, candidates=tuned.candidates, about_table=said)


def _about_tables(tables: Sequence[TableFile]) -> list[str]:
    read = {table.path: f"{table.reader}, " if table.reader else "" for table in tables}
    files = [f"{each.name}: {read[each.path]}{len(each.lines)} rows, sha256 {each.sha256[:16]}" for each in tables]
    cut = [f"{table.name}: no line end after the last row; was the file cut?" for table in tables if table.unfinished]
    return [*files, *cut]


def _measured(
    rows: pd.DataFrame, columns: Columns, reading: Reading, remarks: list[str]
) -> tuple[Metric, pd.DataFrame]:
    """Find the metric, and turn percents into fractions; a table without test data shows its validation data."""
    if reading.select_on_test and "validation" in columns.of:
        raise UserError("--select-on-test: the table has validation data, which selects: leave the option out")
    name = reading.metric or columns.metric or "score"
    higher = is_higher_better(name) if reading.higher_is_better is None else reading.higher_is_better
    if higher is None:
        ways = [Choice(f"{way} is better", Reading(higher_is_better=way == "more")) for way in ("more", "less")]
        raise QuestionError(f"is more {name} better or worse? give --higher-is-better or --lower-is-better", ways)
    metric = Metric(name=name, higher_is_better=higher)
    says_otherwise = is_higher_better(columns.metric) not in (None, higher)
    why = "as a column of the table says" if columns.higher_is_better is higher else "as given"
    against = f", {why}; the column's name says otherwise" if says_otherwise else ""
    remarks.append(f"{name}: {metric.better} is better{against}")
    rows = _as_fractions(rows, name, remarks)
    metric = replace(metric, is_fraction=has_word(name, FRACTIONS) and _within(rows, 1))
    if "test" not in columns.of:
        metric, rows = replace(metric, reported_on="validation"), rows.assign(test=rows["validation"])
    if "validation" not in columns.of:
        metric = replace(metric, chosen_on="test" if reading.select_on_test else "")
    return metric, rows.assign(validation=rows["test"]) if reading.select_on_test else rows


def _splits(rows: pd.DataFrame) -> list[str]:
    return [split for split in SPLITS if split in rows]


def _within(rows: pd.DataFrame, most: float) -> bool:
    """Return whether every value is from 0 to a number, and there is one."""
    values = rows[_splits(rows)].to_numpy(dtype=float)
    known = values[~np.isnan(values)]
    return bool(len(known) and known.min() >= 0 and known.max() <= most)


def _as_fractions(rows: pd.DataFrame, name: str, remarks: list[str]) -> pd.DataFrame:
    if has_word(name, {"accuracy"}) and (lowest := float(rows[_splits(rows)].min().min())) < 0:
        raise UserError(f"{name} is down to {lowest:g}, and none is below 0: write it as it was measured")
    if not has_word(name, PERCENTS) or _within(rows, 1) or not _within(rows, 100):
        return rows
    highest = {split: float(rows[split].max()) for split in _splits(rows)}
    if any(value <= 1 and FAR * value < max(highest.values()) for value in highest.values()):
        text = ", ".join(f"{split} up to {value:g}" for split, value in highest.items())
        raise UserError(f"{name} is a fraction in one column and percent in another ({text}): write all as fractions")
    if has_word(name, {"accuracy"}) and _is_mixed(rows):
        raise UserError(f"{name} is a fraction in some rows and percent in others: write all as fractions")
    remarks.append(f"some values of {name} are above 1: all are read as percent")
    return rows.assign(**{split: rows[split] / 100 for split in highest})


def _is_mixed(rows: pd.DataFrame) -> bool:
    """Return whether some of the values, up to 100, are fractions: many, or one that is a hundredth of its rate's."""
    values = rows[_splits(rows)]
    usual = values.groupby([rows[name] for name in RATE]).transform("median")
    hundredths = (100 * values / usual - 1).abs().lt(ALIKE) & values.le(1)
    known = values.to_numpy(float)
    return bool((known[known > 0] <= 1).mean() > MIXED or hundredths.any(axis=None))


def _lacking(columns: Columns, guessed: Mapping[str, str], metric: Metric) -> Iterator[str]:
    """Say what the table has no columns of, and what follows."""
    has = columns.of.keys() | guessed.keys()
    if not {"model", "variant"} & has:
        yield "no column of variants or models: there is nothing to compare"
    elif "variant" not in has:
        yield "no column of variants: the models are compared, as variants"
    if not metric.chosen_on:
        yield (
            "NO VALIDATION DATA: NO LEARNING RATE IS CHOSEN, because choosing on test data makes a result look better "
            "than it is; --select-on-test does so all the same"
        )
    if metric.chosen_on == "test":
        yield "STEPS AND LEARNING RATES ARE CHOSEN ON TEST DATA: THE RESULTS LOOK BETTER THAN THEY ARE"
    if "test" not in has:
        yield f"no column of test {metric.name}: validation is shown, which chose and so looks better than a test would"


def _study(info: StudyInfo, runs: Runs, remarks: Sequence[str]) -> Study:
    """Summarise and check the runs."""
    summary = with_options(summarise(runs.wanted, runs.ended, runs.curves, info.metric), info)
    found = [*check_sweep(summary, runs.curves), *unequal_tuning(summary)]
    found += [*_unselected(summary), *_differing(summary, runs.settings), *_moved(summary, runs.moved)]
    fixed = [replace(each, fix=FIXES.get(each.check, each.fix)) if each.fix else each for each in found]
    return Study(
        info=info,
        summary=summary,
        curves=runs.curves,
        findings=problems_first(fixed),
        axes=of_labels(summary.cells),
        about_table=tuple(remarks),
    )


def _unselected(summary: StudySummary) -> Iterator[CheckFinding]:
    chosen_on = summary.metric.chosen_on
    if chosen_on == "validation":
        return
    check = "chosen-on-test" if chosen_on else "not-chosen"
    message = "its learning rate was chosen on test data" if chosen_on else "no learning rate is chosen"
    for cell in summary.cells.to_dict("records"):
        yield finding_of(cell, check, "problem", message, "measure validation data, and choose by them")


def _differing(summary: StudySummary, settings: Mapping[Cell, Sequence[str]]) -> Iterator[CheckFinding]:
    for cell in summary.cells.to_dict("records"):
        if names := settings.get((cell["task"], cell["model"], cell["variant"])):
            message = (
                f"runs of one learning rate differ in {listed(names)} besides their seeds: the spread is not noise"
            )
            yield finding_of(cell, "settings", "problem", message, "judge a table for each value")


def _moved(summary: StudySummary, moved: Mapping[Cell, Moved]) -> Iterator[CheckFinding]:
    for cell in summary.cells.to_dict("records"):
        if found := moved.get((cell["task"], cell["model"], cell["variant"])):
            level: Level = "problem" if found.certain else "note"
            names = listed(found.names)
            message = f"its learning rates differ in {names} as well: what is better may be due to any of them"
            yield finding_of(cell, "settings", level, message, "vary the learning rate alone")
