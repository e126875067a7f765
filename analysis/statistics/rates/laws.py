"""How the best learning rate moves along a numeric axis, such as width, batch size or steps: power laws.

The log of each cell's optimum is fitted by least squares against the log of the axis. The axes are what cells are made
of: of labels such as `adam, width=64`, or of the contents of runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from lr_sweep.analysis.record.columns import settings
from lr_sweep.analysis.statistics.selection.best import (
    CELL,
    UPPER,
    Floats,
    tuples_in,
)

LEAST_SIZES = 3
"""Fewest sizes of a law: a line always passes through two."""
OWN_DOF = 2
"""Degrees of freedom that the optima's standard errors have together."""
COLUMNS = (
    "axis",
    "where",
    "smallest",
    "largest",
    "num_sizes",
    "slope",
    "low",
    "high",
    "next_size",
    "next_rate",
    "next_low",
    "next_high",
    "note",
)


SIZE = re.compile(r"(.+)=([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)")


class Fit(NamedTuple):
    """A line through optima, against the log10 of a size."""

    slope: float
    half_width: float
    """Half the width of the slope's 95% interval."""
    at_next: float
    half_at_next: float
    """Half the width of the 95% interval of the next optimum."""


def fitted(sizes: Floats, optima: Floats, errors: Floats, next_size: float) -> Fit:
    """Fit optima by least squares; sizes, optima and errors are log10.

    The variance of an optimum is pooled from its standard error and from how the optima scatter around the line (after
    Smyth 2004, "Linear models and empirical Bayes methods", section 3): all errors grow or shrink by one factor. The
    next optimum scatters as they do.

    Args:
        sizes: one a cell.
        optima: one a cell, three or more.
        errors: standard errors, one a cell, above 0.
        next_size: where the next optimum is to be.
    """
    design = np.column_stack([np.ones(len(sizes)), sizes - sizes.mean()])
    weights = np.linalg.pinv(design)
    line = weights @ optima
    misfit = float(np.sum((optima - design @ line) ** 2))
    own = float(np.mean(errors**2))
    dof = OWN_DOF + len(optima) - len(line)
    noise = errors**2 * (OWN_DOF * own + misfit) / (dof * own)
    at_next = np.array([1.0, next_size - sizes.mean()])
    factor = float(stdtrit(dof, UPPER))
    return Fit(
        slope=float(line[1]),
        half_width=factor * math.sqrt(weights[1] ** 2 @ noise),
        at_next=float(at_next @ line),
        half_at_next=factor * math.sqrt((at_next @ weights) ** 2 @ noise + noise.mean()),
    )


def laws(optima: pd.DataFrame, axes: pd.DataFrame) -> pd.DataFrame:
    """Fit the optima of cells that differ in one numeric axis alone.

    What is different at each value of the axis, as the number of heads is where the width is varied, is part of it.

    Args:
        optima: the result of `optimum.optima`.
        axes: a row a cell in the same order: what it is made of, numbers and texts (`of_labels`,
            `of_contents`).

    Returns:
        One row a law: `COLUMNS`. `where` is what the cells share, `slope` of log10 rate on log10 size with its 95%
        interval, `next_size` the last one times its step and `next_rate` the rate to expect there; NaN where a `note`
        says why no law can be read.
    """
    named = [name for name in CELL if optima[name].nunique() > 1]
    rows = []
    for axis, series in series_of(axes):
        sizes = series[axis].astype(float)
        rows.append(_law(optima.loc[series.index], sizes, axis, named))
    return pd.DataFrame(rows, columns=COLUMNS)


