"""Which failures of trials are a cluster node's and not their runs', so that the sweep leaves the node."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Set

from lr_sweep.common.text import Say, failure_kind, failure_line
from lr_sweep.sweep.plan.placement import is_out_of_memory
from lr_sweep.trainables.worker.ray_internals import KILLED

from .nodes import node_text
from .trials import WORKER_DID_NOT_START

MACHINE_FAULTS = re.compile(
    # A failed assertion on a GPU is an index out of range, in the code that runs there.
    r"cuda error(?!.*assert)|cuda gpus are available|nvidia driver|nccl error"
    r"|input/output error|stale file handle|read-only file system|no space left|want sha256"
    rf"|\bdied\b|{WORKER_DID_NOT_START}",
    re.IGNORECASE,
)
"""Signs of a device, a disk (or its data files) or a process that failed under a run."""
FAILED_HERE = 2
"""Different runs that fail for one kind of reason on one node, and on no other, after which the node is left.

They are counted anew when a run is evaluated whose trial started there after the last failure."""


class BrokenNodes:
    """Decides which nodes to leave.

    Args:
        usable: returns the ids of the nodes that can hold a trial, without `excluded`.
        excluded: ids of the nodes that are left, changed here.
        say: is called with a line about each node that is left.
    """

    def __init__(self, usable: Callable[[], Set[str]], excluded: set[str], say: Say) -> None:
        self._usable, self._excluded, self._say = usable, excluded, say
        self._trials: defaultdict[str, dict[str, list[Set[str]]]] = defaultdict(dict)
        """Runs of each failed trial, by kind of reason and node."""
        self._started_on: dict[str, str] = {}
        """The node of each run whose trial started since the last failure there."""

    def started(self, run_ids: Iterable[str], node: str | None) -> None:
        """Note that a trial of these runs trains on a node."""
        if node is not None:
            self._started_on |= dict.fromkeys(run_ids, node)

    def evaluated(self, run_id: str) -> None:
        """Note that a run was evaluated: the node on which it started is sound."""
        node = self._started_on.get(run_id)
        for trials in self._trials.values():
            if node in trials:
                trials[node].clear()

    def blames(self, run_ids: Collection[str], reason: str, node: str | None) -> bool:
        """Count a failed attempt to train these runs; return whether it is their node's fault and not theirs.

        It is if the node is left, or if these runs have not failed there before: others may show it.
        """
        if node is None or not is_machine_fault(reason):
            return False
        if node in self._excluded:
            return True
        trials_by_node = self._trials[failure_kind(reason)]
        trials = trials_by_node.setdefault(node, [])
        is_first = all(trial.isdisjoint(run_ids) for trial in trials)
        if is_first:
            trials.append(set(run_ids))
        self._started_on = {
            run_id: started_on
            for run_id, started_on in self._started_on.items()
            if started_on != node
        }
        if len(trials_by_node) > 1:  # the nodes that were left for it are sound
            self._excluded.difference_update(trials_by_node)
            return False
        has_others = bool(self._usable() - {node})
        if has_others and len(trials) >= FAILED_HERE:
            self._excluded.add(node)
            what = f"trials fail on {node_text(node)} ({failure_line(reason)})"
            self._say(f"{what}: it is left, its runs resume elsewhere")
        return has_others and is_first


def is_machine_fault(reason: str) -> bool:
    """Return whether a device, a disk or a process failed, and not the code that trains, nor for lack of memory."""
    if KILLED in reason or is_out_of_memory(reason):
        return False
    return MACHINE_FAULTS.search(failure_line(reason)) is not None
