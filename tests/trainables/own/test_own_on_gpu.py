"""A training function of the user's own on a CUDA device; needs torch, pytest and this checkout alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from lr_sweep.trainables.own.engine import OwnTraining
from lr_sweep.trainables.own.probe import tried_once
from lr_sweep.trainables.own.run import OwnFiles, OwnRun

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
NUM_STEPS = 24
TRAIN = """
import torch
from torch.utils.data import DataLoader, TensorDataset


def train(run, session):
    torch.manual_seed(run.seed)
    inputs = torch.rand(40, 8)
    labels = (inputs.sum(1) > 4).long()
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=8, shuffle=True, pin_memory=True)
    network = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Dropout(0.3), torch.nn.Linear(32, 2))
    network = network.to(session.device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=run.learning_rate)
    scaler = torch.amp.GradScaler(session.device)
    batches = session.steps(network=network, optimizer=optimizer, scaler=scaler, loader=loader)
    examples = cycle(loader)
    for step in batches:
        x, y = (tensor.to(session.device) for tensor in next(examples))
        with torch.autocast(session.device, torch.float16):
            loss = torch.nn.functional.cross_entropy(network(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if session.due:
            network.eval()
            with torch.no_grad():
                output = network(inputs.to(session.device))
            network.train()
            value = -torch.nn.functional.cross_entropy(output, labels.to(session.device)).item()
            session.report(validation=value, test=value)


def cycle(loader):
    while True:
        yield from loader
"""


@pytest.fixture
def run() -> OwnRun:
    files = OwnFiles(trainable="train.py:train", code={"train.py": TRAIN.encode()}, folders=(), command=None)
    return OwnRun(
        files=files,
        data={},
        task="points",
        model="network",
        variant="scaled",
        options={},
        learning_rate=0.01,
        seed=3,
        evaluate_every=4,
        metric={"name": "score", "higher_is_better": True, "is_fraction": False},
        processes=1,
    )


def training(run: OwnRun) -> OwnTraining:
    return OwnTraining(run, NUM_STEPS, "cuda", lambda: 0.0)


def values(one: OwnTraining) -> list[float]:
    return [point.validation for point in one.progress.curve]


def test_a_run_that_leaves_after_every_step_has_the_same_values(run: OwnRun) -> None:
    whole = training(run)
    while whole.progress.step < NUM_STEPS:
        whole.advance()
    state: tuple[dict[str, torch.Tensor], dict[str, Any]] | None = None
    for _ in range(NUM_STEPS):
        one = training(run)
        if state is not None:
            one.load_state(state[0], json.loads(json.dumps(state[1])))
        one.advance(for_s=0.0)
        tensors, progress = one.state()
        state = {name: tensor.clone() for name, tensor in tensors.items()}, progress
        one.close()
        torch.rand(3, device="cuda")  # as another run in the process would draw them
    assert len(set(values(whole))) > 3
    assert values(one) == pytest.approx(values(whole), rel=1e-3)


def test_the_probe_finds_a_resume_exact(run: OwnRun) -> None:
    probe = tried_once(run, NUM_STEPS, "cuda")
    assert not probe.lost, probe.text()
