"""The check "untested": is the test value of every seed there at the chosen learning rate?"""

from __future__ import annotations

from collections.abc import Iterator

from lr_sweep.analysis.statistics.aggregate import StudySummary
from lr_sweep.analysis.statistics.finding import CheckFinding, finding_of
from lr_sweep.analysis.statistics.selection import CELL
from lr_sweep.analysis.text import rate_text


def untested(summary: StudySummary) -> Iterator[CheckFinding]:
    """Report cells of which seeds that were selected on validation have no test value: the mean is over the others."""
    metric = summary.metric
    for key, runs in summary.chosen_runs.groupby(CELL, sort=False):
        lacking = runs[runs["validation_accuracy"].notna() & runs["test_accuracy"].isna()]
        if lacking.empty:
            continue
        seeds = ", ".join(map(str, sorted(lacking["seed"])))
        message = (
            f"{len(lacking)} of {len(runs)} seeds have no {metric.test} at the chosen learning rate, "
            f"{rate_text(runs['learning_rate'].iloc[0])} (seed {seeds}): the mean is over the others"
        )
        cell = dict(zip(CELL, key, strict=True))
        yield finding_of(cell, "untested", "problem", message, f"measure their {metric.test}, or say why there is none")
