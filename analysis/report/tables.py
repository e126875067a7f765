"""The tables of a study's accuracies, one entry a cell or learning rate, and how their entries and captions read."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from lr_sweep.analysis.record.read import StudyInfo
from lr_sweep.analysis.report.blocks import Row, Table
from lr_sweep.analysis.statistics.aggregate import STATUSES, StudySummary
from lr_sweep.analysis.statistics.selection import MEAN_DIGITS, RULE
from lr_sweep.analysis.text import NO_VALUE, percent_text, rate_text

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
TUNED_ACCURACY = (
    "Test accuracy in percent, mean ± standard error of the mean (SEM) over seeds, of each run's best model by "
    "validation accuracy, at the best learning rate by validation accuracy."
)


def caption(info: StudyInfo, runs: pd.DataFrame, what: str) -> str:
    """Describe what a table or figure of `runs` shows; `what` is a sentence about the measured quantity."""
    seeds = runs["seed"].nunique()
    return (
        f"Study {info.study}. {what} {seeds} seed{'s' if seeds != 1 else ''} unless marked. {RULE} "
        f"Step budgets: {_grouped(runs, 'num_steps', 'task')}. {pretrained_text(runs)} "
        f"Data: {_grouped(runs, 'data_origin', 'task')}."
    )


def pretrained_text(runs: pd.DataFrame) -> str:
    """Name what "pretrained" means for these runs, a sentence for captions."""
    return f"Pretrained on: {_grouped(runs, 'pretrained_on', 'model') or 'no variant'}."


def main_table(info: StudyInfo, summary: StudySummary, model: str) -> Table:
    """Lay out one model's test accuracies, variants by tasks, as in Rothermel et al. 2021, Table 1."""
    shown = summary.of(model=model)
    table = cell_table(info, shown, f"Test accuracy, {model}", TUNED_ACCURACY, accuracy_text)
    rows = [row[0] for row in table.rows]
    values = {
        (rows.index(cell["variant"]), table.header.index(cell["task"], 1)): cell["test_mean"]
        for cell in shown.cells.to_dict("records")
    }
    return replace(table, bold=highest(values, lambda i, j: j))


def cell_table(info: StudyInfo, summary: StudySummary, title: str, what: str, entry: Callable[[Row], str]) -> Table:
    """Lay out one entry a cell of one model, variants by tasks; `what` begins the caption."""
    tasks, variants = list(summary.cells["task"].unique()), list(summary.cells["variant"].unique())
    texts = {(cell["variant"], cell["task"]): entry(cell) for cell in summary.cells.to_dict("records")}
    rows = tuple((v, *(texts.get((v, t), NO_VALUE) for t in tasks)) for v in variants)
    about = caption(info, summary.runs, what) + marks_text(rows)
    return Table(title=title, caption=about, header=("variant", *tasks), rows=rows)


def learning_rate_table(summary: StudySummary, task: str, model: str) -> Table:
    """Lay out one task's test accuracies, variants by learning rates: the figure in numbers."""
    shown = summary.of(task=task, model=model)
    rates, chosen = shown.learning_rates, shown.cells.set_index("variant")["learning_rate"]
    swept = sorted(rates["learning_rate"].unique())
    texts = {
        (row["variant"], row["learning_rate"]): _at_rate(row, row["learning_rate"] == chosen[row["variant"]])
        for row in rates.to_dict("records")
    }
    seeds = rates["num_wanted"].max()
    over = f"mean ± SEM over {seeds} seeds" if seeds > 1 else "one seed"
    return Table(
        title=f"Test accuracy by learning rate, {task}, {model}",
        caption=f"In percent, {over}, of each run's best model by validation accuracy. {CHOSEN}: the learning rate "
        f"that validation chose. {pretrained_text(summary.of(model=model).runs)}",
        header=("variant", *map(rate_text, swept)),
        rows=tuple((v, *(texts.get((v, rate), NO_VALUE) for rate in swept)) for v in rates["variant"].unique()),
    )


