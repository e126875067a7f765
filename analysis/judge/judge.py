"""`judge`: tables from anywhere -> the report that a study's record gets.

Readers give a table of texts (`table_file`), names or the user give its columns their meanings (`contract`), fields
become values (`rows`), rows become runs (`runs`), and runs a study, whose report `write_judged` writes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from lr_sweep.analysis.judge.readers.sources import Source, read_sources
from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.study import StudyInfo
from lr_sweep.analysis.report.folder import replacing_ours
from lr_sweep.analysis.statistics.checks.finding import conditions_of, finding_of, problems_first
from lr_sweep.analysis.statistics.checks.sweep import check_sweep
from lr_sweep.analysis.statistics.checks.variants import unequal_tuning
from lr_sweep.analysis.statistics.comparisons.conditions import with_conditions
from lr_sweep.analysis.statistics.selection.best import CELL, tuples_in
from lr_sweep.analysis.study_report import Report, write_files
from lr_sweep.analysis.study_summary import Study, with_options
from lr_sweep.common.collector import without_collector
from lr_sweep.common.errors import UserError, reason, translated
from lr_sweep.common.files import make_folder
from lr_sweep.common.text import counted, rate_text

from .contract import Contract, contract_of
from .measured import exported, measured_rows
from .names import listed, shortened
from .reading import Reading
from .rows import UNTUNED, completed, only
from .runs import (
    Remarks,
    Runs,
    best_settings,
    runs_of,
    settings_findings,
    tuned_remark,
    with_tuned,
)
from .table_file import TableFile, joined, printable, stem_of

FIXES = {
    "missing": "train them and add their rows, or write `nan` where they diverged",
    "improving": "train for more steps",
    "stopped": "train them to the end, unless a rule that treats all alike stopped them",
    "stuck": "look at the data: do inputs differ between examples, and are they scaled?",
}
"""Advice on findings by check, where that of a record names its own commands."""
OF_RATES = ["untuned", "edge", "flat", "unequal"]
"""Checks of learning rates."""
NOT_CHOSEN = ("not-chosen", "no learning rate is chosen")
CHOSEN_ON_TEST = ("chosen-on-test", "its learning rate was chosen on test data")
MOST_NAMED = 20
"""Columns that are not used and are named; more are counted."""
CELLS = [*CELL, *["learning_rate", "num_values", "validation_mean", "test_mean", "test_sem"]]
PAIR = [
    *["task", "model", "variant", "other", "difference", "low", "high"],
    *["corrected_p", "distinguishable", "equal", "findable", "condition"],
]
"""Columns of cells and of pairs in JSON."""


class Judged(NamedTuple):
    """A study, the reading of its tables with the meaning of every column, and warnings about all of its results."""

    study: Study
    reading: Reading
    warnings: Sequence[str]


@without_collector()  # a table has millions of texts, and none is in a circle
def judged(sources: Sequence[Source], reading: Reading) -> Judged:
    """Read tables as one study; raises as `runs_read`."""
    runs, reading = runs_read(read_sources(sources), reading)
    warnings = list(map(printable, runs.remarks.warnings))
    if "tuned" not in reading.columns:
        return Judged(_study(runs), reading, warnings)
    num_runs = len(runs.wanted)
    runs, num_settings, best = best_settings(runs)
    study = _study(runs)
    about = (*study.about_table, tuned_remark(study.summary.cells, num_settings, best))
    return Judged(replace(study, num_table_runs=num_runs, about_table=about), reading, warnings)


def runs_read(tables: Sequence[TableFile], reading: Reading) -> tuple[Runs, Reading]:
    """Read tables of one study, and return the reading with the meaning of every column.

    Raises UserError with every mistake in them, and ListingError where names leave a meaning open.
    """
    table, said = exported(only(joined(tables), reading.where))
    contract = contract_of(table, reading)
    remarks = Remarks(left_out=contract.rows.left_out)
    rows = completed(table, contract.rows)
    metric, rows = measured_rows(rows, contract, said, reading.select_on_test)
    may_select = metric.chosen_on == "validation" or reading.select_on_test
    rows = with_tuned(rows, may_select=may_select)
    name = stem_of(tables[0].path)
    options = {option: getattr(reading, option) for option in ("equal_within", "target")}
    info = StudyInfo(study=name, title=name, metric=metric, from_table=True, **options)
    runs = runs_of(rows, contract.rows.settings, info, remarks)
    about_tables = [f"{table.name}: {counted(len(table.frame), 'row')}" for table in tables]
    about_tables += [f"{table.name}: {table.reader}" for table in tables if table.reader]
    remarks.notes[:0] = [_read_as(contract, metric), *about_tables]
    remarks.warnings += [remark for table in tables for remark in table.remarks]
    _remark_lacking(metric, remarks)
    columns = {**reading.columns, **contract.options}
    filled = replace(reading, columns=columns, higher_is_better=metric.higher_is_better)
    return runs, filled


def _read_as(contract: Contract, metric: Metric) -> str:
    """Return one paragraph: `read as: variant = optimizer, learning rate = lr; accuracy: higher is better; ...`."""
    read = [
        f"{meaning.replace('_', ' ')} = {shortened(printable(text))}"
        for meaning, text in contract.options.items()
    ]
    unused = [
        f"{printable(column.name)} ({counted(column.num_values, 'value')})"
        for column in contract.unused
    ]
    rest = f"; not used: {listed(unused, MOST_NAMED)}" if unused else ""
    return f"read as: {', '.join(read)}; {metric.name}: {metric.better} is better{rest}"


def _remark_lacking(metric: Metric, remarks: Remarks) -> None:
    """Add a warning for each lack that makes results doubtful."""
    if metric.untuned:
        doubt = "values are compared as they are; a better rate may change the order"
        shown = f"Where the report has a learning rate, it writes {rate_text(UNTUNED)}"
        remarks.warnings.append(f"NO LEARNING RATE: nothing was tuned, and {doubt}. {shown}")
    if not metric.chosen_on:
        why = "choosing on test data makes a result look better than it is"
        text = f"NO LEARNING RATE IS CHOSEN, because {why}; --select-on-test does"
        remarks.warnings.append(f"NO VALIDATION DATA: {text}")
    if metric.chosen_on == "test" and not metric.untuned:
        text = "STEPS AND LEARNING RATES ARE CHOSEN ON TEST DATA: RESULTS LOOK BETTER THAN THEY ARE"
        remarks.warnings.append(text)
    if metric.reported_on != "test":
        looks = "which chose, and looks better than a test would"
        remarks.notes.append(f"no column of test {metric.name}: validation is shown, {looks}")


def _study(runs: Runs) -> Study:
    info, remarks = runs.info, runs.remarks
    summary = with_options(runs.summary(), info)
    found = [*check_sweep(summary, runs.curves), *unequal_tuning(summary)]
    if info.metric.untuned:
        found = [each for each in found if each.check not in OF_RATES]
    elif info.metric.chosen_on != "validation":
        check, message = CHOSEN_ON_TEST if info.metric.chosen_on else NOT_CHOSEN
        advice = "measure validation data, and choose by them"
        cells = tuples_in(summary.cells[CELL])
        found += [finding_of(cell, check, "problem", message, advice) for cell in cells]
    if "tuned" not in runs.rows:
        found += settings_findings(runs.rows.drop_duplicates("run_id"), runs.settings)
    fixed = [
        replace(each, fix=FIXES.get(each.check, each.fix)) if each.fix else each for each in found
    ]
    return Study(
        info=info,
        wanted=runs.wanted,
        runs=runs.ended,
        summary=summary,
        curves=runs.curves,
        findings=problems_first(fixed),
        about_table=tuple(map(printable, (*remarks.notes, *remarks.left_out, *remarks.warnings))),
        left_out=tuple(map(printable, remarks.left_out)),
    )


def write_judged(study: Study, folder: Path, *, latex: bool = False) -> Report:
    """Write a report; a folder that holds an earlier one, and nothing else, is replaced once all is written.

    Raises UserError if the folder holds anything else, or cannot be written to.
    """
    with translated((OSError, RuntimeError), partial(_unwritable, folder)):
        folder = folder.resolve()
        make_folder(folder.parent)
        with replacing_ours(folder, {"table": study.info.study, "read": study.about_table}) as new:
            description = write_files(new, study, latex=latex)
        files = tuple(sorted(folder.iterdir()))
    return Report(folder=folder, files=files, description=description, findings=study.findings)


def judged_json(study: Study, report: Report) -> dict[str, Any]:
    """Return what was judged as content for JSON; `checks` is the report's `checks.json`."""
    metric, pairs = study.summary.metric, pd.DataFrame(columns=PAIR)
    if metric.chosen_on:
        pairs = with_conditions(study.summary, conditions_of(study.findings))
    frames = {"cells": study.summary.cells[CELLS], "comparisons": pairs[PAIR]}
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
