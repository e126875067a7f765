"""Replays recorded grids with fewer runs; trains nothing.

    python -m benchmarks.search RESULTS [STUDY...]          # a results directory: with early stopping, too
    python -m benchmarks.search docs/results/*/runs.csv     # reports, which have no curves

The table has the complete grid with early stopping, and grids in which only the best rates of the first
seed, the winners, get the other seeds; each seed is the first one in turn. Then come ways to choose fewer
rates. Every way chooses among the grid's own rates: a proposal counts as the nearest rate of the grid
that was not tried yet. The regret is the difference of test means to the complete grid's choice, in points.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from lr_sweep.analysis.record.read import (
    read_curves,
    read_runs,
    read_study,
    read_wanted,
    recorded_studies,
)
from lr_sweep.analysis.statistics.rates.further_rates import kept_rates, three_digits
from lr_sweep.analysis.statistics.rates.refinement import ROUND_SIZE, Observation, refined_rates
from lr_sweep.analysis.statistics.selection.best import CELL, MEAN_DIGITS, Floats
from lr_sweep.analysis.statistics.selection.summary import per_learning_rate, summarise
from lr_sweep.benchmarks.shared import percent, print_table
from lr_sweep.benchmarks.simulated_studies import report_runs
from lr_sweep.sweep.search.samplers import next_points
from lr_sweep.sweep.study.search import NUM_FIRST, Point, Search
from lr_sweep.sweep.study.settings import rungs

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
class Curves:
    """Means over the seeds of a cell, by learning rate and evaluation."""

    steps: np.ndarray
    """(E,), int64."""
    best: Floats
    """(L, E), the best validation accuracy so far; NaN: no seed is there."""
    running: Floats
    """(L, E), the running mean of validation accuracies."""
    run_steps: Floats
    """(L, E), gradient steps of all seeds up to there."""


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
    curves: Curves | None = None
    """None: a report's table, which has no curves."""
    num_seeds: int = 1

    def best(self, tried: Sequence[int], number: int) -> list[int]:
        """Return the indices of the best tried rates, of equal ones the smaller first; fewer where none has a value."""
        means = {index: round(self.validation[index], MEAN_DIGITS) for index in tried}
        known = sorted(index for index in tried if not math.isnan(means[index]))
        return sorted(known, key=lambda index: -means[index])[:number]

    def answer(self, tried: Sequence[int]) -> int | None:
        """Return the index of the best tried rate; None: none has a value."""
        return next(iter(self.best(tried, 1)), None)

    def run_steps(self, tried: Sequence[int]) -> float:
        """Return the steps of all runs at some rates; without curves a run counts 1."""
        if self.curves is None:
            return self.num_seeds * len(tried)
        return float(self.curves.run_steps[list(tried), -1].sum())

    @property
    def all_rates(self) -> range:
        """Indices of the grid's rates."""
        return range(len(self.rates))


def under_median(cell: RecordedCell) -> tuple[list[int], float]:
    """Train all rates of a cell together under `stop_early: median`; return those left, and the steps of all runs."""
    curves = cell.curves
    assert curves is not None, "rungs need curves"
    behind, steps = set[int](), 0.0
    for step in rungs(int(curves.steps[-1]), int(curves.steps[0])):
        at = int(np.searchsorted(curves.steps, step))
        left = [index for index in cell.all_rates if index not in behind]
        there = [index for index in left if not math.isnan(curves.best[index, at])]
        best, running = (
            {float(index): float(values[index, at]) for index in there}
            for values in (curves.best, curves.running)
        )
        kept = kept_rates(best, running) if best else set()
        stopped_here = [index for index in there if index not in kept]
        behind.update(stopped_here)
        steps += float(curves.run_steps[stopped_here, at].sum())
    left = [index for index in cell.all_rates if index not in behind]
    return left, steps + cell.run_steps(left)


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
        observed = [(Point(each.learning_rate), each) for each in seen]
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
"""The rate that is chosen of a cell, and the steps of all its runs that were trained."""
Scores = tuple[float, float, float]
"""Share of the grid's steps, regret in points, share of wrong orders."""


def mean_scores(cells: Sequence[RecordedCell], replays: Iterable[Sequence[Trained]]) -> Scores:
    """Return the means over replays, each of which trains a part of every cell."""
    num_steps = sum(cell.run_steps(cell.all_rates) for cell in cells)
    measured = []
    for trained in replays:
        chosen, run_steps = zip(*trained, strict=True)
        measured.append((sum(run_steps) / num_steps, *scores(cells, chosen)))
    share, regret, wrong = map(float, np.mean(measured, axis=0))
    return share, regret, wrong


def stopped(cell: RecordedCell) -> Trained:
    """Train the complete grid of a cell, all rates started together, under `stop_early: median`."""
    left, run_steps = under_median(cell)
    return cell.answer(left), run_steps


def with_winners(cell: RecordedCell, of_seed: RecordedCell, number: int, *, stops: bool) -> Trained:
    """Train all rates of a cell with one seed, and the best that are left with all seeds."""
    left, run_steps = [*of_seed.all_rates], of_seed.run_steps(of_seed.all_rates)
    if stops:
        left, run_steps = under_median(of_seed)
    best = of_seed.best(left, number)
    share_of_others = (cell.num_seeds - 1) / cell.num_seeds
    return cell.answer(best), run_steps + share_of_others * cell.run_steps(best)