def series_of(axes: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each numeric axis with cells that differ in it, and in what follows from it, alone."""
    for axis in _sizes(axes):
        for series in _alike(axes, axis):
            if series[axis].nunique() >= LEAST_SIZES and series[axis].is_unique:
                yield axis, series.sort_values(axis)


def _sizes(axes: pd.DataFrame) -> list[str]:
    """Return the numeric axes; of axes that always change together, the first one."""
    sizes: list[str] = []
    for axis in (str(name) for name in axes if _is_size(axes[name])):
        follows = [_follows(axes, size, axis) and _follows(axes, axis, size) for size in sizes]
        if not any(follows):
            sizes.append(axis)
    return sizes


def _alike(axes: pd.DataFrame, axis: str) -> list[pd.DataFrame]:
    """Return the cells that differ in an axis, and in what follows from it, alone."""
    shared = [str(name) for name in axes if name != axis and not _follows(axes, axis, str(name))]
    if not shared:
        return [axes]
    return [rows for _, rows in axes.groupby(shared, sort=False, dropna=False)]


def _is_size(values: pd.Series) -> bool:
    return all(
        isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
        for value in values
    )


def _follows(axes: pd.DataFrame, axis: str, name: str) -> bool:
    """Return whether each value of an axis has one value of another column."""
    return bool(axes.groupby(axis)[name].nunique(dropna=False).eq(1).all())


def _law(
    optima: pd.DataFrame,
    sizes: pd.Series[float],
    axis: str,
    named: Sequence[str],
) -> dict[str, Any]:
    shared = [name for name in named if optima[name].nunique() == 1]
    law = {
        "axis": axis,
        "where": " ".join(optima[shared].iloc[0]),
        "smallest": sizes.iloc[0],
        "largest": sizes.iloc[-1],
        "num_sizes": len(sizes),
    }
    unread = optima["optimum"].isna()
    if unread.any():
        at = ", ".join(f"{size:g}" for size in sizes[unread])
        reason = optima.loc[unread, "note"].iloc[0]
        return law | {"note": f"no law can be read: at {axis} {at} {reason}"}
    next_size = float(sizes.iloc[-1] ** 2 / sizes.iloc[-2])  # the last one times its step
    log_optima = np.log10(optima["optimum"].to_numpy(float))
    errors = optima["error"].to_numpy(float)
    log_sizes = np.log10(sizes.to_numpy(float))
    line = fitted(log_sizes, log_optima, errors, math.log10(next_size))
    rate = 10**line.at_next
    factor = 10**line.half_at_next
    return law | {
        "slope": line.slope,
        "low": line.slope - line.half_width,
        "high": line.slope + line.half_width,
        "next_size": next_size,
        "next_rate": rate,
        "next_low": rate / factor,
        "next_high": rate * factor,
        "note": "" if abs(line.slope) > line.half_width else "the optimum may not move",
    }


def of_labels(cells: pd.DataFrame) -> pd.DataFrame:
    """Split the labels of cells into numbers by name, and the text that remains, a column each."""
    return pd.DataFrame(map(_parts, tuples_in(cells[CELL])), index=cells.index)


def _parts(labels: Iterable[str]) -> dict[str, float | str]:
    parts: dict[str, float | str] = {}
    for name, label in zip(CELL, labels, strict=True):
        texts = []
        for text in label.split(", "):
            if match := SIZE.fullmatch(text):
                parts[match[1]] = float(match[2])
            else:
                texts.append(text)
        parts[name] = ", ".join(texts)
    return parts


def of_contents(cells: pd.DataFrame, wanted: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each of some cells with a recorded run, with a column for each thing that it is made of.

    Args:
        cells: rows of `StudySummary.cells`.
        wanted: columns of `WANTED`, for the step budget.
        runs: columns of `RUNS`, `content` among them.
    """
    contents = runs[["run_id", "content"]]
    recorded = wanted[[*CELL, "run_id", "num_steps"]].merge(contents, on="run_id")
    first = recorded.drop_duplicates(CELL).set_index(CELL)
    rows = {}
    for index, *cell in cells[CELL].itertuples(name=None):
        if tuple(cell) in first.index:
            run = first.loc[tuple(cell)]
            rows[index] = settings(run["content"]) | {"num_steps": int(run["num_steps"])}
    return pd.DataFrame.from_dict(rows, orient="index")
