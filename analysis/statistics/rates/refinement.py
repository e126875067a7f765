"""Refinement after a grid: the learning rates that the checks `edge`, `cliff` and `narrow` ask for, in rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lr_sweep.analysis.statistics.rates.further_rates import beyond, geometric_mean, neighbours
from lr_sweep.analysis.statistics.selection.best import comparable, inner_rate
from lr_sweep.analysis.statistics.selection.observations import Observation

ROUND_SIZE = 2
"""Learning rates of a round: both midpoints beside the best, or two steps beyond an end, as the checks list them."""
LARGEST = 10.0
"""Learning rates above it are not proposed, and no study accepts them."""
SMALLEST = 1e-20
EQUAL_STEPS = 1.2
"""Ratio of the logarithmic widths of two intervals up to which they count as equal: 1, 3, 10 step by 3 and 3.3."""


def refined_rates(observed: Sequence[Observation], number: int, *, maximise: bool) -> list[float]:
    """Return the next learning rates of a cell, none that was tried; the one to prefer first.

    While the best rate is the smallest or largest tried (and none inside is as good), the grid's last step is taken
    again beyond it. Then the two intervals beside the best are halved on the logarithmic scale, the wider one first; of
    equally wide ones that with the better outer rate, on whose side the peak of a parabola lies. Where no rate has a
    value, smaller rates follow, if some diverged; nothing is proposed if all runs were lost.

    Args:
        observed: all rates tried in the cell, at least two, in any order.
        number: of rates, at most; `ROUND_SIZE` or less.
        maximise: whether higher values are better.
    """
    tried = sorted(each.learning_rate for each in observed)
    sign = 1 if maximise else -1
    values = {each.learning_rate: sign * each.value for each in observed if each.value is not None}
    if not values:
        diverged = any(each.outcome == "diverged" for each in observed)
        return _beyond(tried, "low")[:number] if diverged else []
    rounded = {rate: comparable(value) for rate, value in values.items()}
    best = inner_rate([rate for rate, value in rounded.items() if value == max(rounded.values())], tried)
    end = {tried[0]: "low", tried[-1]: "high"}.get(best)
    found = _beyond(tried, end) if end else []
    return (found or _beside(tried, values, best))[:number]


def _beyond(tried: list[float], end: str) -> list[float]:
    """Return the rates beyond an end, the nearest first, within the bounds."""
    found = beyond(tried, end)
    nearest_first = found if end == "high" else found[::-1]
    return [rate for rate in nearest_first if SMALLEST <= rate <= LARGEST]


def _beside(tried: list[float], values: dict[float, float], best: float) -> list[float]:
    """Return the middles of the intervals beside the best rate, the one to prefer first; `values`: more is better."""
    others = neighbours(tried, best)
    widths = {other: abs(math.log(other / best)) for other in others}
    if max(widths.values()) <= EQUAL_STEPS * min(widths.values()):
        others.sort(key=lambda other: -values.get(other, -math.inf))
    else:
        others.sort(key=lambda other: -widths[other])
    middles = [geometric_mean(best, other) for other in others]
    return [middle for middle in middles if middle not in tried]
