"""What trains together and where: the cohorts of runs, what a trial holds, and whether the machines have that."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lr_sweep.common.errors import UserError
from lr_sweep.common.network import check_answers
from lr_sweep.common.text import rate_text
from lr_sweep.sweep.study.runs import WantedRun, alike
from lr_sweep.sweep.study.settings import Resources
from lr_sweep.trainables.run import Run, engine_of
from lr_sweep.trainables.worker.memory import part_sizes
from lr_sweep.trainables.worker.ray_internals import KILLED

GPU_FILES = ("proc/driver/nvidia/gpus/*", "dev/nvidia[0-9]*", "dev/nvhost*", "dev/dxg", "dev/kfd")
"""Device files of GPUs on Linux: NVIDIA's, its boards', those below Windows, AMD's."""

TRIALS_PER_SLOT = 32
"""Most trials for each slot, of runs that do not train together: fewer and longer trials cost the driver less."""

Group = tuple[WantedRun, ...]
"""The runs of a cohort; all are of one cell, and have the same options."""
Nodes = Sequence[dict[str, float]]
"""Each node's resources by Ray's names."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where trials run and what each holds."""

    resources: Resources
    address: str | None = None
    """Address of a running Ray cluster, `auto` or `ray://...` or host:port; None: start Ray on this machine."""
    cpus: int | None = None
    """CPUs that a Ray started here may use; None: all."""
    force: bool = False
    """Whether `cpus` may be more than this machine has."""

    @property
    def device(self) -> str:
        """`cuda` for trials that hold a GPU or a share of one, else `cpu`."""
        return "cuda" if self.resources.gpus_per_trial > 0 else "cpu"

    @property
    def trial(self) -> dict[str, float]:
        """What a trial holds, by Ray's names."""
        processes = self.resources.processes_per_run
        return {
            "CPU": self.resources.cpus_per_trial * processes,
            "GPU": self.resources.gpus_per_trial * processes,
        }

    def trials_at_once(self, nodes: Nodes) -> int:
        """Return how many trials these nodes hold; at least 1."""
        return max(1, sum(map(self._trials_on, nodes)))

    def _trials_on(self, node: Mapping[str, float]) -> int:
        by_cpu = node.get("CPU", 0) / self.trial["CPU"]
        return int(min(by_cpu, self._by_gpu(node.get("GPU", 0))))

    def _by_gpu(self, gpus: float) -> float:
        """Return how many trials fit on a node's GPUs: what a trial holds is of one device, as Ray gives it."""
        share = self.trial["GPU"]
        if share > 1:
            return gpus // share
        return int(gpus) * int(1 / share + 1e-9) if share else math.inf  # 3 x 0.3333 fill a GPU

    @property
    def devices_per_trial(self) -> float:
        """GPUs a trial holds, else CPUs."""
        return self.trial["GPU"] or self.trial["CPU"]


def devices_here(cpus: int | None, gpus: int | None) -> dict[str, float]:
    """Return a node of so many devices by Ray's names; None: as many as this process may use."""
    return {"CPU": cpus or cpus_here(), "GPU": gpus_here() if gpus is None else gpus}


def cpus_here() -> int:
    """Return how many CPUs this process may use: its affinity and its container may allow fewer than there are."""
    from joblib import cpu_count  # type: ignore[import-untyped]

    return int(cpu_count())


def gpus_here() -> int:
    """Return how many GPUs torch can use. Asking takes seconds, so a machine without device files is not asked."""
    if not _has_gpu():
        return 0
    import torch

    return torch.cuda.device_count()


def _has_gpu() -> bool:
    return any(path for pattern in GPU_FILES for path in Path("/").glob(pattern))


def idle_gpu(placement: Placement) -> list[str]:
    """Return a line for the user if this machine has a GPU that no trial would hold."""
    if placement.address is not None or placement.device == "cuda" or not _has_gpu():
        return []
    return ["this machine has a GPU that no trial uses: --gpus-per-trial 0.25 lets four share it"]


def check_beforehand(placement: Placement, for_gpus: tuple[str, ...]) -> None:
    """Raise UserError for options that need a GPU, a machine that cannot hold a trial, or a cluster without answer."""
    check_device(placement, for_gpus)
    if placement.address is None:
        there = cpus_here()
        if placement.cpus is not None and placement.cpus > there and not placement.force:
            raise UserError(
                f"--cpus: got {placement.cpus}, want at most {there}, the CPUs that this process may use here. Each "
                f"more takes about 1 GB of memory and slows the others down."
            )
        check_fit(placement, [devices_here(placement.cpus, None)])
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


def check_device(placement: Placement, for_gpus: tuple[str, ...]) -> None:
    """Raise `UserError` for options that need a GPU, where trials hold none."""
    if for_gpus and placement.device == "cpu":
        raise UserError(
            f"{' and '.join(for_gpus)}: for GPUs alone. Give trials one with --gpus-per-trial 1."
        )


