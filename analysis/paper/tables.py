"""Rothermel et al. 2021, Tables 1 to 5, laid out as there, with a column of the published values where they compare."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from lr_sweep.analysis.paper import published
from lr_sweep.analysis.paper.beside import (
    NEVER,
    NOTHING_PUBLISHED,
    Numbers,
    above,
    budget_text,
    steps_text,
    with_published,
)
from lr_sweep.analysis.paper.numbers import REFERENCE, accuracies_at_budget, steps_to_match
from lr_sweep.analysis.record.read import StudyInfo
from lr_sweep.analysis.report.blocks import Row, Table, stem_of_each
from lr_sweep.analysis.report.tables import (
    accuracy_text,
    best_entries,
    cell_table,
    facts,
    lost_text,
    main_table,
    marks_of,
    marks_text,
    seeds_text,
)
from lr_sweep.analysis.report.texts import say
from lr_sweep.analysis.statistics.aggregate import GROUP, StudySummary
from lr_sweep.analysis.statistics.selection import CELL
from lr_sweep.common.text import NO_VALUE, percent_text

AT_END = {
    "train": ("train", published.TRAIN_AT_END),
    "test": ("test", published.TEST_AT_END),
    "diff": ("difference", published.TRAIN_MINUS_TEST),
}
"""The rows of a variant in Table 3: the column of `accuracies_at_budget` and the published metric."""


def paper_tables(info: StudyInfo, summary: StudySummary, curves: pd.DataFrame) -> tuple[dict[str, Table], list[str]]:
    """Lay out every table of the paper that the study has the runs for; `curves` as of `write_paper`.

    Returns:
        The tables by file name without ending, and a sentence for each table that is left out.
    """
    found, left_out = {}, []
    models = list(summary.runs["model"].unique())
    matched, ended = steps_to_match(summary, curves), accuracies_at_budget(summary, curves)
    for model, stem in stem_of_each(models).items():
        shown = summary.of(model=model)
        found[f"table1-{stem}"] = table1(info, summary, model)
        if REFERENCE in set(shown.cells["variant"]):
            found[f"table2-{stem}"] = table2(info, shown, matched, model)
        else:
            left_out.append(f"Table 2 is left out for {model}: the study has no variant {REFERENCE} to match.")
        if ended.loc[ended["model"] == model, "test"].notna().all():
            found[f"table3-{stem}"] = table3(info, shown, ended, model)
        else:
            left_out.append(f"Table 3 is left out for {model}: test was not evaluated at the last step of every run.")
    if len(models) > 1:
        found["table4"] = table4(info, summary)
    else:
        left_out.append("Table 4, which compares models, is left out: the study has one model.")
    found["table5"] = table5(summary.runs)
    return found, left_out


def table1(info: StudyInfo, summary: StudySummary, model: str) -> Table:
    """Test accuracies of one model, variants by tasks; `summary` is of the whole study, as `main_table` wants it."""
    table, shown = main_table(info, summary, model), summary.of(model=model)
    ours = [(published.TEST, _percents(shown.cells, "test_mean"))]
    return with_published(replace(table, title=f"Table 1. {table.title}"), 1, shown.runs, ours, model)


def table2(info: StudyInfo, summary: StudySummary, matched: pd.DataFrame, model: str) -> Table:
    """Gradient steps until each variant matches the frozen pretrained one; `matched` is from `steps_to_match`."""
    steps = {key: row["steps"] for key, row in _by_cell(matched).items()}
    cells = _by_cell(summary.cells)

    def entry(cell: Row) -> str:
        if not cell["num_values"]:
            return lost_text(cell)
        target = cells.get((cell["task"], model, REFERENCE))
        if target is None or not target["num_values"]:
            return f"{NO_VALUE} (no {REFERENCE} to match)"
        needed = steps_text(steps[cell["task"], model, cell["variant"]])
        return needed + seeds_text(cell) + (marks_of(cell) or marks_of(target))

    what = (
        f"Gradient steps until the mean over seeds of the test accuracy reaches that of {REFERENCE} in Table 1, at "
        "each cell's chosen learning rate; at every step a run counts with its best model by validation so far, as if "
        f"the budget ended there (the paper does not say how it counts). {NEVER}: never within the budget. "
        "No interval: the paper gives none."
    )
    table = cell_table(info, summary, f"Table 2. Gradient steps to match {REFERENCE}, {model}", what, entry)
    return with_published(table, 2, summary.runs, [(published.STEPS_TO_MATCH, steps)], model)


def table3(info: StudyInfo, summary: StudySummary, ended: pd.DataFrame, model: str) -> Table:
    """Train and test accuracy and their difference at the last step; `ended` is from `accuracies_at_budget`."""
    cells, values = _by_cell(summary.cells), _by_cell(ended)
    tasks, variants = list(summary.cells["task"].unique()), list(summary.cells["variant"].unique())

    def entry(variant: str, task: str, column: str) -> str:
        cell, value = cells.get((task, model, variant)), values.get((task, model, variant))
        if cell is None:
            return NO_VALUE
        if not cell["num_values"]:
            return lost_text(cell)
        if value is None:
            return f"{NO_VALUE} (no seed reached the budget)"
        return percent_text(value[column]) + seeds_text(cell, value["num_at_budget"]) + marks_of(cell)

    rows = tuple((v, name, *(entry(v, t, AT_END[name][0]) for t in tasks)) for v in variants for name in AT_END)
    what = (
        "Train and test accuracy in percent and their difference at the last step of the budget, mean over seeds, at "
        "each cell's chosen learning rate. Train accuracy is measured in evaluation mode on a fixed part of the "
        "training split. No interval: the paper gives none."
    )
    table = Table(
        title=f"Table 3. Train and test accuracy at the last step, {model}",
        caption=what + marks_text(rows),
        shared=facts(info, summary.runs),
        header=("variant", "accuracy", *tasks),
        rows=rows,
    )
    ours = [(metric, _percents(ended, column)) for column, metric in AT_END.values()]
    return with_published(table, 3, summary.runs, ours, model)


def table4(info: StudyInfo, summary: StudySummary) -> Table:
    """Test accuracies of all models beside each other, variant by variant."""
    cells = _by_cell(summary.cells)
    tasks, models, variants = (list(summary.cells[name].unique()) for name in CELL)
    keys = [(variant, model) for variant in variants for model in models]
    rows = tuple(
        (v, m, *(accuracy_text(cells[t, m, v]) if (t, m, v) in cells else NO_VALUE for t in tasks)) for v, m in keys
    )
    means = {
        (i, j): (cells[task, model, variant]["test_mean"], cells[task, model, variant]["test_sem"])
        for i, (variant, model) in enumerate(keys)
        for j, task in enumerate(tasks, start=2)
        if (task, model, variant) in cells
    }
    table = Table(
        title="Table 4. Test accuracy of the models",
        caption=say("tuned", metric=info.metric) + marks_text(rows),
        shared=facts(info, summary.runs),
        header=("variant", "model", *tasks),
        rows=rows,
        bold=best_entries(means, lambda i, j: (keys[i][0], j)),
        bold_text="Bold: the highest of a variant; models are not tested against each other.",
    )
    return with_published(table, 4, summary.runs, [(published.TEST, _percents(summary.cells, "test_mean"))])


def table5(runs: pd.DataFrame) -> Table:
    """Step budgets, a row a task and model."""
    rows = []
    for key, budgets in runs.groupby(GROUP, sort=False)["num_steps"]:
        task, model = map(str, key)
        there = published.published(5, task, model, "all", published.MAX_STEPS)
        beside = "" if there is None else budget_text(there.value) + above(there, budgets.max(), 0)
        rows.append((task, model, ", ".join(map(budget_text, sorted(budgets.unique()))), beside))
    compared = any(row[-1] for row in rows)
    about = "Published: Rothermel et al. 2021, Table 5; in brackets ours less theirs."
    width = 4 if compared else 3
    return Table(
        title="Table 5. Step budgets",
        caption="Gradient steps after which runs end. " + (about if compared else NOTHING_PUBLISHED),
        header=("task", "model", "gradient steps", "published (difference)")[:width],
        rows=tuple(row[:width] for row in rows),
    )


def _by_cell(frame: pd.DataFrame) -> dict[tuple[str, ...], Row]:
    return {tuple(row[name] for name in CELL): row for row in frame.to_dict("records")}


def _percents(frame: pd.DataFrame, column: str) -> Numbers:
    return {key: 100 * row[column] for key, row in _by_cell(frame).items()}
