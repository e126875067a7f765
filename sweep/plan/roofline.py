"""`plan --device`: how long runs would take on a GPU that is not here, computed from operations and bytes.

A step of a stack takes as long as its arithmetic at the GPU's peak, as its memory traffic at the GPU's bandwidth, or as
the launches of its kernels, whichever is longest (Williams et al. 2009, "Roofline"). What share of a peak a program
reaches, and how long a launch takes, is assumed: that is the range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lr_sweep.common.text import gigabytes
from lr_sweep.datasets import TASKS
from lr_sweep.datasets.task import TaskShape
from lr_sweep.sweep.plan.gpus import Gpu
from lr_sweep.sweep.plan.packing import Group, largest_groups
from lr_sweep.sweep.plan.timings import Span, Timing
from lr_sweep.sweep.study.runs import Cell
from lr_sweep.trainables.memory import (
    BYTES,
    USABLE,
    activation_numbers,
    largest_stack,
    mask_numbers,
    run_sizes,
    stack_bytes,
)
from lr_sweep.trainables.run import QUERY_BLOCK, Run, engine_of, gpt2_size

SHARE_OF_PEAK = Span(low=1.0, middle=0.5, high=0.25)
"""How much of the peak arithmetic and bandwidth is reached. Assumed: 1 is never, small products are far below."""
LAUNCH_S = Span(low=8e-6, middle=32e-6, high=64e-6)
"""From one eager operation of torch to the next, on the CPU. Measured: 31 to 46 us beside a virtual H200."""
KERNELS_A_STEP, KERNELS_A_BLOCK = 65, 97
"""Operations of a stack's step that are no views, counted, whatever the number of runs; the second for each block."""
KERNELS_A_BLOCK_ADAPTED, KERNELS_A_BLOCK_ADAPTED_EVALUATED = 40, 16
"""More of each block with adapters, in a step and in a batch of an evaluation. Counted at rank 8."""
KERNELS_A_QUERY_BLOCK = 52
"""More of each run and block of queries of `trainables.attention`, there and back. Counted; 44 where
the masks are another run's, too."""
KERNELS_A_FUSED_RUN = 10
"""More of each run and layer of fused attention there: three operands copied, the kernels, there and back. Read
in the code, not counted."""
PASSES_BLOCKED = 37
"""Over each weight of such a block, there and back, masks included. Counted in its operations."""
KERNELS_EVALUATED, KERNELS_A_BLOCK_EVALUATED = 35, 17
"""The same of a batch of an evaluation."""
PASSES, PASSES_EVALUATED = 5, 2
"""Over each number that a step stores: written, read by the next operation and going back, its gradient written and
read. An evaluation writes and reads it."""
PASSES_A_TRAINED_NUMBER = 8
"""Gradients are cleared, written and read; value and Adam's moments are read and written."""
TOKENS_A_BATCH = 2**8
"""How many tokens a run has in a batch of an evaluation (`trainables/stacked/evaluation.py`, which needs torch)."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a GPU does for a stack."""

    flops: float
    traffic_bytes: float
    launches: float

    def seconds(self, gpu: Gpu, run: Run) -> Span:
        """Return how long it takes: the longest of arithmetic, traffic and launches."""
        arithmetic_s, traffic_s = self.flops / gpu.flops[run.protocol.precision], self.traffic_bytes / gpu.bytes_per_s
        return Span(
            *(
                max(arithmetic_s / share, traffic_s / share, self.launches * launch_s)
                for share, launch_s in zip(SHARE_OF_PEAK, LAUNCH_S, strict=True)
            )
        )


def computed_timings(groups: Sequence[Group], gpu: Gpu, share: float) -> dict[Cell, Timing]:
    """Compute what runs of each cell take on a share of a GPU, in stacks as large as fit and as the cell's group is.

    Cells of other models than GPT-2s, and of training functions of the user's own, are left out: their work is unknown.
    """
    found = {}
    for cell, group in largest_groups(groups).items():
        runs = [each.run for each in group if isinstance(each.run, Run) and each.run.model.family == "gpt2"]
        if runs and (shape := group[0].shape):
            found[cell] = _timing(runs, shape, gpu, share)
    return found