def winners(grid: Grid, number: int, *, stops: bool = False) -> Scores:
    """Give all seeds to this number of the best rates of the first seed; means over the first seeds."""
    firsts = (zip(grid.cells, of_seed, strict=True) for of_seed in grid.by_seed)
    replays = ([with_winners(*pair, number, stops=stops) for pair in pairs] for pairs in firsts)
    return mean_scores(grid.cells, replays)


def fewer_rates(cells: Sequence[RecordedCell], way: str, number: int, replays: int) -> Scores:
    """Choose this number of rates of every cell in some way; means over replays."""
    tried = (
        [(cell, tried_by(way, cell, number, seed)) for cell in cells] for seed in range(replays)
    )
    trained = (
        [(cell.answer(rates), cell.run_steps(rates)) for cell, rates in one] for one in tried
    )
    return mean_scores(cells, trained)


def rows(grid: Grid, replays: int) -> Iterator[list[str]]:
    """Yield a row a way to train fewer runs."""
    yield ["way", "run-steps, %", "regret, points", "wrong orders, %"]
    yield [f"{NUM_WINNERS} winners", *_texts(winners(grid, NUM_WINNERS))]
    if grid.cells[0].curves:
        trained = [stopped(cell) for cell in grid.cells]
        yield ["`median`", *_texts(mean_scores(grid.cells, [trained]))]
        yield [f"`median`, {NUM_WINNERS} winners", *_texts(winners(grid, NUM_WINNERS, stops=True))]
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
    cells = [_cell(labels, rows) for labels, rows in rates.groupby(CELL, sort=False)]
    by_seed = [
        [_of_seed(cell, rows.set_index([*CELL, "learning_rate"])["validation"]) for cell in cells]
        for _, rows in runs.groupby("seed")
    ]
    return Grid(path.parent.name, cells, by_seed)


def _of_seed(cell: RecordedCell, values: pd.Series) -> RecordedCell:
    means = [values.get((*cell.labels, rate), math.nan) for rate in cell.rates]
    validation = np.array(means, float)
    return RecordedCell(cell.labels, cell.rates, validation, np.full_like(validation, np.nan))


def read_grid(results: Path, study: str) -> Grid:
    """Read a study's record; cells with runs that are not recorded are left out."""
    wanted = read_wanted(results, study)
    by_seed = [_recorded(results, study, rows) for _, rows in wanted.groupby("seed")]
    return Grid(study, _recorded(results, study, wanted), by_seed)


def _recorded(results: Path, study: str, wanted: pd.DataFrame) -> list[RecordedCell]:
    runs, points = read_runs(results, wanted["run_id"]), read_curves(results, wanted["run_id"])
    summary = summarise(wanted, runs, points, read_study(results, study).metric)
    points = wanted.merge(points.drop(columns=["num_steps"], errors="ignore"), on="run_id")
    return [
        _cell(labels, rows, _curves(points[(points[CELL] == list(labels)).all(axis=1)]))
        for labels, rows in summary.learning_rates.groupby(CELL, sort=False)
        if rows["missing"].sum() + rows["failed"].sum() == 0
    ]


def _cell(labels: object, rows: pd.DataFrame, curves: Curves | None = None) -> RecordedCell:
    rows = rows.sort_values("learning_rate")
    whole = rows["num_values"].eq(rows["num_values"].max()) & rows["num_values"].gt(0)
    validation, test = (
        rows[name].where(whole).to_numpy(float) for name in ("validation_mean", "test_mean")
    )
    assert isinstance(labels, tuple), "a cell has three labels"
    task, model, variant = map(str, labels)
    rates, seeds = rows["learning_rate"].to_numpy(float), int(rows["num_wanted"].max())
    return RecordedCell((task, model, variant), rates, validation, test, curves, seeds)


def _curves(points: pd.DataFrame) -> Curves:
    points = points[points["step"] <= points["num_steps"]].sort_values(["run_id", "step"])
    by_run = points.groupby("run_id")["validation"]
    running = by_run.transform(lambda values: values.expanding().mean())
    points = points.assign(best=by_run.cummax(), running=running)
    steps = np.array(sorted(points["step"].unique()))
    by_step = points.groupby(["learning_rate", "step"])
    means = by_step[["best", "running"]].mean().unstack()
    num_runs = by_step.size().unstack().fillna(0)
    return Curves(
        steps=steps,
        best=means["best"].to_numpy(float),
        running=means["running"].to_numpy(float),
        run_steps=num_runs.mul(np.diff(steps, prepend=0), axis=1).cumsum(axis=1).to_numpy(float),
    )


def grids(sources: Sequence[str]) -> Iterator[Grid]:
    """Read reports' tables, or the studies of a results directory."""
    if sources[0].endswith(".csv"):
        yield from map(read_table, map(Path, sources))
    else:
        results = Path(sources[0])
        yield from (read_grid(results, study) for study in sources[1:] or recorded_studies(results))


def main() -> None:
    """Print a table a grid."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sources", nargs="+", help="tables; or a results directory, and its studies"
    )
    parser.add_argument("--replays", type=int, default=40)
    given = parser.parse_args()
    for grid in grids(given.sources):
        print(f"\n{grid.name}: {len(grid.cells)} cells, {len(grid.by_seed)} seeds")
        print_table(rows(grid, given.replays))


if __name__ == "__main__":
    main()
