"""The cluster as Ray sees it: its nodes, the node of each trial, and how many trials this sweep may train at once.

Each sweep publishes how many trials it can use, and computes all shares from the numbers of all.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence, Set
from itertools import zip_longest
from pathlib import Path
from typing import Any

from lr_sweep.common.errors import UserError
from lr_sweep.common.files import ReadFields, load_yaml
from lr_sweep.common.network import check_answers
from lr_sweep.sweep.plan.placement import Nodes, Placement, check_fit, fits
from lr_sweep.trainables.worker.messages import Advanced, Report
from lr_sweep.trainables.worker.ray_internals import exchanged, leaving_nodes, node_of_trial

CLUSTER_FILE = Path("~/ray_bootstrap_config.yaml")
"""On the head of a cluster that `ray up` started, where submitted sweeps run: the settings of its autoscaler."""
MAX_LOSSES = 5
"""Machines that a run may lose between two evaluations; one that loses more may itself be the cause."""
CHECK_EVERY_S = 5.0
SETTLE_S = 15.0
"""How long a changed share must last before runs are saved and packed anew, which costs about as much."""
WORTH_IT = 1.5
"""Factor by which a share must have grown for that. A smaller share is always taken: other sweeps wait for the rest."""
PATIENCE_S = 600.0
"""Seconds to wait while no machine, present or to come, can hold a trial: workers start, or are repaired, by then."""
_NAMESPACE = "lr-sweep"


class Machines:
    """The machine of each trial, and how many machines each run has lost since its last evaluation."""

    def __init__(self, on_cluster: bool = False) -> None:
        self._on_cluster = on_cluster
        self._node_of: dict[str, str] = {}
        """The node on which each trial was last started, by the trial's id."""
        self.excluded: set[str] = set()
        """Ids of nodes that the sweep has left; no trial starts there."""
        self._losses: Counter[str] = Counter()

    def started(self, trial: Any) -> str | None:
        """Remember where a trial is, since Ray no longer knows once it is dead; return it as `node_of`."""
        self._node_of[trial.trial_id] = node_of_trial(trial)
        return self.node_of(trial)

    def node_of(self, trial: Any) -> str | None:
        """Return the id of the node where a trial was last started; None on this machine alone, or if not known."""
        return self._node_of.get(trial.trial_id) if self._on_cluster else None

    def failed_on(self, trial: Any, text: str) -> str | None:
        """Return the id of the node on which a trial has failed; None on this machine alone, or if not known.

        Of a worker that failed as it started, only the address is known, from Ray's `text`.
        """
        started_on = self._node_of.pop(trial.trial_id, None)
        if not self._on_cluster or started_on is not None:
            return started_on if self._on_cluster else None
        addresses = re.findall(r"\bip[=:] ?([\w.:]+)", text)
        named = [
            node["NodeID"] for node in alive_nodes() if node["NodeManagerAddress"] in addresses
        ]
        return named[0] if len(named) == 1 else None

    def usable(self, placement: Placement) -> set[str]:
        """Return the ids of the nodes that are there, can hold a trial, and were not left."""
        return {
            node["NodeID"] for node in alive_nodes() if fits(placement, [node["Resources"]])
        } - self.excluded

    def lost(self, trial: Any) -> bool:
        """Return whether the machine of a trial is gone (Ray reports it, or its raylet does not answer) or will go.

        Ray (2.60) itself notices after 12 s that a raylet is dead, while trials there fail at once. It counts a
        machine that stays silent as dead after a minute, and its trials as failed.
        """
        ours = self._node_of.get(trial.trial_id)
        there = [node for node in alive_nodes() if node["NodeID"] == ours]
        try:
            for node in there:
                check_answers(node["NodeManagerAddress"], node["NodeManagerPort"])
        except OSError:
            return True
        return ours is not None and (not there or ours in leaving_nodes())

    def reported(self, event: Report) -> None:
        """Forget a run's losses when it is evaluated."""
        if isinstance(event, Advanced) and event.evaluation:
            del self._losses[event.run_id]

    def overlook_loss(self, run_ids: Sequence[str]) -> bool:
        """Count a lost machine for a trial's runs; return whether it is no failure of theirs, as `MAX_LOSSES` says."""
        self._losses.update(run_ids)
        return min(self._losses[run_id] for run_id in run_ids) <= MAX_LOSSES


def exchange_claims(wants: int) -> tuple[list[int], int]:
    """Be an `Exchange` in the cluster's own store, where each sweep's number lasts as long as its driver."""
    claims, own = exchanged(str(wants), _NAMESPACE)
    return list(map(int, claims.values())), list(claims).index(own)


