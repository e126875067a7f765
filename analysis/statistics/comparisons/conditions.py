"""Why a lead is not certain: the worse variant may yet be better than its number."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pandas as pd

from lr_sweep.analysis.statistics.selection.best import Cell
from lr_sweep.analysis.statistics.selection.summary import StudySummary

from .choice import choice_costs
from .failures import Failures, unexplained_failures
from .pairs import cells_of, comparisons

Conditions = Mapping[Cell, str]
"""By cell, why it may yet be better than its number, as the checks say (`CheckFinding.condition`)."""
NO_CONDITIONS: Conditions = MappingProxyType({})


def with_conditions(summary: StudySummary, conditions: Conditions = NO_CONDITIONS) -> pd.DataFrame:
    """Return `comparisons` with the column `condition`, the end of a sentence; empty: there is none.

    On fresh seeds a lead is also conditional if it is no larger than what the choice of the worse
    variant's rate may have cost, or if runs of the better variant failed while rates were chosen.
    Two variants are equal only if both are tuned.
    """
    compared = comparisons(summary)
    costs: Mapping[Cell, float] = {}
    failures: Mapping[Cell, Failures] = {}
    if summary.fresh_runs is not None:
        costs = choice_costs(summary)
        failures = unexplained_failures(summary)
    texts = []
    for row in compared.to_dict("records"):
        pair = cells_of(row)
        is_first_worse = summary.metric.sign * row["difference"] < 0
        worse, better = pair if is_first_worse else pair[::-1]
        text = conditions.get(worse, "")
        cost = costs.get(worse, 0.0)
        if not text and row["equal"]:
            text = conditions.get(better, "")
        elif not text and row["distinguishable"] and abs(row["difference"]) <= cost:
            limit = summary.metric.amount_text(cost, cost)
            text = (
                f"if {worse[2]} has its best learning rate: another may be better by up to {limit}"
            )
        elif not text and row["distinguishable"] and better in failures:
            text = _failures_text(better, failures[better])
        texts.append(text)
    condition = pd.Series(texts, compared.index, dtype=object)
    return compared.assign(condition=condition, equal=compared["equal"] & condition.eq(""))


def _failures_text(cell: Cell, failures: Failures) -> str:
    runs = f"{failures.num_failed} of {failures.num_runs} runs of {cell[2]}"
    return f"among the runs that work: {runs} failed while its learning rate was chosen"
