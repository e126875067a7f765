"""Replays recorded grids in which only the best rates by one seed get the other seeds; trains nothing.

    python -m benchmarks.winners RESULTS [STUDY...]          # a results directory: with early stopping, too
    python -m benchmarks.winners docs/results/lu2021-*/runs.csv  # reports, which have no curves

Each seed in turn is the first one, with which all rates are tried; a rule may stop some of these runs. The best that
are left get the other seeds, and the answer is among them. The regret is the difference of test means, over all seeds,
to the choice among all rates with all seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from lr_sweep.analysis.record.read import read_wanted, recorded_studies
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.benchmarks.recorded_cells import RecordedCell, Replay, read_cells, read_record
from lr_sweep.benchmarks.search import RULES, scores
from lr_sweep.sweep.study.settings import StopEarly

NUMBERS = (1, 2, 3)


@dataclass(frozen=True)
class Grid:
    """A recorded grid."""

    name: str
    cells: list[RecordedCell]
    """Means over all seeds."""
    by_seed: dict[int, list[RecordedCell]]
    """The same cells, of one seed each; those of a report have no test values."""

    @property
    def has_curves(self) -> bool:
        """Return whether a rule can stop runs."""
        return self.cells[0].curves is not None


def read_table(path: Path) -> Grid:
    """Read a report's `runs.csv`."""
    runs, cells = pd.read_csv(path), read_cells(path)
    by_seed = {}
    for seed, rows in runs.groupby("seed"):
        values = rows.set_index([*CELL, "learning_rate"])["validation_accuracy"]
        by_seed[int(str(seed))] = [_of_seed(cell, values) for cell in cells]
    return Grid(path.parent.name, cells, by_seed)


def _of_seed(cell: RecordedCell, values: pd.Series) -> RecordedCell:
    validation = np.array([values.loc[(*cell.labels, rate)] for rate in cell.rates], float)
    return RecordedCell(cell.labels, cell.rates, validation, np.full_like(validation, np.nan))


def read_grid(results: Path, study: str) -> Grid:
    """Read a study's record."""
    seeds = sorted(read_wanted(results, study)["seed"].unique())
    return Grid(
        study,
        read_record(results, study),
        {int(seed): read_record(results, study, seed) for seed in seeds},
    )


def replayed(
    cell: RecordedCell, of_seed: RecordedCell, seeds: int, number: int, rule: StopEarly | None
) -> Answer:
    """Try all rates of a cell with one seed, and the best that are left with all."""
    first, all_rates = Replay(of_seed, rule), range(len(cell.rates))
    first.train(all_rates)
    best = of_seed.best([index for index in all_rates if index not in first.stopped], number)
    if cell.curves is None:
        return Answer(
            cell.answer(best),
            first.run_steps + len(best) * (seeds - 1),
            float(len(cell.rates) * seeds),
        )
    further = sum(cell.curves.run_steps[index, -1] for index in best) * (seeds - 1) / seeds
    return Answer(cell.answer(best), first.run_steps + float(further), cell.whole_cost[0])


@dataclass(frozen=True)
class Answer:
    """What a replay chooses in a cell, and what it takes."""

    index: int | None
    """Of the learning rate; None: no rate has a value."""
    run_steps: float
    of: float
    """The whole grid's run-steps."""


def rows(
    grid: Grid, rule: StopEarly | None = None
) -> Iterator[tuple[int, float, float, float, float]]:
    """Yield number of winners, share of the run-steps, regret (mean, and with the worst first seed), wrong orders."""
    for number in NUMBERS:
        found = []
        for of_seed in grid.by_seed.values():
            pairs = zip(grid.cells, of_seed, strict=True)
            made = {
                cell.labels: replayed(cell, one, len(grid.by_seed), number, rule)
                for cell, one in pairs
            }
            share = sum(each.run_steps for each in made.values()) / sum(
                each.of for each in made.values()
            )
            found.append(
                (share, *scores(grid.cells, {labels: each.index for labels, each in made.items()}))
            )
        share, regret, wrong = np.mean(found, axis=0)
        yield number, share, regret, max(regret for _, regret, _ in found), wrong


def grids(sources: Sequence[str]) -> Iterator[Grid]:
    """Read reports' tables, or the studies of a results directory."""
    if sources[0].endswith(".csv"):
        yield from map(read_table, map(Path, sources))
    else:
        results = Path(sources[0])
        yield from (read_grid(results, study) for study in sources[1:] or recorded_studies(results))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sources",
        nargs="+",
        help="`runs.csv` of reports; or a results directory, and studies in it",
    )
    print(
        "| grid | stopping | winners | of the run-steps | regret, points | worst first seed | wrong orders |"
    )
    print("|---|---|---|---|---|---|---|")
    for grid in grids(parser.parse_args().sources):
        name = f"`{grid.name}`, {len(grid.cells)} cells, {len(grid.by_seed)} seeds"
        for label, rule in RULES.items() if grid.has_curves else [("-", None)]:
            for number, share, regret, worst, wrong in rows(grid, rule):
                print(
                    f"| {name} | {label} | {number} | {share:.0%} | {regret:.2f} | {worst:.2f} | {wrong:.1%} |"
                )


if __name__ == "__main__":
    main()
