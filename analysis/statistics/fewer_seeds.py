"""The check "fewer seeds": learning rates that could not be chosen, and chosen ones whose number lacks seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.finding import CheckFinding, Row, finding_of
from lr_sweep.common.text import rate_text

FIX = "give each learning rate all seeds: train them, or add their rows"


def not_eligible(rates: Sequence[Row], winners: int | None) -> list[Row]:
    """Return the learning rates of a cell that have values and could not be chosen, as seeds are without one.

    Of a study with winners those that have the first seed alone are left out: the winners were chosen by it.
    """
    by_design = winners is not None
    lost = [row for row in rates if row["num_values"] and not row["eligible"]]
    return [row for row in lost if not (by_design and row["num_values"] == row["num_wanted"])]


def fewer_seeds(cell: Row, rates: Sequence[Row], metric: Metric, winners: int | None) -> Iterator[CheckFinding]:
    """Report seeds without a value, unless other checks do.

    These are `unstable` of a better rate where a seed diverged, and `missing` and `diverged` of runs; of the latter
    a rate is reported that is better than the chosen one.
    """
    if math.isnan(cell["learning_rate"]):
        return
    yield from _at_chosen(cell, rates, metric)
    lost = not_eligible(rates, winners)
    best = max(lost, key=lambda row: metric.sign * row["validation_mean"], default=None)
    lead = metric.sign * (best["validation_mean"] - cell["validation_mean"]) if best else 0.0
    unstable = best is not None and best["diverged"] and best["num_values"] < best["num_wanted"]
    better = best if lead > 0 and not unstable else None
    if named := [row for row in lost if row["num_lacking"] or row is better]:
        message = f"{_listed(named)}, so {'it' if len(named) == 1 else 'they'} cannot be chosen"
        if better is not None:
            message += (
                f"; at {rate_text(better['learning_rate'])} {metric.chosen_on} is better than at the chosen "
                f"{rate_text(cell['learning_rate'])} by {metric.amount_text(lead)}"
            )
        yield finding_of(cell, "fewer-seeds", "note" if better is None else "problem", message, FIX)


def _at_chosen(cell: Row, rates: Sequence[Row], metric: Metric) -> Iterator[CheckFinding]:
    """Report seeds that the cell's own number lacks."""
    chosen = next(row for row in rates if row["learning_rate"] == cell["learning_rate"])
    at = f"at the chosen {rate_text(cell['learning_rate'])}"
    if cell["num_tests"] < cell["num_values"]:
        message = f"{metric.test} {at} has a value for {cell['num_tests']} of {cell['num_seeds']} seeds"
        yield finding_of(cell, "fewer-seeds", "problem", message, "measure it for every seed")
    if chosen["num_lacking"]:
        message = f"{metric.validation} {at} has a value for {cell['num_values']} of {cell['num_seeds']} seeds"
        yield finding_of(cell, "fewer-seeds", "problem", message, FIX)


def _listed(rates: Sequence[Row]) -> str:
    first, *others = [
        f"{row['num_values']} of {row['num_seeds']} at {rate_text(row['learning_rate'])}" for row in rates
    ]
    return ", ".join([f"seeds with a value: {first}", *others])