def alive_nodes() -> list[ReadFields]:
    """Return the nodes that are there, as Ray describes them."""
    import ray

    return [node for node in ray.nodes() if node["Alive"]]


def node_text(node_id: str) -> str:
    """Return a node's address, and the start of its id."""
    import ray

    address = next(
        (node["NodeManagerAddress"] for node in ray.nodes() if node["NodeID"] == node_id),
        "a lost node",
    )
    return f"{address} (node {node_id[:8]})"


def cluster_nodes(placement: Placement, excluded: Set[str] = frozenset()) -> Nodes:
    """Return the resources, by Ray's names, of the nodes that are there, and of those that the autoscaler may start.

    Nodes with an `excluded` id are left out.
    """
    there = [node["Resources"] for node in alive_nodes() if node["NodeID"] not in excluded]
    coming = nodes_to_come(there, CLUSTER_FILE) if placement.address is not None else []
    return [*there, *coming]


def nodes_to_come(there: Nodes, cluster_file: Path) -> list[dict[str, float]]:
    """Return the resources of the nodes that the autoscaler may start.

    `there` are the resources of the nodes that are there, the head among them. A node counts in one type alone, the
    first that has its CPUs and GPUs and is not full. `cluster_file` has the settings of Ray's autoscaler; it is missing
    where there is none.
    """
    path = cluster_file.expanduser()
    if not path.is_file():
        return []
    settings = load_yaml(path)
    coming: list[list[dict[str, float]]] = []
    up = Counter((node.get("CPU", 0.0), node.get("GPU", 0.0)) for node in there)
    for node_type in settings["available_node_types"].values():
        resources = {name: float(number) for name, number in node_type["resources"].items()}
        if not resources:
            continue  # machines of the user's own: Ray knows when they are up
        size = resources.get("CPU", 0.0), resources.get("GPU", 0.0)
        most = node_type.get("max_workers", 0)
        coming.append([resources] * (most - min(most, up[size])))
        up[size] -= min(most, up[size])
    # The limit is of all types together, which take turns here.
    num_free = max(0, settings["max_workers"] - (len(there) - 1))
    return [node for turn in zip_longest(*coming) for node in turn if node is not None][:num_free]


Exchange = Callable[[int], tuple[Sequence[int], int]]
"""Publishes how many trials at once this sweep can use; returns these numbers of all sweeps, the oldest first, and the
index of this sweep's."""


def shares(num_slots: int, wants: Sequence[int]) -> list[int]:
    """Divide a cluster of `num_slots` trials at once equally among sweeps that can use so many each.

    What one sweep cannot use goes to the others, and what cannot be divided to the first. Each gets at least 1, more
    than `num_slots` in all if there are more sweeps: late ones then wait until Ray has a slot for them.
    """
    given = [1] * len(wants)
    for _ in range(num_slots - len(wants)):
        unmet = [index for index, most in enumerate(wants) if given[index] < most]
        if not unmet:
            break
        given[min(unmet, key=lambda index: given[index])] += 1
    return given


class Share:
    """The share of this sweep, on a cluster or a machine of its own.

    `nodes` returns the resources of all nodes that are there or may come. `exchange` is None where Ray was started for
    this sweep alone. `clock` is in seconds.
    """

    def __init__(
        self,
        placement: Placement,
        nodes: Callable[[], Nodes],
        exchange: Exchange | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._placement, self._nodes, self._exchange, self._clock = (
            placement,
            nodes,
            exchange,
            clock,
        )
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
        shrunk = (
            at_once < self.at_once and not alone
        )  # alone, machines were lost: no other sweep waits for ours
        useful = min(at_once, wants)
        limit_ended = alone and self.at_most is not None
        grown = useful > self.at_once and (limit_ended or useful >= WORTH_IT * self.at_once)
        if not (shrunk or grown):
            self._settled_at = now
        if now - self._settled_at < SETTLE_S:
            return None
        return (
            f"{at_once} trials at once instead of {self.at_once}: sweeps or machines came or went"
        )

    def news(self) -> list[str]:
        """Return, once, that the sweep waits for a machine that can hold a trial."""
        news, self._news = self._news, []
        return news

    def _now(self, wants: int) -> tuple[int, bool]:
        num_slots = self._placement.trials_at_once(self._nodes())
        if self._exchange is None:
            return num_slots, True
        claims, own = self._exchange(wants)
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
