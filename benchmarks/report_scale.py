"""How long a report of 10,000 runs takes: `python -m benchmarks.report_scale`.

Makes a record of 4 tasks x 4 variants x 125 learning rates x 5 seeds with 200 evaluations each (accuracies rise to a
level set by the learning rate, with noise), then writes its report in a process of its own, so that the peak memory
is the report's alone. `--tasks 1 --rates 4 --seeds 500` makes one of many seeds. Prints seconds, MiB, the size of the
page and, where there is a Chromium, how fast the page is; on a busy machine the CPU time says more than the other.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lr_sweep.analysis.record.columns import CURVES, RUNS, WANTED, schema, table
from lr_sweep.analysis.record.parquet import parquet_bytes
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.record.read import FORMAT
from lr_sweep.benchmarks.page_speed import speed_text
from lr_sweep.tests.support.servers.headless_browser import executable

TASKS = ("listops", "mnist", "cifar10", "cifar10-lra")
VARIANTS = ("frozen-random", "frozen-pretrained", "unfrozen-random", "unfrozen-pretrained")
STUDY = "scale"
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
REPORT = "import sys; from lr_sweep.analysis.__main__ import main; sys.exit(main(sys.argv[1:]))"


@dataclass(frozen=True, kw_only=True)
class Size:
    """Of a record; every task has four variants."""

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
    for folder in ("runs", "curves"):
        (results / folder).mkdir(parents=True)
    Paths(results).study(STUDY).mkdir(parents=True)
    (results / "format.json").write_text(json.dumps({"format": FORMAT}))
    Paths(results).facts(STUDY).write_text(json.dumps({"study": STUDY, "title": "Scale"}))
    wanted = [
        _wanted(f"{i:016x}", task, variant, float(rate), seed, size.evaluations)
        for i, (task, variant, rate, seed) in enumerate(
            (t, v, r, s) for t in TASKS[: size.tasks] for v in VARIANTS for r in rates for s in range(size.seeds)
        )
    ]
    for row in wanted:
        Paths(results).curve(row["run_id"]).write_bytes(parquet_bytes(_curve(row, size.evaluations, rng)))
        Paths(results).run(row["run_id"]).write_bytes(parquet_bytes(table([_run(row)], RUNS)))
    Paths(results).wanted(STUDY).write_bytes(
        parquet_bytes(
            table([row | {"trained_parameters": None, "options": None, "fresh": False} for row in wanted], WANTED)
        )
    )


def _wanted(run_id: str, task: str, variant: str, rate: float, seed: int, num_evaluations: int) -> dict[str, Any]:
    names = {"run_id": run_id, "task": task, "model": "gpt2", "variant": variant, "learning_rate": rate, "seed": seed}
    pretrained = "English web text" if variant.endswith("-pretrained") else None
    return names | {"num_steps": 2000 * num_evaluations, "pretrained_on": pretrained, "data_origin": "made up"}


def _run(wanted: dict[str, Any]) -> dict[str, Any]:
    return wanted | {
        **{"protocol_version": 1, "status": "complete", "diverged_at_step": None, "failure": None},
        **{"content": json.dumps({"made": "up", "run": wanted["run_id"]}), "weights_checksum": None},
        **{"data_checksum": "d" * 64, "device": "CPU", "wall_s": 60.0, "device_s": 30.0, "started_at": NOON},
        **{"finished_at": NOON, "attempts": 1, "git_commit": "abc", "git_dirty": False, "versions": '{"torch": "2"}'},
        **{"lost_steps": 0, "engine": "stacked", "code": None, "stopped_at_step": None},
        **{"best_step": None, "validation_at_best": None, "test_at_best": None},
    }


def _curve(wanted: dict[str, Any], num_evaluations: int, rng: np.random.Generator) -> pa.Table:
    """Rise to 0.9 at a learning rate of 1e-4, to less on either side of it."""
    x = np.arange(1, num_evaluations + 1)
    level = 0.9 - 0.1 * abs(np.log10(wanted["learning_rate"]) + 4)
    accuracy = level * (1 - np.exp(-x / 30)) + rng.normal(0, 0.01, (3, num_evaluations))
    loss = 1 - accuracy
    values = {
        **{"run_id": [wanted["run_id"]] * num_evaluations, "step": 2000 * x, "time_ms": x, "elapsed_s": x / 10},
        **{"train_loss": loss[0], "validation_loss": loss[1], "test_loss": loss[2]},
        **{"train_accuracy": accuracy[0], "validation_accuracy": accuracy[1], "test_accuracy": accuracy[2]},
    }
    return pa.table([pa.array(values[c.name], c.type) for c in CURVES], schema=schema(CURVES))


def main() -> None:
    """Make the record, report, and print times, the report's peak memory and its page's size and speed."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in asdict(Size()).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--results", type=Path, help="where to make the record, or where an earlier call made it")
    given = vars(parser.parse_args())
    with tempfile.TemporaryDirectory() as scratch:
        results = given.pop("results") or Path(scratch) / "results"
        size = Size(**given)
        if not (results / "format.json").exists():
            began = time.monotonic()
            make_record(results, size, np.random.default_rng(0))
            print(f"made {size.runs} runs x {size.evaluations} evaluations in {time.monotonic() - began:.1f} s")
        _report(results)
        page = Paths(results).report(STUDY) / "index.html"
        print(f"page of {page.stat().st_size / 1e6:.2f} MB")
        if executable() is not None:
            print(speed_text(page, Path(scratch) / "profile"))


def _report(results: Path) -> None:
    began = time.monotonic()
    arguments = [sys.executable, "-c", REPORT, str(results), STUDY]
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "2"})
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime
    peak_mib = used.ru_maxrss / 1024  # KiB on Linux
    print(f"report in {time.monotonic() - began:.1f} s ({cpu_s:.1f} s of CPU), peak memory {peak_mib:.0f} MiB")


if __name__ == "__main__":
    main()