def no_cluster(address: str, reason: object) -> UserError:
    """Return the error that no Ray cluster answers at an address."""
    return UserError(
        f"no Ray cluster answers at --address {address}: {reason}. Start one with `ray start --head` or "
        f"`ray up cluster.yaml`, or leave --address out to run on this machine."
    )


def fits(placement: Placement, nodes: Nodes) -> bool:
    """Return whether a node can hold a trial."""
    return any(
        all(node.get(name, 0) >= number for name, number in placement.trial.items())
        for node in nodes
    )


def check_fit(placement: Placement, nodes: Nodes) -> None:
    """Raise `UserError` if no living node can hold a trial: Ray would wait forever."""
    if fits(placement, nodes):
        return
    have = "; ".join(sorted(described(node) for node in nodes))
    where = f"the cluster at {placement.address}" if placement.address else "this machine"
    processes = placement.resources.processes_per_run
    of = f" for the {processes} processes of a run, which are on one node" if processes > 1 else ""
    raise UserError(
        f"a trial asks for {described(placement.trial)}{of}, but {where} has no such node (nodes: {have}). Ask for "
        f"less in the study's `resources` or with --gpus-per-trial, or use a larger cluster."
    )


def cohorts(to_train: Sequence[WantedRun], resources: Resources, at_once: int) -> list[Group]:
    """Group runs, given in the study's order, into cohorts, one for each trial; only the stacked engine trains several.

    `runs_per_trial` bounds a cohort, and cohorts come in the order of their first runs. Where it is None, a cell is one
    cohort, or is divided until each of the `at_once` trials that train at the same time has one, cells with more work
    into more; those with the most work come first, so that no long trial starts last. Runs that do not train together
    have a trial each, or share `TRIALS_PER_SLOT` trials for each of those at once.
    """
    order = {run.run_id: index for index, run in enumerate(to_train)}
    single: list[list[WantedRun]] = []
    stacked: list[list[WantedRun]] = []
    for runs in alike(to_train):
        is_stacked = engine_of(runs[0].run, resources.engine) == "stacked"
        (stacked if is_stacked else single).append(runs)
    in_turn = math.ceil(sum(map(len, single)) / (TRIALS_PER_SLOT * at_once))
    groups = [group for runs in single for group in _chunks(runs, in_turn)]
    if resources.runs_per_trial is not None:
        groups += [group for runs in stacked for group in _chunks(runs, resources.runs_per_trial)]
        return sorted(groups, key=lambda group: order[group[0].run_id])
    groups += _even_groups(stacked, at_once)
    return sorted(groups, key=lambda group: (-_work(group), order[group[0].run_id]))


def _chunks(runs: Sequence[WantedRun], size: int) -> list[Group]:
    return [tuple(runs[start : start + size]) for start in range(0, len(runs), size)]


def _even_groups(cells: Sequence[Sequence[WantedRun]], at_once: int) -> list[Group]:
    """Divide cells so that the group with the most work has as little as possible."""
    work, numbers = [_work(runs) for runs in cells], [1] * len(cells)
    for _ in range(at_once - len(cells)):
        if divisible := [index for index, runs in enumerate(cells) if numbers[index] < len(runs)]:
            numbers[max(divisible, key=lambda index: work[index] / numbers[index])] += 1
    return [
        tuple(runs[len(runs) * part // number : len(runs) * (part + 1) // number])
        for runs, number in zip(cells, numbers, strict=True)
        for part in range(number)
    ]


def _work(runs: Sequence[WantedRun]) -> float:
    """Return about how much runs of one cell calculate: the products of the body's weights, forward and back.

    Good enough to divide runs among devices. Of a function of the user's own the steps alone are known.
    """
    steps, run, shape = sum(run.num_steps for run in runs), runs[0].run, runs[0].shape
    if not isinstance(run, Run) or shape is None:
        return steps
    sizes, tokens = part_sizes(run.model, shape), run.protocol.batch_size * shape.num_tokens
    passes = {part: 3 if part in run.trained else 2 for part in ("attention", "feedforward")}
    return float(steps * tokens * sum(sizes[part] * number for part, number in passes.items()))


def is_out_of_memory(reason: str) -> bool:
    """Return whether a trial itself ran out of memory: our words, or torch's; not where `KILLED` by Ray."""
    signs = ("outofmemory", "out of memory", "memoryerror", "can't allocate memory")
    return KILLED not in reason and any(sign in reason.lower() for sign in signs)


def trial_name(group: Sequence[WantedRun]) -> str:
    """Name a trial for Ray's logs after its first run, which is in no other trial."""
    first = group[0]
    more = f"_and_{len(group) - 1}_more" if len(group) > 1 else ""
    return f"{'_'.join(first.cell)}_lr_{rate_text(first.run.learning_rate)}_seed_{first.run.seed}{more}"
