"""What moved the accuracy: how much of its variance over the grid each axis explains, and how much is noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from lr_sweep.analysis.statistics.aggregate import GROUP
from lr_sweep.analysis.statistics.uncertainty import Floats
from lr_sweep.common.text import rate_text

AXES = ["learning_rate", "variant", "seed"]
COMPONENTS = ["learning_rate", "variant", "learning_rate_by_variant", "seed", "noise"]
"""Shares of the variance; `learning_rate_by_variant`: that variants differ in where and how accuracy peaks."""
FLAT = 1e-24
"""A variance below this share of the mean square is summation error."""


def importances(runs: pd.DataFrame) -> pd.DataFrame:
    """Share out the variance of the runs' validation accuracy between the axes, their interaction, and noise.

    Analysis of variance of a full grid of learning rates, variants and seeds. A share is omega squared (Hays 1963):
    the sum of squares of an axis less what noise alone adds to it, over the total. It is unbiased where the axis
    does nothing, so it may be slightly negative; eta squared and fANOVA credit a seed with noise. Shares sum to 1.

    Args:
        runs: task, model, `validation_accuracy` (NaN: no value) and the columns of `AXES`.

    Returns:
        One row a task and model: `task`, `model`, `num_runs` (in the full grid), a share for each of `COMPONENTS`
        (NaN: none), and `note`: why there is none, or what was left out so that the grid is full; or empty.
    """
    rows: list[dict[str, Any]] = []
    for group, of_group in runs.groupby(GROUP, sort=False):
        grid, left_out = _full_grid(of_group)
        shares, note = _shares(grid)
        notes = "; ".join(filter(None, [note, left_out]))
        rows.append(dict(zip(GROUP, group, strict=True)) | {"num_runs": grid.size, **shares, "note": notes})
    return pd.DataFrame(rows, columns=[*GROUP, "num_runs", *COMPONENTS, "note"])


def _full_grid(runs: pd.DataFrame) -> tuple[Floats, str]:
    """Leave out rates, seeds or variants until every run has a value, each time what lacks the largest share.

    Returns:
        Accuracies, rates x variants x seeds, and what was left out.
    """
    levels: list[list[Any]] = [sorted(runs[axis].unique()) for axis in AXES]
    index = pd.MultiIndex.from_product(levels, names=AXES)
    values = runs.set_index(AXES)["validation_accuracy"].reindex(index).to_numpy(dtype=float)
    grid = values.reshape([len(level) for level in levels])
    dropped: list[str] = []
    while np.isnan(grid).any():
        lacking = [np.isnan(grid).mean(axis=tuple({0, 1, 2} - {axis})) for axis in range(3)]
        axis = int(np.argmax([shares.max() for shares in lacking]))
        at = int(lacking[axis].argmax())
        level = levels[axis].pop(at)
        dropped.append(rate_text(level) if axis == 0 else str(level) if axis == 1 else f"seed {level}")
        grid = np.delete(grid, at, axis=axis)
    return grid, f"left out, as runs of it have no value: {', '.join(dropped)}" if dropped else ""


def _shares(grid: Floats) -> tuple[dict[str, float], str]:
    """Return omega squared of each of `COMPONENTS`."""
    num_rates, num_variants, num_seeds = grid.shape
    # A seed shifts all its runs alike; what a seed does beyond that is noise.
    noise_dof = (num_rates * num_variants - 1) * (num_seeds - 1)
    if noise_dof < 1:
        return {}, "noise is not known: two seeds and two learning rates or variants are needed"
    total = float(np.sum((grid - grid.mean()) ** 2))
    if total <= FLAT * float(np.sum(grid**2)):
        return {}, "every run has the same value"
    squares = _sums_of_squares(grid)
    noise = (total - sum(squares.values())) / noise_dof
    dof = {
        "learning_rate": num_rates - 1,
        "variant": num_variants - 1,
        "learning_rate_by_variant": (num_rates - 1) * (num_variants - 1),
        "seed": num_seeds - 1,
    }
    shares = {name: (squares[name] - dof[name] * noise) / (total + noise) for name in dof}
    return shares | {"noise": 1 - sum(shares.values())}, ""


def _sums_of_squares(grid: Floats) -> dict[str, float]:
    """Return the sum of squares of each axis and of the interaction, of a full grid rates x variants x seeds."""
    means = [grid.mean(axis=axes) - grid.mean() for axes in ((1, 2), (0, 2), (0, 1))]
    rate, variant, seed = (float(np.sum(m**2)) * grid.size / len(m) for m in means)
    cells = float(np.sum((grid.mean(axis=2) - grid.mean()) ** 2)) * grid.shape[2]
    return {
        "learning_rate": rate,
        "variant": variant,
        "learning_rate_by_variant": cells - rate - variant,
        "seed": seed,
    }
