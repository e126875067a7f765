"""Learning-rate schedules: a factor of the run's learning rate at each gradient step. Plain numbers, no torch."""

from __future__ import annotations

import math

from lr_sweep.trainables.run import Protocol, Run


def depends_on_budget(protocol: Protocol) -> bool:
    """Return whether the learning rate at a step depends on how many steps there are."""
    return protocol.schedule != "constant"


def learning_rate_at(run: Run, step: int) -> float:
    """Return the learning rate of gradient step `step`, counted from 1."""
    return run.learning_rate * rate_factor(run.protocol, step, run.schedule_steps)


def rate_factor(protocol: Protocol, step: int, num_steps: int | None) -> float:
    """Return the factor, from 0 to 1, that step `step` of `num_steps` multiplies the learning rate by.

    The factor rises by 1/warmup_steps a step to 1. Then it stays at 1 (`constant`), falls as half a cosine (`cosine`,
    Loshchilov and Hutter 2017), or stays at 1 and falls linearly in the last steps (`warmup-stable-decay`, Hu et
    al. 2024). It would be 0 one step after the last. `num_steps` is None where the schedule is `constant`.
    """
    if step <= protocol.warmup_steps:
        return step / protocol.warmup_steps
    if protocol.schedule == "constant":
        return 1.0
    assert num_steps is not None, "of a run whose schedule depends on its budget"
    left = max(0, num_steps - step + 1)  # this step and those after it
    if protocol.schedule == "cosine":
        return 0.5 - 0.5 * math.cos(math.pi * min(1.0, left / (num_steps - protocol.warmup_steps)))
    return min(1.0, left / max(1, round(protocol.decay_fraction * num_steps)))
