"""Our entries of the papers' tables, and how published ones are written beside them."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import pandas as pd

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.paper import published as theirs
from lr_sweep.analysis.paper.numbers import (
    REFERENCE,
    accuracies_at_budget,
    steps_to_converge,
    steps_to_match,
    train_accuracies,
)
from lr_sweep.analysis.paper.published import Entry
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.report.tables import accuracy_text, lost_text, marks_of, seeds_text
from lr_sweep.analysis.statistics.selection.best import CELL, Cell
from lr_sweep.analysis.statistics.selection.summary import GROUP, StudySummary
from lr_sweep.common.text import NO_VALUE, percent_text

NEVER = "-"
"""As in the paper: never matched."""
AT_END = {
    theirs.TRAIN_AT_END: "train",
    theirs.TEST_AT_END: "test",
    theirs.TRAIN_MINUS_TEST_AT_END: "difference",
}
AT_BEST = {theirs.TRAIN: "train", theirs.TRAIN_MINUS_TEST: "gap"}
"""Columns of `accuracies_at_budget` and `train_accuracies`, by metric."""


class Number(NamedTuple):
    """An entry of our table."""

    text: str
    value: float = math.nan
    """In the unit of the published value; NaN: none."""


class OurNumbers:
    """The entries of a study by metric and cell; `curves` have `run_id`, `step` and the accuracies."""

    def __init__(self, summary: StudySummary, curves: pd.DataFrame) -> None:
        self._summary, self._curves = summary, curves
        self._cells = _by_cell(summary.cells)

    def of(self, metric: str, cell: Cell) -> Number | None:
        """Return an entry; None: the study has nothing of it."""
        if metric == theirs.SPEEDUP:
            return self._speedup(cell)
        if metric == theirs.PARAMETERS:
            count = self._parameters.get(cell)
            return None if count is None else Number(f"{count:,.0f}", count)
        if metric == theirs.MAX_STEPS:
            budgets = self._budgets[cell[:2]]
            return Number(", ".join(map(budget_text, budgets)), budgets[-1])
        row = self._cells.get(cell)
        if row is None:
            return None
        return self._measured(metric, cell, row) if row["num_values"] else Number(lost_text(row))

    def have_test_at_end(self, model: str) -> bool:
        """Return whether test was evaluated at the last step of every run of a model that reached it."""
        return not any(math.isnan(row["test"]) for cell, row in self._ended.items() if cell[1] == model)

    def _measured(self, metric: str, cell: Cell, row: Row) -> Number:
        marked = seeds_text(row) + marks_of(row)
        if metric == theirs.TEST:
            return Number(accuracy_text(row), 100 * row["test_mean"])
        if metric == theirs.STEPS:
            return Number(steps_text(self._converged[cell]) + marked, self._converged[cell])
        if metric == theirs.STEPS_TO_MATCH:
            return self._matched_text(cell, row)
        if metric in AT_END:
            return self._at_end(AT_END[metric], cell, row)
        mean, sem = (self._at_best[cell][f"{AT_BEST[metric]}{kind}"] for kind in ("", "_sem"))
        return Number(ACCURACY.mean_text(mean, sem) + marked, 100 * mean)

    def _matched_text(self, cell: Cell, row: Row) -> Number:
        target = self._cells.get((*cell[:2], REFERENCE))
        if target is None or not target["num_values"]:
            return Number(f"{NO_VALUE} (no {REFERENCE} to match)")
        steps = self._matched[cell]["steps"]
        return Number(steps_text(steps) + seeds_text(row) + (marks_of(row) or marks_of(target)), steps)

    def _at_end(self, column: str, cell: Cell, row: Row) -> Number:
        ended = self._ended.get(cell)
        if ended is None:
            return Number(f"{NO_VALUE} (no seed reached the budget)")
        text = percent_text(ended[column]) + seeds_text(row, ended["num_at_budget"]) + marks_of(row)
        return Number(text, 100 * ended[column])

    def _speedup(self, cell: Cell) -> Number | None:
        here, random = self._converged.get(cell), self._converged.get((*cell[:2], "frozen-random"))
        return Number(f"{random / here:.2g}×", random / here) if here and random else None

    @cached_property
    def _matched(self) -> dict[Cell, Row]:
        return _by_cell(steps_to_match(self._summary, self._curves))

    @cached_property
    def _ended(self) -> dict[Cell, Row]:
        return _by_cell(accuracies_at_budget(self._summary, self._curves))

    @cached_property
    def _converged(self) -> dict[Any, float]:
        return steps_to_converge(self._summary, self._curves).to_dict()

    @cached_property
    def _at_best(self) -> dict[Any, dict[Any, Any]]:
        return train_accuracies(self._summary, self._curves).to_dict("index")

    @cached_property
    def _parameters(self) -> dict[Any, float]:
        return self._summary.runs.groupby(CELL)["trained_parameters"].first().dropna().to_dict()

    @cached_property
    def _budgets(self) -> dict[Any, list[float]]:
        return {key: sorted(steps.unique()) for key, steps in self._summary.runs.groupby(GROUP)["num_steps"]}


def published_text(there: Entry, here: float) -> str:
    """Write a published value as printed, with how much ours is above it where the two can be compared."""
    value, metric = there.number, there.metric
    if metric == theirs.STEPS_TO_MATCH:
        return steps_text(value) + _above(value, here, 0)
    if metric == theirs.MAX_STEPS:
        return budget_text(value) + _above(value, here, 0)
    if metric == theirs.STEPS:
        return budget_text(value)
    if metric == theirs.SPEEDUP:
        return f"{there.value}×"
    if metric == theirs.PARAMETERS:
        return f"{value:,.0f}"
    return there.value + (f" ± {there.sem}" if there.sem else "") + _above(value, here, 1)


def steps_text(steps: float) -> str:
    """Write gradient steps as the paper does, `1.9×10⁵`; below 10,000 in full; `-` for never (NaN)."""
    if math.isnan(steps):
        return NEVER
    return _power_text(*f"{steps:.1e}".split("e")) if steps >= 10_000 else f"{steps:.0f}"


def budget_text(steps: float) -> str:
    """Write a budget as the paper does, `3×10⁵`, where two digits say it exactly; otherwise in full."""
    mantissa, exponent = f"{steps:.1e}".split("e")
    if steps < 10_000 or float(f"{steps:.1e}") != steps:
        return f"{steps:.0f}"
    return _power_text(mantissa.removesuffix(".0"), exponent)


def _power_text(mantissa: str, exponent: str) -> str:
    return f"{mantissa}×10{str(int(exponent)).translate(str.maketrans('0123456789-', '⁰¹²³⁴⁵⁶⁷⁸⁹⁻'))}"


def _above(there: float, here: float, digits: int) -> str:
    """Write with its sign how much ours is above a published number; empty: one of the two is missing."""
    difference = round(here - there, digits) + 0.0  # no -0.0
    return "" if math.isnan(difference) else f" ({difference:+.{digits}f})".replace("-", "−")


def _by_cell(frame: pd.DataFrame) -> dict[Cell, Row]:
    return {(row["task"], row["model"], row["variant"]): row for row in frame.to_dict("records")}
