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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from lr_sweep.analysis.record.read import read_wanted, recorded_studies
from lr_sweep.analysis.statistics.rates.further_rates import three_digits
from lr_sweep.analysis.statistics.rates.refinement import ROUND_SIZE, refined_rates
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.benchmarks.recorded_cells import (
    RecordedCell,
    Replay,
    read_cells,
    read_record,
    report_runs,
)
from lr_sweep.benchmarks.shared import percent, print_table
from lr_sweep.sweep.search.samplers import next_points
from lr_sweep.sweep.study.search import NUM_FIRST, Point, Search
from lr_sweep.sweep.study.settings import StopEarly

WAYS = ("grid subset", "random", "quasi-random", "tpe", "gp", "refine")
RULES: dict[str, StopEarly | None] = {"-": None, "median": StopEarly()}
NUM_WINNERS = (1, 2, 3)
AT_ONCE = 2
"""Rates of a round of `tpe` and `gp`."""
LEAST_GRID = 3
"""Rates of the coarse grid that `refine` begins with."""
FIRST_RATES = {"tpe": NUM_FIRST, "gp": NUM_FIRST, "refine": LEAST_GRID}
"""Rates of each way that are chosen without values."""


def replayed(way: str, cell: RecordedCell, number: int, seed: int) -> Replay:
    """Train as many rates of a cell as a way has; all of them, if the grid has fewer."""
    replay, number = Replay(cell, None), min(number, len(cell.rates))
    if way == "grid subset":
        replay.train(_subset(cell, number, seed))
    elif way == "refine":
        _refine(replay, number, seed)
    else:
        _search(replay, way, number, seed)
    return replay


def _subset(cell: RecordedCell, number: int, seed: int) -> list[int]:
    """Return evenly spaced rates, with an offset drawn per study."""
    offset = float(np.random.default_rng(seed).random())
    return sorted({int((index + offset) * len(cell.rates) / number) for index in range(number)})


