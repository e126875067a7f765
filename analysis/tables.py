"""Tables of a study, as text in `table_formats.Table`. Numbers come from `aggregate`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.aggregate import STATUSES
from analysis.record import StudyInfo
from analysis.selection import MEAN_DIGITS, RULE
from analysis.table_formats import Table
from analysis.text import NO_VALUE, rate_text

PROVISIONAL = "†"
AT_EDGE = "‡"
UNSTABLE = "§"
CHOSEN = "*"
MARKS = {
    NO_VALUE: "no value, and why",
    PROVISIONAL: "runs are missing or failed, so the choice may change",
    AT_EDGE: "the chosen learning rate is the smallest or largest tried, so the best may lie outside",
    UNSTABLE: "runs at the chosen learning rate diverged; they count with their best model before that, if any",
}


def caption(info: StudyInfo, wanted: pd.DataFrame, what: str) -> str:
    """Say what a table or figure shows: study, interval, seeds, selection, budgets, pretraining and data.

    Args:
        info: the study.
        wanted: the wanted runs that are shown.
        what: the measured quantity, a sentence.
    """
    seeds = wanted["seed"].nunique()
    return (
        f"Study {info.study}. {what} {seeds} seed{'s' if seeds != 1 else ''} unless marked. {RULE} "
        f"Step budgets: {_grouped(wanted, 'num_steps', 'task')}. {pretrained_text(wanted)} "
        f"Data: {_grouped(wanted, 'data_origin', 'task')}."
    )


def pretrained_text(wanted: pd.DataFrame) -> str:
    """Say what "pretrained" means for these runs, a sentence for captions."""
    return f"Pretrained on: {_grouped(wanted, 'pretrained_on', 'model') or 'no variant'}."


def main_table(info: StudyInfo, wanted: pd.DataFrame, cells: pd.DataFrame, model: str) -> Table:
    """Lay out one model's test accuracies, variants by tasks, as in Rothermel et al. 2021, Table 1."""
    shown, wanted = cells[cells["model"] == model], wanted[wanted["model"] == model]
    tasks, variants = list(shown["task"].unique()), list(shown["variant"].unique())
    entries = {(cell["variant"], cell["task"]): cell for cell in shown.to_dict("records")}
    rows = [(v, *(_accuracy(entries[v, t]) if (v, t) in entries else NO_VALUE for t in tasks)) for v in variants]
    best = {task: shown.loc[shown["task"] == task, "test_mean"].max() for task in tasks}
    bold = {
        (i, j)
        for i, variant in enumerate(variants)
        for j, task in enumerate(tasks, start=1)
        if (variant, task) in entries and percent_text(entries[variant, task]["test_mean"]) == percent_text(best[task])
    }
    what = (
        "Test accuracy in percent, mean ± standard error of the mean (SEM) over seeds, of each run's best model by "
        "validation accuracy, at the best learning rate by validation accuracy."
    )
    return Table(
        title=f"Test accuracy, {model}",
        caption=caption(info, wanted, what) + marks_text(rows),
        header=("variant", *tasks),
        rows=tuple(rows),
        bold=frozenset(x for x in bold if not rows[x[0]][x[1]].startswith(NO_VALUE)),
    )


def learning_rate_table(wanted: pd.DataFrame, rates: pd.DataFrame, cells: pd.DataFrame, task: str, model: str) -> Table:
    """Lay out one task's test accuracies, variants by learning rates: the figure in numbers.

    Args:
        wanted: all wanted runs.
        rates: as `Summary.learning_rates`.
        cells: as `Summary.cells`.
        task: which one to show.
        model: which one to show.
    """
    shown = rates[(rates["task"] == task) & (rates["model"] == model)]
    chosen = cells[(cells["task"] == task) & (cells["model"] == model)].set_index("variant")["learning_rate"]
    swept = sorted(shown["learning_rate"].unique())
    entries = {(row["variant"], row["learning_rate"]): row for row in shown.to_dict("records")}
    rows = tuple(
        (v, *(_at_rate(entries[v, rate], rate == chosen[v]) if (v, rate) in entries else NO_VALUE for rate in swept))
        for v in shown["variant"].unique()
    )
    seeds = shown["num_wanted"].max()
    over = f"mean ± SEM over {seeds} seeds" if seeds > 1 else "one seed"
    return Table(
        title=f"Test accuracy by learning rate, {task}, {model}",
        caption=f"In percent, {over}, of each run's best model by validation accuracy. {CHOSEN}: the learning rate "
        f"that validation chose. {pretrained_text(wanted[wanted['model'] == model])}",
        header=("variant", *map(rate_text, swept)),
        rows=rows,
    )


def detail_table(info: StudyInfo, wanted: pd.DataFrame, cells: pd.DataFrame) -> Table:
    """List every cell with its chosen learning rate and what that rests on."""
    header = (
        *("task", "model", "variant", "learning rate", "best steps", "validation, mean", "runner-up", "margin"),
        *("test, mean ± SEM", "seeds"),
        *("complete", "diverged", "failed", "missing", "remarks"),
    )
    what = (
        "Accuracies in percent at the chosen learning rate, ± standard error of the mean (SEM) over seeds. "
        "Best steps: by seed. Runner-up: the learning rate with the second highest validation mean, and how many "
        "points that is behind. Complete to missing: number of runs of the whole cell."
    )
    rows = tuple(_detail(cell) for cell in cells.to_dict("records"))
    return Table(
        title="Every cell at its chosen learning rate", caption=caption(info, wanted, what), header=header, rows=rows
    )


