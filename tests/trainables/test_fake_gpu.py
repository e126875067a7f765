"""Steps on a device whose numbers Python cannot read: no operation of two devices, no wait, no copy within a chunk.

Forward passes run on fake CUDA tensors, whole steps on meta tensors. What a GPU computes, and how fast, is not tested.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from lr_sweep.datasets.task import TaskData
from lr_sweep.tests.support.fake_gpu import Traffic, fake_device
from lr_sweep.tests.support.small_bodies import SIZES
from lr_sweep.tests.support.small_runs import (
    CPU,
    SIZE,
    pairs_task,
    random_weights,
    real_valued_task,
    run_of,
    symbol_task,
    xor_task,
)
from lr_sweep.trainables import fused_attention
from lr_sweep.trainables.run import Run
from lr_sweep.trainables.stacked.engine import StackedTraining
from lr_sweep.trainables.training import Training

TASKS = {"numbers": real_valued_task, "symbols": symbol_task, "pairs": pairs_task, "endless": xor_task}
each_task = pytest.mark.parametrize("task", TASKS)
each_variant = pytest.mark.parametrize("variant", ["frozen-pretrained", "frozen-random", "unfrozen-random"])


def sweep_of(variant: str, **changes: Any) -> list[Run]:
    """Two learning rates with two seeds."""
    return [run_of(variant, seed=seed, learning_rate=rate, **changes) for seed in (0, 1) for rate in (1e-3, 1e-2)]


def stack_of(runs: list[Run], task: TaskData, device: torch.device) -> StackedTraining:
    weights = random_weights() if runs[0].initialisation == "pretrained" else None
    stack = StackedTraining(task.to(device), weights, device)
    stack.add(runs)
    steps = [(seed, slot.progress.step) for slot in stack.slots[::2] for seed in (slot.run.seed,)]
    stack._batches.follow(steps, [0, 0, 1, 1], runs[0].protocol.batch_size)
    return stack


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    with fake_device("cuda", monkeypatch) as device:
        yield device


@pytest.fixture
def meta(monkeypatch: pytest.MonkeyPatch) -> Any:
    with fake_device("meta", monkeypatch) as device:
        yield device


def test_a_fake_device_refuses_what_a_gpu_would(cuda: torch.device) -> None:
    x = torch.ones(3, device=cuda)
    with pytest.raises(Exception, match=r"(?i)device"):
        x + torch.ones(3)
    with pytest.raises(Exception, match="_local_scalar_dense"):
        x.sum().item()


def test_traffic_counts_waits_and_copies() -> None:
    device = torch.device("meta")
    with Traffic() as traffic:
        x = torch.ones(3).to(device)
        x.copy_(torch.ones(3))
        torch.ones(3).sum().item()
    assert (traffic.copies, traffic.waits) == (2, ["_local_scalar_dense"])


@each_task
@each_variant
def test_forward_passes_of_a_stack_stay_on_the_gpu(task: str, variant: str, cuda: torch.device) -> None:
    stack = stack_of(sweep_of(variant), TASKS[task](), cuda)
    assert stack._model is not None
    batch, labels = stack._batches.batch(1)
    masks = stack._model.masks(batch, stack._batches.generators("dropout", 1))
    with Traffic() as traffic:
        losses = stack._losses(stack._model, batch, labels, masks)  # (R,)
    assert losses.device.type == "cuda"
    assert losses.shape == (4,)
    assert not traffic.waits
    assert not traffic.copies


@pytest.mark.parametrize("attention", ["written", "blocked", "fused"])
@each_variant
def test_so_do_those_of_each_attention(
    variant: str, attention: str, cuda: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The global generator of a GPU is not there to be keyed.
    monkeypatch.setattr(fused_attention, "global_generator_keyed", lambda *arguments: nullcontext())
    run = run_of(variant, attention=attention)
    weights = random_weights() if run.initialisation == "pretrained" else None
    one = Training(run, real_valued_task().to(cuda), weights, cuda)
    tokens, batch = one._batch(1)
    assert one.model(tokens, batch.lengths, one.noise).device.type == "cuda"
    stack = stack_of(sweep_of(variant, attention=attention), real_valued_task(), cuda)
    assert stack._model is not None
    read, labels = stack._batches.batch(1)
    masks = stack._model.masks(read, stack._batches.generators("dropout", 1))
    assert stack._losses(stack._model, read, labels, masks).device.type == "cuda"


LONGFORMER = pytest.param(
    "longformer", marks=pytest.mark.xfail(strict=True, reason="the library asks whether any position attends to all")
)


@pytest.mark.parametrize("family", [*sorted(SIZES.keys() - {"longformer"}), LONGFORMER])
@pytest.mark.parametrize("task", ["numbers", "symbols"])
def test_a_step_of_no_family_waits(family: str, task: str, meta: torch.device) -> None:
    one = Training(run_of(size=SIZES[family]), TASKS[task]().to(meta), None, meta)
    one._step(1)
    with Traffic() as traffic:
        one._step(2)
    assert not traffic.waits
    assert not traffic.copies


@each_task
@each_variant
def test_a_step_of_a_stack_never_waits(task: str, variant: str, meta: torch.device) -> None:
    stack = stack_of(sweep_of(variant, gradient_clip_norm=1.0), TASKS[task](), meta)
    orders = 0 if task == "endless" else 2  # of the examples of an epoch, for each seed
    for number, copies in ((1, orders), (2, 0), (3, 0)):
        with Traffic() as traffic:
            stack._step(number)
        assert not traffic.waits
        assert traffic.copies == copies


@each_task
@each_variant
def test_neither_does_one_of_the_plain_engine(task: str, variant: str, meta: torch.device) -> None:
    run = run_of(variant)
    weights = random_weights() if run.initialisation == "pretrained" else None
    one = Training(run, TASKS[task]().to(meta), weights, meta)
    for step, copies in ((1, 0 if task == "endless" else 1), (2, 0), (3, 0)):
        with Traffic() as traffic:
            one._step(step)
        assert not traffic.waits
        assert traffic.copies == copies


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "lion"])
def test_a_stack_s_buffers_stay_where_they_are(optimizer: str) -> None:
    """A CUDA graph writes to the addresses that it was captured with."""
    stack = stack_of(sweep_of("unfrozen-random", size=SIZE, optimizer=optimizer), real_valued_task(), CPU)
    rows = stack._rows
    assert rows is not None

    def addresses() -> list[int]:
        buffers = [*rows.buffers().values(), rows.gradients, *rows.parameters.values()]
        return [each.data_ptr() for each in buffers]

    before = addresses()
    for number in (1, 2, 3):
        stack._step(number)
    assert addresses() == before
