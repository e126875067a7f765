"""Steps on a device whose numbers Python cannot read: no operation of two devices, no wait, no copy within a chunk.

Forward passes run on fake CUDA tensors, whole steps on meta tensors. What a GPU computes, and how fast, is not tested.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lr_sweep.datasets.task import TaskData
from lr_sweep.tests.support.fake_gpu import Traffic, fake_device
from lr_sweep.tests.support.small_bodies import SIZES
from lr_sweep.tests.support.small_runs import TASKS, run_of, sweep_of, weights_for
from lr_sweep.trainables.plain.engine import Training
from lr_sweep.trainables.plain.evaluation import example_losses
from lr_sweep.trainables.run import Run
from lr_sweep.trainables.stacked.engine import StackedTraining

each_task = pytest.mark.parametrize("task", TASKS)
each_variant = pytest.mark.parametrize("variant", ["frozen-pretrained", "unfrozen-random"])


def stack_of(runs: list[Run], task: TaskData, device: torch.device) -> StackedTraining:
    stack = StackedTraining(task.to(device), weights_for(runs[0]), device)
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


def assert_stays(stack: StackedTraining) -> None:
    """The losses of a stack's first step are on the GPU, and nothing waits for them or is copied."""
    assert stack._model is not None
    batch, labels = stack._batches.batch(1)
    masks = stack._model.masks(batch, stack._batches.generators("dropout", 1))
    with Traffic() as traffic:
        losses = example_losses(stack._model.logits(batch, masks), labels).mean(1)  # (R,)
    assert (losses.device.type, losses.shape) == ("cuda", (4,))
    assert (traffic.waits, traffic.copies) == ([], 0)


@each_task
@each_variant
def test_forward_passes_of_a_stack_stay_on_the_gpu(task: str, variant: str, cuda: torch.device) -> None:
    assert_stays(stack_of(sweep_of(variant), TASKS[task], cuda))


@pytest.mark.parametrize("attention", ["written", "blocked"])
@each_variant
def test_so_do_those_of_each_attention(variant: str, attention: str, cuda: torch.device) -> None:
    run = run_of(variant, attention=attention)
    one = Training(run, TASKS["numbers"].to(cuda), weights_for(run), cuda)
    tokens, _ = one._batch(1)
    assert one.model(tokens, one.noise).device.type == "cuda"
    assert_stays(stack_of(sweep_of(variant, attention=attention), TASKS["numbers"], cuda))


LONGFORMER = pytest.param(
    "longformer", marks=pytest.mark.xfail(strict=True, reason="the library asks whether any position attends to all")
)


@pytest.mark.parametrize("family", [*sorted(SIZES.keys() - {"longformer"}), LONGFORMER])
def test_a_step_of_no_family_waits(family: str, meta: torch.device) -> None:
    one = Training(run_of(size=SIZES[family]), TASKS["symbols"].to(meta), None, meta)
    one._step(1)
    with Traffic() as traffic:
        one._step(2)
    assert not traffic.waits
    assert not traffic.copies


@each_task
@each_variant
def test_a_step_of_either_engine_never_waits(task: str, variant: str, meta: torch.device) -> None:
    stack = stack_of(sweep_of(variant, gradient_clip_norm=1.0), TASKS[task], meta)
    run = run_of(variant)
    one = Training(run, TASKS[task].to(meta), weights_for(run), meta)
    for step, num_orders in ((stack._step, 2), (one._step, 1)):  # of the examples of an epoch, for each seed
        for number, copies in ((1, 0 if task == "xor" else num_orders), (2, 0), (3, 0)):
            with Traffic() as traffic:
                step(number)
            assert not traffic.waits
            assert traffic.copies == copies
