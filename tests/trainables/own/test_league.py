"""The study docs/examples/league.yaml: each of its optimizers learns, and resumes exactly."""

from __future__ import annotations

import gzip
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.runs import one_of_each
from lr_sweep.tests.support.own_study import to_end
from lr_sweep.tests.support.tiny_study import ROOT
from lr_sweep.trainables.own.engine import OwnTraining
from lr_sweep.trainables.own.probe import probe
from lr_sweep.trainables.own.run import OwnRun, own_run

pytest.importorskip("pytorch_optimizer", reason="it is not installed: pip install 'lr-sweep[optimizers]'")
EXAMPLES = ROOT / "docs" / "examples"
OPTIMIZERS = ("sgd", "adamw", "nadamw", "cautious", "lion", "mars", "muon", "scion", "soap", "kron")
EACH_OPTIMIZER = pytest.mark.parametrize(
    "optimizer", [pytest.param(each, marks=[] if each == "muon" else pytest.mark.slow) for each in OPTIMIZERS]
)
"""The quick one has two kinds of parameters."""
RATES = {"sgd": 0.1, "lion": 3e-3, "scion": 1e-3, "kron": 1e-2}
"""Learning rates at which these learn; 1e-2 for the others."""
NUM_IMAGES = 64
Runs = dict[tuple[str, str], OwnRun]
"""Runs by task and optimizer."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A run of each task and optimizer of the example, on one random picture for each label."""
    folder = tmp_path_factory.mktemp("league")
    for name in ("league.yaml", "league.py", "lora-books-text.xz"):
        shutil.copy(EXAMPLES / name, folder)
    labels = np.arange(NUM_IMAGES, dtype=np.uint8) % 10
    write_mnist(folder / "mnist" / "MNIST" / "raw", labels)
    write_cifar10(folder / "cifar10" / "cifar-10-batches-py", labels)
    found = one_of_each(load_study(folder / "league.yaml"), {}, folder)
    return {(task, variant): own_run(each.run) for (task, _, variant), each in found.items()}


def write_mnist(folder: Path, labels: np.ndarray) -> None:
    folder.mkdir(parents=True)
    for split in ("train", "t10k"):
        for name, header, values in (("images-idx3", 16, pictures(labels, 28 * 28)), ("labels-idx1", 8, labels)):
            (folder / f"{split}-{name}-ubyte.gz").write_bytes(gzip.compress(bytes(header) + values.tobytes()))


def write_cifar10(folder: Path, labels: np.ndarray) -> None:
    folder.mkdir(parents=True)
    content = {"data": pictures(labels, 3 * 32 * 32), "labels": labels.tolist()}
    for name in ("data_batch_1", "test_batch"):
        (folder / name).write_bytes(pickle.dumps(content))


def pictures(labels: np.ndarray, size: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (10, size), np.uint8)[labels]


def of(runs: Runs, task: str, optimizer: str) -> OwnRun:
    run = runs[task, optimizer].sibling(RATES.get(optimizer, 1e-2), 0)
    return replace(run, evaluate_every=40, options={**run.options, "weight_decay": 0.01})


def accuracies(run: OwnRun) -> list[float]:
    """Validation accuracies after 40 and 80 steps."""
    return to_end(OwnTraining(run, 80, "cpu"), 80)


def test_every_optimizer_has_every_task(runs: Runs) -> None:
    assert set(runs) == {(task, each) for task in ("mnist", "cifar10", "text") for each in OPTIMIZERS}


@EACH_OPTIMIZER
def test_each_learns_images(optimizer: str, runs: Runs) -> None:
    assert accuracies(of(runs, "mnist", optimizer))[-1] > 0.5


def test_cifar10_is_read(runs: Runs) -> None:
    assert accuracies(of(runs, "cifar10", "adamw"))[-1] > 0.5


@EACH_OPTIMIZER
def test_each_resumes_bit_for_bit(optimizer: str, runs: Runs) -> None:
    assert probe(of(runs, "text", optimizer), "cpu").resumed == "exactly"
