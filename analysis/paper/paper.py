"""The tables and figures of a paper that a study has the runs for, written by number.

A study whose name begins with that of a table of Lu et al. 2021, as in `lu2021-table3-swept`, has that table; any other
with a pretrained variant has those of Rothermel et al. 2021.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.paper import published as theirs
from lr_sweep.analysis.paper.entries import (
    NEVER,
    REFERENCE,
    OurNumbers,
    budget_text,
    published_text,
)
from lr_sweep.analysis.paper.figures import paper_figures
from lr_sweep.analysis.paper.published import (
    SMALL_MODELS,
    TABLES,
    Entry,
    entries,
    published,
    table_of,
)
from lr_sweep.analysis.record.study import StudyInfo
from lr_sweep.analysis.report.blocks import Block, Section, Table, stem_of_each
from lr_sweep.analysis.report.cells import (
    compared_seeds,
    facts,
    grouped_text,
    marks_text,
    model_text,
)
from lr_sweep.analysis.report.results import bold_text, is_tested
from lr_sweep.analysis.statistics.comparisons.verdicts import ranked
from lr_sweep.analysis.statistics.selection.best import Cell, tuples_in
from lr_sweep.analysis.statistics.selection.summary import GROUP, StudySummary
from lr_sweep.common.text import NO_VALUE

ROWS_OF_TABLE_3 = {
    "train": theirs.TRAIN_AT_END,
    "test": theirs.TEST_AT_END,
    "diff": theirs.TRAIN_MINUS_TEST_AT_END,
}
TO_MATCH = (
    f"Gradient steps until the mean over seeds of the test accuracy reaches that of {REFERENCE} in Table 1, at each "
    "cell's chosen learning rate. At every step a run counts with its best model by validation so far, as if the "
    f"budget ended there; the paper does not say how it counts. {NEVER} means never within the budget. There is no "
    "interval, as in the paper."
)
AT_LAST_STEP = (
    "Train and test accuracy in percent and their difference at the last step of the budget, mean over seeds, at each "
    "cell's chosen learning rate. Train accuracy is measured in evaluation mode on a fixed part of the training split. "
    "There is no interval, as in the paper."
)
MEASURED = {
    theirs.TEST: "Test accuracy in percent, mean ± standard error of the mean (SEM) over seeds, of each run's best "
    "model by validation accuracy, at the best learning rate by validation accuracy.",
    theirs.TRAIN: "Train accuracy is of the same models, in evaluation mode on a fixed part of the training split.",
    theirs.STEPS: "Convergence: gradient steps until the first evaluation whose validation accuracy is within 1 point "
    "of the best of the run's curve, mean over seeds. Speedup: the ratio of the two.",
    theirs.PARAMETERS: "Trained parameters of FPT, which Random has, too.",
}
"""Explanation of the entries of a table of Lu et al. 2021, by metric."""

Labels = tuple[str, ...]
"""What a row begins with."""
Rows = Mapping[Labels, tuple[str, str, str]]
"""Metric, model and variant of each row; its columns are tasks."""


class Place(NamedTuple):
    """What an entry is about, and what is published of it."""

    metric: str
    cell: Cell
    published: Entry | None


Places = dict[tuple[Labels, str], Place]
"""What stands where, by labels of the row and heading of the column."""


def paper_sections(
    folder: Path,
    info: StudyInfo,
    summary: StudySummary,
    curves: pd.DataFrame,
    *,
    pdf: bool = False,
) -> list[Section]:
    """Write the papers' tables and figures into `folder`, and return them; empty: the study is of no paper.

    `curves` have `run_id`, `step` and the accuracies; `pdf`: whether figures are PDF files, too.
    """
    if info.from_table or info.metric != ACCURACY:
        return []
    if number := table_of(info.study):
        table = lu_table(number, info, summary, curves).write(folder, f"lu2021-table{number}")
        return [Section(f"Lu et al. 2021, table {number}", [table])]
    if summary.runs["pretrained_on"].isna().all():
        return []
    tables = paper_tables(info, summary, curves)
    for name, table in tables.items():
        table.write(folder, name)
    ordered = sorted(tables, key=lambda name: name.partition("-")[0])
    stems = stem_of_each(summary.runs["model"].unique())
    images = paper_figures(folder, summary, stems, about(info, summary), pdf=pdf)
    blocks: list[Block] = [*(tables[name] for name in ordered), *images]
    return [Section("Rothermel et al. 2021", blocks)]


def about(info: StudyInfo, summary: StudySummary) -> str:
    """Say what the numbers of a summary rest on, and what "pretrained" means."""
    weights = grouped_text(summary.runs, "pretrained_on", "model") or "no variant"
    return " ".join([*facts(info, summary), f"Pretrained on: {weights}."])


def paper_tables(info: StudyInfo, summary: StudySummary, curves: pd.DataFrame) -> dict[str, Table]:
    """Return each table of Rothermel et al. 2021 that the study has the runs for, by file name without ending."""
    ours, found = OurNumbers(summary, curves), dict[str, Table]()
    models = list(summary.runs["model"].unique())
    for model, stem in stem_of_each(models).items():
        shown = summary.of(model=model)
        variants = list(shown.cells["variant"].unique())
        tables = [_table1(info, summary, ours, model)]
        if REFERENCE in variants:
            rows: Rows = {(v,): (theirs.STEPS_TO_MATCH, model, v) for v in variants}
            title = f"Gradient steps to match {REFERENCE}, {model}"
            tables.append(_table(info, ours, 2, title, TO_MATCH, ("variant",), rows, shown))
        if ours.have_test_at_end(model):
            title = f"Train and test accuracy at the last step, {model}"
            rows = {
                (v, name): (metric, model, v)
                for v in variants
                for name, metric in ROWS_OF_TABLE_3.items()
            }
            corner = ("variant", "accuracy")
            tables.append(_table(info, ours, 3, title, AT_LAST_STEP, corner, rows, shown))
        found |= {f"{_file_name(table)}-{stem}": table for table in tables}
    if len(models) > 1:
        rows = {
            (v, model): (theirs.TEST, model, v)
            for v in summary.cells["variant"].unique()
            for model in models
        }
        title, corner = "Test accuracy of the models", ("variant", "model")
        what = _tuned_text(summary)
        found["table4"] = _table(info, ours, 4, title, what, corner, rows, summary)
    return found | {"table5": _table5(summary.runs, ours)}


def _file_name(table: Table) -> str:
    return table.title.partition(".")[0].lower().replace(" ", "")


def _tuned_text(summary: StudySummary) -> str:
    return (
        "Test accuracy in percent, mean ± standard error of the mean (SEM) over "
        f"{compared_seeds(summary)}, {model_text(ACCURACY)}, at the best learning rate by validation accuracy."
    )


def _table1(info: StudyInfo, summary: StudySummary, ours: OurNumbers, model: str) -> Table:
    """Lay out a model's test accuracies; `summary` is of the whole study, over which comparisons are corrected."""
    shown = summary.of(model=model)
    variants = list(shown.cells["variant"].unique())
    rows: Rows = {(v,): (theirs.TEST, model, v) for v in variants}
    title, what = f"Test accuracy, {model}", _tuned_text(summary)
    table = _table(info, ours, 1, title, what, ("variant",), rows, shown)
    num_bold = None if is_tested(summary) else 1
    bold = frozenset(
        (variants.index(variant), table.header.index(labels["task"]))
        for labels, best, *_ in ranked(summary)
        for variant in best[:num_bold]
        if labels["model"] == model
    )
    return replace(table, bold=bold, caption=f"{table.caption} {bold_text(summary)}")


