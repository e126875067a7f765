"""The tables and figures of a paper that a study has the runs for, written by number.

A study whose name begins with that of a table of Lu et al. 2021, as in `lu2021-table3-swept`, has that table; any other
with a pretrained variant has those of Rothermel et al. 2021.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.record.study import StudyInfo
from lr_sweep.analysis.report.blocks import Image, Paragraph, Section, Table, stem_of_each
from lr_sweep.analysis.report.cells import compared_seeds, marks_text, model_text
from lr_sweep.analysis.report.chart import sweep_panels
from lr_sweep.analysis.report.figure_frame import Frame, variant_styles, write_image
from lr_sweep.analysis.report.figures import sweep_figure
from lr_sweep.analysis.statistics.selection.best import CELL, Cell, tuples_in
from lr_sweep.analysis.statistics.selection.summary import GROUP, StudySummary
from lr_sweep.common.files import Fields
from lr_sweep.common.text import NO_VALUE

from . import published as theirs
from .entries import (
    NEVER,
    REFERENCE,
    Numbers,
    budget_text,
    entry,
    our_numbers,
    published_text,
)
from .published import (
    SMALL_MODELS,
    TABLES,
    Entry,
    entries,
    published,
    published_best,
    table_of,
)

LU2021_LEARNING_RATE = 1e-3
"""The learning rate of nearly all runs of Lu et al. 2021."""
PUBLISHED = (
    "Dotted lines show Rothermel et al. 2021, Tables 1 and 4; Table 1 here has the differences."
)
DOTTED: Fields = {"linestyle": ":", "linewidth": 1.3}
DASHED: Fields = {"color": "#B00020", "linestyle": "--", "linewidth": 1.2}
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


class Place(NamedTuple):
    """What an entry is about, and what is published of it."""

    metric: str
    cell: Cell
    published: Entry | None


Places = dict[tuple[Labels, str], Place]
"""The entries of a table by labels and column."""


@dataclass(frozen=True)
class ModelTable:
    """A table of Rothermel et al. 2021, which has a model's variants and tasks."""

    number: int
    title: str
    metrics: Mapping[str, str]
    """Metric of each row of a variant, by the row's label."""
    caption: str
    unit: str = "percentage points"
    """Unit that differences are written in."""


TO_MATCH_TABLE = ModelTable(
    2,
    f"Gradient steps to match {REFERENCE}",
    {"": theirs.STEPS_TO_MATCH},
    TO_MATCH,
    "gradient steps",
)
AT_LAST_STEP_TABLE = ModelTable(
    3,
    "Train and test accuracy at the last step",
    {
        "train": theirs.TRAIN_AT_END,
        "test": theirs.TEST_AT_END,
        "diff": theirs.TRAIN_MINUS_TEST_AT_END,
    },
    AT_LAST_STEP,
)


def paper_sections(
    folder: Path, info: StudyInfo, summary: StudySummary, curves: pd.DataFrame
) -> list[Section]:
    """Return the papers' tables and figures, and write the figures; empty: the study is of no paper.

    `curves` have `run_id`, `step` and the accuracies.
    """
    if info.from_table or info.metric != ACCURACY:
        return []
    if number := table_of(info.study):
        table = lu_table(number, info, summary, curves)
        return [Section(f"Lu et al. 2021, table {number}", [table])]
    if summary.runs["pretrained_on"].isna().all():
        return []
    tables, images = paper_tables(summary, curves), paper_figures(folder, summary)
    about = [Paragraph(PUBLISHED)] if images else []
    return [Section("Rothermel et al. 2021", [*tables, *about, *images])]


def paper_tables(summary: StudySummary, curves: pd.DataFrame) -> list[Table]:
    """Return each table of Rothermel et al. 2021 that the study has the runs for, by number and model."""
    numbers = our_numbers(summary, curves)
    tuned = (
        "Test accuracy in percent, mean ± standard error of the mean (SEM) over "
        f"{compared_seeds(summary)}, {model_text(ACCURACY)}, at the best learning rate by validation accuracy."
    )
    first = ModelTable(1, "Test accuracy", {"": theirs.TEST}, tuned)
    models = list(summary.runs["model"].unique())
    return [
        _model_table(table, summary.of(model=model), numbers)
        for table in (first, TO_MATCH_TABLE, AT_LAST_STEP_TABLE)
        for model in models
        if _has_runs(table.number, model, numbers)
    ]


def _has_runs(number: int, model: str, numbers: Numbers) -> bool:
    """Return whether a model has what a table is about: the variant to match, or test at the last step of its runs."""
    rows = {cell: row for cell, row in numbers.items() if cell[1] == model}
    if number == TO_MATCH_TABLE.number:
        return any(variant == REFERENCE for _, _, variant in rows)
    if number == AT_LAST_STEP_TABLE.number:
        at_end = [row for row in rows.values() if row["num_at_budget"] > 0]
        return not any(math.isnan(row["test_at_end"]) for row in at_end)
    return True


def _model_table(table: ModelTable, shown: StudySummary, numbers: Numbers) -> Table:
    """Lay out a table of one model, variants by tasks."""
    places: Places = {}
    for cell in numbers:
        task, model, variant = cell
        if model == shown.cells["model"].iloc[0]:
            for label, metric in table.metrics.items():
                labels = (variant, label) if label else (variant,)
                best = published_best(cell) if table.number == 1 else None
                there = best or published(table.number, cell, metric)
                places[labels, task] = Place(metric, cell, there)
    corner = ("variant", "accuracy") if len(table.metrics) > 1 else ("variant",)
    header, rows = lay_out(corner, places, numbers, NO_VALUE)
    theirs_text = _about_published(places, shown.runs, table.unit)
    return Table(
        title=f"Table {table.number}. {table.title}, {shown.cells['model'].iloc[0]}",
        caption=f"{table.caption}{marks_text(rows)}{theirs_text}",
        header=header,
        rows=rows,
    )


