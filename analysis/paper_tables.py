"""Rothermel et al. 2021, Tables 1 to 5, laid out as there, with a column of the published values where they compare."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from analysis import published
from analysis.aggregate import Summary
from analysis.paper_beside import (
    NEVER,
    NOTHING_PUBLISHED,
    budget_text,
    entries_beside,
    percent_beside,
    signed,
    steps_beside,
    steps_text,
    with_published,
)
from analysis.paper_numbers import REFERENCE, accuracies_at_budget, steps_to_match
from analysis.record import StudyInfo
from analysis.table_formats import Table, file_stem
from analysis.tables import caption, lost_text, main_table, marks_of, marks_text, percent_text, seeds_text
from analysis.text import NO_VALUE


def paper_tables(
    info: StudyInfo, wanted: pd.DataFrame, summary: Summary, curves: pd.DataFrame
) -> tuple[dict[str, Table], list[str]]:
    """Lay out every table of the paper that the study has the runs for.

    Args:
        info: the study.
        wanted: its wanted runs.
        summary: its numbers.
        curves: `run_id`, `step`, `train_accuracy`, `validation_accuracy`, `test_accuracy`.

    Returns:
        The tables by file name without ending, and a sentence for each table that is left out.
    """
    found: dict[str, Table] = {}
    left_out = []
    models = list(wanted["model"].unique())
    matched, ended = steps_to_match(summary, curves), accuracies_at_budget(summary, curves)
    for model in models:
        shown, cells = wanted[wanted["model"] == model], summary.cells[summary.cells["model"] == model]
        stem = file_stem(model)
        found[f"table1-{stem}"] = table1(info, shown, cells, model)
        if REFERENCE in set(cells["variant"]):
            found[f"table2-{stem}"] = table2(info, shown, cells, matched, model)
        else:
            left_out.append(f"Table 2 is left out for {model}: the study has no variant {REFERENCE} to match.")
        found[f"table3-{stem}"] = table3(info, shown, cells, ended, model)
    if len(models) > 1:
        found["table4"] = table4(info, wanted, summary.cells)
    else:
        left_out.append("Table 4, which compares models, is left out: the study has one model.")
    found["table5"] = table5(wanted)
    return found, left_out


def table1(info: StudyInfo, wanted: pd.DataFrame, cells: pd.DataFrame, model: str) -> Table:
    """Test accuracies of one model, variants by tasks."""
    table = main_table(info, wanted, cells, model)
    means = {(cell["variant"], cell["task"]): 100 * cell["test_mean"] for cell in cells.to_dict("records")}
    entries = entries_beside(table, lambda row, task: percent_beside(1, task, model, row[0], published.TEST, means))
    return with_published(replace(table, title=f"Table 1. {table.title}"), entries, 1, wanted)


def table2(info: StudyInfo, wanted: pd.DataFrame, cells: pd.DataFrame, matched: pd.DataFrame, model: str) -> Table:
    """Gradient steps until each variant matches the frozen pretrained one; `matched` is from `steps_to_match`."""
    steps = {(row["variant"], row["task"]): row["steps"] for row in _of(matched, model)}
    targets = {cell["task"]: cell for cell in cells.to_dict("records") if cell["variant"] == REFERENCE}

    def entry(cell: Mapping[Any, Any]) -> str:
        if not cell["num_values"]:
            return lost_text(cell)
        target = targets.get(cell["task"])
        if target is None or not target["num_values"]:
            return f"{NO_VALUE} (no {REFERENCE} to match)"
        marks = marks_of(cell) or marks_of(target)
        return (
            steps_text(steps[cell["variant"], cell["task"]]) + seeds_text(cell["num_values"], cell["num_seeds"]) + marks
        )

    what = (
        f"Gradient steps until the mean over seeds of the test accuracy reaches that of {REFERENCE} in Table 1, at "
        "each cell's chosen learning rate; at every step a run counts with its best model by validation so far, as if "
        f"the budget ended there (the paper does not say how it counts). {NEVER}: never within the budget. "
        "No interval: the paper gives none."
    )
    table = _layout(info, wanted, cells, f"Table 2. Gradient steps to match {REFERENCE}, {model}", what, entry)

    def beside(row: tuple[str, ...], task: str) -> str | None:
        there = published.published(2, task, model, row[0], published.STEPS_TO_MATCH)
        return None if there is None else steps_beside(there, steps.get((row[0], task), math.nan))

    return with_published(table, entries_beside(table, beside), 2, wanted)


def table3(info: StudyInfo, wanted: pd.DataFrame, cells: pd.DataFrame, ended: pd.DataFrame, model: str) -> Table:
    """Train and test accuracy and their difference at the last step; `ended` is from `accuracies_at_budget`."""
    metrics = {
        "train": ("train", published.TRAIN_AT_END),
        "test": ("test", published.TEST_AT_END),
        "diff": ("difference", published.TRAIN_MINUS_TEST),
    }
    values = {(row["variant"], row["task"]): row for row in _of(ended, model)}
    tasks, variants = list(cells["task"].unique()), list(cells["variant"].unique())
    by_cell = {(cell["variant"], cell["task"]): cell for cell in cells.to_dict("records")}

    def entry(variant: str, task: str, name: str) -> str:
        cell, value = by_cell.get((variant, task)), values.get((variant, task))
        if cell is None:
            return NO_VALUE
        if not cell["num_values"]:
            return lost_text(cell)
        if value is None:
            return f"{NO_VALUE} (no seed reached the budget)"
        return percent_text(value[name]) + seeds_text(value["num_at_budget"], cell["num_seeds"]) + marks_of(cell)

    rows = tuple((v, kind, *(entry(v, t, metrics[kind][0]) for t in tasks)) for v in variants for kind in metrics)
    what = (
        "Train and test accuracy in percent and their difference at the last step of the budget, mean over seeds, at "
        "each cell's chosen learning rate. Train accuracy is measured in evaluation mode on a fixed part of the "
        "training split. No interval: the paper gives none."
    )
    table = Table(
        title=f"Table 3. Train and test accuracy at the last step, {model}",
        caption=caption(info, wanted, what) + marks_text(rows),
        header=("variant", "accuracy", *tasks),
        rows=rows,
    )

    def beside(row: tuple[str, ...], task: str) -> str | None:
        name, metric = metrics[row[1]]
        value = values.get((row[0], task))
        return percent_beside(
            3, task, model, row[0], metric, {} if value is None else {(row[0], task): 100 * value[name]}
        )

    return with_published(table, entries_beside(table, beside), 3, wanted)


def table4(info: StudyInfo, wanted: pd.DataFrame, cells: pd.DataFrame) -> Table:
    """Test accuracies of all models beside each other, variant by variant."""
    models = list(cells["model"].unique())
    variants = list(cells["variant"].unique())
    per_model = {model: main_table(info, wanted, cells, model) for model in models}
    tasks = list(cells["task"].unique())
    texts = {
        (row[0], model, task): text
        for model, table in per_model.items()
        for row in table.rows
        for task, text in zip(table.header[1:], row[1:], strict=True)
    }
    means = {(c["variant"], c["model"], c["task"]): 100 * c["test_mean"] for c in cells.to_dict("records")}
    rows = tuple((v, m, *(texts.get((v, m, t), NO_VALUE) for t in tasks)) for v in variants for m in models)
    what = (
        "Test accuracy in percent, mean ± standard error of the mean (SEM) over seeds, of each run's best model by "
        "validation accuracy, at the best learning rate by validation accuracy."
    )
    table = Table(
        title="Table 4. Test accuracy of the models",
        caption=caption(info, wanted, what) + marks_text(rows),
        header=("variant", "model", *tasks),
        rows=rows,
        bold=_best_models(rows, tasks, means),
        bold_text="Bold: the highest of a variant.",
    )

    def beside(row: tuple[str, ...], task: str) -> str | None:
        ours = {(row[0], task): means.get((row[0], row[1], task), math.nan)}
        return percent_beside(4, task, row[1], row[0], published.TEST, ours)

    return with_published(table, entries_beside(table, beside), 4, wanted)


def table5(wanted: pd.DataFrame) -> Table:
    """Step budgets, a row a task and model."""
    rows = []
    compared = False
    for key, runs in wanted.groupby(["task", "model"], sort=False):
        task, model = map(str, key)
        there = published.published(5, task, model, "all", published.MAX_STEPS)
        budgets = sorted(runs["num_steps"].unique())
        compared |= there is not None
        beside = "" if there is None else f"{budget_text(there.value)} ({signed(budgets[-1] - there.value, 0)})"
        rows.append((task, model, ", ".join(map(budget_text, budgets)), beside))
    header = ("task", "model", "gradient steps", "published (difference)")
    about = "Published: Rothermel et al. 2021, Table 5; in brackets ours less theirs."
    return Table(
        title="Table 5. Step budgets",
        caption="Gradient steps after which runs end. " + (about if compared else NOTHING_PUBLISHED),
        header=header if compared else header[:3],
        rows=tuple(row if compared else row[:3] for row in rows),
    )


def _layout(
    info: StudyInfo,
    wanted: pd.DataFrame,
    cells: pd.DataFrame,
    title: str,
    what: str,
    entry: Callable[[Mapping[Any, Any]], str],
) -> Table:
    """Lay out one entry a cell, variants by tasks."""
    tasks, variants = list(cells["task"].unique()), list(cells["variant"].unique())
    texts = {(cell["variant"], cell["task"]): entry(cell) for cell in cells.to_dict("records")}
    rows = tuple((v, *(texts.get((v, t), NO_VALUE) for t in tasks)) for v in variants)
    header = ("variant", *tasks)
    return Table(title=title, caption=caption(info, wanted, what) + marks_text(rows), header=header, rows=rows)


def _of(numbers: pd.DataFrame, model: str) -> list[dict[Any, Any]]:
    return numbers[numbers["model"] == model].to_dict("records")


def _best_models(
    rows: tuple[tuple[str, ...], ...], tasks: list[str], means: Mapping[tuple[str, str, str], float]
) -> frozenset[tuple[int, int]]:
    """Find the entries that, as written, are the highest of their variant and task."""
    bold = set()
    for j, task in enumerate(tasks, start=2):
        shown = [round(means.get((variant, model, task), math.nan), 1) for variant, model, *_ in rows]
        for i, mean in enumerate(shown):
            rivals = [x for x, row in zip(shown, rows, strict=True) if row[0] == rows[i][0] and not math.isnan(x)]
            if rivals and mean == max(rivals):
                bold.add((i, j))
    return frozenset(bold)
