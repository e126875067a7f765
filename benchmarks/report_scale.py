"""How long a report of 10,000 runs takes: `python -m benchmarks.report_scale`.

Makes a record of 4 tasks x 4 variants x 125 learning rates x 5 seeds with 200 evaluations each (accuracies rise to a
level set by the learning rate, with noise), then writes its report in a process of its own, so that the peak memory
is the report's alone. Prints seconds, MiB and the size of the page; on a busy machine the CPU time says more than the
other. The figures of RESULTS.md are from 10,000 runs; `--seeds 1` makes a fifth.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
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
NUM_RATES, NUM_EVALUATIONS = 125, 200
NUM_STEPS = 2000 * NUM_EVALUATIONS
STUDY = "scale"
REPORT = """
import pathlib, sys
from lr_sweep.analysis.study_report import write_report
write_report(pathlib.Path(sys.argv[1]), sys.argv[2])
"""


def make_record(results: Path, num_seeds: int, rng: np.random.Generator) -> int:
    """Write a record; return its number of runs."""
    rates = np.logspace(-6, -2, NUM_RATES)
    write_bytes(results / "format.json", json.dumps({"format": FORMAT}).encode())
    wanted: list[dict[str, Any]] = []
    for task, variant, rate, seed in product(TASKS, VARIANTS, rates, range(num_seeds)):
        pretrained = "English web text" if variant.endswith("-pretrained") else None
        labels = {"task": task, "variant": variant, "learning_rate": float(rate), "seed": seed}
        row = wanted_row(
            f"{len(wanted):016x}",
            NUM_STEPS,
            **labels,
            pretrained_on=pretrained,
            data_origin="made up",
        )
        wanted.append(row)
        write(Paths(results).run(row["run_id"]), [ended_row(row, [], trained=NUM_STEPS)], RUNS)
        curve = parquet_bytes(_curve(row, rng))
        write_bytes(Paths(results).curve(row["run_id"]), curve, durable=False)
    write_study(results, STUDY, wanted, "Scale")
    return len(wanted)


def _curve(wanted: dict[str, Any], rng: np.random.Generator) -> pa.Table:
    """Rise to 0.9 at a learning rate of 1e-4, to less on either side of it."""
    x = np.arange(1, NUM_EVALUATIONS + 1)
    level = 0.9 - 0.1 * abs(np.log10(wanted["learning_rate"]) + 4)
    accuracy = level * (1 - np.exp(-x / 30)) + rng.normal(0, 0.01, (3, NUM_EVALUATIONS))
    values = {
        "run_id": [wanted["run_id"]] * NUM_EVALUATIONS,
        "step": 2000 * x,
        "time_ms": x,
        "elapsed_s": x / 10,
        "logged": [None] * NUM_EVALUATIONS,
    }
    for split, split_accuracy in zip(("train", "validation", "test"), accuracy, strict=True):
        values |= {split: split_accuracy, f"{split}_loss": 1 - split_accuracy}
    return pa.table([pa.array(values[c.name], c.type) for c in CURVES], schema=schema(CURVES))


def main() -> None:
    """Make the record, report, and print times, the report's peak memory and its page's size."""
    num_seeds = options(__doc__, seeds=5).seeds
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch) / "results"
        num_runs = make_record(results, num_seeds, np.random.default_rng(0))
        print(f"made {num_runs} runs x {NUM_EVALUATIONS} evaluations", flush=True)
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
