"""The test values of each cell as arrays, learning rates x seeds, and windows of them around a rate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from lr_sweep.analysis.statistics.comparisons.noise import WINDOW, Ints, Noise, cell_noise
from lr_sweep.analysis.statistics.comparisons.uncertainty import Floats
from lr_sweep.analysis.statistics.selection.best import CELL, arrays_by_cell
from lr_sweep.analysis.statistics.selection.summary import StudySummary

RUN = ("learning_rate", "seed", "test_accuracy")
"""Columns of `StudySummary.runs`."""


class CellValues(NamedTuple):
    """Values of a cell on one split; seeds of one column are the same at all rates."""

    rates: Floats
    """Rising."""
    values: Floats
    """Rates x seeds; NaN: none."""

    @classmethod
    def of(cls, rates: Floats, seeds: Ints, values: Floats, columns: Sequence[int] = ()) -> CellValues:
        """Arrange the values of a cell's runs; `columns`: seeds of all columns, none: those of the cell."""
        rows, i = np.unique(rates, return_inverse=True)
        ordered = np.array(columns) if len(columns) else np.unique(seeds)
        found = np.full((len(rows), len(ordered)), math.nan)
        found[i, np.searchsorted(ordered, seeds)] = values
        return cls(rows, found)

    def window(self, rate: float, num_seeds: int) -> Floats:
        """Return the values at a rate and at the rates beside it, `WINDOW` x seeds; NaN: no such rate or run."""
        found = np.full((WINDOW, num_seeds), math.nan)
        (at,) = np.flatnonzero(self.rates == rate) if rate in self.rates else (None,)
        for row, index in enumerate(() if at is None else (at, at - 1, at + 1)):
            if 0 <= index < len(self.rates):
                found[row, : self.values.shape[1]] = self.values[index]
        return found


class Sampled(NamedTuple):
    """The values of cells at one rate each, and what is known of their noise."""

    windows: Floats
    """Cells x `WINDOW` x seeds; the rate itself first."""
    noise: Noise

    @property
    def values(self) -> Floats:
        """Those at the rate itself, cells x seeds."""
        return self.windows[:, 0]

    @property
    def counts(self) -> Floats:
        """Seeds with a value there."""
        return (~np.isnan(self.values)).sum(-1).astype(float)

    @property
    def means(self) -> Floats:
        """Over these; NaN: none has."""
        with np.errstate(invalid="ignore"):
            return np.nansum(self.values, -1) / self.counts


def padded(arrays: Sequence[Floats]) -> Floats:
    """Stack arrays whose last axes differ in length, with NaN at the ends of the shorter ones."""
    most = max((each.shape[-1] for each in arrays), default=0)
    found = np.full((len(arrays), *(arrays[0].shape[:-1] if arrays else ()), most), math.nan)
    for part, each in zip(found, arrays, strict=True):
        part[..., : each.shape[-1]] = each
    return found


@lru_cache(maxsize=2)
def cell_values(summary: StudySummary) -> list[CellValues]:
    """Return the test values of each cell, in the order of `StudySummary.cells`.

    Of a paired study a column is of one seed in all cells.
    """
    seeds = sorted(summary.runs["seed"].unique()) if summary.paired else ()
    runs = arrays_by_cell(summary.runs, *RUN)
    each = (runs[cell] for cell in summary.cells[CELL].itertuples(index=False, name=None))
    return [CellValues.of(rates, of_runs, tests, seeds) for rates, of_runs, tests in each]


def sampled(cells: Sequence[CellValues], rates: Iterable[float]) -> Sampled:
    """Return what is known of each cell at one of its rates; NaN, or a rate it has not: nothing."""
    num_seeds = max((cell.values.shape[1] for cell in cells), default=0)
    windows = [cell.window(rate, num_seeds) for cell, rate in zip(cells, rates, strict=True)]
    stacked = np.array(windows).reshape(-1, WINDOW, num_seeds)
    return Sampled(stacked, cell_noise(stacked))


@lru_cache(maxsize=2)
def at_chosen(summary: StudySummary) -> Sampled:
    """Return what is known of each cell at its chosen learning rate."""
    return sampled(cell_values(summary), summary.cells["learning_rate"].to_numpy(float))
