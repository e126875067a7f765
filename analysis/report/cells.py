"""How reports write a cell, or one of its learning rates: its mean, what marks it, and what its numbers rest on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.statistics.selection.summary import OUTCOMES, StudySummary
from lr_sweep.common.text import NO_VALUE, counted

SELDOM = frozenset({"stopped", "short"})
"""Outcomes that texts leave out where no run has them."""
PROVISIONAL = "†"
AT_EDGE = "‡"
UNSTABLE = "§"
MARKS = {
    PROVISIONAL: "runs are missing, short or failed, so the choice may change",
    AT_EDGE: "the chosen learning rate is the smallest or largest tried, so the best may lie outside",
    UNSTABLE: "runs at the chosen learning rate diverged; they count with their best model before that, if any",
}


def mean_sem_text(cell: Row, metric: Metric = ACCURACY) -> str:
    """Write mean ± SEM as the metric does; one seed has no SEM."""
    return metric.mean_text(cell["test_mean"], cell["test_sem"])


def accuracy_text(cell: Row, metric: Metric = ACCURACY) -> str:
    """Write the test value of a cell with what marks it."""
    if not cell["num_values"]:
        return lost_text(cell)
    return mean_sem_text(cell, metric) + seeds_text(cell) + marks_of(cell)


def lost_text(cell: Row) -> str:
    """Write why a cell, or one of its rates, has no value."""
    if not math.isnan(cell["validation_mean"]):
        return f"{NO_VALUE} (no fresh seed)"
    lost = [f"{cell[x]} of {cell['num_wanted']} {x}" for x in reversed(OUTCOMES) if cell[x]]
    return f"{NO_VALUE} ({', '.join(lost)})"


def incomplete_text(counts: Row) -> str:
    """Count the runs that are not complete: `1 missing, 2 diverged`; empty: all are."""
    texts = [f"{counts[status]} {status}" for status in reversed(OUTCOMES[1:]) if counts[status]]
    if lacking := counts.get("num_lacking"):
        texts.append(f"{lacking} without a value")
    return ", ".join(texts)


def incomplete_texts(by_variant: Mapping[str, Row]) -> str:
    """Name the variants with runs that are not complete, and count these: `unfrozen: 3 diverged`."""
    texts = (f"{variant}: {incomplete_text(counts)}" for variant, counts in by_variant.items())
    return "; ".join(texts)


def seeds_text(row: Row, number: int | None = None) -> str:
    """Count the seeds that a number rests on where these are fewer than elsewhere in its cell, or in the study.

    `row`: of `StudySummary.cells` or `StudySummary.learning_rates`; `number`: of seeds, by default those with a test
    value.
    """
    number = row["num_tests"] if number is None else number
    if number < row["num_seeds"]:
        return f" ({number} of {row['num_seeds']} seeds)"
    return f" ({counted(number, 'seed')})" if number < row["most_seeds"] else ""


def marks_of(cell: Row) -> str:
    """Return the marks of `MARKS` that a cell's entries carry."""
    lost = cell["missing"] + cell["short"] + cell["failed"]
    reasons = {PROVISIONAL: lost, AT_EDGE: cell["at_edge"], UNSTABLE: cell["num_diverged"]}
    marks = "".join(mark for mark, reason in reasons.items() if reason)
    return f" {marks}" if marks else ""


def marks_text(rows: Sequence[Sequence[str]]) -> str:
    """Explain the marks that occur in a table's rows, for its caption."""
    entries = [entry for row in rows for entry in row]
    marks = [mark for mark in MARKS if any(mark in entry for entry in entries)]
    return "".join(f" {mark}: {MARKS[mark]}." for mark in marks)


def measured_text(summary: StudySummary) -> str:
    """Say which model of each run is measured, behind a blank; empty: the steps of runs are not known."""
    return f" {model_text(summary.metric)}" if has_steps(summary.runs) else ""


def model_text(metric: Metric) -> str:
    """Say which model of each run is measured."""
    if metric.model == "best" and metric.chosen_on:
        return f"of each run's best model by {metric.validation}"
    return "at each run's last evaluation"


def compared_seeds(summary: StudySummary) -> str:
    """Name the seeds whose mean a cell has at its chosen learning rate."""
    fresh = fresh_seeds(summary)
    return f"{fresh}, which chose no learning rate" if fresh else "seeds"


def fresh_seeds(summary: StudySummary) -> str:
    """Count the fresh seeds of a cell; empty: the seeds that choose a learning rate compare, too."""
    return counted(summary.cells["most_seeds"].max(), "fresh seed") if summary.fresh else ""


def has_steps(runs: pd.DataFrame) -> bool:
    """Return whether the steps of runs are known; those of a table may not be."""
    return bool(runs["num_steps"].gt(0).any())
