"""How much work runs are beside each other, as far as shapes tell: good enough to divide them among devices."""

from __future__ import annotations

from collections.abc import Iterable

from datasets.task import TaskShape
from sweep.runs import WantedRun
from trainables.parts import part_sizes
from trainables.run import Precision, Run

WEIGHT_TRAFFIC: dict[Precision, int] = {"bf16": 3600, "tf32": 1900, "fp32": 260}
"""Tokens whose products with a weight take a GPU as long as its step of Adam: memory is slow beside arithmetic. From
floors computed for an H200; fp32 by the ratio of its peak to that of tf32, 67 to 494 TFLOP/s."""


def step_work(run: Run, task: TaskShape, *, on_gpu: bool) -> float:
    """Return the multiplications of a gradient step: the body's matrix products, forward and back.

    Args:
        run: what trains.
        task: what it reads.
        on_gpu: count a trained weight's traffic, too. On a CPU arithmetic takes so long that it does not matter.
    """
    sizes, tokens = part_sizes(run.model, task), run.protocol.batch_size * task.num_tokens
    traffic = WEIGHT_TRAFFIC[run.protocol.precision]
    work = 3 * 2 * tokens * run.model.layers * task.num_tokens * run.model.width  # scores and values; 2 of 3 are back
    for part in ("attention", "feedforward"):
        trained = part in run.trained
        work += sizes[part] * (tokens * (3 if trained else 2) + (traffic if trained and on_gpu else 0))
    return float(work)


def total_work(runs: Iterable[WantedRun], *, on_gpu: bool) -> float:
    """Return the multiplications of runs up to their budgets; evaluations left out."""
    return sum(run.num_steps * step_work(run.run, run.shape, on_gpu=on_gpu) for run in runs)
