"""How long a gradient step and an evaluation take here: a few of each, of the real stack on the real data."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lr_sweep.datasets.task import TaskData
from lr_sweep.trainables.plain.engine import CHUNK_STEPS, Training
from lr_sweep.trainables.plain.evaluation import evaluated_splits
from lr_sweep.trainables.run import Run
from lr_sweep.trainables.stacked.engine import StackedTraining

WARM_UP_STEPS = 3
"""Not timed: the first steps allocate memory and choose kernels."""
REPEATS = 5
"""Timings taken of steps, and of evaluations."""
REPEAT_S = 0.4
"""What one timing is to take at least, where the chunk of steps or the splits are not over before."""
FIRST_PART = 64
"""Examples of each split that the first, shortest evaluation is of."""

Clock = Callable[[], float]


@dataclass(frozen=True, kw_only=True)
class StackTiming:
    """What was timed; seconds of the program, for all of its runs together."""

    step_s: tuple[float, ...]
    """A gradient step, `REPEATS` times."""
    evaluation_s: tuple[float, ...]
    """An evaluation of all splits, as often; where that takes long, of a part of them, scaled up."""


def time_engine(
    runs: Sequence[Run], data: TaskData, weights: dict[str, Tensor] | None, device: torch.device, *, plain: bool
) -> StackTiming:
    """Time the stacked engine with these runs of one cell, or the plain one with the first; raises as `Engine.add`."""
    training: Training | StackedTraining
    if plain:
        training = Training(runs[0], data, weights, device)
        evaluate: Callable[[], object] = training.scores
    else:
        training = StackedTraining(data, weights, device)
        evaluate = partial(training.scores, training.add(runs))
    step_s = time_steps(training.train_chunk)
    data = training.data  # of features, where a run reads those
    splits = evaluated_splits(data, runs[0].protocol)
    lengths = [len(split) for split in splits.values()]

    def evaluate_part(number: int) -> float:
        """Evaluate on so many examples of each split; return which share of all examples that is."""
        parts: dict[str, Any] = {name: split[:number] for name, split in splits.items()}
        training.data = replace(data, **parts)
        evaluate()
        return sum(min(number, length) for length in lengths) / sum(lengths)

    return StackTiming(step_s=step_s, evaluation_s=time_evaluations(evaluate_part, max(lengths)))


def time_steps(train: Callable[[int], object], clock: Clock = time.perf_counter) -> tuple[float, ...]:
    """Return seconds a step of `train(number)`, `REPEATS` times, each the mean of as many as `REPEAT_S` takes."""
    train(WARM_UP_STEPS)
    once_s = _seconds(lambda: train(1), clock)
    number = min(CHUNK_STEPS, max(1, round(REPEAT_S / max(once_s, 1e-9))))
    return tuple(_seconds(lambda: train(number), clock) / number for _ in range(REPEATS))


def time_evaluations(
    evaluate: Callable[[int], float], longest: int, clock: Clock = time.perf_counter
) -> tuple[float, ...]:
    """Return seconds of a whole evaluation, `REPEATS` times, scaled up from a part of the examples.

    `evaluate` takes a number of examples of each split and returns their share of all; `longest` of them are all.
    """
    number = FIRST_PART
    evaluate(number)
    while number < longest and _seconds(partial(evaluate, number), clock) < REPEAT_S:
        number *= 2
    shares: list[float] = []
    spent = [_seconds(lambda: shares.append(evaluate(number)), clock) for _ in range(REPEATS)]
    return tuple(seconds / share for seconds, share in zip(spent, shares, strict=True))


def _seconds(work: Callable[[], object], clock: Clock) -> float:
    began = clock()
    work()
    return clock() - began
