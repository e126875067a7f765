"""Where trials run and what each holds, and whether that can be."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep.errors import UserError
from sweep.network import check_answers
from sweep.study import Resources
from trainables.run import Precision

GPU_FILES = ("proc/driver/nvidia/gpus/*", "dev/nvidia[0-9]*", "dev/nvhost*", "dev/dxg", "dev/kfd")
"""What Linux has where a GPU may be: NVIDIA's, its boards', the same below Windows, AMD's."""

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

    @property
    def trial(self) -> dict[str, float]:
        """What a trial holds, by Ray's names."""
        return {"CPU": self.resources.cpus_per_trial, "GPU": self.resources.gpus_per_trial}

    def trials_at_once(self, nodes: Nodes) -> int:
        """Return how many trials these nodes hold; at least 1."""
        cpus, gpus = self.resources.cpus_per_trial, self.resources.gpus_per_trial
        return max(1, sum(int(min(node.get("CPU", 0) / cpus, _times(gpus, node.get("GPU", 0)))) for node in nodes))

    @property
    def devices_per_trial(self) -> float:
        """GPUs a trial holds, else CPUs."""
        return self.resources.gpus_per_trial or self.resources.cpus_per_trial


def devices_here(cpus: int | None, gpus: int | None) -> dict[str, float]:
    """Return a node of so many devices by Ray's names; None: as many as this machine has."""
    return {"CPU": cpus or os.cpu_count() or 1, "GPU": gpus_here() if gpus is None else gpus}


def gpus_here() -> int:
    """Return how many GPUs torch can use; it takes seconds to ask, and is not asked where there is none for sure."""
    if not any(found for pattern in GPU_FILES for found in Path("/").glob(pattern)):
        return 0
    import torch

    return torch.cuda.device_count()


def _times(wanted: float, there: float) -> float:
    return there / wanted + 1e-9 if wanted else math.inf  # thirds of a GPU do not add up exactly


def check_beforehand(placement: Placement, precision: Precision) -> None:
    """Refuse, before anything is fetched, what this machine lacks or a cluster that does not answer.

    Raises:
        UserError: as `check_fit`, no cluster at the address, or a precision that the trials' device has not.
    """
    check_precision(placement, precision)
    if placement.address is None:
        import torch  # imported late: `plan` need not wait for it

        check_fit(placement, [devices_here(placement.cpus, torch.cuda.device_count())])
        return
    host, _, port = placement.address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():  # not `auto`
        try:
            check_answers(host, int(port))
        except OSError as error:
            raise no_cluster(placement.address, error) from error


def described(node: Mapping[str, float]) -> str:
    """Return `2 CPU and 0 GPU`."""
    return f"{node.get('CPU', 0):g} CPU and {node.get('GPU', 0):g} GPU"


def check_precision(placement: Placement, precision: Precision) -> None:
    """Refuse a precision that the trials' device has not, on whatever machine.

    Raises:
        UserError: it is tf32, and trials hold no GPU.
    """
    if precision == "tf32" and placement.device == "cpu":
        raise UserError("protocol.precision is tf32, which only GPUs have. Give trials one with --gpus-per-trial 1.")


def no_cluster(address: str, reason: object) -> UserError:
    """Return the error that says so."""
    return UserError(
        f"no Ray cluster answers at --address {address}: {reason}. Start one with `ray start --head` or "
        f"`ray up cluster.yaml`, or leave --address out to run on this machine."
    )


def fits(placement: Placement, nodes: Nodes) -> bool:
    """Tell whether a node can hold a trial."""
    return any(all(node.get(name, 0) >= number for name, number in placement.trial.items()) for node in nodes)


def check_fit(placement: Placement, nodes: Nodes) -> None:
    """Refuse to wait for ever for resources that no node has.

    Args:
        placement: what a trial asks for.
        nodes: each living node's resources by Ray's names.

    Raises:
        UserError: no node can hold one trial.
    """
    if fits(placement, nodes):
        return
    have = "; ".join(described(node) for node in nodes)
    where = f"the cluster at {placement.address}" if placement.address else "this machine"
    raise UserError(
        f"a trial asks for {described(placement.trial)}, but {where} has no such node (nodes: {have}). Ask for less "
        f"with --cpus-per-trial and --gpus-per-trial or in the study's `resources`, or use a larger cluster."
    )
