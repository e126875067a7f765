"""The tables of a study's accuracies, one entry a cell or learning rate, and how their entries and captions read.

Accuracies stand for the values of any metric.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.record.read import StudyInfo
from lr_sweep.analysis.report.blocks import Row, Table
from lr_sweep.analysis.statistics.aggregate import OUTCOMES, StudySummary
from lr_sweep.analysis.statistics.comparisons import comparisons
from lr_sweep.analysis.statistics.selection import MEAN_DIGITS, rule_text, seeds_of
from lr_sweep.analysis.statistics.verdicts import verdicts
from lr_sweep.common.text import NO_VALUE, rate_text, rate_texts

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
MOST_STEPS = 10
"""Best steps of a cell that a table lists; of more seeds it has the range, and `cells.csv` has all."""
MOST_BUDGETS = 3
"""Of one task; more step budgets are given as a range."""


def tuned_text(metric: Metric) -> str:
    """Describe the entries of the main table, for captions."""
    return (
        f"{metric.title}{metric.in_unit}, mean ± standard error of the mean (SEM) over seeds, {metric.of_model}, "
        f"at the best learning rate by {metric.validation}."
    )


def facts(info: StudyInfo, runs: pd.DataFrame) -> str:
    """Say what the numbers of `runs` rest on: in the caption of what stands alone, else once."""
    seeds = seeds_of(runs).max()
    return (
        f"{info.kind} {info.study}. {seeds} seed{'s' if seeds != 1 else ''} unless marked. "
        f"{rule_text(info.metric, has_steps(runs))}{_search_text(info)}{_budgets_text(runs)}"
        f"{pretrained_text(runs)}{_data_text(runs)}"
    )


def has_steps(runs: pd.DataFrame) -> bool:
    """Return whether the steps of runs are known; those of a table may not be."""
    return bool(runs["num_steps"].gt(0).any())


def pretrained_text(runs: pd.DataFrame) -> str:
    """Name what "pretrained" means for these runs, a sentence for captions; empty for a table's runs without it."""
    if runs["data_origin"].isna().all() and runs["pretrained_on"].isna().all():
        return ""
    return f" Pretrained on: {_grouped(runs, 'pretrained_on', 'model') or 'no variant'}."


def _search_text(info: StudyInfo) -> str:
    text = ""
    if info.winners is not None:
        text += f" All seeds at the best {info.winners} learning rates of each cell by the first seed alone."
    if info.search is not None and info.search.space:
        text += f" Each learning rate was tried with values of its own of {', '.join(info.search.space)}."
    return text


def _budgets_text(runs: pd.DataFrame) -> str:
    if not has_steps(runs):
        return ""
    if runs.groupby("task")["num_steps"].nunique().max() > MOST_BUDGETS:
        return f" Step budgets: {runs['num_steps'].min()} to {runs['num_steps'].max()}."
    return f" Step budgets: {_grouped(runs, 'num_steps', 'task')}."


def _data_text(runs: pd.DataFrame) -> str:
    origins = _grouped(runs, "data_origin", "task")
    return f" Data: {origins}." if origins else ""


def main_table(info: StudyInfo, summary: StudySummary, model: str) -> Table:
    """Lay out one model's test accuracies, variants by tasks, as in Rothermel et al. 2021, Table 1.

    `summary` is of the whole study, since comparisons are corrected over all of it.
    """
    shown = summary.of(model=model)
    metric = summary.metric
    table = cell_table(
        info, shown, f"{metric.title}, {model}", tuned_text(metric), lambda cell: accuracy_text(cell, metric)
    )
    rows = [row[0] for row in table.rows]
    best = frozenset(
        (rows.index(variant), table.header.index(row["task"], 1))
        for row in verdicts(summary, comparisons(summary)).to_dict("records")
        for variant in row["best"]
        if row["model"] == model
    )
    bold_text = f"Bold: the {metric.best} of a column, and what cannot be distinguished from it (variants compared)."
    return replace(table, bold=best, bold_text=bold_text)


