"""`judge`: tables from anywhere -> the report that a study's record gets.

Files are read as text (`table_file`), their columns get a meaning (`columns`), the fields become numbers (`rows`), rows
become runs (`runs`), and runs a study, whose report `write_judged` writes. `remarks` collects what was read, assumed
and lacking.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from lr_sweep.analysis.judge.columns import Columns, columns_of
from lr_sweep.analysis.judge.exported import exported_reading
from lr_sweep.analysis.judge.layouts import arranged
from lr_sweep.analysis.judge.names import SEVERAL, listed, words
from lr_sweep.analysis.judge.readers.sources import Source, expanded, read_sources
from lr_sweep.analysis.judge.reading import MEANINGS, Choice, QuestionError, Reading, asking
from lr_sweep.analysis.judge.rows import UNTUNED, only, rows_of, whole_steps
from lr_sweep.analysis.judge.runs import (
    Runs,
    refuse_schedules,
    runs_of,
    with_one_rate,
    without_own_seeds,
)
from lr_sweep.analysis.judge.settings import (
    best_settings,
    settings_findings,
    tuned_remark,
    with_settings,
    with_tuned,
)
from lr_sweep.analysis.judge.table_file import TableFile, joined, printable, stem_of
from lr_sweep.analysis.judge.values import measured_rows, per_step, refuse_means
from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.study import StudyInfo
from lr_sweep.analysis.report.folder import replacing_ours
from lr_sweep.analysis.statistics.checks.finding import conditions_of, finding_of, problems_first
from lr_sweep.analysis.statistics.checks.sweep import check_sweep
from lr_sweep.analysis.statistics.checks.variants import unequal_tuning
from lr_sweep.analysis.statistics.comparisons.conditions import with_conditions
from lr_sweep.analysis.statistics.comparisons.target import compare_steps
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.analysis.study_report import Report, write_files
from lr_sweep.analysis.study_summary import Study, with_options
from lr_sweep.common.errors import UserError, reason, translated
from lr_sweep.common.files import make_folder
from lr_sweep.common.text import counted, rate_text

FIXES = {  # what to do about findings, by check, where the record's advice names its own commands
    "missing": "train them and add their rows, or write `nan` where they diverged",
    "improving": "train for more steps",
    "stopped": "train them to the end, unless a rule that treats all alike stopped them",
    "stuck": "look at the data: do inputs differ between examples, and are they scaled?",
    "identical": "two ways of training never agree so: look at how the rows were written",
}
OF_RATES = words("untuned edge narrow cliff flat rate-ignored unstable unequal")  # checks of rates
NOT_CHOSEN = ("not-chosen", "no learning rate is chosen")
CHOSEN_ON_TEST = ("chosen-on-test", "its learning rate was chosen on test data")
MOST_NAMED = 20  # columns that are not used; more are counted
CELLS = [
    *CELL,
    "learning_rate",
    "num_values",
    "validation_mean",
    "test_mean",
    "test_sem",
]  # in JSON
PAIR = words(
    "task model variant other difference low high corrected_p distinguishable equal findable condition"
)


class Judged(NamedTuple):
    """A study, and the reading of its tables with every guess filled in, so that reading again guesses nothing."""

    study: Study
    reading: Reading


def judged(sources: Sequence[Source], reading: Reading) -> Judged:
    """Read tables as one study; raises as `runs_read`."""
    runs, reading = runs_read(read_sources(sources), reading)
    if "nuisance" not in reading.columns:
        return Judged(_study(runs), reading)
    num_runs = len(runs.wanted)
    runs, num_settings, best = best_settings(runs)
    study = _study(runs)
    about = (*study.about_table, tuned_remark(study.summary.cells, num_settings, best))
    return Judged(replace(study, num_table_runs=num_runs, about_table=about), reading)


def runs_read(tables: Sequence[TableFile], reading: Reading) -> tuple[Runs, Reading]:
    """Read tables of one study, and return the reading with every guess filled in.

    Raises UserError with every mistake in them, and QuestionError where readings are equally good, and work.
    """
    return asking(partial(_runs_read, tables), reading)


def _runs_read(tables: Sequence[TableFile], reading: Reading) -> tuple[Runs, Reading]:
    reading = reading.at_positions(list(tables[0].columns))
    tables = [only(table, reading.where) for table in tables]
    reading = exported_reading(tables, reading)
    tables = [arranged(table, reading) for table in tables]
    table, remarks = joined(tables), list[str]()
    columns = columns_of(table, reading)
    _refuse_unlike(tables, columns)
    refuse_means(table, columns)
    metric, rows = measured_rows(rows_of(table, columns, remarks), columns, reading, remarks)
    refuse_schedules(rows, columns)
    rows = without_own_seeds(with_one_rate(rows, remarks), columns, remarks)
    rows = with_tuned(with_settings(rows, columns), metric)
    name = stem_of(tables[0].path)
    options = {option: getattr(reading, option) for option in ("equal_within", "target")}
    info = StudyInfo(study=name, title=name, metric=metric, from_table=True, **options)
    runs = runs_of(whole_steps(rows, remarks), info, remarks)
    if metric.untuned and reading.target is None:
        _refuse_nothing(table, runs, reading)
    of = {role: columns.of[role] for role in MEANINGS if role in columns.of}
    about = [
        _read_as(of, columns, metric),
        *_about_tables(tables),
        *remarks,
        *_lacking(set(of), metric),
    ]
    given = {"learning_rate": ""} | of if metric.untuned else of
    filled = replace(
        reading, columns=given, metric=metric.name, higher_is_better=metric.higher_is_better
    )
    counts = per_step(table, runs.rows, reading.by) if reading.by else None
    return replace(runs, remarks=list(map(printable, about)), per_step=counts), filled


def _refuse_unlike(tables: Sequence[TableFile], columns: Columns) -> None:
    for role, name in columns.of.items():
        if without := [
            table for table in tables if role not in SEVERAL and name not in table.columns
        ]:
            other = next(each for each in tables if name in each.columns)
            there = f"{without[0].path} has other columns than {other.path}, where {role} is {name}"
            raise UserError(f"{there}: judge them one by one, or write the same names in all")


def _refuse_nothing(table: TableFile, runs: Runs, reading: Reading) -> None:
    """Raise UserError for a single run without a rate, and QuestionError for runs of one cell, unless given so."""
    there = f"{table.path}: no column of learning rates, and nothing to compare, in {listed(list(table.columns))}"
    if len(runs.wanted) == 1:
        raise UserError(
            f"{there}: it is a single run: add the others, or give --columns learning_rate=NAME"
        )
    if "learning_rate" not in reading.columns and len(runs.wanted[CELL].drop_duplicates()) == 1:
        says = "no rate was tuned, and runs differ in nothing but chance"
        raise QuestionError(
            f"{there}: name one with --columns",
            [Choice(says, Reading(columns={"learning_rate": ""}))],
        )


def _read_as(of: Mapping[str, str], columns: Columns, metric: Metric) -> str:
    """Return one paragraph: `read as: variant = optimizer, learning rate = lr (guessed: ...), ...; not used: ...`."""
    guessed = {role: f" (guessed: {printable(why)})" for role, why in columns.guessed.items()}
    read = [
        f"{role.replace('_', ' ')} = {printable(name)}{guessed.get(role, '')}"
        for role, name in of.items()
    ]
    unread = [
        f"{printable(each.name)} ({counted(len(each.values), 'value')})" for each in columns.unread
    ]
    rest = f"; not used: {listed(unread, MOST_NAMED)}" if unread else ""
    return f"read as: {', '.join(read)}; {metric.name}: {metric.better} is better{rest}"


def _about_tables(tables: Sequence[TableFile]) -> list[str]:
    rows = [f"{each.reader}, {len(each.lines)} rows".removeprefix(", ") for each in tables]
    files = [
        f"{each.name}: {said}, sha256 {each.sha256[:16]}"
        for each, said in zip(tables, rows, strict=True)
    ]
    return files + [said for each in tables for said in each.remarks]


def _lacking(has: set[str], metric: Metric) -> Iterator[str]:
    if "learning_rate" not in has:
        doubt = (
            "a better rate may change the order. Where the report has a learning rate, it writes"
        )
        yield f"NO LEARNING RATE: nothing was tuned, and values are compared as they are; {doubt} {rate_text(UNTUNED)}"
    if not {"model", "variant"} & has:
        yield "no column of variants or models: there is nothing to compare"
    elif "variant" not in has:
        yield "no column of variants: the models are compared, as variants"
    if not metric.chosen_on:
        why = "choosing on test data makes a result look better than it is; --select-on-test does so all the same"
        yield f"NO VALIDATION DATA: NO LEARNING RATE IS CHOSEN, because {why}"
    if metric.chosen_on == "test" and "learning_rate" in has:
        yield "STEPS AND LEARNING RATES ARE CHOSEN ON TEST DATA: THE RESULTS LOOK BETTER THAN THEY ARE"
    if "test" not in has:
        yield f"no column of test {metric.name}: validation is shown, which chose and so looks better than a test would"


def _study(runs: Runs) -> Study:
    info, summary = runs.info, with_options(runs.summary(), runs.info)
    found = [*check_sweep(summary, runs.curves), *unequal_tuning(summary)]
    if info.metric.untuned:
        found = [each for each in found if each.check not in OF_RATES]
    elif info.metric.chosen_on != "validation":
        check, message = CHOSEN_ON_TEST if info.metric.chosen_on else NOT_CHOSEN
        advice, cells = (
            "measure validation data, and choose by them",
            summary.cells.to_dict("records"),
        )
        found += [finding_of(cell, check, "problem", message, advice) for cell in cells]
    found += settings_findings(runs.rows)
    fixed = [
        replace(each, fix=FIXES.get(each.check, each.fix)) if each.fix else each for each in found
    ]
    return Study(
        info=info,
        wanted=runs.wanted,
        runs=runs.ended,
        summary=summary,
        curves=runs.curves,
        per_step=runs.per_step,
        findings=problems_first(fixed),
        about_table=tuple(runs.remarks),
    )


def write_judged(study: Study, folder: Path, *, latex: bool = False) -> Report:
    """Write a report; a folder that holds an earlier one, and nothing else, is replaced once all is written.

    Raises UserError if the folder holds anything else, or cannot be written to.
    """
    with translated((OSError, RuntimeError), partial(_unwritable, folder)):
        folder = folder.resolve()
        make_folder(folder.parent)
        with replacing_ours(folder, {"table": study.info.study, "read": study.about_table}) as new:
            text = write_files(new, study, latex=latex)
        files = tuple(sorted(folder.iterdir()))
    return Report(folder=folder, files=files, text=text, findings=study.findings)


def check_apart(sources: Sequence[str], folder: Path) -> None:
    """Raise UserError where a report would replace a table that is judged: one of an earlier report."""
    with translated((OSError, RuntimeError), partial(_unwritable, folder)):
        out = folder.resolve()
        paths = [
            Path(path.removeprefix("sqlite:///")).resolve()
            for each in sources
            for path in expanded(each)
        ]
    for path in paths:
        if out in path.parents:
            raise UserError(
                f"--out {folder}: it holds {path.name}, which is judged: name another folder"
            )


def judged_json(study: Study, report: Report) -> dict[str, Any]:
    """Return what was judged as content for JSON; `checks` is the report's `checks.json`."""
    metric, pairs = study.summary.metric, pd.DataFrame(columns=list(PAIR))
    if metric.chosen_on:
        pairs = with_conditions(study.summary, conditions_of(study.findings))
    frames = {"cells": study.summary.cells[CELLS], "comparisons": pairs[list(PAIR)]}
    if (steps := compare_steps(study.summary, study.curves, study.per_step)) is not None:
        frames |= {"target_cells": steps.cells, "target_pairs": steps.pairs}
    return {
        "table": study.info.study,
        "read_as": list(study.about_table),
        "metric": metric.as_json(),
        "text": report.text,
        **{
            name: json.loads(frame.to_json(orient="records", double_precision=15))
            for name, frame in frames.items()
        },
        "checks": json.loads((report.folder / "checks.json").read_text(encoding="utf-8")),
        "report": str(report.page),
    }


def _unwritable(folder: Path, error: Exception) -> UserError:
    what = error.strerror if isinstance(error, OSError) and error.strerror else reason(error)
    return UserError(
        f"--out {folder}: the report cannot be written there: {what}. Name another folder"
    )
