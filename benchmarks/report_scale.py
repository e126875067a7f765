"""How long a report of 10,000 runs takes: `python -m benchmarks.report_scale`.

Makes a record of 4 tasks x 4 variants x 125 learning rates x 5 seeds with 200 evaluations each (accuracies rise to a
level set by the learning rate, with noise), then writes its report in a process of its own, so that the peak memory
is the report's alone. `--tasks 1 --rates 4 --seeds 500` makes one of many seeds. Prints seconds, MiB and the size of
the page; on a busy machine the CPU time says more than the other.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lr_sweep.analysis.record.columns import CURVES, RUNS, schema
from lr_sweep.analysis.record.parquet import FORMAT, parquet_bytes
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.benchmarks.shared import options
from lr_sweep.common.files import write_bytes
from lr_sweep.tests.support.records import ended_row, wanted_row, write, write_study

TASKS = ("listops", "mnist", "cifar10", "cifar10-lra")
VARIANTS = ("frozen-random", "frozen-pretrained", "unfrozen-random", "unfrozen-pretrained")
STUDY = "scale"
REPORT = """
import pathlib, sys
from lr_sweep.analysis.study_report import write_report
write_report(pathlib.Path(sys.argv[1]), sys.argv[2])
"""


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size of a record; every task has four variants."""

    tasks: int = 4
    rates: int = 125
    seeds: int = 5
    evaluations: int = 200

    @property
    def runs(self) -> int:
        """Number of runs."""
        return self.tasks * len(VARIANTS) * self.rates * self.seeds


def make_record(results: Path, size: Size, rng: np.random.Generator) -> None:
    """Write a record of that size."""
    rates = np.logspace(-6, -2, size.rates)
    write_bytes(results / "format.json", json.dumps({"format": FORMAT}).encode())
    num_steps, wanted = 2000 * size.evaluations, []
    for task, variant, rate, seed in product(
        TASKS[: size.tasks], VARIANTS, rates, range(size.seeds)
    ):
        pretrained = "English web text" if variant.endswith("-pretrained") else None
        labels = {"task": task, "variant": variant, "learning_rate": float(rate), "seed": seed}
        row = wanted_row(
            f"{len(wanted):016x}",
            num_steps,
            **labels,
            pretrained_on=pretrained,
            data_origin="made up",
        )
        wanted.append(row)
        write(Paths(results).run(row["run_id"]), [ended_row(row, [], trained=num_steps)], RUNS)
        curve = parquet_bytes(_curve(row, size.evaluations, rng))
        write_bytes(Paths(results).curve(row["run_id"]), curve, durable=False)
    write_study(results, STUDY, wanted, "Scale")


def _curve(wanted: dict[str, Any], num_evaluations: int, rng: np.random.Generator) -> pa.Table:
    """Rise to 0.9 at a learning rate of 1e-4, to less on either side of it."""
    x = np.arange(1, num_evaluations + 1)
    level = 0.9 - 0.1 * abs(np.log10(wanted["learning_rate"]) + 4)
    accuracy = level * (1 - np.exp(-x / 30)) + rng.normal(0, 0.01, (3, num_evaluations))
    values = {
        "run_id": [wanted["run_id"]] * num_evaluations,
        "step": 2000 * x,
        "time_ms": x,
        "elapsed_s": x / 10,
        "logged": [None] * num_evaluations,
    }
    for split, split_accuracy in zip(("train", "validation", "test"), accuracy, strict=True):
        values |= {split: split_accuracy, f"{split}_loss": 1 - split_accuracy}
    return pa.table([pa.array(values[c.name], c.type) for c in CURVES], schema=schema(CURVES))


def main() -> None:
    """Make the record, report, and print times, the report's peak memory and its page's size."""
    size = Size()
    given = options(__doc__, **asdict(size), results="")
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(given.results or scratch) / "results"
        if not (results / "format.json").exists():
            size = Size(**{name: getattr(given, name) for name in asdict(size)})
            make_record(results, size, np.random.default_rng(0))
            print(f"made {size.runs} runs x {size.evaluations} evaluations", flush=True)
        _report(results)
        page = Paths(results).report(STUDY) / "index.html"
        print(f"page of {page.stat().st_size / 1e6:.2f} MB")


def _report(results: Path) -> None:
    began = time.monotonic()
    command = [sys.executable, "-c", REPORT, str(results), STUDY]
    variables = os.environ | {"OMP_NUM_THREADS": "2"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=variables)
    took_s, used = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime
    peak_mib = used.ru_maxrss / 1024  # KiB on Linux
    print(f"report in {took_s:.1f} s ({cpu_s:.1f} s of CPU), peak memory {peak_mib:.0f} MiB")


if __name__ == "__main__":
    main()
