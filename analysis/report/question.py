"""The question that a report answers, from what its study compares."""

from __future__ import annotations

from lr_sweep.analysis.report.verdict import listed
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.common.text import counted

MOST_NAMED = 4
"""Variants, or tasks, that a question names; more are counted."""


def question(summary: StudySummary) -> str:
    """Ask for the best variant, or for the best learning rate of a single one."""
    metric = summary.metric
    variants, tasks = (list(summary.cells[name].unique()) for name in ("variant", "task"))
    where = f" on {listed(tasks) if len(tasks) <= MOST_NAMED else counted(len(tasks), 'task')}"
    value = f"the {metric.best} {metric.test}{where}"
    if len(variants) == 1:
        return f"At which learning rate does {variants[0]} have {value}?"
    named = listed(variants) if len(variants) <= MOST_NAMED else f"{len(variants)} variants"
    is_tuned = metric.chosen_on and not metric.untuned
    rates = ", each at its own learning rate" if is_tuned else ""
    return f"Which of {named} has {value}{rates}?"
