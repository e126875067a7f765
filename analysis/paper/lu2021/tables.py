"""The tables of Lu et al. 2021, laid out as there, with a column of the published values beside each of ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pandas as pd

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.paper.beside import above, budget_text, steps_text
from lr_sweep.analysis.paper.lu2021.numbers import CONVERGED, steps_to_converge, train_accuracies
from lr_sweep.analysis.paper.lu2021.published import (
    PARAMETERS,
    SMALL_MODELS,
    SMALL_TASKS,
    SPEEDUP,
    STEPS,
    TABLES,
    TEST,
    TRAIN,
    TRAIN_MINUS_TEST,
    Entry,
    entries,
    is_small,
)
from lr_sweep.analysis.paper.published import Published
from lr_sweep.analysis.record.read import StudyInfo
from lr_sweep.analysis.report.blocks import Row, Table
from lr_sweep.analysis.report.tables import accuracy_text, facts, lost_text, marks_of, marks_text, seeds_text
from lr_sweep.analysis.statistics.aggregate import StudySummary
from lr_sweep.analysis.statistics.selection import CELL

MEASURED = {
    TEST: "Test accuracy in percent, mean ± standard error of the mean (SEM) over seeds, of each run's best model by "
    "validation accuracy, at the best learning rate by validation accuracy.",
    TRAIN: "Train accuracy is of the same models, in evaluation mode on a fixed part of the training split.",
    STEPS: f"Convergence: {CONVERGED}. Speedup: the ratio of the two.",
    PARAMETERS: "Trained parameters of FPT, which Random has, too.",
}
"""What is measured, by metric, for captions."""

Cell = tuple[str, str, str]
"""Task, model and variant."""


class Ours(NamedTuple):
    """An entry of our table."""

    text: str
    value: float
    """In the unit of the published value; NaN: none."""


def lu_table(number: int, info: StudyInfo, summary: StudySummary, curves: pd.DataFrame) -> Table:
    """Lay out a table of Lu et al. 2021 with our numbers beside the published ones; empty where one of them is missing.

    `curves` have `run_id`, `step` and the accuracies.
    """
    small = is_small(info.study)
    found, text, ours = entries(number, small=small), TABLES[number], _numbers(summary, curves)
    rows = list(dict.fromkeys(entry.row for entry in found))
    columns = list(dict.fromkeys(entry.column for entry in found))
    texts: dict[tuple[str, str], tuple[str, str]] = {}
    for entry in found:
        here = ours[entry.metric](entry.cell)
        texts[entry.row, entry.column] = (here.text, _beside(entry, here.value))
    lines = tuple((row, *(x for column in columns for x in texts.get((row, column), ("", "")))) for row in rows)
    metrics = dict.fromkeys(entry.metric for entry in found)
    measured = " ".join(MEASURED[metric] for metric in metrics if metric in MEASURED)
    about = f"Published: Lu et al. 2021, table {number}; in brackets ours less theirs. {text.note}".rstrip()
    about += _stand_ins(number) if small else ""
    return Table(
        title=f"Table {number}. {text.title[0].upper()}{text.title[1:]}",
        caption=f"{measured} {about}{marks_text(lines)}",
        shared=facts(info, summary.runs),
        header=(text.corner, *(name for column in columns for name in (column, f"{column}, published"))),
        rows=lines,
    )


def _stand_ins(number: int) -> str:
    models = {entry.model for entry in entries(number)} & SMALL_MODELS.keys()
    pairs = SMALL_TASKS[number] | {model: SMALL_MODELS[model] for model in SMALL_MODELS if model in models}
    named = ", ".join(f"{ours} for {theirs}" for theirs, ours in pairs.items())
    return f" Ours are reduced: {named}; only the order of the numbers can be compared."


def _numbers(summary: StudySummary, curves: pd.DataFrame) -> Mapping[str, Callable[[Cell], Ours]]:
    """Return for each metric a function that gives our entry of a cell."""
    cells: dict[Cell, Row] = {tuple(row[name] for name in CELL): row for row in summary.cells.to_dict("records")}
    steps, train = steps_to_converge(summary, curves).to_dict(), train_accuracies(summary, curves).to_dict("index")
    counts = summary.runs.groupby(CELL)["trained_parameters"].first().dropna().to_dict()

    def of_cell(number: Callable[[Row, Cell], Ours]) -> Callable[[Cell], Ours]:
        def entry(cell: Cell) -> Ours:
            row = cells.get(cell)
            if row is None:
                return Ours("", math.nan)
            return number(row, cell) if row["num_values"] else Ours(lost_text(row), math.nan)

        return entry

    def share(column: str) -> Callable[[Row, Cell], Ours]:
        def number(row: Row, cell: Cell) -> Ours:
            mean, sem = train[cell][column], train[cell][f"{column}_sem"]
            return Ours(ACCURACY.mean_text(mean, sem) + _marked(row), 100 * mean)

        return number

    def speedup(cell: Cell) -> Ours:
        here, random = steps.get(cell), steps.get((*cell[:2], "frozen-random"))
        ratio = random / here if here and random else math.nan
        return Ours("" if math.isnan(ratio) else f"{ratio:.2g}×", ratio)

    def parameters(cell: Cell) -> Ours:
        count = counts.get(cell, math.nan)
        return Ours("" if math.isnan(count) else f"{count:,.0f}", count)

    return {
        TEST: of_cell(lambda row, _: Ours(accuracy_text(row), 100 * row["test_mean"])),
        TRAIN: of_cell(share("train")),
        TRAIN_MINUS_TEST: of_cell(share("gap")),
        STEPS: of_cell(lambda row, cell: Ours(steps_text(steps[cell]) + _marked(row), steps[cell])),
        SPEEDUP: speedup,
        PARAMETERS: parameters,
    }


def _marked(row: Row) -> str:
    return seeds_text(row) + marks_of(row)


def _beside(entry: Entry, here: float) -> str:
    """Write the published value as printed, with the difference where the two have the same unit."""
    there = float(entry.value)
    if entry.metric == STEPS:
        return budget_text(there) if there >= 10_000 else f"{there:.0f}"
    if entry.metric == SPEEDUP:
        return f"{entry.value}×"
    if entry.metric == PARAMETERS:
        return f"{there:,.0f}"
    return entry.value + above(Published(there, math.nan), here, 1)