def _table(
    info: StudyInfo,
    ours: OurNumbers,
    number: int,
    title: str,
    what: str,
    corner: Labels,
    rows: Rows,
    shown: StudySummary,
) -> Table:
    places: Places = {}
    for labels, (metric, model, variant) in rows.items():
        for task in shown.cells["task"].unique():
            cell = (task, model, variant)
            there = theirs.published_best(cell) if number == 1 else published(number, cell, metric)
            places[labels, task] = Place(metric, cell, there)
    header, rows_of_texts = lay_out(corner, places, ours, NO_VALUE)
    unit = "gradient steps" if number == 2 else "percentage points"
    theirs_text = _about_published(places, shown.runs, unit)
    return Table(
        title=f"Table {number}. {title}",
        caption=f"{what}{marks_text(rows_of_texts)}{theirs_text} {about(info, shown)}",
        header=header,
        rows=rows_of_texts,
    )


def _table5(runs: pd.DataFrame, ours: OurNumbers) -> Table:
    places: Places = {}
    for task, model in tuples_in(runs[GROUP].drop_duplicates()):
        cell = (task, model, "all")
        there = published(5, cell, theirs.MAX_STEPS)
        places[(task, model), "gradient steps"] = Place(theirs.MAX_STEPS, cell, there)
    header, rows = lay_out(("task", "model"), places, ours, NO_VALUE)
    caption = "Gradient steps after which runs end."
    if _published_in(places):
        caption += " Published: Rothermel et al. 2021, Table 5; in brackets ours less theirs."
        header = (*header[:3], "published (difference)")
    return Table(title="Table 5. Step budgets", caption=caption, header=header, rows=rows)


