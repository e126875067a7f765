"""How the best learning rate moves along a numeric axis, such as width, batch size or steps: a power law.

The log of each cell's optimum is fitted by least squares against the log of the axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from lr_sweep.analysis.statistics.selection import CELL
from lr_sweep.analysis.statistics.uncertainty import Floats

LEAST_SIZES = 3
"""Through two there is always a line."""
NORMAL = 1.959964
"""Half of a 95% interval in standard errors."""
COLUMNS = (
    *("axis", "where", "smallest", "largest", "num_sizes", "slope", "low", "high"),
    *("next_size", "next_rate", "next_low", "next_high", "note"),
)


class Line(NamedTuple):
    """A line through optima, against the log10 of one size."""

    slope: float
    half_width: float
    """Of the slope's 95% interval."""
    at_next: float
    half_at_next: float
    """Of the 95% interval of the next optimum."""


def fitted_line(sizes: Floats, optima: Floats, halves: Floats, next_size: float) -> Line:
    """Fit a line; all are log10, `halves` the half widths of the optima's 95% intervals.

    The uncertainty of the optima is carried on; or, if they scatter around the line more than that, their scatter is
    what counts, with the factor of Student's t. The next optimum scatters as they do.
    """
    centred = sizes - sizes.mean()
    weights = centred / (centred @ centred)
    slope = float(weights @ optima)
    dof = len(sizes) - 2
    scatter = float(np.sum((optima - optima.mean() - slope * centred) ** 2)) / dof
    errors = (halves / NORMAL) ** 2
    at_next = 1 / len(sizes) + (next_size - sizes.mean()) * weights
    factor, noise = NORMAL, errors
    if scatter > errors.mean():
        factor, noise = float(stdtrit(dof, 0.975)), np.full(len(sizes), scatter)
    return Line(
        slope,
        factor * math.sqrt(weights**2 @ noise),
        float(at_next @ optima),
        factor * math.sqrt(at_next**2 @ noise + noise.mean()),
    )


def laws(found: pd.DataFrame, axes: pd.DataFrame) -> pd.DataFrame:
    """Fit the optima of cells that differ in one numeric axis alone.

    What is different at each value of the axis, as the number of heads is where the width is varied, is part of it.

    Args:
        found: the result of `optimum.optima`.
        axes: a row a cell in the same order: what it is made of, numbers and texts (`axes.of_labels`,
            `axes.of_contents`).

    Returns:
        One row a law: `COLUMNS`. `where` is what the cells share, `slope` of log10 rate on log10 size with its 95%
        interval, `next_size` the last one times its step and `next_rate` the rate to expect there; NaN where a `note`
        says why no law can be read.
    """
    named = [name for name in CELL if found[name].nunique() > 1]
    rows = [_law(found.loc[each.index], each[axis].astype(float), axis, named) for axis, each in series_of(axes)]
    return pd.DataFrame(rows, columns=COLUMNS)


def series_of(axes: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each numeric axis with cells that differ in it, and in what follows from it, alone."""
    numeric = [str(name) for name in axes if _is_size(axes[name])]
    for i, axis in enumerate(numeric):
        if any(_follows(axes, other, axis) and _follows(axes, axis, other) for other in numeric[:i]):
            continue  # the same series by another name
        others = [str(name) for name in axes if name != axis and not _follows(axes, axis, str(name))]
        groups = axes.groupby(others, sort=False, dropna=False) if others else [((), axes)]
        for series in (rows for _, rows in groups):
            if series[axis].nunique() >= LEAST_SIZES and series[axis].is_unique:
                yield axis, series.sort_values(axis)


def _is_size(values: pd.Series) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 for value in values)


def _follows(axes: pd.DataFrame, axis: str, other: str) -> bool:
    """Return whether each value of an axis has one value of the other column."""
    return bool(axes.groupby(axis)[other].nunique(dropna=False).eq(1).all())


def _law(found: pd.DataFrame, sizes: pd.Series[float], axis: str, named: Sequence[str]) -> dict[str, Any]:
    labels = [found[name].iloc[0] for name in named if found[name].nunique() == 1]
    known = {"axis": axis, "where": " ".join(labels), "smallest": sizes.iloc[0], "largest": sizes.iloc[-1]}
    known |= {"num_sizes": len(sizes)}
    unread = found["optimum"].isna()
    if unread.any():
        at = ", ".join(f"{size:g}" for size in sizes[unread])
        return known | {"note": f"no law can be read: at {axis} {at} {found.loc[unread, 'note'].iloc[0]}"}
    next_size = sizes.iloc[-1] ** 2 / sizes.iloc[-2]
    x, y, low, high = (
        np.log10(each.to_numpy(float)) for each in (sizes, found["optimum"], found["low"], found["high"])
    )
    halves = np.where(found["one_seed"], NORMAL * found["spacing"] / math.sqrt(12), (high - low) / 2)
    line = fitted_line(x, y, halves, math.log10(next_size))
    slope = {"slope": line.slope, "low": line.slope - line.half_width, "high": line.slope + line.half_width}
    rate, half = 10**line.at_next, 10**line.half_at_next
    ahead = {"next_size": next_size, "next_rate": rate, "next_low": rate / half, "next_high": rate * half}
    moves = slope["low"] > 0 or slope["high"] < 0
    return known | slope | ahead | {"note": "" if moves else "the optimum may not move"}
