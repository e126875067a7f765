"""Rules that stop learning rates of a cell before the budget, by the validation values at a rung."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import Literal

LEAST_OTHERS = 3
"""The median rule stops nothing while fewer other learning rates were at the rung."""


def kept_rates(
    rule: Literal["halving", "median"], eta: int, best: Mapping[float, float], running_means: Mapping[float, float]
) -> set[float]:
    """Return the learning rates that a rule keeps, with the arguments of `kept_by_halving` and `kept_by_median`."""
    return kept_by_halving(best, eta) if rule == "halving" else kept_by_median(best, running_means)


def kept_by_halving(values: Mapping[float, float], eta: int) -> set[float]:
    """Return the best 1/eta of the learning rates at a rung, rounded up, and those that equal the last of them.

    Asynchronous successive halving (Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning"), in the
    form that stops: a rate is compared once, with those at the rung by then.

    Args:
        values: by learning rate; more is better, -inf: not finite.
        eta: one rate in so many is kept.
    """
    number = math.ceil(len(values) / eta)
    least = sorted(values.values(), reverse=True)[number - 1]
    return {rate for rate, value in values.items() if value >= least}


def kept_by_median(best: Mapping[float, float], running_means: Mapping[float, float]) -> set[float]:
    """Return the learning rates whose best value so far is at least the median of the others' running means.

    The median stopping rule (Golovin et al. 2017, "Google Vizier", section 3.2.2), of all rates at the rung, ended
    or not.

    Args:
        best: the best value so far by learning rate; more is better.
        running_means: means of all values so far, of the same rates.
    """
    return {rate for rate, value in best.items() if value >= _median_of_others(running_means, rate)}


def _median_of_others(means: Mapping[float, float], rate: float) -> float:
    others = [mean for other, mean in means.items() if other != rate]
    return median(others) if len(others) >= LEAST_OTHERS else -math.inf
