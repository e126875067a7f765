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

from lr_sweep.analysis.record.columns import CURVES, RUNS, WANTED, Columns, table
from lr_sweep.analysis.record.parquet import parquet_bytes
from lr_sweep.analysis.record.read import read_rows
from lr_sweep.analysis.study_summary import read_summary
from lr_sweep.benchmarks.shared import options, print_table
from lr_sweep.common.files import Fields
from lr_sweep.common.scratch import scratch_folder
from lr_sweep.sweep.claims.bundle import RECORD, RULE, report_files, unpacked
from lr_sweep.sweep.claims.challenge import Request, challenge
from lr_sweep.sweep.claims.draw import Stratum, chance, deciding_runs, drawn, strata
from lr_sweep.sweep.claims.listing import LIST, write_files, write_list
from lr_sweep.tests.support.claims import BODY, SecondTraining, make_bundle

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
    """The rows of a bundle, which a forger changes."""

    runs: list[Fields]
    curves: list[Fields]
    wanted: list[Fields]

    def curve(self, run_id: str) -> list[Fields]:
        """Return the evaluations of a run."""
        return [row for row in self.curves if row["run_id"] == run_id]


FILES: dict[str, tuple[str, Columns]] = {
    "runs": ("runs-1.parquet", RUNS),
    "curves": ("curves-1.parquet", CURVES),
    "wanted": ("wanted.parquet", WANTED),
}
Forge = Callable[[Path, Sequence[str], random.Random], None]
"""Changes a copy of a bundle; gets the runs that it may alter."""


def read(bundle: Path) -> Record:
    """Read the rows of a bundle."""
    rows = {
        stem: read_rows(bundle / RECORD / file, columns) or []
        for stem, (file, columns) in FILES.items()
    }
    return Record(**rows)


def write(bundle: Path, record: Record) -> None:
    """Write rows into a bundle, and make its report again."""
    for stem, (file, columns) in FILES.items():
        content = parquet_bytes(table(getattr(record, stem), columns))
        (bundle / RECORD / file).write_bytes(content)
    with scratch_folder("forged-") as scratch:
        write_files(bundle, report_files(unpacked(bundle / RECORD, "mine", scratch), "mine"))


def with_curve(record: Record, run_id: str, values: Sequence[Sequence[float]]) -> None:
    """Give a run other values, in its curve and in its row."""
    points = record.curve(run_id)
    for point, of_point in zip(points, values, strict=True):
        point |= dict(zip(VALUES, of_point, strict=True))
    best = max(points, key=lambda point: point[VALUES[0]])
    (row,) = (row for row in record.runs if row["run_id"] == run_id)
    row |= {"best_step": best["step"], "validation_at_best": best[VALUES[0]]}
    row |= {"test_at_best": best[VALUES[1]]}


def values_of(record: Record, run_id: str) -> list[list[float]]:
    """Return validation and test values, evaluations x 2."""
    return [[point[name] for name in VALUES] for point in record.curve(run_id)]


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
        (row,) = (row for row in record.runs if row["run_id"] == run_id)
        same = [
            other["run_id"]
            for other in better.runs
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
    record = read(bundle)
    row = generator.choice(record.wanted)
    left = {
        run["run_id"]
        for run in record.wanted
        if all(run[name] == row[name] for name in ("variant", "learning_rate"))
    }
    kept = [[row for row in rows if row["run_id"] not in left] for rows in record]
    write(bundle, Record(*kept))


def swap_names(bundle: Path, _: Sequence[str], __: random.Random) -> None:
    """Call the runs of `a` runs of `b`, and the other way round."""
    record, other = read(bundle), {"a": "b", "b": "a", "c": "c"}
    for row in [*record.wanted, *record.runs]:
        row["variant"] = other[row["variant"]]
    write(bundle, record)


def change_code(bundle: Path, _: Sequence[str], generator: random.Random) -> None:
    """Change a number of the training function."""
    path = bundle / RULE / "train.py"
    path.write_text(path.read_text().replace("0.02", f"0.02{generator.randrange(1, 9)}"))


def change_report(bundle: Path, _: Sequence[str], generator: random.Random) -> None:
    """Change a mean in the report alone."""
    path = bundle / "report" / "cells.csv"
    path.write_text(
        re.sub(r"0\.\d\d", f"0.{generator.randrange(10, 100)}", path.read_text(), count=1)
    )


def change_direction(bundle: Path, _: Sequence[str], __: random.Random) -> None:
    """Say that lower values are better."""
    path = bundle / RECORD / "study.json"
    text = path.read_text().replace('"higher_is_better": true', '"higher_is_better": false')
    path.write_text(
        "\n".join(line for line in text.split("\n") if "checksum" not in line).replace(
            "},\n}", "}\n}"
        )
    )
    write(bundle, read(bundle))


def change_a_listed_file(bundle: Path, altered: Sequence[str], generator: random.Random) -> None:
    """Raise values, and keep the list."""
    kept = (bundle / LIST).read_bytes()
    raise_values(bundle, altered, generator)
    write_list(bundle)
    (bundle / LIST).write_bytes(kept)


def parts_of(bundle: Path) -> list[Stratum]:
    """Return the strata of a bundle's runs."""
    with scratch_folder("forged-") as scratch:
        summary = read_summary(unpacked(bundle / RECORD, "mine", scratch).root, "mine").summary
    return strata(deciding_runs(summary), list(summary.runs["run_id"]), NUM_RUNS)


def holds(bundle: Path, second: SecondTraining, seed: int, **resources: float) -> bool:
    """Challenge a bundle."""
    request = Request(
        num_runs=NUM_RUNS,
        seed=seed,
        data_dir=bundle.parent,
        train=second,
        allow=lambda _: None,
        resources=resources,
    )
    return challenge(bundle, request, lambda _: None)


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
            for part in parts
            for run_id in generator.sample(part.run_ids, round(SHARE * len(part.run_ids)))
        ]
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(shutil.copytree(bundle, Path(folder) / "bundle"))
            forge(copy, altered, generator)
            if not is_listed:
                (copy / LIST).unlink()
                write_list(copy)
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
    for index in range(num_threads := number * 2 // 3):
        place, seeds = folder / f"threads-{index}", list(range(100 * index, 100 * index + 5))
        torch.set_num_threads(2)
        bundle = make_bundle(
            place,
            BODY.replace("for step in", CHAOS.lstrip("\n"), 1),
            seeds=str(seeds),
            resources="{cpus_per_trial: 2}",
        )
        torch.set_num_threads(1)
        rejected += not holds(bundle, SecondTraining(place), index, cpus_per_trial=1)
    yield ["honest, made with two threads, trained again with one", num_threads, rejected, "–", "–"]


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
