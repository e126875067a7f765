"""Training functions of the user's own: a small network on scikit-learn's digits, and bodies for several processes."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.tests.support.small_runs import numbers, same_bits
from lr_sweep.trainables.numerics import State, Tensors
from lr_sweep.trainables.own.engine import OwnTraining
from lr_sweep.trainables.own.run import own_run

MODEL = """
from torch import nn


def build(width):
    convolution = nn.Sequential(nn.Conv2d(1, width, 3), nn.ReLU(), nn.BatchNorm2d(width))
    return nn.Sequential(convolution, nn.Flatten(), nn.Dropout(0.2), nn.Linear(36 * width, 10))
"""
TRAIN = """
import random

import numpy as np
import torch
from model import build
from torch.nn.functional import cross_entropy

VALIDATION, TEST = slice(1000, 1400), slice(1400, None)


def train(run, session):
    digits = np.load(session.files / "data" / "digits.npz")
    images = torch.from_numpy(digits["images"]).float().unsqueeze(1) / 16
    labels = torch.from_numpy(digits["labels"])
    model = build(run.options["width"])
    if run.options["optimizer"] == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), run.learning_rate, momentum=run.options["momentum"])
    else:
        optimizer = torch.optim.AdamW(model.parameters(), run.learning_rate)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [5, 15])
    for _ in session.steps(model=model, optimizer=optimizer, schedule=schedule):
        batch = torch.from_numpy(np.random.randint(0, 1000, 16))
        inputs = images[batch] + 0.1 * torch.randn(16, 1, 8, 8) * random.random()
        model.train()
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels[batch]).backward()
        optimizer.step()
        schedule.step()
        if session.due:
            validation, test = (loss(model, images[part], labels[part]) for part in (VALIDATION, TEST))
            session.report(validation=validation, test=test)


@torch.no_grad()
def loss(model, images, labels):
    model.eval()
    return cross_entropy(model(images), labels).item()
