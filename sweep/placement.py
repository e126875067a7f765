"""Where trials run and what each holds, and whether that can be."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep.errors import UserError
from sweep.network import check_answers
from sweep.study import Resources
from trainables.run import Precision

Nodes = Sequence[dict[str, float]]
"""Each node's resources by Ray's names."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where trials run and what each holds."""

    resources: Resources
    address: str | None = None
    """Of a running Ray cluster, `auto` or `ray://...` or host:port; None: start Ray on this machine."""
    cpus: int | None = None
    """CPUs that a Ray started here may use; None: all."""
    priority: int = 1
    """Beside other sweeps on the cluster at `address`: with 2, twice as many trials at once as one with 1."""

    @property
    def device(self) -> str:
        """`cuda` for trials that hold a GPU or a share of one, else `cpu`."""
        return "cuda" if self.resources.gpus_per_trial > 0 else "cpu"

    def trials_at_once(self, nodes: Nodes) -> int:
        """Return how many trials these nodes hold; at least 1."""
        cpus, gpus = self.resources.cpus_per_trial, self.resources.gpus_per_trial
        return max(1, sum(int(min(node.get("CPU", 0) / cpus, _times(gpus, node.get("GPU", 0)))) for node in nodes))

    @property
    def devices_per_trial(self) -> float:
        """GPUs a trial holds, else CPUs."""
        return self.resources.gpus_per_trial or self.resources.cpus_per_trial


def devices_here(cpus: int | None, gpus: int | None) -> dict[str, float]:
    """Return a node of so many devices by Ray's names; None: as many as this machine has, as far as Linux says."""
    listed = len(list(Path("/proc/driver/nvidia/gpus").glob("*")))  # asking torch takes seconds
    return {"CPU": cpus or os.cpu_count() or 1, "GPU": listed if gpus is None else gpus}


def _times(wanted: float, there: float) -> float:
    return there / wanted + 1e-9 if wanted else math.inf  # thirds of a GPU do not add up exactly


def check_beforehand(placement: Placement, precision: Precision) -> None:
    """Refuse, before anything is fetched, what this machine lacks or a cluster that does not answer.

    Raises:
        UserError: as `check_fit`, no cluster at the address, or a precision that the trials' device has not.
    """
    if precision == "tf32" and placement.device == "cpu":
        raise UserError("protocol.precision is tf32, which only GPUs have. Give trials one with --gpus-per-trial 1.")
    if placement.address is None:
        import torch  # imported late: `plan` need not wait for it

        cpus, gpus = placement.cpus or os.cpu_count() or 1, torch.cuda.device_count()
        check_fit(placement, [{"CPU": cpus, "GPU": gpus}])
        return
    host, _, port = placement.address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():  # not `auto`
        try:
            check_answers(host, int(port))
        except OSError as error:
            raise no_cluster(placement.address, error) from error


def no_cluster(address: str, reason: object) -> UserError:
    """Return the error that says so."""
    return UserError(
        f"no Ray cluster answers at --address {address}: {reason}. Start one with `ray start --head` or "
        f"`ray up cluster.yaml`, or leave --address out to run on this machine."
    )


def check_fit(placement: Placement, nodes: Nodes) -> None:
    """Refuse to wait for ever for resources that no node has.

    Args:
        placement: what a trial asks for.
        nodes: each living node's resources by Ray's names.

    Raises:
        UserError: no node can hold one trial.
    """
    wanted = {"CPU": placement.resources.cpus_per_trial, "GPU": placement.resources.gpus_per_trial}
    if any(all(node.get(name, 0) >= number for name, number in wanted.items()) for node in nodes):
        return
    have = "; ".join(f"{node.get('CPU', 0):g} CPU and {node.get('GPU', 0):g} GPU" for node in nodes)
    where = f"the cluster at {placement.address}" if placement.address else "this machine"
    raise UserError(
        f"a trial asks for {wanted['CPU']:g} CPU and {wanted['GPU']:g} GPU, but {where} has no such node (nodes: "
        f"{have}). Ask for less with --cpus-per-trial and --gpus-per-trial or in the study's `resources`, or use a "
        f"larger cluster."
    )
