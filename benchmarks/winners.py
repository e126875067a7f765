"""Replays recorded grids in which only the best rates by one seed get the other seeds; trains nothing.

    python -m benchmarks.winners docs/results/*/runs.csv

Each seed in turn is the first one. The other rates are not chosen, whatever their means; the regret is the difference
of test means to the choice among all rates with all seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from lr_sweep.analysis.statistics.selection import CELL, MEAN_DIGITS
from lr_sweep.benchmarks.recorded_cells import RecordedCell, read_cells
from lr_sweep.benchmarks.search import scores

NUMBERS = (1, 2, 3)


def winners(values: Sequence[float], number: int) -> list[int]:
    """Return the indices of the best values, of equal ones the smaller rate's; those without a value are left out."""
    known = [index for index, value in enumerate(values) if not np.isnan(value)]
    return sorted(known, key=lambda index: (-round(values[index], MEAN_DIGITS), index))[:number]


def replayed(
    cells: Sequence[RecordedCell], runs: pd.DataFrame, first: int, number: int
) -> dict[tuple[str, str, str], int | None]:
    """Return each cell's choice among its winners.

    Args:
        cells: means over all seeds.
        runs: `runs.csv` of a report.
        first: the seed that all rates are tried with.
        number: of winners.
    """
    of_seed = runs[runs["seed"] == first].set_index([*CELL, "learning_rate"])["validation_accuracy"]
    return {
        cell.labels: cell.answer(winners([of_seed[(*cell.labels, rate)] for rate in cell.rates], number))
        for cell in cells
    }


def rows(path: Path) -> list[str]:
    """Return a table row for each number of winners."""
    runs, cells = pd.read_csv(path), read_cells(path.with_name("learning_rates.csv"))
    seeds, num_rates = sorted(runs["seed"].unique()), sum(len(cell.rates) for cell in cells)
    found = []
    for number in NUMBERS:
        share = (num_rates + number * len(cells) * (len(seeds) - 1)) / (num_rates * len(seeds))
        each = np.array([scores(cells, replayed(cells, runs, seed, number)) for seed in seeds])
        regret, wrong = each.mean(axis=0)
        name = f"`{path.parent.name}`, {len(cells)} cells, {len(seeds)} seeds"
        found.append(f"| {name} | {number} | {share:.0%} | {regret:.2f} | {each[:, 0].max():.2f} | {wrong:.1%} |")
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="`runs.csv` of a report, beside its `learning_rates.csv`")
    print("| grid | winners | of the run-steps | regret, points | with the worst first seed | wrong orders |")
    print("|---|---|---|---|---|---|")
    for path in parser.parse_args().runs:
        print("\n".join(rows(path)))


if __name__ == "__main__":
    main()
