"""What a comparison at one fixed learning rate would have concluded, and where that contradicts the tuned one.

The point of Rothermel et al. 2021 (sections 3 and 4): at 1e-3 the variants ranked in another order than at their own
best learning rates. Test accuracies are read here; nothing is chosen by them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.aggregate import GROUP, OUTCOMES, StudySummary
from lr_sweep.analysis.statistics.selection import rounded

Order = tuple[tuple[str, ...], ...]
"""Variants from best to worst; those in one inner tuple are equal."""


def orders(summary: StudySummary, tested: pd.DataFrame) -> pd.DataFrame:
    """Order the variants by mean test accuracy, tuned and at every learning rate that was tried.

    Args:
        summary: of the study.
        tested: the result of `flips.flips` of it.

    Returns:
        One row a task, model and learning rate, the tuned order first: `task`, `model`, `learning_rate` (NaN: tuned,
        each variant at its own), `order` (an `Order` of the variants with a value), `incomplete` (for each variant with
        runs there that are not complete, how many have each other status, and `num_lacking`), `same` (whether the
        variants with a value here and tuned are in the tuned order) and `flipped` (pairs, the tuned better variant
        first, of which the other is distinguishably ahead here; of published means None: not tested).
    """
    flipped = _flipped(tested)
    rows: list[dict[str, Any]] = []
    metric = summary.metric
    counted = [*OUTCOMES[1:], *(["num_lacking"] if summary.winners is None else [])]
    for labels, group in summary.groups():
        tuned = mean_tests(group.cells)
        for rate, found in {math.nan: group.cells, **by_rate(group)}.items():
            means = mean_tests(found)
            common = means.keys() & tuned.keys()
            here, there = (_order({name: each[name] for name in common}, metric) for each in (means, tuned))
            incomplete = _incomplete(found[["variant", *counted]])
            order = {"order": _order(means, metric), "incomplete": incomplete, "same": here == there}
            turned = flipped.get((labels["task"], labels["model"], rate), ())
            rows.append(labels | {"learning_rate": rate} | order | {"flipped": turned})
    return pd.DataFrame(rows, columns=[*GROUP, "learning_rate", "order", "incomplete", "same", "flipped"])


def by_rate(group: StudySummary) -> dict[float, pd.DataFrame]:
    """Return the rows of `learning_rates` at each learning rate, rising."""
    return {float(str(rate)): rows for rate, rows in group.learning_rates.groupby("learning_rate")}


def mean_tests(rows: pd.DataFrame) -> dict[str, float]:
    """Return the mean test accuracy of each variant with a value, rounded so that equal means are equal."""
    means = rounded(rows["test_mean"].to_numpy(float)).tolist()
    return {str(variant): mean for variant, mean in zip(rows["variant"], means, strict=True) if not math.isnan(mean)}


def _flipped(tested: pd.DataFrame) -> dict[tuple[Any, ...], tuple[tuple[str, str], ...]]:
    found = tested[tested["flips"]].groupby([*GROUP, "learning_rate"])
    return {key: tuple(zip(rows["better"], rows["worse"], strict=True)) for key, rows in found}


def _incomplete(rows: pd.DataFrame) -> dict[str, dict[Any, int]]:
    counts = rows.set_index("variant").to_dict("index")
    return {str(variant): dict(found) for variant, found in counts.items() if any(found.values())}


def _order(means: Mapping[str, float], metric: Metric) -> Order:
    levels = sorted(set(means.values()), reverse=metric.higher_is_better)
    return tuple(tuple(sorted(variant for variant, mean in means.items() if mean == level)) for level in levels)
