"""What memory runs take, worked out beforehand, and what a trial may use. `plan` asks too, so torch is imported late.

`stack_bytes` counts the tensors that are there when the backward pass begins, which is when most are.

Shape legend: `B` batch, `T` tokens, `N` = B T, `D` width, `H` heads.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache

from lr_sweep.datasets.task import TaskShape
from lr_sweep.trainables.parts import PARTS
from lr_sweep.trainables.run import QUERY_BLOCK, BodySize, ModelSize, Protocol, Run, gpt2_size

BYTES = 4
"""Bytes of a number, float32."""
USABLE = 0.85
"""Part of a trial's share that is planned with; libraries' workspaces and the allocator's holes take the rest."""
PROCESS_BYTES = 1.0e9
"""Memory of a worker on a CPU before it trains anything: Python, torch, Ray (measured: 0.95 GB)."""


def part_sizes(size: BodySize, task: TaskShape) -> dict[str, int]:
    """Return how many numbers each part of `PARTS` has, without making any of them; a weight counts with its bias."""
    if not isinstance(size, ModelSize):
        return _counted(size, task)
    width = size.width
    return {
        "input": (task.num_token_ids or 0) * width
        if task.token_dim is None
        else _linear(task.token_dim, width),
        "output": _linear(width, task.num_outputs),
        "positions": max(size.positions, task.num_tokens) * width,
        "layer_norms": (2 * size.layers + 1) * 2 * width,
        "attention": size.layers * (_linear(width, 3 * width) + _linear(width, width)),
        "feedforward": size.layers * (_linear(width, 4 * width) + _linear(4 * width, width)),
        "last_attention": _linear(width, 3 * width) + _linear(width, width),
    }


def trained_parameters(run: Run, task: TaskShape) -> int:
    """Return how many numbers a run trains, counted as by `part_sizes`."""
    sizes = part_sizes(run.model, task)
    return sum(sizes[part] for part in run.trained)


@cache
def _counted(size: BodySize, task: TaskShape) -> dict[str, int]:
    import torch

    from lr_sweep.trainables.models.classifier import Classifier
    from lr_sweep.trainables.models.family import parameters_of

    with torch.device("meta"):
        parts = Classifier(size, task, Protocol()).parts()
    numbers = {
        name: sum(map(torch.Tensor.numel, parameters_of(modules)))
        for name, modules in parts.items()
    }
    return dict.fromkeys(PARTS, 0) | numbers


def _linear(num_in: int, num_out: int) -> int:
    return (num_in + 1) * num_out


def stack_bytes(run: Run, task: TaskShape, num_runs: int, num_seeds: int, *, on_cpu: bool) -> int:
    """Return the bytes that a stack of runs like this one, of so many seeds, takes at its peak."""
    sizes = part_sizes(run.model, task)
    sizes = sizes | {"positions": task.num_tokens * run.model.width}  # those in use
    row = sum(sizes[part] for part in run.trained)
    frozen = sum(sizes[part] for part in ("attention", "feedforward") if part not in run.trained)
    bodies = frozen * (1 if run.initialisation == "pretrained" else num_seeds)
    bodies *= 2 if on_cpu else 1  # a CPU keeps frozen layers in both layouts
    # Values, gradients, Adam's two moments and the best model so far; an allocator holds 1.35 times what is in use
    # (measured on a CPU).
    of_a_run = 5 * row + int(1.35 * _activation_numbers(run, task))
    return BYTES * (num_runs * of_a_run + num_seeds * row + bodies + _attention_block(run, task))


def _activation_numbers(run: Run, task: TaskShape) -> float:
    """Return how many numbers of a run's step are there when its backward pass begins, beside parameters."""
    batch, tokens = run.protocol.batch_size, task.num_tokens
    states = batch * tokens * run.model.width  # (N, D)
    weights = 0  # (B, H, T, T), where attention writes its weights out
    if run.protocol.dropout and run.protocol.attention != "blocked":
        weights = batch * gpt2_size(run).heads * tokens**2
    # A block saves 2 residual streams, 2 normalised ones, q, k, v, 4 + 4 of the feedforward, and 2 masks of dropout;
    # where its linear layers are trained, also the 1 + 1 + 1 + 4 that they read.
    saved = (
        15
        + 2 * bool(run.protocol.dropout)
        + 7 * sum(p in run.trained for p in ("attention", "feedforward")) / 2
    )
    blocks = run.model.layers - 1
    # The last block works at the positions read but for keys and values, 4; the embeddings and their masks are 3; and
    # the backward pass of a feedforward is 3 x 4 and the residual stream's 1 at its widest.
    once = 7 + 13 * (blocks > 0) + 15 * (task.num_read - 1) / tokens
    # The weights before and after dropout, and its mask.
    a_block = saved * states + 3 * weights
    return blocks * a_block + once * states


def _attention_block(run: Run, task: TaskShape) -> int:
    if run.protocol.attention != "blocked":
        return 0
    queries = min(QUERY_BLOCK, task.num_tokens)
    return 6 * run.protocol.batch_size * gpt2_size(run).heads * queries * task.num_tokens


def largest_stack(
    runs: Sequence[Run], task: TaskShape, available_bytes: float, *, on_cpu: bool
) -> int:
    """Return how many of these runs, taken in order, fit; at least 1, which may not."""
    for number in range(len(runs), 1, -1):
        num_seeds = len({run.seed for run in runs[:number]})
        if stack_bytes(runs[0], task, number, num_seeds, on_cpu=on_cpu) <= available_bytes:
            return number
    return 1


def share_memory(device: str, share: float) -> float:
    """Return the bytes that a trial with a share of a GPU or some CPUs may use; hold this process to a GPU's share."""
    if device == "cuda":
        import torch

        if share < 1:  # Ray only counts fractions; nothing else divides a GPU's memory
            torch.cuda.set_per_process_memory_fraction(share)
        return USABLE * share * torch.cuda.get_device_properties(0).total_memory
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return USABLE * physical * min(1.0, share / (os.cpu_count() or 1)) - PROCESS_BYTES


def keep_freed_memory() -> None:
    """Let this process keep and reuse what it frees, where the C library is glibc.

    Given back between two steps, every page is a fault: a tenth to a sixth of the time of tiny models' evaluations.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD of malloc.h
        mallopt(-3, 2**25)  # M_MMAP_THRESHOLD, in bytes; glibc takes no more
