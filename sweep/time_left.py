"""How long what is left takes: steps, evaluations and trials, from what workers report of their pace."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, kw_only=True)
class RunPace:
    """Seconds of its trial that a run takes; the runs of a trial share its time out."""

    step_s: float
    """A gradient step."""
    evaluation_s: float
    """An evaluation with its checkpoint."""

    def seconds(self, step: int, num_steps: int, evaluate_every: int) -> float:
        """Return what a run that has taken `step` steps, and been evaluated there if it was due, still takes."""
        steps = max(0, num_steps - step)
        evaluations = max(0, num_steps // evaluate_every - step // evaluate_every)
        return steps * self.step_s + evaluations * self.evaluation_s


def mean_pace(paces: Collection[RunPace]) -> RunPace:
    """Return the mean of one or more."""
    return RunPace(step_s=fmean(pace.step_s for pace in paces), evaluation_s=fmean(pace.evaluation_s for pace in paces))


def wall_time(trials_s: Sequence[float], at_once: int) -> float:
    """Return when the last trial ends if they start in this order, so many at once, each when another has ended."""
    ends = [0.0] * at_once
    for trial_s in trials_s:
        heapq.heapreplace(ends, ends[0] + trial_s)
    return max(ends)
