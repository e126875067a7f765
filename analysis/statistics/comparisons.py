"""Variants compared, each at the learning rate that validation chose for it, with one error rate for the whole study.

The test was chosen by simulation (docs/statistics.md, "Variants compared"; `benchmarks/check_error_rates.py`).
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

from lr_sweep.analysis.statistics.aggregate import GROUP, StudySummary
from lr_sweep.analysis.statistics.uncertainty import CONFIDENCE, Floats

LEVEL = 1 - CONFIDENCE
"""How often a study of equal variants may name any pair distinguishable."""
NO_SPREAD = 1e-9
"""A standard error below this is rounding: all seeds have one accuracy."""


def holm(p_values: Floats) -> Floats:
    """Correct for several tests (Holm 1979): reject where the result is below the level; NaN stays NaN, uncounted."""
    corrected = np.full(len(p_values), math.nan)
    known = np.flatnonzero(~np.isnan(p_values))
    order = known[np.argsort(p_values[known], kind="stable")]
    scaled = p_values[order] * (len(order) - np.arange(len(order)))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return corrected


def welch(ones: Floats, others: Floats) -> tuple[float, float]:
    """Return the standard error of the difference of two means and its degrees of freedom (Welch 1947).

    NaN with fewer than two values in either, or where neither has any spread: then nothing is known of the noise.
    """
    if min(len(ones), len(others)) < 2:
        return math.nan, math.nan
    one, other = (float(np.var(values, ddof=1)) / len(values) for values in (ones, others))
    if (sem := math.sqrt(one + other)) < NO_SPREAD:
        return math.nan, math.nan
    shares = one / (one + other), other / (one + other)  # the squares' own squares may overflow
    return sem, 1 / (shares[0] ** 2 / (len(ones) - 1) + shares[1] ** 2 / (len(others) - 1))


def comparisons(summary: StudySummary) -> pd.DataFrame:
    """Compare the mean test accuracies of every two variants of a task and model.

    Returns:
        One row a task, model and pair: `task`, `model`, `variant`, `other`, `num_seeds` and `num_other_seeds` (with a
        value), `difference` (mean of `variant` less that of `other`), `low` and `high` (95% Welch interval for this
        pair alone; fractions), `p` (Welch's t test, two-sided), `holm_p` (`p` corrected over the family: all pairs of
        all tasks and models of the study), `distinguishable` (whether `holm_p` is below `LEVEL`) and `note`. NaN: none.
        The choice of the two learning rates is in none of these.
    """
    rows = []
    for labels, group in summary.groups():
        chosen = group.chosen_runs.dropna(subset=["test_accuracy"])
        known = {variant: tests.to_numpy(float) for variant, tests in chosen.groupby("variant")["test_accuracy"]}
        for variant, other in combinations(group.cells["variant"], 2):
            compared = compare(*(known.get(name, np.array([])) for name in (variant, other)))
            rows.append(labels | {"variant": variant, "other": other} | compared)
    columns = ["variant", "other", "num_seeds", "num_other_seeds", "difference", "low", "high", "p"]
    found = pd.DataFrame(rows, columns=[*GROUP, *columns, "note"])
    corrected = holm(found["p"].to_numpy(dtype=float))
    found.insert(len(found.columns) - 1, "holm_p", corrected)
    found.insert(len(found.columns) - 1, "distinguishable", corrected < LEVEL)
    return found


def compare(ones: Floats, others: Floats) -> dict[str, Any]:
    """Return the columns of `comparisons` that one pair, by its values, has by itself."""
    one, other = (float(values.mean()) if len(values) else math.nan for values in (ones, others))
    difference = one - other
    sem, dof = welch(ones, others)
    half = float(stdtrit(dof, (1 + CONFIDENCE) / 2)) * sem
    return {
        "num_seeds": len(ones),
        "num_other_seeds": len(others),
        "difference": difference,
        "low": difference - half,
        "high": difference + half,
        "p": 2 * float(stdtr(dof, -abs(difference) / sem)),
        "note": _note(min(len(ones), len(others)), difference, sem),
    }


def _note(num_seeds: int, difference: float, sem: float) -> str:
    if num_seeds == 0:
        return "a variant without a value"
    if num_seeds == 1:
        return "one seed: no interval, no p"
    if math.isnan(sem):
        return "no spread between seeds: no interval, no p"
    few = "two seeds: their noise is hardly known" if num_seeds == 2 else ""
    noisy = "noise larger than the difference" if abs(difference) < sem else ""
    return "; ".join(filter(None, [few, noisy]))