def cell_table(info: StudyInfo, summary: StudySummary, title: str, what: str, entry: Callable[[Row], str]) -> Table:
    """Lay out one entry a cell of one model, variants by tasks; `what` begins the caption."""
    tasks, variants = list(summary.cells["task"].unique()), list(summary.cells["variant"].unique())
    texts = {(cell["variant"], cell["task"]): entry(cell) for cell in summary.cells.to_dict("records")}
    rows = tuple((v, *(texts.get((v, t), NO_VALUE) for t in tasks)) for v in variants)
    about = what + marks_text(rows)
    return Table(title=title, caption=about, shared=facts(info, summary.runs), header=("variant", *tasks), rows=rows)


def learning_rate_table(summary: StudySummary, task: str, model: str) -> Table:
    """Lay out one task's test accuracies, variants by learning rates: the figure in numbers."""
    shown = summary.of(task=task, model=model)
    rates, chosen = shown.learning_rates, shown.cells.set_index("variant")["learning_rate"]
    metric = summary.metric
    swept = sorted(rates["learning_rate"].unique())
    texts = {
        (row["variant"], row["learning_rate"]): _at_rate(row, row["learning_rate"] == chosen[row["variant"]], metric)
        for row in rates.to_dict("records")
    }
    seeds = rates["most_seeds"].max()
    chosen_text = f" {CHOSEN}: the learning rate that {metric.chosen_on} chose." if metric.chosen_on else ""
    over = f"mean ± SEM over {seeds} seeds unless marked" if seeds > 1 else "one seed"
    return Table(
        title=f"{metric.title} by learning rate, {task}, {model}",
        caption=f"{_first_upper(f'{metric.in_unit}, {over}'.lstrip(', '))}, {metric.of_model}.{chosen_text}"
        f"{pretrained_text(summary.of(model=model).runs)}",
        header=("variant", *rate_texts(swept)),
        rows=tuple((v, *(texts.get((v, rate), NO_VALUE) for rate in swept)) for v in rates["variant"].unique()),
    )


def detail_table(info: StudyInfo, summary: StudySummary) -> Table:
    """List every cell with its chosen learning rate and what that rests on."""
    metric, steps = summary.metric, has_steps(summary.runs)
    what = (
        f"{_first_upper(metric.values)}{metric.in_unit} at the chosen learning rate, ± standard error of the mean "
        f"(SEM) over seeds. {'Best steps: by seed, or their range. ' if steps else ''}Runner-up: the learning rate "
        f"with the second {metric.best} {metric.chosen_on} mean, and how "
        f"{'many points' if metric.is_fraction else 'far'} that is "
        "behind. Complete and not complete: runs of the whole cell."
    )
    best_steps: dict[str, Callable[[Row], str]] = {"best steps": lambda cell: _shown_steps(cell["best_steps"])}
    table = Table.of(
        summary.cells,
        "Every cell at its chosen learning rate",
        what,
        {
            **{"task": "task", "model": "model", "variant": "variant"},
            "learning rate": lambda cell: rate_text(cell["learning_rate"]),
            **(best_steps if steps else {}),
            f"{metric.chosen_on}, mean": lambda cell: metric.of_seeds_text(
                cell["validation_mean"], cell["validation_sem"]
            ),
            "runner-up": lambda cell: rate_text(cell["runner_up"]),
            "margin": lambda cell: _margin(cell, metric),
            f"{metric.reported_on}, mean ± SEM": lambda cell: mean_sem_text(cell, metric),
            "seeds": lambda cell: f"{cell['num_tests']} of {cell['num_seeds']}",
            "complete": lambda cell: f"{cell['complete']} of {cell['num_wanted']}",
            "not complete": incomplete_text,
            "remarks": lambda cell: "; ".join(remarks(cell)),
        },
    )
    return replace(table, shared=facts(info, summary.runs))


def remarks(cell: Row) -> list[str]:
    """Return what a reader of a cell must know before using its number."""
    found = []
    if cell["num_values"] and cell["num_tests"] < cell["num_seeds"]:
        found.append(f"{cell['num_tests']} of {cell['num_seeds']} seeds have a value")
    if cell["missing"] + cell["failed"]:
        found.append("runs missing or failed, the choice may change")
    if cell["at_edge"]:
        found.append(f"best learning rate is the {'smallest' if cell['at_edge'] == 'low' else 'largest'} tried")
    if cell["num_diverged"]:
        found.append(f"{cell['num_diverged']} of {cell['num_seeds']} runs diverged at it")
    return found


