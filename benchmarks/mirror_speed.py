"""How long MLflow takes to hold a large sweep: 480 runs x 750 evaluations x 7 metrics into an empty SQLite store.

Training is not part of it: the record is made up, then `export --mlflow` mirrors it, in a process of its own.
`python -m benchmarks.mirror_speed`.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from lr_sweep.benchmarks.engine_speed import machine
from lr_sweep.benchmarks.report_scale import STUDY, Size, make_record
from lr_sweep.sweep.mirror.content import METRICS

RUNS_PER_RATE = 80
"""4 tasks x 4 variants x 5 seeds."""


def main() -> None:
    """Make the record, mirror it, and print seconds and memory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=480, help="a multiple of 80")
    parser.add_argument("--evaluations", type=int, default=750)
    given = parser.parse_args()
    print(machine(torch.device("cpu")))
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch) / "results"
        size = Size(rates=given.runs // RUNS_PER_RATE, evaluations=given.evaluations)
        make_record(results, size, np.random.default_rng(0))
        environment = {
            key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"
        }
        command = [
            sys.executable,
            "-m",
            "sweep",
            "export",
            "--mlflow",
            STUDY,
            "--results",
            str(results),
        ]
        began = time.monotonic()
        subprocess.run(command, env=environment, check=True)
        took_s, used = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        size_mb = (results / "mlflow.db").stat().st_size / 1e6
    points = given.runs * given.evaluations * len(METRICS)
    print(
        f"{points:,} points in {took_s:.0f} s ({used.ru_utime + used.ru_stime:.0f} s of CPU), "
        f"peak memory {used.ru_maxrss / 1024:.0f} MiB, database {size_mb:.0f} MB"
    )


if __name__ == "__main__":
    main()
