"""Which failures of trials are a cluster node's and not their runs', so that the sweep leaves the node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass

from lr_sweep.sweep.plan.placement import is_out_of_memory
from lr_sweep.sweep.study.runs import Cell
from lr_sweep.sweep.tune.failures import kind_of
from lr_sweep.trainables.worker.ray_internals import KILLED

FAILED_HERE = 2
"""Trials of different runs that fail for one kind of reason on one node, and on no other, after which it is left.

They are counted anew when a run is evaluated that started there after the last failure."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A trial that has failed for good; `node` is None on this machine alone, or if not known."""

    run_ids: Sequence[str]
    cell: Cell
    reason: str
    node: str | None


class BrokenNodes:
    """Decides which nodes to leave, and holds failures until it is known that they are not their node's.

    A failure is held until a run that starts there later is evaluated, the same kind of failure occurs on another
    node, or the pass ends. Lack of memory is never the node's.

    Args:
        usable: returns the ids of the nodes that can hold a trial, without `excluded`.
        excluded: ids of the nodes that are left, changed here.
    """

    def __init__(self, usable: Callable[[], Set[str]], excluded: set[str]) -> None:
        self._usable, self._excluded = usable, excluded
        self._held: list[Failure] = []
        self._trials: defaultdict[str, dict[str, list[Set[str]]]] = defaultdict(dict)
        """Runs of each failed trial, by kind of reason and node."""
        self._started_on: dict[str, str] = {}
        """The node of each run that started since the last failure there."""

    def started(self, run_id: str, node: str | None) -> None:
        """Note that a run trains on a node."""
        if node is not None:
            self._started_on[run_id] = node

    def evaluated(self, run_id: str) -> list[Failure]:
        """Return held failures that are no fault of the node, since this run trains there."""
        node = self._started_on.get(run_id)
        for trials in self._trials.values():
            if node in trials:
                trials[node].clear()
        return self._release(lambda held: held.node == node)

    def leaves(self, run_ids: Collection[str], reason: str, node: str | None) -> bool:
        """Count a failed attempt to train these runs; return whether its node is left, so that they have not failed."""
        if node is None or KILLED in reason or is_out_of_memory(reason):
            return False
        if node in self._excluded:
            return True
        kind = kind_of(reason)
        nodes = self._trials[kind]
        trials = nodes.setdefault(node, [])
        if all(trial.isdisjoint(run_ids) for trial in trials):
            trials.append(set(run_ids))
        self._started_on = {run_id: place for run_id, place in self._started_on.items() if place != node}
        if len(nodes) > 1:  # the nodes that were left for it are sound
            self._excluded.difference_update(nodes)
        elif len(trials) >= FAILED_HERE and self._usable() - {node}:
            self._excluded.add(node)
            self._release(lambda held: (held.node, kind_of(held.reason)) == (node, kind))
        return node in self._excluded

    def failed(self, failure: Failure) -> list[Failure]:
        """Return the failures that count against their runs from now on, after `leaves` has counted this one."""
        kind = kind_of(failure.reason)
        if self._trials[kind].keys() == {failure.node} and self._usable() - {failure.node}:
            self._held.append(failure)
            return []
        return [*self._release(lambda held: kind_of(held.reason) == kind), failure]

    def release(self) -> list[Failure]:
        """Return all held failures; they count against their runs."""
        return self._release(lambda held: True)

    def _release(self, choose: Callable[[Failure], bool]) -> list[Failure]:
        released = [failure for failure in self._held if choose(failure)]
        self._held = [failure for failure in self._held if failure not in released]
        return released
