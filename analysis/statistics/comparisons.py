"""Variants compared, each at the learning rate that validation chose for it, with one error rate for the whole study.

The test was chosen by simulation (docs/statistics.md, "Variants compared"; `benchmarks/check_error_rates.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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
    return _welch(Sample.of(ones), Sample.of(others))


@dataclass(frozen=True)
class Sample:
    """What a comparison reads of a variant's values."""

    number: int
    mean: float
    square: float
    """Of the standard error of the mean."""

    @classmethod
    def of(cls, values: Floats) -> Sample:
        """Read them off a variant's values, one a seed."""
        number = len(values)
        square = float(np.var(values, ddof=1)) / number if number > 1 else math.nan
        return cls(number, float(values.mean()) if number else math.nan, square)


def _welch(one: Sample, other: Sample) -> tuple[float, float]:
    squares = one.square + other.square
    if math.isnan(squares) or (sem := math.sqrt(squares)) < NO_SPREAD:
        return math.nan, math.nan
    shares = one.square / squares, other.square / squares  # the squares' own squares may overflow
    return sem, 1 / (shares[0] ** 2 / (one.number - 1) + shares[1] ** 2 / (other.number - 1))


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
    for group, cells in summary.cells.groupby(GROUP, sort=False):
        labels = dict(zip(GROUP, group, strict=True))
        chosen = summary.of(**labels).chosen_runs.dropna(subset=["test_accuracy"])
        by_variant = {variant: tests.to_numpy(float) for variant, tests in chosen.groupby("variant")["test_accuracy"]}
        tests = {variant: Sample.of(by_variant.get(variant, np.array([]))) for variant in cells["variant"]}
        for variant, other in combinations(tests, 2):
            compared = compare(tests[variant], tests[other])
            rows.append(labels | {"variant": variant, "other": other} | compared)
    columns = ["variant", "other", "num_seeds", "num_other_seeds", "difference", "low", "high", "p"]
    found = pd.DataFrame(rows, columns=[*GROUP, *columns, "note"])
    corrected = holm(found["p"].to_numpy(dtype=float))
    found.insert(len(found.columns) - 1, "holm_p", corrected)
    found.insert(len(found.columns) - 1, "distinguishable", corrected < LEVEL)
    return found


def compare(one: Sample, other: Sample) -> dict[str, Any]:
    """Return the columns of `comparisons` that one pair has by itself."""
    difference = one.mean - other.mean
    sem, dof = _welch(one, other)
    half = float(stdtrit(dof, (1 + CONFIDENCE) / 2)) * sem
    return {
        "num_seeds": one.number,
        "num_other_seeds": other.number,
        "difference": difference,
        "low": difference - half,
        "high": difference + half,
        "p": 2 * float(stdtr(dof, -abs(difference) / sem)),
        "note": _note(min(one.number, other.number), difference, sem),
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
