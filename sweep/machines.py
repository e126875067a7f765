"""What Ray knows of a cluster: the machine each trial is on, whether it is still there, and who else is."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from sweep.network import check_answers
from sweep.sharing import Claim
from trainables.leaving import leaving_nodes


class Machines:
    """Where the trials of one sweep are."""

    def __init__(self) -> None:
        self._node_of: dict[str, str] = {}

    def started(self, trial: Any) -> None:
        """Remember where a trial is; Ray no longer says so when it is dead."""
        from ray._private.state import actors

        actor = actors(trial.temporary_state.ray_actor._actor_id.hex())
        self._node_of[trial.trial_id] = actor["Address"]["NodeID"]

    def lost(self, trial: Any) -> bool:
        """Tell whether the machine that a trial was on is gone or about to go.

        It is gone if Ray says so, or if its raylet does not answer.

        Ray (2.60) itself notices after 12 s that a raylet is dead, while trials there fail at once; a machine that
        stays silent it gives up after a minute, and the trials with it.
        """
        import ray

        ours = self._node_of.get(trial.trial_id)
        there = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] == ours]
        try:
            for node in there:
                check_answers(node["NodeManagerAddress"], node["NodeManagerPort"])
        except OSError:
            return True
        return ours is not None and (not there or ours in leaving_nodes())


class RayBoard:
    """Where sweeps of a cluster see each other: in its own store, for as long as their drivers live."""

    _NAMESPACE = "lr-sweep"

    def name(self) -> str:
        """Return the driver's job id."""
        import ray

        return str(ray.get_runtime_context().get_job_id())

    def post(self, claim: Claim) -> None:
        """Put ours there."""
        from ray.experimental.internal_kv import _internal_kv_put

        _internal_kv_put(self.name(), json.dumps(asdict(claim)), overwrite=True, namespace=self._NAMESPACE)

    def read(self) -> dict[str, Claim]:
        """Return those of living drivers; job ids are counted up, lowest byte first."""
        from ray._private.state import jobs
        from ray.experimental.internal_kv import _internal_kv_get

        living = sorted(
            (job["JobID"] for job in jobs() if not job["IsDead"]), key=lambda name: bytes.fromhex(name)[::-1]
        )
        posted = {name: _internal_kv_get(name, namespace=self._NAMESPACE) for name in living}
        return {name: Claim(**json.loads(text)) for name, text in posted.items() if text}