def detail_table(info: StudyInfo, summary: StudySummary) -> Table:
    """List every cell with its chosen learning rate and what that rests on."""
    what = (
        "Accuracies in percent at the chosen learning rate, ± standard error of the mean (SEM) over seeds. "
        "Best steps: by seed. Runner-up: the learning rate with the second highest validation mean, and how many "
        "points that is behind. Complete to missing: number of runs of the whole cell."
    )
    return Table.of(
        summary.cells,
        "Every cell at its chosen learning rate",
        caption(info, summary.runs, what),
        {
            **{"task": "task", "model": "model", "variant": "variant"},
            "learning rate": lambda cell: rate_text(cell["learning_rate"]),
            "best steps": lambda cell: steps_text(cell["best_steps"]) or NO_VALUE,
            "validation, mean": lambda cell: percent_text(cell["validation_mean"]),
            "runner-up": lambda cell: rate_text(cell["runner_up"]),
            "margin": _margin,
            "test, mean ± SEM": mean_sem_text,
            "seeds": lambda cell: f"{cell['num_values']} of {cell['num_seeds']}",
            **{status: status for status in STATUSES},
            "remarks": lambda cell: "; ".join(remarks(cell)),
        },
    )


def remarks(cell: Row) -> list[str]:
    """Return what a reader of a cell must know before using its number."""
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


def accuracy_text(cell: Row) -> str:
    """Write the test accuracy of a cell with what marks it."""
    if not cell["num_values"]:
        return lost_text(cell)
    return mean_sem_text(cell) + seeds_text(cell["num_values"], cell["num_seeds"]) + marks_of(cell)


def lost_text(cell: Row) -> str:
    """Write why a cell has no value."""
    lost = [f"{cell[x]} of {cell['num_wanted']} {x}" for x in reversed(STATUSES) if cell[x]]
    return f"{NO_VALUE} ({', '.join(lost)})"


def incomplete_text(counts: Row) -> str:
    """Count the runs that are not complete: `1 missing, 2 diverged`; empty: all are."""
    return ", ".join(f"{counts[status]} {status}" for status in reversed(STATUSES[1:]) if counts[status])


def seeds_text(num_values: int, num_seeds: int) -> str:
    """Count the seeds an entry rests on, where not all."""
    return f" ({num_values} of {num_seeds} seeds)" if num_values < num_seeds else ""


def steps_text(best_steps: object) -> str:
    """Write the best steps of a cell, by seed; empty: it has no value."""
    return " ".join(map(str, best_steps)) if isinstance(best_steps, tuple) else ""


def marks_of(cell: Row) -> str:
    """Return the marks of `MARKS` that a cell's entries carry."""
    lost = cell["missing"] + cell["failed"]
    holds = {PROVISIONAL: lost, AT_EDGE: cell["at_edge"], UNSTABLE: cell["num_diverged"]}
    marks = "".join(mark for mark, found in holds.items() if found)
    return f" {marks}" if marks else ""


def marks_text(rows: Sequence[Sequence[str]]) -> str:
    """Explain the marks that occur in a table's rows, for its caption."""
    return "".join(f" {mark}: {doc}." for mark, doc in MARKS.items() if any(mark in x for row in rows for x in row))


def mean_sem_text(cell: Row) -> str:
    """Write mean ± SEM in percent; one seed has no SEM."""
    sem = "" if math.isnan(cell["test_sem"]) else f" ± {percent_text(cell['test_sem'])}"
    return percent_text(cell["test_mean"]) + sem


def highest(
    values: Mapping[tuple[int, int], float], group: Callable[[int, int], Hashable]
) -> frozenset[tuple[int, int]]:
    """Find the (row, column) of the fractions that, as written, are the highest of their group; NaN: no value."""
    written = {at: round(100 * value, 1) for at, value in values.items() if not math.isnan(value)}
    best: dict[Hashable, float] = {}
    for at, value in written.items():
        best[group(*at)] = max(value, best.get(group(*at), value))
    return frozenset(at for at, value in written.items() if value == best[group(*at)])


def _at_rate(row: Row, chosen: bool) -> str:
    incomplete = incomplete_text(row)
    some = seeds_text(row["num_values"], row["num_wanted"]) if row["num_values"] else ""
    return mean_sem_text(row) + some + (f" ({incomplete})" if incomplete else "") + (f" {CHOSEN}" if chosen else "")


def _margin(cell: Row) -> str:
    margin = round(cell["validation_mean"], MEAN_DIGITS) - round(cell["runner_up_mean"], MEAN_DIGITS)
    return NO_VALUE if math.isnan(margin) else "tie" if margin == 0 else f"{100 * margin:.1f}"


def _grouped(runs: pd.DataFrame, column: str, by: str) -> str:
    """List the values of a column, each with what has it: `300 (mnist, cifar10)`."""
    names = runs.groupby(column, sort=False)[by].unique()
    return "; ".join(f"{value} ({', '.join(map(str, found))})" for value, found in names.items())
