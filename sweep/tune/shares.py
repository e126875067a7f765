"""A sweep's share of a cluster: how many trials it trains at once beside other sweeps, and when that changes.

Each sweep publishes a claim, reads the claims of all, and computes all shares from them as every other sweep does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.plan.placement import Nodes, Placement, check_fit

CHECK_EVERY_S = 5.0
SETTLE_S = 15.0
"""How long a changed share must last before runs are saved and packed anew, which costs about as much."""
WORTH_IT = 1.5
"""Factor by which a share must have grown for that. A smaller share is always taken: other sweeps wait for the rest."""
PATIENCE_S = 600.0
"""Seconds to wait while no machine, present or to come, can hold a trial: workers start, or are repaired, by then."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a sweep publishes for the others on its cluster."""

    priority: int
    """A sweep of priority 2 gets twice the trials of one of priority 1."""
    wants: int
    """Trials at once that it can use."""


Exchange = Callable[[Claim], tuple[Sequence[Claim], int]]
"""Publishes this sweep's claim; returns the claims of all sweeps, the oldest first, and the index of this sweep's."""


def shares(num_slots: int, claims: Sequence[Claim]) -> list[int]:
    """Divide a cluster of `num_slots` trials at once among sweeps, in proportion to priority.

    What one sweep cannot use goes to the others; of equal claims the first get what cannot be divided. Each gets at
    least 1, more than `num_slots` in all if there are more sweeps: late ones then wait until Ray has a slot for them.
    """
    given = [1] * len(claims)
    for _ in range(num_slots - len(claims)):
        unmet = [index for index, claim in enumerate(claims) if given[index] < claim.wants]
        if not unmet:
            break
        given[max(unmet, key=lambda index: claims[index].priority / (given[index] + 1))] += 1
    return given


class Share:
    """The share of this sweep, on a cluster or a machine of its own.

    `nodes` returns the resources of all nodes that are there or may come. `exchange` publishes a claim and returns all;
    None: Ray was started for this sweep alone. `clock` is in seconds.
    """

    def __init__(
        self,
        placement: Placement,
        nodes: Callable[[], Nodes],
        exchange: Exchange | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._placement, self._nodes, self._exchange, self._clock = placement, nodes, exchange, clock
        self._checked_at = self._fitted_at = self._settled_at = clock()
        self._lacks_machine, self._news = False, list[str]()
        self.at_once = 1
        """Trials that this sweep may train at once, as last claimed."""
        self.at_most: int | None = None
        """The same as a limit for Ray; None: no other sweep is there, so no limit."""

    def claim(self, wants: int) -> int:
        """Claim this sweep's share of the cluster, having use for `wants` trials; return it: trials at once."""
        self._settled_at = self._clock()
        self.at_once, alone = self._now(wants)
        self.at_most = None if alone else self.at_once
        return self.at_once

    def change(self, wants: int) -> str | None:
        """Look at the cluster, if the last look was a while ago; call it often.

        Returns how the share has changed, if it has for good and runs are to be packed anew; else None. Raises
        UserError if for a long time no machine could hold a trial.
        """
        now = self._clock()
        if self._exchange is None or now - self._checked_at < CHECK_EVERY_S:
            return None
        self._checked_at = now
        self._check_machines(now)
        at_once, alone = self._now(wants)
        shrunk = at_once < self.at_once and not alone  # alone, machines were lost: no other sweep waits for ours
        useful = min(at_once, wants)
        limit_ended = alone and self.at_most is not None
        grown = useful > self.at_once and (limit_ended or useful >= WORTH_IT * self.at_once)
        if not (shrunk or grown):
            self._settled_at = now
        if now - self._settled_at < SETTLE_S:
            return None
        return f"{at_once} trials at once instead of {self.at_once}: sweeps or machines came or went"

    def news(self) -> list[str]:
        """Return, once, that the sweep waits for a machine that can hold a trial."""
        news, self._news = self._news, []
        return news

    def _now(self, wants: int) -> tuple[int, bool]:
        num_slots = self._placement.trials_at_once(self._nodes())
        if self._exchange is None:
            return num_slots, True
        claims, own = self._exchange(Claim(priority=self._placement.priority, wants=wants))
        return (num_slots, True) if len(claims) == 1 else (shares(num_slots, claims)[own], False)

    def _check_machines(self, now: float) -> None:
        try:
            check_fit(self._placement, self._nodes())
            self._fitted_at, self._lacks_machine = now, False
        except UserError as error:
            if now - self._fitted_at >= PATIENCE_S:
                raise UserError(
                    f"{error} None came within {now - self._fitted_at:.0f} s. What was trained is saved; the same "
                    f"command resumes from it."
                ) from error
            if not self._lacks_machine:
                self._news.append(f"{error} The sweep waits {PATIENCE_S / 60:.0f} minutes for one.")
            self._lacks_machine = True