def _about_published(places: Places, runs: pd.DataFrame, unit: str) -> str:
    """Say what the published columns are, if there are any, and which tasks ran for other budgets than the paper's."""
    numbers = sorted({place.published.table for place in places.values() if place.published})
    if not numbers:
        return ""
    tables = " and ".join(f"Table {number}" for number in numbers)
    about = (
        f" Published values are from Rothermel et al. 2021, {tables}, 3 seeds. In brackets: ours minus theirs, in "
        f"{unit}."
    )
    other = "; ".join(_other_budgets(runs))
    return about + (f" Budgets differ from the paper's: {other}." if other else "")


def _other_budgets(runs: pd.DataFrame) -> Iterator[str]:
    for (task, model), rows in runs.groupby(GROUP, sort=False):
        here = rows["num_steps"].max()
        there = published(5, (str(task), "gpt2", "all"), theirs.MAX_STEPS)
        if there is not None and here != there.number:
            budgets = f"{budget_text(here)} steps here, {budget_text(there.number)} there"
            yield f"{task} on {model} {budgets}"


def lay_out(
    corner: Labels, places: Places, numbers: Numbers, absent: str
) -> tuple[Labels, tuple[Labels, ...]]:
    """Lay out entries by labels of rows and heading of columns, in the order in which they come.

    `corner`: headings of the labels; `absent`: what is written for a cell that the study does not have. Returns the
    header and the rows; published entries stand in a column beside ours.
    """
    header, lines = list(corner), {labels: list(labels) for labels, _ in places}
    for column in dict.fromkeys(column for _, column in places):
        of_column = [places.get((labels, column)) for labels in lines]
        has_published = any(place and place.published for place in of_column)
        header += [column, f"{column}, published"] if has_published else [column]
        for line, place in zip(lines.values(), of_column, strict=True):
            number = place and entry(place.metric, place.cell, numbers)
            line.append(number.text if number else absent)
            if has_published:
                there = place and place.published
                value = number.value if number else math.nan
                line.append(published_text(there, value) if there else "")
    return tuple(header), tuple(map(tuple, lines.values()))


def lu_table(number: int, info: StudyInfo, summary: StudySummary, curves: pd.DataFrame) -> Table:
    """Lay out a table of Lu et al. 2021 with our numbers beside the published ones; empty where one is missing."""
    small, text = theirs.is_small(info.study), TABLES[number]
    listed = entries(number, small=small)
    places: Places = {
        ((there.row,), there.column): Place(there.metric, there.cell, there) for there in listed
    }
    header, rows = lay_out((text.corner,), places, our_numbers(summary, curves), absent="")
    metrics = dict.fromkeys(there.metric for there in listed)
    said = [MEASURED[metric] for metric in metrics if metric in MEASURED]
    said.append(f"Published values are from Lu et al. 2021, table {number}.")
    said.append("In brackets: ours minus theirs.")
    said += [text.note] if text.note else []
    if small:
        stand_ins = f"Our runs are reduced: {_stand_ins(number)}."
        said.append(f"{stand_ins} Only the order of the numbers can be compared.")
    return Table(
        title=f"Table {number}. {text.title[0].upper()}{text.title[1:]}",
        caption=" ".join(said) + marks_text(rows),
        header=header,
        rows=rows,
    )


def _stand_ins(number: int) -> str:
    models = {there.model for there in entries(number)}
    here = {model: ours for model, ours in SMALL_MODELS.items() if model in models}
    pairs = {**TABLES[number].small, **here}
    return ", ".join(f"{ours} for {theirs}" for theirs, ours in pairs.items())


def best_published(summary: StudySummary) -> Mapping[Cell, float]:
    """Look up Rothermel et al.'s best test accuracy of each cell that has one, in percent."""
    entries = {cell: published_best(cell) for cell in tuples_in(summary.cells[CELL])}
    return {cell: entry.number for cell, entry in entries.items() if entry is not None}


def paper_figures(folder: Path, summary: StudySummary) -> list[Image]:
    """Write Figure 3 of each model that has a published value."""
    panels = sweep_panels(summary)
    images: list[Image] = []
    for model, stem in stem_of_each(summary.runs["model"].unique()).items():
        shown = summary.of(model=model)
        if best_published(shown):
            title = f"Figure 3. Test accuracy against learning rate, {model}"
            draw = partial(curve_figure, shown, panels)
            images.append(write_image(title, folder / f"figure3-{stem}", draw))
    return images


def curve_figure(summary: StudySummary, panels: Sequence[Fields], frame: Frame) -> Figure:
    """Draw a model's sweep with published values and Lu et al.'s rate as lines; `panels`: as of `sweep_panels`."""
    rates = summary.learning_rates["learning_rate"]
    is_near = rates.min() <= LU2021_LEARNING_RATE <= rates.max()
    lines = [Line2D([], [], label="published best (Table 1)", color="0.3", **DOTTED)]
    if is_near:
        lines.append(Line2D([], [], label="Lu et al. 2021 (1e-3)", **DASHED))
    figure = sweep_figure(summary, panels, frame, handles=lines)
    axes = dict(zip(summary.cells["task"].unique(), figure.axes, strict=False))
    for axis in axes.values() if is_near else ():
        axis.axvline(LU2021_LEARNING_RATE, zorder=1, **DASHED)
    styles = variant_styles(list(summary.cells["variant"].unique()))
    for (task, _, variant), value in best_published(summary).items():
        if task in axes:  # a figure draws the first tasks alone
            axes[task].axhline(value, color=styles[variant].colour, zorder=1.5, **DOTTED)
    return figure
