"""Whether a sweep grows over thousands of trials: memory of the driver and of Ray's processes, processes, open files.

A study of an own function, one short run a trial, is mirrored to MLflow by the driver itself. `python -m
benchmarks.growing --trials 5000 --into FOLDER` writes `growing.csv` and `growing.svg` there. With `--leaked-mib 5` the
function keeps as much at each run, so that workers are replaced.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import matplotlib
import pandas as pd
import psutil
import torch
from matplotlib.figure import Figure

from lr_sweep.benchmarks.engine_speed import machine

STUDY = """\
study: growing
trainable: train.py:train
num_steps: 2
variants: {{plain: {{leaked_mib: {leaked_mib}}}}}
learning_rates: {{low: 1e-4, high: 1e-1, per_decade: 3}}
protocol: {{evaluate_every: 1}}
seeds: {seeds}
"""
NUM_RATES = 10
TRAIN = """\
import torch

import socket  # stays, unlike this module, from run to run


def train(run, session):
    if mib := run.options["leaked_mib"]:
        vars(socket).setdefault("leaked", []).append(torch.ones(mib, 2**18))
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), run.learning_rate)
    for _ in session.steps(model=model, optimizer=optimizer):
        inputs = torch.randn(32, 8)
        optimizer.zero_grad()
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        session.report(validation=1 / (1 + loss.item()), test=1 / (1 + loss.item()))
"""
MIB = 2**20
PARTS = {
    "driver": "driver, with MLflow's writer",
    "raylet": "raylet",
    "gcs_server": "Ray's head (GCS)",
    "worker": "worker",
}
"""Columns of memory, and their names in the figure."""


def samples(
    command: subprocess.Popen[bytes], results: Path, every: int
) -> Iterator[dict[str, float]]:
    """Yield what the processes of a command hold, each time that some more of its runs are recorded."""
    driver, began, due = psutil.Process(command.pid), time.monotonic(), 0
    while command.poll() is None:
        ended = sum(len(files) for _, _, files in os.walk(results / "runs"))
        if ended >= due:
            due = ended + every
            with suppress(psutil.Error):
                yield {
                    "trials": ended,
                    "elapsed_s": round(time.monotonic() - began, 1),
                    **_held(driver),
                }
        time.sleep(0.5)


def _held(driver: psutil.Process) -> dict[str, float]:
    children = driver.children(recursive=True)
    held = dict.fromkeys(PARTS, 0.0) | {"driver": driver.memory_info().rss / MIB}
    for child in children:
        name = child.name()
        part = "worker" if "Trainable" in name else name
        if part in held:
            held[part] = max(held[part], child.memory_info().rss / MIB)
    held = {part: round(mib, 1) for part, mib in held.items()}
    return held | {
        "processes": 1 + len(children),
        "open_files": driver.num_fds(),
        "threads": driver.num_threads(),
    }


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draw memory, and the driver's open files, against trials."""
    figure = Figure(figsize=(7.2, 3.0), layout="constrained")
    memory, number = figure.subplots(1, 2, width_ratios=(3, 2))
    table = table[table["driver"] > table["driver"].max() / 2]  # without the imports
    for part, label in PARTS.items():
        memory.plot(table["trials"], table[part], label=label, linewidth=1.2)
    for column, label in (("processes", "processes"), ("open_files", "open files of the driver")):
        number.plot(table["trials"], table[column], label=label, linewidth=1.2)
    for panel, title in ((memory, "resident memory, MiB"), (number, "number")):
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("trials ended", fontsize=8)
        panel.set_ylim(0, None)
        panel.tick_params(labelsize=7)
        panel.legend(fontsize=7, frameon=False)
    with matplotlib.rc_context(
        {"svg.hashsalt": "lr-sweep", "svg.fonttype": "none"}
    ):  # the same bytes, and few
        figure.savefig(path, metadata={"Date": None})


def measure(folder: Path, num_trials: int, leaked_mib: int, every: int, csv: Path) -> pd.DataFrame:
    """Run a study of so many runs, or a few more; write and return the samples."""
    (folder / "train.py").write_text(TRAIN)
    study, results, rows = folder / "growing.yaml", folder / "results", []
    study.write_text(STUDY.format(leaked_mib=leaked_mib, seeds=-(-num_trials // NUM_RATES)))
    line = [
        sys.executable,
        "-m",
        "lr_sweep.sweep",
        "run",
        str(study),
        "--results",
        str(results),
        "--cpus",
        "1",
    ]
    environment = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    with subprocess.Popen(line, env=environment | {"CUDA_VISIBLE_DEVICES": ""}) as command:
        for row in samples(command, results, every):
            rows.append(row)
            pd.DataFrame(rows).to_csv(csv, index=False)
    return pd.DataFrame(rows)


def main() -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=5000)
    parser.add_argument("--every", type=int, default=25, help="trials between two samples")
    parser.add_argument(
        "--leaked-mib", type=int, default=0, help="that the function keeps at each run"
    )
    parser.add_argument("--into", type=Path, default=Path())
    given = parser.parse_args()
    print(machine(torch.device("cpu")))
    given.into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        csv = given.into / "growing.csv"
        table = measure(Path(scratch), given.trials, given.leaked_mib, given.every, csv)
    draw(table, given.into / "growing.svg")
    print(table.iloc[:: max(1, len(table) // 20)].to_string(index=False))


if __name__ == "__main__":
    main()