def importance_table(wanted: pd.DataFrame, shares: pd.DataFrame) -> Table:
    """Show the result of `importance.importances`."""
    axes = [column for column in shares.columns if column not in ("task", "model", "num_runs", "note")]
    rows = tuple(
        (str(row["task"]), str(row["model"]), str(row["num_runs"]), *(_share(row[axis]) for axis in axes), row["note"])
        for row in shares.to_dict("records")
    )
    what = (
        "Share, in percent, of the variation of the runs' best validation accuracy over the grid that each axis "
        "explains by itself (fANOVA, Hutter et al. 2014), scaled to sum to 100. Interactions and runs without a value "
        f"are left out. {pretrained_text(wanted)}"
    )
    header = ("task", "model", "runs", *(axis.replace("_", " ") for axis in axes), "remarks")
    return Table(title="Variation explained", caption=what, header=header, rows=rows)


def remarks(cell: Mapping[Any, Any]) -> list[str]:
    """Say what a reader of a cell must know before using its number."""
    found = []
    if cell["num_values"] and cell["num_values"] < cell["num_seeds"]:
        found.append(f"{cell['num_values']} of {cell['num_seeds']} seeds have a value")
    if cell["missing"] + cell["failed"]:
        found.append("runs missing or failed, the choice may change")
    if cell["at_edge"]:
        found.append(f"best learning rate is the {'smallest' if cell['at_edge'] == 'low' else 'largest'} tried")
    if cell["num_diverged"]:
        found.append(f"{cell['num_diverged']} of {cell['num_seeds']} runs diverged at it")
    return found


def lost_text(cell: Mapping[Any, Any]) -> str:
    """Say why a cell has no value."""
    lost = [f"{cell[x]} of {cell['num_wanted']} {x}" for x in reversed(STATUSES) if cell[x]]
    return f"{NO_VALUE} ({', '.join(lost)})"


def incomplete_text(counts: Mapping[Any, Any]) -> str:
    """Count the runs that are not complete: `1 missing, 2 diverged`; empty: all are."""
    return ", ".join(f"{counts[status]} {status}" for status in reversed(STATUSES[1:]) if counts[status])


def seeds_text(num_values: int, num_seeds: int) -> str:
    """Say how many seeds an entry rests on, where not all."""
    return f" ({num_values} of {num_seeds} seeds)" if num_values < num_seeds else ""


def marks_of(cell: Mapping[Any, Any]) -> str:
    """Return the marks of `MARKS` that a cell's entries carry."""
    marks = "".join(
        mark
        for mark, holds in (
            (PROVISIONAL, cell["missing"] + cell["failed"]),
            (AT_EDGE, cell["at_edge"]),
            (UNSTABLE, cell["num_diverged"]),
        )
        if holds
    )
    return f" {marks}" if marks else ""


def marks_text(rows: Sequence[Sequence[str]]) -> str:
    """Explain the marks that occur in a table's rows, for its caption."""
    return "".join(f" {mark}: {doc}." for mark, doc in MARKS.items() if any(mark in x for row in rows for x in row))


def signed_points(difference: float) -> str:
    """Return a difference of fractions in points, with its sign; one computed in two ways is written alike."""
    return NO_VALUE if math.isnan(difference) else f"{round(100 * difference, 9):+.1f}"


def percent_text(fraction: float) -> str:
    """Write a fraction in percent as the papers do: one decimal."""
    return NO_VALUE if pd.isna(fraction) else f"{100 * fraction:.1f}"


def mean_sem_text(cell: Mapping[Any, Any]) -> str:
    """Write mean ± SEM in percent; one seed has no SEM."""
    sem = "" if pd.isna(cell["test_sem"]) else f" ± {percent_text(cell['test_sem'])}"
    return percent_text(cell["test_mean"]) + sem


def _at_rate(row: Mapping[Any, Any], chosen: bool) -> str:
    """Write one entry of the table by learning rate."""
    incomplete = incomplete_text(row)
    some = seeds_text(row["num_values"], row["num_wanted"]) if row["num_values"] else ""
    return mean_sem_text(row) + some + (f" ({incomplete})" if incomplete else "") + (f" {CHOSEN}" if chosen else "")


def _detail(cell: Mapping[Any, Any]) -> tuple[str, ...]:
    has_value = cell["num_values"] > 0
    return (
        *(str(cell[key]) for key in ("task", "model", "variant")),
        rate_text(cell["learning_rate"]),
        " ".join(map(str, cell["best_steps"])) if has_value else NO_VALUE,
        percent_text(cell["validation_mean"]),
        rate_text(cell["runner_up"]),
        _margin(cell),
        mean_sem_text(cell) if has_value else NO_VALUE,
        f"{cell['num_values']} of {cell['num_seeds']}",
        *(str(cell[status]) for status in STATUSES),
        "; ".join(remarks(cell)),
    )


def _margin(cell: Mapping[Any, Any]) -> str:
    margin = round(cell["validation_mean"], MEAN_DIGITS) - round(cell["runner_up_mean"], MEAN_DIGITS)
    return NO_VALUE if math.isnan(margin) else "tie" if margin == 0 else f"{100 * margin:.1f}"


def _accuracy(cell: Mapping[Any, Any]) -> str:
    """Write one entry of the main table."""
    if not cell["num_values"]:
        return lost_text(cell)
    return mean_sem_text(cell) + seeds_text(cell["num_values"], cell["num_seeds"]) + marks_of(cell)


def _share(fraction: float) -> str:
    return NO_VALUE if pd.isna(fraction) else f"{100 * fraction:.0f}"


def _grouped(wanted: pd.DataFrame, column: str, by: str) -> str:
    """List the values of a column, each with what has it: `300 (mnist, cifar10)`."""
    names = wanted.groupby(column, sort=False)[by].unique()
    return "; ".join(f"{value} ({', '.join(map(str, found))})" for value, found in names.items())