def _published_in(places: Places) -> list[int]:
    """Return the tables of the paper that have any of the entries."""
    return sorted({place.published.table for place in places.values() if place.published})


def _about_published(places: Places, runs: pd.DataFrame, unit: str) -> str:
    """Say what the published columns are, if there are any, and which tasks ran for other budgets than the paper's."""
    if not _published_in(places):
        return ""
    other = []
    for (task, model), rows in runs.groupby(GROUP, sort=False):
        there = published(5, (str(task), "gpt2", "all"), theirs.MAX_STEPS)
        here = rows["num_steps"].max()
        if there is not None and here != there.number:
            budgets = f"{budget_text(here)} steps here, {budget_text(there.number)} there"
            other.append(f"{task} on {model} {budgets}")
    tables = " and ".join(f"Table {number}" for number in _published_in(places))
    about = (
        f" Published values are from Rothermel et al. 2021, {tables}, 3 seeds. In brackets: ours minus theirs, in "
        f"{unit}."
    )
    return about + (f" Budgets differ from the paper's: {'; '.join(other)}." if other else "")


def lay_out(
    corner: Labels, places: Places, ours: OurNumbers, absent: str
) -> tuple[Labels, tuple[Labels, ...]]:
    """Lay out entries by labels of rows and heading of columns, in the order in which they come.

    `corner`: headings of the labels; `absent`: what is written for a cell that the study does not have. Returns the
    header and the rows; published entries stand in a column beside ours.
    """
    header, lines = list(corner), {labels: list(labels) for labels, _ in places}
    for column in dict.fromkeys(column for _, column in places):
        of_column = [places.get((labels, column)) for labels in lines]
        beside = any(place and place.published for place in of_column)
        header += [column, f"{column}, published"] if beside else [column]
        for line, place in zip(lines.values(), of_column, strict=True):
            number = place and ours.of(place.metric, place.cell)
            line.append(number.text if number else absent)
            if beside:
                there = place and place.published
                value = number.value if number else math.nan
                line.append(published_text(there, value) if there else "")
    return tuple(header), tuple(map(tuple, lines.values()))


def lu_table(number: int, info: StudyInfo, summary: StudySummary, curves: pd.DataFrame) -> Table:
    """Lay out a table of Lu et al. 2021 with our numbers beside the published ones; empty where one is missing."""
    small, text = theirs.is_small(info.study), TABLES[number]
    found = entries(number, small=small)
    places: Places = {
        ((entry.row,), entry.column): Place(entry.metric, entry.cell, entry) for entry in found
    }
    header, rows = lay_out((text.corner,), places, OurNumbers(summary, curves), absent="")
    metrics = dict.fromkeys(entry.metric for entry in found)
    said = [MEASURED[metric] for metric in metrics if metric in MEASURED]
    said.append(f"Published values are from Lu et al. 2021, table {number}.")
    said.append("In brackets: ours minus theirs.")
    said += [text.note] if text.note else []
    if small:
        stand_ins = f"Our runs are reduced: {_stand_ins(number)}."
        said.append(f"{stand_ins} Only the order of the numbers can be compared.")
    return Table(
        title=f"Table {number}. {text.title[0].upper()}{text.title[1:]}",
        caption=" ".join([*said, about(info, summary)]) + marks_text(rows),
        header=header,
        rows=rows,
    )


def _stand_ins(number: int) -> str:
    models = {entry.model for entry in entries(number)}
    here = {model: ours for model, ours in SMALL_MODELS.items() if model in models}
    pairs = {**TABLES[number].small, **here}
    return ", ".join(f"{ours} for {theirs}" for theirs, ours in pairs.items())
