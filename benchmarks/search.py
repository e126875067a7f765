"""Replays the grids of reports with fewer rates; trains nothing: `python -m benchmarks.search docs/results/*/runs.csv`.

Every way chooses among the grid's own rates: a proposal counts as the nearest rate of the grid that was not tried yet.
The regret is the difference of test means to the complete grid's choice, in points.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from lr_sweep.analysis.statistics.rates.further_rates import three_digits
from lr_sweep.analysis.statistics.rates.refinement import ROUND_SIZE, Observation, refined_rates
from lr_sweep.analysis.statistics.selection.best import MEAN_DIGITS, Floats, each_cell
from lr_sweep.analysis.statistics.selection.summary import per_learning_rate
from lr_sweep.benchmarks.shared import parser_of, percent, print_table
from lr_sweep.benchmarks.simulated_studies import report_runs
from lr_sweep.sweep.search.samplers import next_points
from lr_sweep.sweep.study.search import NUM_FIRST, Point, Search

AT_ONCE = 2
"""Rates of a round of `tpe` and `gp`."""
LEAST_GRID = 3
"""Rates of the coarse grid that `refine` begins with."""
FIRST_RATES = {
    "grid subset": 0,
    "random": 0,
    "quasi-random": 0,
    "tpe": NUM_FIRST,
    "gp": NUM_FIRST,
    "refine": LEAST_GRID,
}
"""Rates that are chosen without values, by the way of choosing."""


@dataclass(frozen=True)
class RecordedCell:
    """A cell of a full grid: means over seeds by learning rate, rising; NaN: no value."""

    labels: tuple[str, str, str]
    rates: Floats
    """(L,)."""
    validation: Floats
    """(L,), fractions."""
    test: Floats
    """(L,), fractions."""

    def answer(self, tried: Iterable[int]) -> int | None:
        """Return the index of the best tried rate, of equal ones the smallest; None: none has a value."""
        means = {index: round(self.validation[index], MEAN_DIGITS) for index in sorted(tried)}
        known = [index for index in means if not math.isnan(means[index])]
        return max(known, key=means.__getitem__, default=None)

    @property
    def all_rates(self) -> range:
        """Indices of the grid's rates."""
        return range(len(self.rates))


def tried_by(way: str, cell: RecordedCell, number: int, seed: int) -> list[int]:
    """Return as many rates of a cell as a way tries; all of them, if the grid has fewer."""
    number = min(number, len(cell.rates))
    if way == "grid subset":
        return _subset(cell, number, seed)
    return _refined(cell, number, seed) if way == "refine" else _searched(way, cell, number, seed)


def _subset(cell: RecordedCell, number: int, seed: int) -> list[int]:
    """Return evenly spaced rates, with an offset drawn per study."""
    offset = float(np.random.default_rng(seed).random())
    return sorted({int((index + offset) * len(cell.rates) / number) for index in range(number)})


