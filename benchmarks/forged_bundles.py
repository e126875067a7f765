"""How often `challenge` finds forged bundles, and rejects honest ones.

    python -m benchmarks.forged_bundles --forged 20 --honest 30

The study has 60 runs of a function that takes milliseconds. Forgers make the report and the list of files again, so
that these follow from the forged runs. Reports are made without figures, which take most of the time to draw.
`chance` is what the command's sentence says, and `of draws` the share of 2,000 draws that have an altered run.
"""

from __future__ import annotations

import math
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import torch

from lr_sweep.analysis.record.columns import CURVES, RUNS, Columns
from lr_sweep.analysis.record.read import read_rows
from lr_sweep.analysis.study_summary import read_summary
from lr_sweep.benchmarks.shared import options, print_table
from lr_sweep.common.files import Fields
from lr_sweep.sweep.claims.bundle import RECORD, REPORT, RULE
from lr_sweep.sweep.claims.listing import LIST
from lr_sweep.sweep.claims.retraining import Stratum, chance, deciding_runs, drawn, strata
from lr_sweep.tests.support.claims import (
    BODY,
    SecondTraining,
    challenged,
    change_rows,
    list_again,
    make_bundle,
    report_again,
)

NUM_RUNS = 5
NUM_DRAWS = 2000
SHARE = 0.2
"""Share of the runs of each stratum that a forger alters."""
RAISED = 0.03
"""Gain of a raised value; seeds have a standard deviation of 0.02."""
VALUES = ("validation", "test")
CHAOS = """
for _ in range(100):
    level = 3.9 * level * (1 - level) if level < 0.999 else 0.5
    level += 1e-9 * torch.get_num_threads()
level = best + 0.03 * level
for step in"""
"""Lets a difference of rounding between numbers of threads grow to the size of the seeds' noise."""


class Record(NamedTuple):
    """The rows of a bundle, which a forger changes, by the ids of runs."""

    runs: dict[str, list[Fields]]
    curves: dict[str, list[Fields]]


FILES: dict[str, Columns] = {"runs": RUNS, "curves": CURVES}
Forge = Callable[[Path, Sequence[str], random.Random], None]
"""Changes a copy of a bundle; gets the runs that it may alter."""


def read(bundle: Path) -> Record:
    """Read the rows of a bundle."""
    rows = {
        stem: {
            path.stem: read_rows(path, columns) or [] for path in (bundle / RECORD / stem).iterdir()
        }
        for stem, columns in FILES.items()
    }
    return Record(**rows)


def write(bundle: Path, record: Record) -> None:
    """Write rows into a bundle, and make its report again."""
    for stem, columns in FILES.items():
        by_run = getattr(record, stem)
        change_rows(
            bundle,
            stem,
            columns,
            lambda rows, by_run=by_run: rows.__setitem__(slice(None), by_run[rows[0]["run_id"]]),
        )
    report_again(bundle)


def with_curve(record: Record, run_id: str, values: Sequence[Sequence[float]]) -> None:
    """Give a run other values, in its curve and in its row."""
    points = record.curves[run_id]
    for point, of_point in zip(points, values, strict=True):
        point |= dict(zip(VALUES, of_point, strict=True))
    best = max(points, key=lambda point: point[VALUES[0]])
    (row,) = record.runs[run_id]
    row |= {"best_step": best["step"], "validation_at_best": best[VALUES[0]]}
    row |= {"test_at_best": best[VALUES[1]]}


def values_of(record: Record, run_id: str) -> list[list[float]]:
    """Return validation and test values, evaluations x 2."""
    return [[point[name] for name in VALUES] for point in record.curves[run_id]]


def raise_values(bundle: Path, altered: Sequence[str], _: random.Random) -> None:
    """Add to all values of some runs."""
    record = read(bundle)
    for run_id in altered:
        raised = [[value + RAISED for value in point] for point in values_of(record, run_id)]
        with_curve(record, run_id, raised)
    write(bundle, record)


def swap_runs(better: Record, bundle: Path, altered: Sequence[str], _: random.Random) -> None:
    """Give runs the curve of the best of five unpublished seeds."""
    record = read(bundle)
    for run_id in altered:
        (row,) = record.runs[run_id]
        same = [
            other["run_id"]
            for (other,) in better.runs.values()
            if all(other[name] == row[name] for name in ("variant", "learning_rate"))
        ]
        curves = [values_of(better, other) for other in same]
        with_curve(record, run_id, max(curves, key=lambda curve: curve[-1][1]))
    write(bundle, record)


def smooth_curves(bundle: Path, altered: Sequence[str], _: random.Random) -> None:
    """Replace each value by the mean of it and of the values before."""
    record = read(bundle)
    for run_id in altered:
        before = values_of(record, run_id)
        means = [
            [sum(column) / len(column) for column in zip(*before[: index + 1], strict=True)]
            for index in range(len(before))
        ]
        with_curve(record, run_id, means)
    write(bundle, record)


def leave_out(bundle: Path, _: Sequence[str], generator: random.Random) -> None:
    """Leave out all runs of a variant at one rate."""
    runs = [row for (row,) in read(bundle).runs.values()]
    left = generator.choice(runs)
    for run in runs:
        if all(run[name] == left[name] for name in ("variant", "learning_rate")):
            for stem in FILES:
                (bundle / RECORD / stem / f"{run['run_id']}.parquet").unlink()


def change_reports(bundle: Path, pattern: str, new: Callable[[re.Match[str]], str]) -> None:
    """Change the texts of a report."""
    for path in (bundle / REPORT).iterdir():
        path.write_text(re.sub(pattern, new, path.read_text()))