def accuracy_text(cell: Row, metric: Metric = ACCURACY) -> str:
    """Write the test accuracy of a cell with what marks it."""
    if not cell["num_values"]:
        return lost_text(cell)
    return mean_sem_text(cell, metric) + seeds_text(cell) + marks_of(cell)


def lost_text(cell: Row) -> str:
    """Write why a cell has no value."""
    lost = [f"{cell[x]} of {cell['num_wanted']} {x}" for x in reversed(OUTCOMES) if cell[x]]
    return f"{NO_VALUE} ({', '.join(lost)})"


def incomplete_text(counts: Row) -> str:
    """Count the runs that are not complete: `1 missing, 2 diverged`; empty: all are."""
    found = [f"{counts[status]} {status}" for status in reversed(OUTCOMES[1:]) if counts[status]]
    return ", ".join([*found, *([f"{lacking} without a value"] if (lacking := counts.get("num_lacking")) else [])])


def seeds_text(row: Row, number: int | None = None) -> str:
    """Count the seeds that a number rests on where these are fewer than elsewhere in its cell, or in the study.

    `row`: of `StudySummary.cells` or `StudySummary.learning_rates`; `number`: of seeds, by default those with a test
    value.
    """
    number = row["num_tests"] if number is None else number
    if number < row["num_seeds"]:
        return f" ({number} of {row['num_seeds']} seeds)"
    return f" ({number} seed{'s' if number > 1 else ''})" if number < row["most_seeds"] else ""


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


def mean_sem_text(cell: Row, metric: Metric = ACCURACY) -> str:
    """Write mean ± SEM as the metric does; one seed has no SEM."""
    return metric.mean_text(cell["test_mean"], cell["test_sem"])


def best_entries(
    values: Mapping[tuple[int, int], tuple[float, float]],
    group: Callable[[int, int], Hashable],
    metric: Metric = ACCURACY,
) -> frozenset[tuple[int, int]]:
    """Find the (row, column) of the means that, as written, are the best of their group.

    `values`: means and their standard errors; NaN: no value.
    """
    written = {at: float(metric.of_seeds_text(mean, sem)) for at, (mean, sem) in values.items() if not math.isnan(mean)}
    better = max if metric.higher_is_better else min
    best: dict[Hashable, float] = {}
    for at, value in written.items():
        best[group(*at)] = better(value, best.get(group(*at), value))
    return frozenset(at for at, value in written.items() if value == best[group(*at)])


def _shown_steps(best_steps: object) -> str:
    """Write the best steps of a cell for a table: by seed, or of many seeds their range."""
    if isinstance(best_steps, tuple) and len(best_steps) > MOST_STEPS:
        return f"{min(best_steps)} to {max(best_steps)}"
    return steps_text(best_steps) or NO_VALUE


def _at_rate(row: Row, chosen: bool, metric: Metric) -> str:
    incomplete = incomplete_text({**row, "num_lacking": 0})
    some = seeds_text(row) if row["num_values"] else ""
    lost = f" ({incomplete})" if incomplete else ""
    return mean_sem_text(row, metric) + some + lost + (f" {CHOSEN}" if chosen else "")


def _first_upper(text: str) -> str:
    return text[0].upper() + text[1:]


def _margin(cell: Row, metric: Metric) -> str:
    margin = metric.sign * (round(cell["validation_mean"], MEAN_DIGITS) - round(cell["runner_up_mean"], MEAN_DIGITS))
    return "tie" if margin == 0 else metric.of_seeds_text(margin, cell["validation_sem"])


def _grouped(runs: pd.DataFrame, column: str, by: str) -> str:
    """List the values of a column, each with what has it: `300 (mnist, cifar10)`."""
    names = runs.groupby(column, sort=False)[by].unique()
    return "; ".join(f"{value} ({', '.join(map(str, found))})" for value, found in names.items())