def _refined(cell: RecordedCell, number: int, seed: int) -> list[int]:
    tried = _subset(cell, min(number, max(LEAST_GRID, number // 2)), seed)
    while (left := number - len(tried)) > 0:
        observed = [_observation(cell, index) for index in tried]
        rates = refined_rates(observed, min(ROUND_SIZE, left), maximise=True)
        tried = _with_nearest(cell, tried, rates[:left])
    return tried


def _searched(way: str, cell: RecordedCell, number: int, seed: int) -> list[int]:
    low, high = three_digits(cell.rates[0]), three_digits(cell.rates[-1])
    search = Search(sampler=way, low=low, high=high, rates=100)  # type: ignore[arg-type]
    tried: list[int] = []
    while (left := number - len(tried)) > 0:
        seen = [_observation(cell, index) for index in tried]
        observed = [(Point(observation.learning_rate), observation) for observation in seen]
        size = left
        if way in ("tpe", "gp"):
            size = min(left, AT_ONCE if len(tried) >= NUM_FIRST else NUM_FIRST - len(tried))
        points = next_points(search, cell.labels, observed, size, maximise=True, seed=seed)
        tried = _with_nearest(cell, tried, [point.learning_rate for point in points][:left])
    return tried


def _observation(cell: RecordedCell, index: int) -> Observation:
    """Return what a search observes at a rate that was trained."""
    value, rate = float(cell.validation[index]), float(cell.rates[index])
    if math.isnan(value):
        return Observation(rate, "diverged", None)
    return Observation(rate, "measured", value)


def _with_nearest(cell: RecordedCell, tried: list[int], rates: Sequence[float]) -> list[int]:
    """Add the rates of the grid that are nearest to those proposed; if none is proposed, the nearest to the first."""
    for rate in rates or [float(cell.rates[0])]:
        distances = np.abs(np.log(cell.rates / rate))
        distances[tried] = np.inf
        tried = [*tried, int(distances.argmin())]
    return tried


def scores(cells: Sequence[RecordedCell], answers: Sequence[int | None]) -> tuple[float, float]:
    """Return the mean regret of test accuracy, in points, and the share of pairs of variants in the wrong order."""
    truth, reached = {}, {}
    for cell, chosen in zip(cells, answers, strict=True):
        best = cell.answer(cell.all_rates)
        if best is not None:
            truth[cell.labels] = cell.test[best]
            reached[cell.labels] = math.nan if chosen is None else cell.test[chosen]
    regrets = [truth[labels] - np.nan_to_num(value) for labels, value in reached.items()]
    pairs = [
        (a, b)
        for a, b in itertools.combinations(truth, 2)
        if a[:2] == b[:2] and truth[a] != truth[b]  # variants of one task and model
    ]
    is_wrong = [not (reached[a] - reached[b]) * (truth[a] - truth[b]) > 0 for a, b in pairs]
    return 100 * float(np.mean(regrets)), float(np.mean(is_wrong)) if is_wrong else math.nan


Scores = tuple[float, float, float]
"""Share of the grid's rates, regret in points, share of wrong orders."""


def fewer_rates(cells: Sequence[RecordedCell], way: str, number: int, replays: int) -> Scores:
    """Choose this number of rates of every cell in some way; means over replays."""
    num_rates = sum(len(cell.rates) for cell in cells)
    measured = []
    for seed in range(replays):
        tried = [tried_by(way, cell, number, seed) for cell in cells]
        answers = [cell.answer(rates) for cell, rates in zip(cells, tried, strict=True)]
        measured.append((sum(map(len, tried)) / num_rates, *scores(cells, answers)))
    share, regret, wrong = map(float, np.mean(measured, axis=0))
    return share, regret, wrong


def rows(cells: Sequence[RecordedCell], replays: int) -> Iterator[list[str]]:
    """Yield a row a way and a number of rates."""
    yield ["way", "runs, %", "regret, points", "wrong orders, %"]
    num_rates = max(len(cell.rates) for cell in cells)
    for way, first in FIRST_RATES.items():
        for number in range(max(2, first + 1), num_rates + 1):
            share, regret, wrong = fewer_rates(cells, way, number, replays)
            yield [f"{way}, {number} rates", f"{100 * share:.0f}", f"{regret:.2f}", percent(wrong)]


def read_table(path: Path) -> list[RecordedCell]:
    """Read the cells of a report's `runs.csv`; a rate counts if every seed has a value there."""
    rates = per_learning_rate(report_runs(path))
    return [_cell(labels, rows) for labels, rows in each_cell(rates)]


def _cell(labels: tuple[str, str, str], rows: pd.DataFrame) -> RecordedCell:
    has_all = rows["num_values"].eq(rows["num_values"].max()) & rows["num_values"].gt(0)
    means = rows[["validation_mean", "test_mean"]].where(has_all).to_numpy(float)
    return RecordedCell(labels, rows["learning_rate"].to_numpy(float), *means.T)


def main() -> None:
    """Print a table a grid."""
    parser = parser_of(__doc__)
    parser.add_argument("tables", nargs="+", type=Path, help="the `runs.csv` of reports")
    parser.add_argument("--replays", type=int, default=40)
    given = parser.parse_args()
    for path in given.tables:
        cells = read_table(path)
        print(f"\n{path.parent.name}: {len(cells)} cells")
        print_table(rows(cells, given.replays))


if __name__ == "__main__":
    main()
