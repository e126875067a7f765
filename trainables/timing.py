"""How long a gradient step and an evaluation take here: a few of each, of the real stack on the real data."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from datasets.task import TaskData
from trainables.run import Run
from trainables.stacked_training import StackedTraining
from trainables.training import CHUNK_STEPS, Training

WARM_UP_STEPS = 3
"""Not timed: the first steps allocate memory and choose kernels."""
REPEATS = 5
"""Timings taken of steps, and of evaluations."""
REPEAT_S = 0.4
"""What one timing is to take at least, where the chunk of steps or the splits are not over before."""
FIRST_PART = 64
"""Examples of each split that the first, shortest evaluation is of."""

Clock = Callable[[], float]
"""Returns seconds since some moment."""


@dataclass(frozen=True, kw_only=True)
class StackTiming:
    """What was timed; seconds of the program, for all of its runs together."""

    step_s: tuple[float, ...]
    """A gradient step, `REPEATS` times."""
    evaluation_s: tuple[float, ...]
    """An evaluation of all splits, as often; where that takes long, of a part of them, scaled up."""


def time_stack(
    runs: Sequence[Run], data: TaskData, weights: dict[str, Tensor] | None, device: torch.device
) -> StackTiming:
    """Time the fast engine with these runs of one cell; raises what it raises for want of memory."""
    training = StackedTraining(data, weights, device)
    members = training.add(runs)
    return _time_engine(training, lambda: training._scores(members), runs[0])


def time_plain(run: Run, data: TaskData, weights: dict[str, Tensor] | None, device: torch.device) -> StackTiming:
    """Time the plain engine."""
    training = Training(run, data, weights, device)
    return _time_engine(training, training._scores, run)


def _time_engine(training: Training | StackedTraining, evaluate: Callable[[], object], run: Run) -> StackTiming:
    step_s = time_steps(training._train_chunk)
    data, num_train = training.data, run.protocol.train_examples_evaluated
    longest = max(min(len(data.train), num_train), len(data.validation), len(data.test))

    def evaluate_part(number: int) -> float:
        """Evaluate on so many examples of each split; return which share of all examples that is."""
        parts = {name: getattr(data, name)[:number] for name in ("validation", "test")}
        training.data = replace(data, train=data.train[: min(number, num_train)], **parts)
        evaluate()
        done = sum(len(getattr(training.data, name)) for name in ("train", "validation", "test"))
        return done / (min(len(data.train), num_train) + len(data.validation) + len(data.test))

    return StackTiming(step_s=step_s, evaluation_s=time_evaluations(evaluate_part, longest))


def time_steps(train: Callable[[int], object], clock: Clock = time.perf_counter) -> tuple[float, ...]:
    """Return seconds a step, `REPEATS` times, each the mean of as many steps as `REPEAT_S` takes.

    Args:
        train: takes so many steps, and returns when they are done.
        clock: what to measure by.
    """
    train(WARM_UP_STEPS)
    once_s = _seconds(lambda: train(1), clock)
    number = min(CHUNK_STEPS, max(1, round(REPEAT_S / max(once_s, 1e-9))))
    return tuple(_seconds(lambda: train(number), clock) / number for _ in range(REPEATS))


def time_evaluations(
    evaluate: Callable[[int], float], longest: int, clock: Clock = time.perf_counter
) -> tuple[float, ...]:
    """Return seconds of a whole evaluation, `REPEATS` times, scaled up from a part of the examples.

    Args:
        evaluate: evaluates on so many examples of each split, and returns the share of all examples that this is.
        longest: examples of the longest split: so many are all.
        clock: what to measure by.
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
