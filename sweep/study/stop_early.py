"""The early stopping of a study: a rule, and the steps at which it compares the learning rates of a cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

from annotated_types import Interval

from lr_sweep.common.limits import Count
from lr_sweep.sweep.study.validation import Strict


class StopEarly(Strict):
    """Stops the runs of learning rates that are behind the others of their cell; off unless a study asks for it."""

    rule: Literal["halving", "median"] = "halving"
    """`halving`: asynchronous successive halving; `median`: median stopping."""
    eta: Annotated[int, Interval(ge=2, le=10)] = 3
    """`halving` keeps one learning rate in `eta` at a rung; the next rung has `eta` times as many steps."""
    first: Count | None = None
    """Steps before the first rung, rounded up to an evaluation; null: the budget / eta^2."""

    def rungs(self, num_steps: int, every: int) -> Sequence[int]:
        """Return the steps of the rungs below a budget, rising; `every`: steps between evaluations."""
        first = self.first or num_steps / self.eta**2
        if self.rule == "median":
            return range(_at_evaluation(first, every), num_steps, every)
        found: list[int] = []
        while (step := _at_evaluation(first, every)) < num_steps:
            found += [step] if step not in found else []
            first *= self.eta
        return found

    def text(self) -> str:
        """Return `halving, keeps 1 in 3` or `median`."""
        return f"halving, keeps 1 in {self.eta}" if self.rule == "halving" else "median"


def _at_evaluation(step: float, every: int) -> int:
    return every * max(1, math.ceil(step / every))
