"""What a trial costs besides its training: one run of one step a trial, through Ray, by the plain engine.

Prints the time from the end of a run to the start of the next in the same worker (Tune's turn, building the model,
looking for checkpoints), from the first start to the last end, and what the whole command took:
`python -m benchmarks.trial_overhead --trials 200`.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
from pathlib import Path

import numpy as np
import torch

from lr_sweep.analysis.record.read import read_runs
from lr_sweep.benchmarks.engine_speed import machine
from lr_sweep.benchmarks.sweep_speed import NO_GPU, NO_MIRROR, run_study

STUDY = """\
study: empty
title: Trials with next to nothing to train
tasks: {{digits: {{num_steps: 1}}}}
models: {{tiny: {{size: {{layers: 1, heads: 1, width: 8, positions: 16}}}}}}
variants: [unfrozen-random]
learning_rates: [{rates}]
seeds: 1
protocol: {{evaluate_every: 1, train_examples_evaluated: 1}}
resources: {{engine: plain}}
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=200)
    given = parser.parse_args()
    print(machine(torch.device("cpu")))
    with tempfile.TemporaryDirectory() as scratch:
        study = STUDY.format(
            rates=", ".join(f"{rate:.9g}" for rate in np.logspace(-6, -2, given.trials))
        )
        # One worker, so that a run's end and the next one's start belong together.
        took_s = run_study(study, Path(scratch), "--cpus", "1", **NO_GPU, **NO_MIRROR)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        runs = read_runs(Path(scratch) / "results").sort_values("started_at")
    gaps = (runs["started_at"].shift(-1) - runs["finished_at"]).dt.total_seconds().dropna()
    span_s = (runs["finished_at"].max() - runs["started_at"].min()).total_seconds()
    print(
        f"{len(runs)} trials: end to next start, median {statistics.median(gaps):.3f} s "
        f"(95% under {gaps.quantile(0.95):.3f} s); first start to last end {span_s:.0f} s, {span_s / len(runs):.3f} s "
        f"a trial; the whole command {took_s:.0f} s; peak memory of a process {used.ru_maxrss / 1024:.0f} MiB"
    )


if __name__ == "__main__":
    main()
