"""The driver's time for what trials report: Ray Tune's own time for a result, and the recorder's for an evaluation.

Results: one trial that trains nothing reports 2,000 times through Tune and the sweep's callback, alone and while 1,500
others wait for a slot. Evaluations: the recorder writes curves of 200 evaluations one by one, each time the whole
curve. `python -m benchmarks.driver_events`; what a trial costs besides is measured by `benchmarks.trial_overhead`.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from ray import tune

from lr_sweep.benchmarks.engine_speed import machine
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.recorder import Recorder
from lr_sweep.sweep.study.backbones import find_backbones
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.runs import WantedRun, wanted_runs
from lr_sweep.sweep.study.study import Resources
from lr_sweep.sweep.terminal import output_to
from lr_sweep.sweep.tune.nodes import Machines
from lr_sweep.sweep.tune.ray_session import ray_session
from lr_sweep.sweep.tune.trial_events import Leave, TrialEvent
from lr_sweep.sweep.tune.tuner import EventCallback, SweepStoppedError
from lr_sweep.trainables.curve import Evaluation
from lr_sweep.trainables.events import Advanced, Started

NUM_RESULTS = 2000
NUM_CURVES = 10
NUM_EVALUATIONS = 200


class Reporting(tune.Trainable):
    """Trains nothing and says so."""

    def setup(self, config: dict[str, Any]) -> None:
        """Nothing to set up."""

    def step(self) -> dict[str, Any]:
        """Report progress of one run, as a cohort of one does every two seconds."""
        return {"events": [Advanced(run_id="0" * 16, step=self.iteration, step_s=1.0, evaluation_s=1.0)]}


def result_s(folder: Path, num_waiting: int) -> float:
    """Return Tune's seconds a result, the worker's answer included: they overlap where many trials report."""
    seen: list[float] = []
    stop = Leave()

    def put(event: TrialEvent) -> None:
        seen.append(time.perf_counter())
        if len(seen) == NUM_RESULTS:
            stop.set()

    callback = EventCallback(put, stop, Machines())
    trials = [{"cohort": SimpleNamespace(run_ids=[f"{number:016x}"])} for number in range(1 + num_waiting)]
    tuner = tune.Tuner(
        tune.with_resources(Reporting, {"cpu": 1}),
        param_space={"trial": tune.grid_search(trials)},
        run_config=tune.RunConfig(name="trials", storage_path=str(folder), callbacks=[callback], verbose=0),
    )
    log_file = folder / "ray.log"
    placement = Placement(resources=Resources(), cpus=1)
    with output_to(log_file), ray_session(placement, log_file), contextlib.suppress(SweepStoppedError):
        tuner.fit()
    first = NUM_RESULTS // 10
    return (seen[NUM_RESULTS - 1] - seen[first]) / (NUM_RESULTS - 1 - first)


def evaluation_s(folder: Path) -> float:
    """Return the recorder's seconds an evaluation."""
    wanted = _runs(folder)
    recorder = Recorder(Results(folder / "results"), wanted, devices_per_trial=1)
    recorder.results.prepare()
    names = ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy", "test_loss", "test_accuracy")
    began = time.perf_counter()
    for run in wanted:
        recorder.event(Started(run_id=run.run_id, step=0))
        for step in range(1, NUM_EVALUATIONS + 1):
            scores = dict.fromkeys(names, 1 / step)
            point = Evaluation(step=step, time_ms=1000 * step, elapsed_s=step / 10, **scores)
            recorder.event(Advanced(run_id=run.run_id, step=step, evaluation=point))
    return (time.perf_counter() - began) / (NUM_CURVES * NUM_EVALUATIONS)


def _runs(folder: Path) -> list[WantedRun]:
    study = folder / "events.yaml"
    study.write_text(
        f"study: events\ntitle: Nothing is trained\ntasks: {{digits: {{num_steps: {NUM_EVALUATIONS}}}}}\n"
        "models: {tiny: {size: {layers: 1, heads: 1, width: 8, positions: 16}}}\n"
        f"variants: [unfrozen-random]\nlearning_rates: [0.001]\nseeds: {NUM_CURVES}\nprotocol: {{evaluate_every: 1}}\n"
    )
    loaded = load_study(str(study))
    return wanted_runs(loaded, find_backbones(loaded, folder), folder)


def main() -> None:
    """Measure and print."""
    print(machine(torch.device("cpu")))
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    with tempfile.TemporaryDirectory() as scratch:
        print(f"the recorder: {1000 * evaluation_s(Path(scratch)):.2f} ms an evaluation, of {NUM_EVALUATIONS} a curve")
        for num_waiting in (0, 1500):
            taken_s = result_s(Path(scratch), num_waiting)
            print(f"Tune: {1000 * taken_s:.2f} ms a result of one trial while {num_waiting} wait", flush=True)


if __name__ == "__main__":
    main()
