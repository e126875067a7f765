"""Times computed for a GPU that is not here, by numbers worked out by hand, and the operations that it counts on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lr_sweep.datasets import TASKS, digits
from lr_sweep.datasets.task import Split, TaskData, TaskShape
from lr_sweep.sweep.plan import roofline
from lr_sweep.sweep.plan.gpus import GPUS
from lr_sweep.tests.support.command_lines import refused, said, succeeds
from lr_sweep.tests.support.small_runs import CPU, run_of
from lr_sweep.trainables.attention import AttentionNoise, attend_in_blocks
from lr_sweep.trainables.parts import FROZEN_BODY
from lr_sweep.trainables.run import QUERY_BLOCK, ModelSize
from lr_sweep.trainables.stacked.engine import StackedTraining

GPU = replace(GPUS["h100"], bytes_per_s=1e12, flops={"fp32": 1e12, "tf32": 1e12, "bf16": 1e12})
SIZE = ModelSize(layers=2, heads=4, width=10, positions=8)
TASK = TaskShape(num_tokens=4, num_classes=10, token_dim=16)


class CountOperations(TorchDispatchMode):
    """Counts operations that are no views: on a GPU each launches a kernel."""

    number = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        returned = function._schema.returns
        is_view = bool(returned) and returned[0].alias_info is not None and not returned[0].alias_info.is_write
        self.number += not is_view
        return function(*args, **(kwargs or {}))


def operations(layers: int, variant: str, **changes: Any) -> tuple[int, int]:
    noise = Split(inputs=torch.zeros(64, 64, 16, dtype=torch.uint8), labels=torch.zeros(64, dtype=torch.long))
    shape = TaskShape(num_tokens=64, num_classes=10, token_dim=16)
    scale, shift = torch.full((16,), 1 / 128), torch.full((16,), -1.0)
    data = TaskData(shape=shape, train=noise, validation=noise, test=noise, scale=scale, shift=shift)
    size = ModelSize(layers=layers, heads=4, width=16, positions=64)
    stack = StackedTraining(data, None, CPU)
    stack.add([run_of(variant, size=size, learning_rate=rate, **changes) for rate in (1e-3, 3e-3, 1e-2)])
    stack.train_chunk(1)
    with CountOperations() as step:
        stack.train_chunk(1)
    with CountOperations() as evaluation:
        stack._evaluate(stack.slots, stack.data.test[:4])  # one batch: 256 tokens
    return step.number, evaluation.number


@pytest.mark.parametrize("variant", ["frozen-random", "unfrozen-random"])
def test_operations_are_as_many_as_are_counted_on(variant: str) -> None:
    for layers in (1, 3):
        step, evaluation = operations(layers, variant)
        assert step == pytest.approx(roofline.KERNELS_A_STEP + roofline.KERNELS_A_BLOCK * layers, rel=0.1)
        counted_on = roofline.KERNELS_EVALUATED + roofline.KERNELS_A_BLOCK_EVALUATED * layers
        assert evaluation == pytest.approx(counted_on, rel=0.1)


def test_operations_of_adapters_are_as_many_as_are_counted_on() -> None:
    for layers in (1, 3):
        with_adapters, without = (
            operations(layers, "frozen-random", trained=trained) for trained in ((*FROZEN_BODY, "lora"), FROZEN_BODY)
        )
        step, evaluation = (a - b for a, b in zip(with_adapters, without, strict=True))
        assert step == pytest.approx(roofline.KERNELS_A_BLOCK_ADAPTED * layers, rel=0.2)
        assert evaluation == pytest.approx(roofline.KERNELS_A_BLOCK_ADAPTED_EVALUATED * layers, rel=0.2)


def test_operations_of_blocked_attention_are_as_many_as_are_counted_on() -> None:
    noise = AttentionNoise(keys=(0,), readers=((0,),), layer=0, probability=0.1)
    counted = []
    for num_tokens in (QUERY_BLOCK, 2 * QUERY_BLOCK):
        q, k, v = (torch.zeros(1, 1, num_tokens, 4, requires_grad=True) for _ in range(3))
        with CountOperations() as operations_of:
            attend_in_blocks(q, k, v, noise).backward(torch.ones(1, 1, num_tokens, 4))  # type: ignore[no-untyped-call]
        counted.append(operations_of.number)
    assert counted[1] - counted[0] == pytest.approx(roofline.KERNELS_A_QUERY_BLOCK, rel=0.1)


def test_arithmetic_of_a_step() -> None:
    """Two layers of 4 x 10 x 10 weights for attention and 8 x 10 x 10 for the feedforward, with biases; 8 examples."""
    weights = 2 * ((10 * 30 + 30) + (10 * 10 + 10) + (10 * 40 + 40) + (40 * 10 + 10)) + (16 * 10 + 10)
    forward = 2 * 4 * weights + 4 * 2 * 4**2 * 10
    for variant, rounds in (("frozen-random", 2), ("unfrozen-random", 3)):
        work = roofline.step_work(run_of(variant, size=SIZE), TASK, num_runs=5, num_seeds=1)
        assert work.flops == 5 * 8 * rounds * forward
        assert work.launches == 65 + 2 * 97


def test_the_longest_of_three_counts() -> None:
    run = run_of("frozen-random", size=SIZE)
    bound_by = {
        "arithmetic": (roofline.Work(flops=1e12, traffic_bytes=0.5e12, launches=1), (1.0, 2.0, 4.0)),
        "traffic": (roofline.Work(flops=1e9, traffic_bytes=2e12, launches=1), (2.0, 4.0, 8.0)),
        "launches": (roofline.Work(flops=1e9, traffic_bytes=1e9, launches=1e6), (8.0, 32.0, 64.0)),
    }
    for name, (work, seconds) in bound_by.items():
        assert tuple(work.seconds(GPU, run)) == pytest.approx(seconds), name


@pytest.mark.parametrize("task", ["digits", "bit-memory", "bit-xor"])
def test_tasks_know_how_many_examples_they_hold_out(task: str, tmp_path: Path) -> None:
    options = TASKS[task].Options()
    data = TASKS[task].load(options, tmp_path)
    assert TASKS[task].num_held_out(options) == len(data.validation) + len(data.test)


def test_an_evaluation_reads_all_splits() -> None:
    run = run_of("frozen-random", size=SIZE, task="digits", train_examples_evaluated=20)
    shape = digits.shape(digits.Options())
    work = roofline.evaluation_work(run, shape, num_runs=1, num_seeds=1)
    step = roofline.step_work(run, shape, num_runs=1, num_seeds=1)
    assert work.flops / 620 == step.flops / 2 / run.protocol.batch_size  # forward alone
    assert work.launches == 10 * (35 + 2 * 17)  # 64 examples a batch


def test_the_paper_s_grid_on_gpus_that_are_not_here(tmp_path: Path) -> None:
    options = ("--device", "h100", "--gpus", "8", "--price", "2.5", "--results", str(tmp_path / "results"))
    printed = succeeds("plan", "rothermel2021-table1", *options)
    assert printed.count("computed, 27 together") >= 8
    assert "computed, 1 together" not in printed  # long sequences, too
    assert sum("computed, " in line and "together" in line for line in printed.splitlines()) == 16
    assert "to train   432 runs in 16 trials" in printed
    assert "resources  1 CPU and 1 GPU a trial" in printed
    assert "with 8 trials at once" in printed
    assert "at 2.5 for each of the GPU-hours" in printed
    assert "computed, not measured, from the peaks of H100 SXM 80 GB" in printed
    assert "unknown" not in printed
    assert "not timed" not in printed


def test_a_run_that_does_not_fit_is_named(tmp_path: Path) -> None:
    only = ("--only", "task=listops", "--results", str(tmp_path / "results"))
    shipped = Path(roofline.__file__).parents[1] / "studies" / "rothermel2021-table1.yaml"
    study = tmp_path / "written.yaml"
    written = shipped.read_text().replace("batch_size: 8,", "batch_size: 8, attention: written,")
    study.write_text(written.replace("study: rothermel2021-table1", "study: written"))
    code, printed = said("plan", study, "--device", "l4", *only)
    assert (code, "GB, more than there is" in printed) == (0, True)


def test_measuring_here_for_a_gpu_elsewhere_is_refused(tmp_path: Path) -> None:
    printed = refused("plan", "quickstart", "--device", "l4", "--measure", "--results", tmp_path)
    assert "--measure times this machine, --device computes for L4 24 GB" in printed
