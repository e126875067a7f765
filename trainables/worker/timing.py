"""How long a gradient step and an evaluation take here: a few of each, of the real stack on the real data."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lr_sweep.datasets.task import TaskData
from lr_sweep.trainables.plain.engine import CHUNK_STEPS, Training
from lr_sweep.trainables.plain.evaluation import evaluated_splits
from lr_sweep.trainables.run import Run
from lr_sweep.trainables.stacked.engine import StackedTraining

REPEATS = 5
"""Timings taken of steps, and of evaluations."""
REPEAT_S = 0.4
"""Seconds that one timing takes at least, where the chunk of steps or the splits are not over before."""
FIRST_PART = 64
"""Examples of each split that the first, shortest evaluation is of."""

Clock = Callable[[], float]


def time_engine(
    runs: Sequence[Run], data: TaskData, weights: dict[str, Tensor] | None, device: torch.device, *, plain: bool
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Time the stacked engine with these runs of one cell, or the plain one with the first; raises as `Engine.add`.

    Returns `REPEATS` times the seconds of a gradient step, and of an evaluation of all splits, for all runs together.
    """
    training: Training | StackedTraining
    if plain:
        training = Training(runs[0], data, weights, device)
        evaluate: Callable[[], object] = training.scores
    else:
        training = StackedTraining(data, weights, device)
        evaluate = partial(training.scores, training.add(runs))

    def take_steps(number: int) -> float:
        training.train_chunk(number)
        return number

    step_s = repeated(take_steps, 1, CHUNK_STEPS)
    data = training.data  # of features, where a run reads those
    splits = evaluated_splits(data, runs[0].protocol)
    lengths = [len(split) for split in splits.values()]

    def evaluate_part(number: int) -> float:
        """Evaluate on so many examples of each split; return which share of all examples that is."""
        parts: dict[str, Any] = {name: split[:number] for name, split in splits.items()}
        training.data = replace(data, **parts)
        evaluate()
        return sum(min(number, length) for length in lengths) / sum(lengths)

    return step_s, repeated(evaluate_part, FIRST_PART, max(lengths))


def repeated(
    work: Callable[[int], float], first: int, longest: int, clock: Clock = time.perf_counter
) -> tuple[float, ...]:
    """Return seconds of a step, or of a whole evaluation, `REPEATS` times.

    `work(number)` takes so many steps or examples and returns how many steps or evaluations that was. The number is
    doubled from `first` until a timing takes `REPEAT_S` or the number is `longest`.
    """

    def timed() -> tuple[float, float]:
        began = clock()
        done = work(number)
        return clock() - began, done

    number = first
    work(number)  # not timed: it allocates memory and chooses kernels
    while number < longest and timed()[0] < REPEAT_S:
        number = min(2 * number, longest)
    return tuple(seconds / done for seconds, done in (timed() for _ in range(REPEATS)))
