"""A model trains on the real sequences of remote homology, in both engines."""

from __future__ import annotations

import math
import time

import pytest

from lr_sweep.datasets import remote_homology
from lr_sweep.datasets.loaded import load_checked
from lr_sweep.datasets.remote_homology import Options
from lr_sweep.datasets.task import TaskData
from lr_sweep.tests.support.real_data import require
from lr_sweep.tests.support.small_runs import CPU, run_of
from lr_sweep.trainables.curve import Evaluation
from lr_sweep.trainables.engine import Engine
from lr_sweep.trainables.plain.engine import PlainEngine, Training
from lr_sweep.trainables.stacked.engine import StackedTraining


@pytest.fixture(scope="module")
def data() -> TaskData:
    return load_checked(
        "remote-homology", remote_homology, Options(max_length=48, longer="cut"), require("remote_homology")
    )


def evaluations(engine: Engine, num: int) -> list[Evaluation]:  # type: ignore[type-arg]
    engine.add([run_of(task="remote-homology", learning_rate=3e-3, evaluate_every=100)])
    found: list[Evaluation] = []
    while len(found) < num:
        found += [evaluation for _, evaluation in engine.advance(for_s=60)]
    return found


@pytest.mark.parametrize("name", ["plain", "stacked"])
def test_the_loss_falls_below_that_of_a_guess(name: str, data: TaskData) -> None:
    """A guess among 1195 classes has ln 1195 = 7.09 nats; their frequencies in training alone give 5.61."""
    engine: Engine = (  # type: ignore[type-arg]
        PlainEngine(lambda run: Training(run, data, None, CPU))
        if name == "plain"
        else StackedTraining(data, None, CPU, time.time)
    )
    first, second = evaluations(engine, 2)
    assert second.train_loss < first.train_loss < math.log(1195)
    assert second.train_accuracy > 3 / 1195