def _timing(runs: Sequence[Run], task: TaskShape, gpu: Gpu, share: float) -> Timing:
    run, is_stacked = runs[0], engine_of(runs[0], "stacked") == "stacked"
    available_bytes = USABLE * share * gpu.memory_bytes
    together = largest_stack(runs, task, available_bytes, on_cpu=False) if is_stacked else 1
    needed_bytes = stack_bytes(run, task, 1, 1, on_cpu=False)
    misfit = f"; a run needs {gigabytes(int(needed_bytes))}, more than there is"
    seeds = len({each.seed for each in runs[:together]})
    step_s = step_work(run, task, together, seeds).seconds(gpu, run)
    evaluation_s = evaluation_work(run, task, together, seeds).seconds(gpu, run)
    return Timing(
        step_s=(step_s + evaluation_s * (1 / run.protocol.evaluate_every)) * (1 / together),
        device=f"{gpu.title}, not measured",
        source=f"computed, {together} together{misfit if needed_bytes > available_bytes else ''}",
        written_at=-math.inf,
    )


def step_work(run: Run, task: TaskShape, num_runs: int, num_seeds: int) -> Work:
    """Return the work of a gradient step of a stack."""
    sizes = run_sizes(run, task) | {"positions": task.num_tokens * run.model.width}  # those in use
    trained = sum(sizes[part] for part in run.trained)
    stored = activation_numbers(run, task) + (mask_numbers(run, task) if num_seeds > 1 else 0)
    weights, kernels = _long_attention(run, task)
    adapted = KERNELS_A_BLOCK_ADAPTED if "lora" in run.trained else 0
    passes = PASSES * stored + PASSES_BLOCKED * weights + PASSES_A_TRAINED_NUMBER * trained
    # Going back, gradients of activations take as long as the forward pass, and so do those of trained weights.
    rounds = 2 + sum(part in run.trained for part in ("attention", "feedforward")) / 2
    return Work(
        flops=num_runs * rounds * run.protocol.batch_size * _forward_flops(run, task),
        traffic_bytes=BYTES * (num_runs * passes + 2 * _frozen_numbers(run, task, num_seeds)),
        launches=KERNELS_A_STEP + (KERNELS_A_BLOCK + adapted) * run.model.layers + num_runs * kernels,
    )


def _long_attention(run: Run, task: TaskShape) -> tuple[float, int]:
    """Return a run's attention weights that are computed in blocks of queries, and operations beside a stack's."""
    if run.protocol.attention == "fused":
        return 0.0, KERNELS_A_FUSED_RUN * run.model.layers
    if run.protocol.attention != "blocked":
        return 0.0, 0
    layers, heads = run.model.layers - 1, gpt2_size(run).heads  # the last layer works at one position
    weights = run.protocol.batch_size * heads * task.num_tokens**2 / 2  # of positions so far
    return layers * weights, KERNELS_A_QUERY_BLOCK * layers * math.ceil(task.num_tokens / QUERY_BLOCK)


def evaluation_work(run: Run, task: TaskShape, num_runs: int, num_seeds: int) -> Work:
    """Return the work of an evaluation of a stack, on all splits."""
    module = TASKS[run.task]
    num_examples = run.protocol.train_examples_evaluated + module.num_held_out(module.Options(**run.task_options))
    num_batches = math.ceil(num_examples / max(1, TOKENS_A_BATCH // task.num_tokens))
    stored = num_examples * activation_numbers(run, task) / run.protocol.batch_size
    trained = sum(run_sizes(run, task)[part] for part in run.trained)
    adapted = KERNELS_A_BLOCK_ADAPTED_EVALUATED if "lora" in run.trained else 0
    weights = num_batches * (num_runs * trained + _frozen_numbers(run, task, num_seeds))
    return Work(
        flops=num_runs * num_examples * _forward_flops(run, task),
        traffic_bytes=BYTES * (PASSES_EVALUATED * num_runs * stored + weights),
        launches=num_batches * (KERNELS_EVALUATED + (KERNELS_A_BLOCK_EVALUATED + adapted) * run.model.layers),
    )


def _forward_flops(run: Run, task: TaskShape) -> float:
    """Return what an example takes forward: two operations for each weight and token, and attention's products."""
    sizes, size = run_sizes(run, task), run.model
    weights = sum(sizes[part] for part in ("attention", "feedforward", "lora"))
    weights += 0 if task.token_dim is None else sizes["input"]
    return 2 * task.num_tokens * weights + 4 * size.layers * task.num_tokens**2 * size.width


def _frozen_numbers(run: Run, task: TaskShape, num_seeds: int) -> int:
    """Return the frozen weights of a stack: pretrained ones are shared, random ones are the seed's."""
    sizes = run_sizes(run, task)
    frozen = sum(sizes[part] for part in ("attention", "feedforward") if part not in run.trained)
    return frozen * (1 if run.initialisation == "pretrained" else num_seeds)
