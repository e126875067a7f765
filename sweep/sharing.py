"""A sweep's share of a cluster: how many trials it trains at once beside other sweeps, and when that changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from sweep.errors import UserError
from sweep.placement import Nodes, Placement, check_fit

CHECK_EVERY_S = 5.0
SETTLE_S = 15.0
"""How long a share must have been another one before runs are saved and packed anew, which costs about as much."""
WORTH_IT = 1.5
"""By what factor a share must have grown for that. One that shrank is given up: others wait for it."""
PATIENCE_S = 600.0
"""How long no machine may be able to hold a trial, nor be about to come: lost ones are mended in that time, or not."""


class ShareChangedError(Exception):
    """Runs are to be saved and packed anew, for more or fewer trials at once."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a sweep tells others of itself."""

    priority: int
    """A sweep of priority 2 gets twice the trials of one of priority 1."""
    wants: int
    """Trials at once that it has any use for."""


def shares(places: int, claims: Mapping[str, Claim]) -> dict[str, int]:
    """Divide a cluster among sweeps, in proportion to priority; what one has no use for is the others'.

    Args:
        places: trials at once that the cluster holds.
        claims: by sweep; of equal ones those that come first here get what cannot be divided.

    Returns:
        Trials at once for each; at least 1, so in all more than `places` if there are more sweeps than that. Late ones
        then wait until Ray has a place for them.
    """
    given = dict.fromkeys(claims, 1)
    for _ in range(places - len(claims)):
        open_claims = [name for name, claim in claims.items() if given[name] < claim.wants]
        if not open_claims:
            break
        given[max(open_claims, key=lambda name: claims[name].priority / (given[name] + 1))] += 1
    return given


class Board(Protocol):
    """Where sweeps of one cluster see each other."""

    def post(self, claim: Claim) -> None:
        """Put ours there, in place of an earlier one."""

    def read(self) -> dict[str, Claim]:
        """Return those of all sweeps that go on, the oldest first, by name; ours among them."""

    def name(self) -> str:
        """Return what ours is called."""


class Share:
    """The share of this sweep, on a cluster or a machine of its own.

    Args:
        placement: what a trial holds, and this sweep's priority.
        nodes: returns the resources of all nodes that are there or may come.
        board: where other sweeps are seen; None: Ray was started for this one alone.
        clock: in seconds.
    """

    def __init__(
        self,
        placement: Placement,
        nodes: Callable[[], Nodes],
        board: Board | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._placement, self._nodes, self._board, self._clock = placement, nodes, board, clock
        self._checked_at = self._fitted_at = self._settled_at = clock()
        self.at_once = 1
        """Trials that this sweep may train at once, as last taken."""
        self.at_most: int | None = None
        """The same for Ray; None: this sweep is alone, and takes what there is."""

    def take(self, wants: int) -> int:
        """Take what is ours now and return it: trials at once.

        Args:
            wants: trials that there is any use for.
        """
        self._settled_at = self._clock()
        self.at_once, alone = self._ours(wants)
        self.at_most = None if alone else self.at_once
        return self.at_once

    def check(self, wants: int) -> None:
        """Look at the cluster, if the last look was a while ago. Called often.

        Raises:
            ShareChangedError: the share is another one for good.
            UserError: for a long time no machine could hold a trial.
        """
        now = self._clock()
        if self._board is None or now - self._checked_at < CHECK_EVERY_S:
            return
        self._checked_at = now
        self._check_machines(now)
        ours, alone = self._ours(wants)
        shrunk = ours < self.at_once and not alone  # alone, it is machines that are lost: nobody waits for ours
        useful = min(ours, wants)
        bound_no_more = alone and self.at_most is not None
        grown = useful > self.at_once and (bound_no_more or useful >= WORTH_IT * self.at_once)
        if not (shrunk or grown):
            self._settled_at = now
        elif now - self._settled_at >= SETTLE_S:
            raise ShareChangedError(f"{ours} trials at once instead of {self.at_once}: sweeps or machines came or went")

    def _ours(self, wants: int) -> tuple[int, bool]:
        places = self._placement.trials_at_once(self._nodes())
        if self._board is None:
            return places, True
        self._board.post(Claim(priority=self._placement.priority, wants=wants))
        claims = self._board.read()
        return (places, True) if len(claims) == 1 else (shares(places, claims)[self._board.name()], False)

    def _check_machines(self, now: float) -> None:
        try:
            check_fit(self._placement, self._nodes())
            self._fitted_at = now
        except UserError as error:
            if now - self._fitted_at >= PATIENCE_S:
                raise UserError(
                    f"{error} It had one and lost it {now - self._fitted_at:.0f} s ago. What was trained is saved; the "
                    f"same command goes on from it."
                ) from error
