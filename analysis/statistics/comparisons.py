"""Variants compared seed by seed, each at the learning rate that validation chose for it."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from lr_sweep.analysis.statistics.aggregate import GROUP, StudySummary
from lr_sweep.analysis.statistics.uncertainty import Floats, t_interval

MAX_FLIPPED_SEEDS = 20
"""Up to here all sign flips are gone through (a million); with more seeds there is no p."""
SUM_ERROR = 1e-9
"""Sums of accuracy differences closer than this are equal."""


def sign_flip_p(differences: Floats) -> float:
    """Return the exact two-sided p of "the sign of each seed's difference is a coin flip".

    The share of all 2^n flips whose sum is at least as far from 0 as the observed one (Fisher's randomisation test).
    """
    assert 1 <= len(differences) <= MAX_FLIPPED_SEEDS, f"got {len(differences)} differences"
    sums = np.zeros(1)
    for difference in differences:
        sums = np.concatenate([sums + difference, sums - difference])
    return float(np.mean(np.abs(sums) >= abs(differences.sum()) - SUM_ERROR))


def smallest_p(num_pairs: int) -> float:
    """Return the smallest p that so many seeds can attain, all differences of one sign: 0.25 for 3."""
    return min(1.0, 2.0 ** (1 - num_pairs))


def holm(p_values: Floats) -> Floats:
    """Correct for several tests (Holm 1979): reject where the result is below the level; NaN stays NaN, uncounted."""
    corrected = np.full(len(p_values), math.nan)
    known = np.flatnonzero(~np.isnan(p_values))
    order = known[np.argsort(p_values[known], kind="stable")]
    scaled = p_values[order] * (len(order) - np.arange(len(order)))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return corrected


def comparisons(summary: StudySummary) -> pd.DataFrame:
    """Compare every two variants within each task and model, by the seeds where both have a value.

    Returns:
        One row a task, model and pair: `task`, `model`, `variant`, `other`, `num_pairs` (seeds), `difference` (mean
        test accuracy of `variant` less that of `other`), `low` and `high` (95% t interval; fractions), `p` (sign
        flips), `smallest_p` (attainable with so many seeds), `holm_p` (`p` corrected over the tasks of the same model
        and pair), `distinguishable` (whether `difference` can be distinguished from 0) and `note`. NaN: none. The
        choice of the two learning rates is in none of these.
    """
    rows = []
    for group, cells in summary.cells.groupby(GROUP, sort=False):
        labels, variants = dict(zip(GROUP, group, strict=True)), list(cells["variant"])
        chosen = summary.of(**labels).chosen_runs
        by_seed = chosen.pivot(index="seed", columns="variant", values="test_accuracy").reindex(columns=variants)
        for variant, other in combinations(variants, 2):
            rows.append(labels | {"variant": variant, "other": other} | _compare(by_seed[variant], by_seed[other]))
    columns = ["variant", "other", "num_pairs", "difference", "low", "high", "p", "smallest_p"]
    found = pd.DataFrame(rows, columns=[*GROUP, *columns, "holm_p", "distinguishable", "note"])
    by_pair = found.astype({"p": float}).groupby(["model", "variant", "other"], sort=False)["p"]
    found["distinguishable"] = (found["low"] > 0) | (found["high"] < 0)
    return found.assign(holm_p=by_pair.transform(lambda p: holm(p.to_numpy(dtype=float))))


def _compare(tests: pd.Series, others: pd.Series) -> dict[str, Any]:
    differences = (tests - others).dropna().to_numpy(dtype=float)
    num_pairs = len(differences)
    interval = t_interval(differences)
    has_p = 2 <= num_pairs <= MAX_FLIPPED_SEEDS
    return {
        "num_pairs": num_pairs,
        "difference": float(differences.mean()) if num_pairs else math.nan,
        "low": interval.low,
        "high": interval.high,
        "p": sign_flip_p(differences) if has_p else math.nan,
        "smallest_p": smallest_p(num_pairs) if has_p else math.nan,
        "note": _note(differences, len(tests)),
    }


def _note(differences: Floats, num_seeds: int) -> str:
    num_pairs = len(differences)
    if num_pairs == 0:
        return "no seed where both have a value"
    if num_pairs == 1:
        return "one seed: no interval, no p"
    if num_pairs > MAX_FLIPPED_SEEDS:
        return f"more than {MAX_FLIPPED_SEEDS} seeds: no exact p"
    some = f"{num_pairs} of {num_seeds} seeds have both" if num_pairs < num_seeds else ""
    same = "no spread between seeds" if np.ptp(differences) < SUM_ERROR else ""
    return "; ".join(filter(None, [some, same]))