def swap_names(bundle: Path, _: Sequence[str], __: random.Random) -> None:
    """Call `a` `b` in the report, and the other way round."""
    other = {"a": "b", "b": "a"}
    change_reports(bundle, r"(?<=,)[ab](?=,)", lambda name: other[name[0]])


def change_code(bundle: Path, _: Sequence[str], generator: random.Random) -> None:
    """Change a number of the training function."""
    path = bundle / RULE / "mine" / "train.py"
    path.write_text(path.read_text().replace("0.02", f"0.02{generator.randrange(1, 9)}"))


def change_report(bundle: Path, _: Sequence[str], generator: random.Random) -> None:
    """Change a mean in the report alone."""
    path = bundle / "report" / "cells.csv"
    path.write_text(
        re.sub(r"0\.\d\d", f"0.{generator.randrange(10, 100)}", path.read_text(), count=1)
    )


def change_direction(bundle: Path, _: Sequence[str], __: random.Random) -> None:
    """Say in the report that lower values are better."""
    change_reports(bundle, r"True(?=,True\n)", lambda _: "False")


def change_a_listed_file(bundle: Path, altered: Sequence[str], generator: random.Random) -> None:
    """Raise values, and keep the list."""
    kept = (bundle / LIST).read_bytes()
    raise_values(bundle, altered, generator)
    (bundle / LIST).write_bytes(kept)


def parts_of(bundle: Path) -> list[Stratum]:
    """Return the strata of a bundle's runs."""
    summary = read_summary(bundle.parent / "results", "mine").summary
    return strata(deciding_runs(summary)["run_id"], summary.runs["run_id"], NUM_RUNS)


def holds(bundle: Path, second: SecondTraining, seed: int) -> bool:
    """Challenge a bundle."""
    return challenged(bundle, second, num_runs=NUM_RUNS, seed=seed)[0]


def forged(
    name: str, forge: Forge, bundle: Path, second: SecondTraining, number: int, is_listed: bool
) -> list[object]:
    """Forge a bundle some times, and return a row of the table."""
    num_found, shares, chances = 0, [], []
    parts = parts_of(bundle)
    for index in range(number):
        generator = random.Random(index)
        altered = [
            run_id
            for run_ids, _ in parts
            for run_id in generator.sample(run_ids, round(SHARE * len(run_ids)))
        ]
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(shutil.copytree(bundle, Path(folder) / "bundle"))
            forge(copy, altered, generator)
            if not is_listed:
                list_again(copy)
            num_found += not holds(copy, second, seed=index)
            if name in DRAWN:
                draws = [drawn(parts, seed) for seed in range(NUM_DRAWS)]
                shares.append(sum(not set(altered).isdisjoint(draw) for draw in draws) / NUM_DRAWS)
                chances.append(chance(parts))
    means = [f"{sum(each) / len(each):.0%}" if each else "always" for each in (shares, chances)]
    return [name, number, num_found, *means]


DRAWN = ("values raised", "runs of better seeds", "curves smoothed")
"""Forgeries that only a training finds."""


def honest(folder: Path, number: int) -> Iterator[list[object]]:
    """Challenge honest bundles, and yield rows of the table."""
    rejected = 0
    for index in range(number):
        place, seeds = folder / f"honest-{index}", list(range(100 * index, 100 * index + 5))
        bundle = make_bundle(place, seeds=str(seeds))
        rejected += not holds(bundle, SecondTraining(place), index)
    yield ["honest", number, rejected, "–", "–"]
    rejected = 0
    for index in range(num_others := number * 2 // 3):
        place, seeds = folder / f"others-{index}", list(range(100 * index, 100 * index + 5))
        torch.set_num_threads(2)
        bundle = make_bundle(
            place, BODY.replace("for step in", CHAOS.lstrip("\n"), 1), seeds=str(seeds)
        )
        torch.set_num_threads(1)
        change_rows(bundle, "runs", RUNS, lambda rows: rows[0].update(device="cpu (another)"))
        report_again(bundle)
        rejected += not holds(bundle, SecondTraining(place), index)
    yield ["honest, made on another CPU with two threads", num_others, rejected, "–", "–"]


def rows(folder: Path, num_forged: int, num_honest: int) -> Iterator[list[object]]:
    """Yield the rows of the table."""
    yield ["bundles", "number", "found or rejected", "of draws", "chance"]
    bundle, second = make_bundle(folder / "bundle"), SecondTraining(folder)
    better = read(make_bundle(folder / "better", seeds="[5, 6, 7, 8, 9]"))
    few = math.ceil(num_forged / 3)
    for name, forge, number in (
        (DRAWN[0], raise_values, num_forged),
        (DRAWN[1], partial(swap_runs, better), num_forged),
        (DRAWN[2], smooth_curves, num_forged),
        ("the runs of a rate left out", leave_out, few),
        ("names of variants swapped", swap_names, few),
        ("another direction of the metric", change_direction, few),
        ("a changed code file", change_code, few),
        ("a changed report", change_report, few),
    ):
        yield forged(name, forge, bundle, second, number, is_listed=False)
    name = "a file changed, and not the list"
    yield forged(name, change_a_listed_file, bundle, second, few, is_listed=True)
    yield from honest(folder, num_honest)


def main() -> None:
    """Print the table."""
    chosen = options(__doc__, forged=20, honest=30)
    torch.set_num_threads(1)
    drawing = "lr_sweep.analysis.study_report"
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch(f"{drawing}.sweep_figures", return_value=[]),
        mock.patch(f"{drawing}.curve_figures", return_value=[]),
    ):
        print_table(rows(Path(folder), chosen.forged, chosen.honest))


if __name__ == "__main__":
    main()
