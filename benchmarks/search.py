"""Replays recorded grids to compare ways of choosing learning rates at equal budgets; trains nothing.

    python -m benchmarks.search RESULTS_CSV... [--replays 200]

Takes `learning_rates.csv` of reports. Every way chooses among the grid's own rates: a proposal counts as the nearest
rate of the grid, on the logarithmic scale, that was not tried yet, so no value is interpolated. A cell's answer is the
best tried rate by the mean over the recorded seeds; its regret is the difference of test means to the full grid's.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from lr_sweep.analysis.statistics.further_rates import three_digits
from lr_sweep.analysis.statistics.observations import Observation
from lr_sweep.analysis.statistics.selection import CELL
from lr_sweep.sweep.search.samplers import next_rates
from lr_sweep.sweep.study.search import NUM_FIRST, Search

WAYS = ("grid subset", "random", "quasi-random", "tpe", "gp")
AT_ONCE = 2
"""Rates of a round of `tpe` and `gp`."""


@dataclass(frozen=True)
class RecordedCell:
    """A cell of a full grid: means over seeds by learning rate, rising; NaN: no value."""

    labels: tuple[str, str, str]
    rates: np.ndarray
    """(L,), float64."""
    validation: np.ndarray
    """(L,), fractions."""
    test: np.ndarray
    """(L,), fractions."""

    def answer(self, tried: Sequence[int]) -> int | None:
        """Return the index of the best tried rate, the smaller of equals; None: none has a value."""
        known = [index for index in sorted(tried) if not math.isnan(self.validation[index])]
        return max(known, key=lambda index: (round(self.validation[index], 12), -index), default=None)

    def nearest(self, rate: float, tried: Sequence[int]) -> int:
        """Return the index of the nearest rate of the grid that was not tried."""
        left = [index for index in range(len(self.rates)) if index not in tried]
        return min(left, key=lambda index: abs(math.log(self.rates[index] / rate)))

    def observation(self, index: int) -> Observation:
        """Return what a search observes at a rate."""
        value = float(self.validation[index])
        rate = float(self.rates[index])
        return Observation(rate, "diverged", None) if math.isnan(value) else Observation(rate, "measured", value)


def read_cells(path: Path) -> list[RecordedCell]:
    """Read the cells of a report's `learning_rates.csv`; a rate counts if every seed has a value there."""
    found = []
    for labels, rows in pd.read_csv(path).groupby(CELL, sort=False):
        rows = rows.sort_values("learning_rate")
        whole = rows["num_values"].eq(rows["num_values"].max()) & rows["num_values"].gt(0)
        validation, test = (rows[name].where(whole).to_numpy(float) for name in ("validation_mean", "test_mean"))
        task, model, variant = map(str, labels)
        found.append(RecordedCell((task, model, variant), rows["learning_rate"].to_numpy(float), validation, test))
    return found


def tried_by(way: str, cell: RecordedCell, number: int, seed: int) -> list[int]:
    """Return the indices of the rates that a way tries."""
    if way == "grid subset":  # evenly spaced, with an offset drawn per study
        offset = float(np.random.default_rng(seed).random())
        return sorted({int((index + offset) * len(cell.rates) / number) for index in range(number)})
    return _searched(way, cell, number, seed)


def _searched(way: str, cell: RecordedCell, number: int, seed: int) -> list[int]:
    low, high = three_digits(cell.rates[0]), three_digits(cell.rates[-1])
    search = Search(sampler=way, low=low, high=high, rates=100, seed=seed)  # type: ignore[arg-type]
    tried: list[int] = []
    while len(tried) < number:
        observed = [cell.observation(index) for index in tried]
        size = min(number - len(tried), AT_ONCE if len(tried) >= NUM_FIRST else NUM_FIRST - len(tried))
        for rate in next_rates(search, cell.labels, observed, size, maximise=True):
            tried.append(cell.nearest(rate, tried))
    return tried


def replay(cells: Sequence[RecordedCell], choose: Callable[[RecordedCell], Sequence[int]]) -> tuple[float, float]:
    """Return the mean regret of test accuracy, in points, and the share of pairs of variants in the wrong order."""
    full = {cell.labels: cell.answer(range(len(cell.rates))) for cell in cells}
    cells = [cell for cell in cells if full[cell.labels] is not None]
    truth = {cell.labels: cell.test[full[cell.labels]] for cell in cells}
    found = {}
    for cell in cells:
        answer = cell.answer(choose(cell))
        found[cell.labels] = math.nan if answer is None else cell.test[answer]
    regrets = [truth[labels] - (0.0 if math.isnan(value) else value) for labels, value in found.items()]
    pairs = [
        (a, b)
        for a, b in itertools.combinations(truth, 2)
        if a[:2] == b[:2] and truth[a] != truth[b]  # of one task and model
    ]
    wrong = [not (found[a] - found[b]) * (truth[a] - truth[b]) > 0 for a, b in pairs]
    return 100 * float(np.mean(regrets)), float(np.mean(wrong)) if wrong else math.nan


def main() -> None:
    """Print a table per grid."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("files", type=Path, nargs="+")
    options.add_argument("--replays", type=int, default=200)
    options.add_argument("--rates", type=int, nargs="*", help="budgets; default: 2 to the whole grid")
    chosen = options.parse_args()
    for path in chosen.files:
        cells = read_cells(path)
        num_rates = max(len(cell.rates) for cell in cells)
        print(f"{path}: {len(cells)} cells of up to {num_rates} learning rates, {chosen.replays} replays")
        print("way            rates  run-steps  regret, points (SEM)  wrong orders")
        for number in chosen.rates or range(2, num_rates + 1):
            for way in WAYS:
                if way in ("tpe", "gp") and number <= NUM_FIRST:  # no rate is chosen by values yet
                    continue
                print(_line(way, cells, number, chosen.replays), flush=True)


def _line(way: str, cells: Sequence[RecordedCell], number: int, replays: int) -> str:
    def choose(cell: RecordedCell, seed: int) -> list[int]:
        return tried_by(way, cell, min(number, len(cell.rates)), seed)

    found = np.array([replay(cells, lambda cell, seed=seed: choose(cell, seed)) for seed in range(replays)])
    regret, sem = found[:, 0].mean(), found[:, 0].std(ddof=1) / math.sqrt(replays)
    share = sum(min(number, len(cell.rates)) for cell in cells) / sum(len(cell.rates) for cell in cells)
    return f"{way:14} {number:5}  {share:9.0%}  {regret:9.2f} ({sem:.2f})  {found[:, 1].mean():18.1%}"


if __name__ == "__main__":
    main()
