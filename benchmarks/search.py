"""Replays the grids of reports with fewer runs; trains nothing: `python -m benchmarks.search docs/results/*/runs.csv`.

A row has a grid in which only the best rates of the first seed, the winners, get the other seeds; each seed is the
first one in turn. Then come ways to choose fewer rates. Every way chooses among the grid's own rates: a proposal counts
as the nearest rate of the grid that was not tried yet. The regret is the difference of test means to the complete
grid's choice, in points.
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
from lr_sweep.analysis.statistics.selection.best import CELL, MEAN_DIGITS, Floats, each_cell
from lr_sweep.analysis.statistics.selection.summary import per_learning_rate
from lr_sweep.benchmarks.shared import parser_of, percent, print_table
from lr_sweep.benchmarks.simulated_studies import report_runs
from lr_sweep.sweep.search.samplers import next_points
from lr_sweep.sweep.study.search import NUM_FIRST, Point, Search

NUM_WINNERS = 3
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
    num_seeds: int = 1

    def best(self, tried: Sequence[int], number: int) -> list[int]:
        """Return the indices of the best tried rates, of equal ones the smaller first; fewer where none has a value."""
        means = {index: round(self.validation[index], MEAN_DIGITS) for index in tried}
        known = sorted(index for index in tried if not math.isnan(means[index]))
        return sorted(known, key=lambda index: -means[index])[:number]

    def answer(self, tried: Sequence[int]) -> int | None:
        """Return the index of the best tried rate; None: none has a value."""
        return next(iter(self.best(tried, 1)), None)

    def num_runs(self, tried: Sequence[int]) -> int:
        """Return the number of runs at some rates."""
        return self.num_seeds * len(tried)

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


@dataclass(frozen=True)
class Grid:
    """A recorded grid."""

    name: str
    cells: list[RecordedCell]
    """Means over all seeds."""
    by_seed: list[list[RecordedCell]]
    """The same cells, of one seed each; those of a report have no test values."""


Trained = tuple[int | None, float]
"""The rate that is chosen of a cell, and the number of its runs that were trained."""
Scores = tuple[float, float, float]
"""Share of the grid's runs, regret in points, share of wrong orders."""


def mean_scores(cells: Sequence[RecordedCell], replays: Iterable[Sequence[Trained]]) -> Scores:
    """Return the means over replays, each of which trains a part of every cell."""
    num_runs = sum(cell.num_runs(cell.all_rates) for cell in cells)
    measured = []
    for trained in replays:
        chosen, num_trained = zip(*trained, strict=True)
        measured.append((sum(num_trained) / num_runs, *scores(cells, chosen)))
    share, regret, wrong = map(float, np.mean(measured, axis=0))
    return share, regret, wrong


def with_winners(cell: RecordedCell, of_seed: RecordedCell, number: int) -> Trained:
    """Train all rates of a cell with one seed, and the best with all seeds."""
    best = of_seed.best(of_seed.all_rates, number)
    num_others = (cell.num_seeds - 1) * len(best)
    return cell.answer(best), of_seed.num_runs(of_seed.all_rates) + num_others


def winners(grid: Grid, number: int) -> Scores:
    """Give all seeds to this number of the best rates of the first seed; means over the first seeds."""
    firsts = (zip(grid.cells, of_seed, strict=True) for of_seed in grid.by_seed)
    replays = ([with_winners(*pair, number) for pair in pairs] for pairs in firsts)
    return mean_scores(grid.cells, replays)


def fewer_rates(cells: Sequence[RecordedCell], way: str, number: int, replays: int) -> Scores:
    """Choose this number of rates of every cell in some way; means over replays."""

    def replay(seed: int) -> list[Trained]:
        tried = [tried_by(way, cell, number, seed) for cell in cells]
        pairs = zip(cells, tried, strict=True)
        return [(cell.answer(rates), cell.num_runs(rates)) for cell, rates in pairs]

    return mean_scores(cells, map(replay, range(replays)))


def rows(grid: Grid, replays: int) -> Iterator[list[str]]:
    """Yield a row a way to train fewer runs."""
    yield ["way", "runs, %", "regret, points", "wrong orders, %"]
    yield [f"{NUM_WINNERS} winners", *_texts(winners(grid, NUM_WINNERS))]
    num_rates = max(len(cell.rates) for cell in grid.cells)
    for way, first in FIRST_RATES.items():
        for number in range(max(2, first + 1), num_rates + 1):
            yield [f"{way}, {number} rates", *_texts(fewer_rates(grid.cells, way, number, replays))]


def _texts(measured: Scores) -> list[str]:
    share, regret, wrong = measured
    return [f"{100 * share:.0f}", f"{regret:.2f}", percent(wrong)]


def read_table(path: Path) -> Grid:
    """Read a report's `runs.csv`; a rate counts if every seed has a value there."""
    runs = report_runs(path)
    rates = per_learning_rate(runs)
    cells = [_cell(labels, rows) for labels, rows in each_cell(rates)]
    by_seed = [
        [_of_seed(cell, rows.set_index([*CELL, "learning_rate"])["validation"]) for cell in cells]
        for _, rows in runs.groupby("seed")
    ]
    return Grid(path.parent.name, cells, by_seed)


def _of_seed(cell: RecordedCell, values: pd.Series) -> RecordedCell:
    means = [values.get((*cell.labels, rate), math.nan) for rate in cell.rates]
    validation = np.array(means, float)
    return RecordedCell(cell.labels, cell.rates, validation, np.full_like(validation, np.nan))


def _cell(labels: tuple[str, str, str], rows: pd.DataFrame) -> RecordedCell:
    has_all = rows["num_values"].eq(rows["num_values"].max()) & rows["num_values"].gt(0)
    means = rows[["validation_mean", "test_mean"]].where(has_all).to_numpy(float)
    rates, num_seeds = rows["learning_rate"].to_numpy(float), int(rows["num_wanted"].max())
    return RecordedCell(labels, rates, *means.T, num_seeds)


def main() -> None:
    """Print a table a grid."""
    parser = parser_of(__doc__)
    parser.add_argument("tables", nargs="+", type=Path, help="the `runs.csv` of reports")
    parser.add_argument("--replays", type=int, default=40)
    given = parser.parse_args()
    for grid in map(read_table, given.tables):
        print(f"\n{grid.name}: {len(grid.cells)} cells, {len(grid.by_seed)} seeds")
        print_table(rows(grid, given.replays))


if __name__ == "__main__":
    main()
