"""Killed at random, again and again, a study ends with the record and the MLflow store of one that never was.

`make chaos` is the long form; CHAOS_KILLS and CHAOS_SEED change it. The short form is one of the quick tests.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from lr_sweep.sweep.cli.parser import main
from lr_sweep.tests.support.chaos import TARGETS, Sweep, final_weights, mlflow_content, record_content
from lr_sweep.tests.support.tiny_study import write_study

pytestmark = pytest.mark.cluster


def study_of(folder: Path, num_steps: int, seeds: int) -> Path:
    """Six runs a seed."""
    return write_study(
        folder,
        rates=(1e-3, 1e-2),
        variants=("frozen-random", "frozen-pretrained", "unfrozen-random"),
        num_steps=num_steps,
        seeds=seeds,
        protocol="{evaluate_every: 250, train_examples_evaluated: 100}",
        resources="{runs_per_trial: 2, retries: 2}",
    )


def undisturbed(study: Path, folder: Path) -> Path:
    sweep = Sweep(study, folder / "undisturbed", folder / "undisturbed.log")
    try:
        assert sweep.finish(max_starts=1) == 0, sweep.log.read_text()
    finally:
        sweep.end()
    return sweep.results


def check_equal(disturbed: Path, reference: Path) -> None:
    assert record_content(disturbed) == record_content(reference)
    assert final_weights(disturbed) == final_weights(reference)
    ours, theirs = mlflow_content(disturbed), mlflow_content(reference)
    assert ours == theirs
    assert {run["status"] for run in ours.values()} == {"FINISHED"}


def tracebacks(log: Path) -> str:
    """Return what a log says from its first traceback on: a killed process leaves none, a crashed one does."""
    return "".join(log.read_text().partition("Traceback")[1:])


@pytest.mark.chaos
def test_twenty_kills_change_nothing(tmp_path: Path) -> None:
    """12 runs; driver, workers, raylet and GCS are killed at random moments, 20 times."""
    number = int(os.environ.get("CHAOS_KILLS", "20"))
    seed = int(os.environ.get("CHAOS_SEED") or time.time())
    print(f"\nCHAOS_SEED={seed} CHAOS_KILLS={number}; everything is in {tmp_path}")
    # Longer than the pauses, 6.25 s a kill in the mean, on a fast machine; steps are a multiple of 250.
    study = study_of(tmp_path, num_steps=1750 * number, seeds=2)
    reference = undisturbed(study, tmp_path)
    assert len(record_content(reference)["runs"]) == 12
    sweep = Sweep(study, tmp_path / "disturbed", tmp_path / "disturbed.log")
    try:
        sweep.kill_at_random(number, random.Random(seed))
        assert sweep.finish() == 0, sweep.log.read_text()
    finally:
        sweep.end()
    killed = {target: sum(kind == target for kind, _ in sweep.kills) for target in TARGETS}
    print(f"killed: {killed}")
    assert tracebacks(sweep.log) == ""
    check_equal(sweep.results, reference)
    assert main(["verify", "--results", str(sweep.results)]) == 0


@pytest.mark.slow  # one kill and one Ctrl-C are quick: tests/sweep/tune/test_sweep_killed.py
def test_a_worker_ray_and_the_driver_killed_in_turn_change_nothing(tmp_path: Path) -> None:
    """The short form: each kind once, while a run trains; no dead GCS, which takes a while."""
    study = study_of(tmp_path, num_steps=1000, seeds=1)
    sweep = Sweep(study, tmp_path / "disturbed", tmp_path / "disturbed.log")
    try:
        sweep.start()
        sweep.kill_when_training("worker")
        sweep.kill_when_training("raylet")
        sweep.wait_until_it_says("Ray died (raylet ended unexpectedly); starting it again")
        sweep.kill_when_training("driver")
        assert sweep.finish() == 0, sweep.log.read_text()
    finally:
        sweep.end()
    check_equal(sweep.results, undisturbed(study, tmp_path))