def _refine(replay: Replay, number: int, seed: int) -> None:
    replay.train(_subset(replay.cell, min(number, max(LEAST_GRID, number // 2)), seed))
    while (left := number - len(replay.tried)) > 0:
        observed = [replay.observation(index) for index in replay.tried]
        _train_nearest(replay, refined_rates(observed, min(ROUND_SIZE, left), maximise=True), left)


def _search(replay: Replay, way: str, number: int, seed: int) -> None:
    low, high = three_digits(replay.cell.rates[0]), three_digits(replay.cell.rates[-1])
    search = Search(sampler=way, low=low, high=high, rates=100)  # type: ignore[arg-type]
    while (left := number - len(tried := replay.tried)) > 0:
        observed = [(Point(each.learning_rate), each) for each in map(replay.observation, tried)]
        size = left
        if way in ("tpe", "gp"):
            size = min(left, AT_ONCE if len(tried) >= NUM_FIRST else NUM_FIRST - len(tried))
        points = next_points(search, replay.cell.labels, observed, size, maximise=True, seed=seed)
        _train_nearest(replay, [point.learning_rate for point in points], left)


def _train_nearest(replay: Replay, rates: Sequence[float], left: int) -> None:
    """Train the rates of the grid that are nearest to those proposed; if none is proposed, the nearest to the first."""
    chosen: list[int] = []
    for rate in list(rates)[:left] or [float(replay.cell.rates[0])]:
        chosen.append(replay.cell.nearest(rate, [*replay.tried, *chosen]))
    replay.train(chosen)


def scores(
    cells: Sequence[RecordedCell], answers: dict[tuple[str, str, str], int | None]
) -> tuple[float, float]:
    """Return the mean regret of test accuracy, in points, and the share of pairs of variants in the wrong order."""
    truth, reached = {}, {}
    for cell in cells:
        best = cell.answer(range(len(cell.rates)))
        if best is None:
            continue
        chosen = answers[cell.labels]
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
    by_seed: dict[int, list[RecordedCell]]
    """The same cells, of one seed each; those of a report have no test values."""

    @property
    def rules(self) -> dict[str, StopEarly | None]:
        """Rules that can stop runs: only those of curves."""
        return RULES if self.cells[0].curves is not None else {"-": None}


def read_table(path: Path) -> Grid:
    """Read a report's `runs.csv`."""
    runs, cells = report_runs(path), read_cells(path)
    by_seed = {}
    for seed, rows in runs.groupby("seed"):
        values = rows.set_index([*CELL, "learning_rate"])["validation"]
        by_seed[int(str(seed))] = [_of_seed(cell, values) for cell in cells]
    return Grid(path.parent.name, cells, by_seed)


def _of_seed(cell: RecordedCell, values: pd.Series) -> RecordedCell:
    validation = np.array([values.loc[(*cell.labels, rate)] for rate in cell.rates], float)
    return RecordedCell(cell.labels, cell.rates, validation, np.full_like(validation, np.nan))


def read_grid(results: Path, study: str) -> Grid:
    """Read a study's record."""
    seeds = sorted(read_wanted(results, study)["seed"].unique())
    by_seed = {int(seed): read_record(results, study, seed) for seed in seeds}
    return Grid(study, read_record(results, study), by_seed)


Scores = tuple[float, float, float]
"""Share of the grid's steps, regret in points, share of wrong orders."""


def stopped(cells: Sequence[RecordedCell], rule: StopEarly) -> Scores:
    """Train the complete grid, all rates of a cell started together, under a rule."""
    made = {cell.labels: Replay(cell, rule) for cell in cells}
    for replay in made.values():
        replay.train(range(len(replay.cell.rates)))
    share = sum(replay.run_steps for replay in made.values()) / _num_steps(cells)
    return share, *scores(cells, {labels: replay.answer for labels, replay in made.items()})


def winners(grid: Grid, number: int, rule: StopEarly | None = None) -> Scores:
    """Give all seeds to this number of the best rates of the first seed; means over the first seeds."""
    measured = []
    for of_seed in grid.by_seed.values():
        pairs = zip(grid.cells, of_seed, strict=True)
        made = {cell.labels: with_winners(cell, first, number, rule) for cell, first in pairs}
        share = sum(run_steps for _, run_steps in made.values()) / _num_steps(grid.cells)
        answers = {labels: answer for labels, (answer, _) in made.items()}
        measured.append((share, *scores(grid.cells, answers)))
    share, regret, wrong = map(float, np.mean(measured, axis=0))
    return share, regret, wrong


def with_winners(
    cell: RecordedCell, of_seed: RecordedCell, number: int, rule: StopEarly | None
) -> tuple[int | None, float]:
    """Try all rates of a cell with one seed, and the best that are left with all: the chosen rate, and the steps."""
    first, all_rates = Replay(of_seed, rule), range(len(cell.rates))
    first.train(all_rates)
    best = of_seed.best([index for index in all_rates if index not in first.stopped], number)
    share_of_others = (cell.num_seeds - 1) / cell.num_seeds
    further = share_of_others * sum(cell.run_steps(index) for index in best)
    return cell.answer(best), first.run_steps + further


def fewer_rates(cells: Sequence[RecordedCell], way: str, number: int, replays: int) -> Scores:
    """Choose this number of rates of every cell in some way; means over replays."""
    measured = []
    for seed in range(replays):
        made = {cell.labels: replayed(way, cell, number, seed) for cell in cells}
        share = sum(replay.run_steps for replay in made.values()) / _num_steps(cells)
        answers = {labels: replay.answer for labels, replay in made.items()}
        measured.append((share, *scores(cells, answers)))
    share, regret, wrong = map(float, np.mean(measured, axis=0))
    return share, regret, wrong


def _num_steps(cells: Sequence[RecordedCell]) -> float:
    return sum(cell.num_steps for cell in cells)


def rows(grid: Grid, numbers: Sequence[int], replays: int) -> Iterator[list[str]]:
    """Yield a row a way to train fewer runs."""
    yield ["way", "run-steps, %", "regret, points", "wrong orders, %"]
    for name, rule in grid.rules.items():
        if rule:
            yield [f"`{name}`", *_texts(stopped(grid.cells, rule))]
        for number in NUM_WINNERS:
            yield [f"winners: {number}, `{name}`", *_texts(winners(grid, number, rule))]
    for way, number in itertools.product(WAYS, numbers):
        if number > FIRST_RATES.get(way, 0):  # with fewer, no rate is chosen by values
            yield [f"{way}, {number} rates", *_texts(fewer_rates(grid.cells, way, number, replays))]


def _texts(measured: Scores) -> list[str]:
    share, regret, wrong = measured
    return [f"{100 * share:.0f}", f"{regret:.2f}", percent(wrong)]


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
    parser.add_argument("--rates", type=int, nargs="*", help="default: 2 to the complete grid")
    given = parser.parse_args()
    for grid in grids(given.sources):
        num_rates = max(len(cell.rates) for cell in grid.cells)
        print(
            f"\n{grid.name}: {len(grid.cells)} cells of {num_rates} rates and {len(grid.by_seed)} seeds"
        )
        numbers = given.rates if given.rates is not None else range(2, num_rates + 1)
        print_table(rows(grid, numbers, given.replays))


if __name__ == "__main__":
    main()