"""
STUDY = """\
study: cnn
trainable: train.py:train
code: [train.py, model.py]
data: [data/*.npz]
metric: {{name: loss, higher_is_better: false}}
protocol: {{evaluate_every: 10}}
tasks: {{digits: {{num_steps: {num_steps}}}}}
models: {{conv: {{width: 4}}}}
variants: {{adamw: {{optimizer: adamw}}, sgd: {{optimizer: sgd, momentum: 0.9}}}}
learning_rates: [{rates}]
seeds: {seeds}
resources: {{retries: 0}}
"""


def to_end(one: OwnTraining, num_steps: int, for_s: float = math.inf) -> list[float]:
    """Train to a step, or to divergence, and let the function end; return the validation values of the curve."""
    while one.progress.step < num_steps and not one.progress.diverged:
        one.advance(for_s=for_s)
    one.close()
    return [point.validation for point in one.progress.curve]


def resumed(run: WantedRun, *stops: int) -> tuple[list[dict[str, object]], Tensors]:
    """The curve and the last state of a run that resumes after each of the steps `stops`."""
    state: State | None = None
    for step in (*stops, run.num_steps):
        one = OwnTraining(own_run(run.run), run.num_steps, "cpu", lambda: 0.0)
        if state is not None:
            one.load_state(state[0], json.loads(json.dumps(state[1])))
        while one.progress.step < step:
            one.advance(for_s=0.0)
        tensors, progress = one.state()
        state = {name: tensor.clone() for name, tensor in tensors.items()}, progress
        one.close()
    assert state is not None
    return numbers(one.progress.curve), state[0]


def resumes_exactly(run: WantedRun, *stops: int) -> bool:
    """Whether the curve, weights, optimizer and random generators are those of an undisturbed run."""
    (curve, tensors), (resumed_curve, resumed_tensors) = resumed(run), resumed(run, *stops)
    assert len(curve) == len(resumed_curve) > 1
    return repr(curve) == repr(resumed_curve) and same_bits(tensors, resumed_tensors)


def write_own_study(folder: Path, *, num_steps: int = 20, rates: str = "1e-2", seeds: int = 1) -> Path:
    """Write `cnn.yaml` with its code and data beside it."""
    (folder / "data").mkdir(parents=True)
    digits = load_digits()
    np.savez(folder / "data" / "digits.npz", images=digits.images, labels=digits.target)
    (folder / "model.py").write_text(MODEL)
    (folder / "train.py").write_text(TRAIN)
    path = folder / "cnn.yaml"
    path.write_text(STUDY.format(num_steps=num_steps, rates=rates, seeds=seeds))
    return path


def write_function(folder: Path, body: str, **changes: str) -> Path:
    """Write `mine.yaml`, and a `train.py` whose `train(run, session)` has this body; `changes` replace lines by key."""
    indented = "".join(f"    {line}\n" for line in body.strip("\n").split("\n"))
    (folder / "train.py").write_text(f"import torch\n\n\ndef train(run, session):\n{indented}")
    lines = {
        "study": "mine",
        "trainable": "train.py:train",
        "protocol": "{evaluate_every: 5}",
        "num_steps": "10",
        "learning_rates": "[1e-2]",
        "seeds": "1",
    }
    return _write_mine(folder, lines | changes)


def _write_mine(folder: Path, lines: Mapping[str, str]) -> Path:
    path = folder / "mine.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))
    return path


def write_command(folder: Path, script: str = "", **changes: str) -> Path:
    """Write `mine.yaml` of a command that starts `train.py`, which has this text; `changes` replace lines by key."""
    (folder / "train.py").write_text(script)
    lines = {
        "study": "mine",
        "command": "python train.py --lr {learning_rate} --seed {seed}",
        "metrics": r"{validation: 'val=([0-9.]+)', test: 'test=(\S+)'}",
        "learning_rates": "[1e-2]",
        "seeds": "1",
        "resources": "{retries: 0}",
    }
    return _write_mine(folder, lines | changes)


ELASTIC = """
import json, os, pathlib, psutil, sys, time
import torch, torch.distributed as dist

rate, seed, epochs, epoch_s = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[5])
kept, alone, rank = pathlib.Path(sys.argv[4]), pathlib.Path(sys.argv[6]), int(os.environ["RANK"])
marker = kept / f"trainer-{rank}"
mine = kept / f"trainer-{rank}-{os.getpid()}"
mine.write_text(f"{os.getpid()} {psutil.Process().create_time()}")
try:
    os.link(mine, marker)  # raises where it exists
except FileExistsError:
    pid, began = marker.read_text().split()
    if psutil.pid_exists(int(pid)) and psutil.Process(int(pid)).create_time() == float(began):
        alone.touch()
        sys.exit(f"another trainer is alive: {pid}")
    mine.replace(marker)
dist.init_process_group("gloo")
state = kept / "state.json"
first, weight = json.loads(state.read_text()) if state.exists() else (1, float(seed))
for epoch in range(first, epochs + 1):
    time.sleep(epoch_s)
    error = torch.tensor([weight - 3.0 - rank])
    dist.all_reduce(error)
    weight -= rate * error.item()
    if rank == 0:
        print(f"epoch={epoch} val={error.item() ** 2:.6f} test={error.item() ** 2 + 1:.6f}", flush=True)
        (kept / "partial").write_text(json.dumps([epoch + 1, weight]))
        (kept / "partial").rename(state)
    dist.barrier()
marker.unlink()
dist.destroy_process_group()
"""
"""Trains in the processes of `torchrun`; leaves the file of its last argument if two of one rank are alive at once."""


def write_torchrun(folder: Path, epoch_s: float = 0.1, **changes: str) -> Path:
    """Write `mine.yaml` of a command that trains by `torchrun`; two trainers at once leave the file `two-trainers`."""
    torchrun = [sys.executable, *["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]]
    words = [*torchrun, "{learning_rate}", "{seed}", "{num_steps}", "{checkpoint}", str(epoch_s)]
    return write_command(
        folder,
        ELASTIC,
        **{
            "command": json.dumps([*words, str(folder / "two-trainers")]),
            "metrics": r"{validation: 'val=(\S+)', test: 'test=(\S+)', step: 'epoch=(\d+)'}",
            "metric": "{name: loss, higher_is_better: false}",
            "resources": "{retries: 2}",
            "num_steps": "10",
        }
        | changes,
    )


START = """
import os
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
"""
DDP = f"""{START}
images, target = torch.randn(64, 12), torch.randn(64, 1)
model = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
model = DistributedDataParallel(model, find_unused_parameters=True)
optimizer = torch.optim.AdamW(model.parameters(), run.learning_rate)
for step in session.steps(model=model, optimizer=optimizer):
    batch = torch.randint(0, 64, (16,))[rank::size]
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(images[batch]), target[batch]).backward()
    optimizer.step()
    if session.due and rank == 0:
        loss = torch.nn.functional.mse_loss(model.module(images), target).item()
        session.report(validation=loss, test=loss)
dist.destroy_process_group()
"""
NOISY = DDP.replace(
    "for step in session.steps(",
    """torch.manual_seed(100 * run.seed + rank)
drift = torch.nn.BatchNorm1d(12)
for step in session.steps(drift=drift, """,
).replace("model(images[batch])", "model(drift(images[batch] + 0.1 * torch.randn(len(batch), 12)))")
"""Each rank draws from a stream of its own, and has running means of its own."""
