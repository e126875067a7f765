"""Whose failure it is when a trial fails: its runs', its node's, or the whole sweep's; and what to do about it."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass

from lr_sweep.common.errors import UserError
from lr_sweep.common.text import counted, failure_line
from lr_sweep.sweep.plan.placement import CohortSizes, is_out_of_memory
from lr_sweep.sweep.results.run_state import run_title
from lr_sweep.sweep.study.runs import Cell, WantedRun
from lr_sweep.sweep.tune.nodes import node_text
from lr_sweep.sweep.tune.ray_session import RayLostError
from lr_sweep.trainables.worker.ray_internals import KILLED, free_memory

FAILED_ALIKE = 3
"""Trials that fail for one reason, before anything is evaluated, after which a sweep ends: the rest would, too."""
FAILED_HERE = 2
"""Trials of different runs that fail for one reason on one node, and on no other, after which the sweep leaves it.

They are counted anew when a run is evaluated that started there after the last failure."""
MAX_KILLS = 5
"""Kills by Ray's memory monitor: of one run's worker, after which the run counts as failed, since it may need more than
there is; or of several, before anything is evaluated, after which a sweep ends: memory does not hold what it trains."""
MAX_KINDS = 5
"""Kinds of failures that are printed with their reasons."""
MEMORY_ADVICE = (
    "Train less at once, with a smaller --cpus (on a cluster a larger --cpus-per-trial) or with --runs-per-trial 1, or "
    "end other programs."
)
SHORT_OF_MEMORY = 0.1
"""Free share of a machine's memory below which it counts as short."""
BUSY = 2.0
"""Processes for each CPU that compute or wait to, from which a machine counts as busy."""
NO_DEVICE = re.compile(
    r"no NVIDIA driver|NVIDIA driver on your system is too old|driver initialization failed"
    r"|driver version is insufficient|driver is a stub|not supported in the installed CUDA driver"
    r"|driver/library version mismatch|driver not loaded|communicate with the NVIDIA driver|initialize NVML"
    r"|unsupported display driver|forward compatibility was attempted|system not yet initialized"
    r"|startup failure in cuda runtime|No (CUDA|HIP) GPUs are available|no (CUDA|ROCm)-capable device is detected"
    r"|busy or unavailable|valid Grid license|Unable to determine the device handle|MPS client failed"
    r"|MPS server (and|is not ready)"
    r"|(GPU|device) (is|was) lost|device lost|fallen off the bus|GPU (requires|needs) (a )?re(set|start)"
    r"|uncorrectable (ECC|NVLink)|hardware (stack )?error|blocked by the operating system"
    r"|CUDA (driver )?(error: )?unknown error",
    re.IGNORECASE,
)
"""Errors of a node's GPUs or their driver; after one of them the sweep leaves the node."""
PARTICULARS = re.compile(r"~?/[^\s'\",;)]*|\b\w*\d[\w.:-]*")
"""Paths, and words with digits: addresses, ports, process ids, hexadecimal ids, numbers."""


def is_of_a_gpu(reason: str) -> bool:
    """Return whether an error says that a node's GPUs or their driver do not work."""
    return NO_DEVICE.search(reason) is not None


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A trial that has failed for good."""

    run_ids: Sequence[str]
    cell: Cell
    reason: str
    node: str | None

    @property
    def kind(self) -> str:
        """What its reason has in common with others."""
        return kind_of(self.reason)


@dataclass(frozen=True, kw_only=True)
class Setback:
    """What follows from the failure of a trial, beside the interruption of its runs."""

    log: str
    """Text for the logs of its runs."""
    notes: Sequence[str] = ()
    is_blamed: bool = False
    """Whether it counts as a failure, of its runs or of its node."""
    failed: Sequence[Failure] = ()
    """Failures that count against their runs from now on."""
    leaves_node: bool = False
    """Whether the sweep leaves the node, so that its runs resume elsewhere."""


class Failures:
    """Decides which failures count against runs, and which nodes to leave.

    On a cluster a failure is held until it is known not to be its node's: a run that starts there later is evaluated,
    the same error occurs on another node, or the pass ends.

    Args:
        num_cells: of the runs that the sweep trains.
        usable: returns the ids of the nodes that can hold a trial, without `excluded`.
        excluded: ids of the nodes that are left, changed here.
        sizes: how many runs of a cell train at once, changed here.
    """

    def __init__(self, num_cells: int, usable: Callable[[], Set[str]], excluded: set[str], sizes: CohortSizes) -> None:
        self._num_cells, self._usable, self._excluded, self._sizes = num_cells, usable, excluded, sizes
        self._held: list[Failure] = []
        self._here: defaultdict[str, dict[str, list[Set[str]]]] = defaultdict(dict)
        """Runs of each failed trial, by kind and node, as far as they are counted for `FAILED_HERE`."""
        self._started_on: dict[str, str] = {}
        """The node of each run that started since the last failure there."""
        self._early: list[Failure] = []
        self._is_early = True
        self._kills: Counter[str] = Counter()
        """By run: of its worker where it trained alone, or of one that had begun none of its runs."""
        self._killed_since: list[tuple[str, ...]] = []
        """Runs of these workers since something was evaluated."""
        self._kinds_shown: set[str] = set()

    def answer(self, runs: Sequence[WantedRun], reason: str, node: str | None, *, together: bool) -> Setback:
        """Decide what follows from the failure of a trial in which these runs trained, `together` or not.

        Of several that trained together, it is not known which one failed, and out of memory none did: fewer of them
        train together in the next pass. Raises UserError where memory does not hold what trains at the same time.
        """
        ids = [run.run_id for run in runs]
        if node in self._excluded:
            return Setback(log=f"failed: {reason}", leaves_node=True)
        if together and not is_of_a_gpu(reason):
            if not _is_of_memory(reason) and self._leaves(ids, reason, node):
                return Setback(log=f"failed: {reason}", notes=_left(node, reason), leaves_node=True)
            now = self._sizes.halve(runs[0], len(ids), remember=is_out_of_memory(reason))
            what = f"{len(ids)} runs that trained together failed ({reason})"
            text = f"{what}; they resume from their checkpoints, {now} at a time"
            return Setback(log=text, notes=[text])
        if KILLED in reason and self.killed(ids):
            note = f"a trial of {counted(len(ids), 'run')} was {reason}; it is started again"
            return Setback(log=reason, notes=[note])
        notes = self._first_of_kind(runs, reason)
        failed, left = self.failed(Failure(run_ids=ids, cell=runs[0].cell, reason=reason, node=node))
        notes += _left(node, reason) if left else []
        return Setback(log=f"failed: {reason}", notes=notes, is_blamed=True, failed=failed, leaves_node=left)

    def retried(self, runs: Sequence[WantedRun], reason: str, node: str | None) -> Setback:
        """Decide what follows from a failure after which Tune starts the trial again."""
        if node in self._excluded:
            return Setback(log=reason, leaves_node=True)
        notes = self._first_of_kind(runs, reason, "; it is tried again")
        if left := not _is_of_memory(reason) and self._leaves([run.run_id for run in runs], reason, node):
            notes += _left(node, reason)
        return Setback(log=reason, notes=notes, leaves_node=left)

    def _first_of_kind(self, runs: Sequence[WantedRun], reason: str, further: str = "") -> list[str]:
        """Return what to print of a failure: of each kind the first one, since many runs may fail for one reason."""
        kind = kind_of(reason)
        if kind in self._kinds_shown or len(self._kinds_shown) >= MAX_KINDS:
            return []
        self._kinds_shown.add(kind)
        more = f" and {counted(len(runs) - 1, 'run')} in the same trial" if len(runs) > 1 else ""
        return [f"{run_title(runs[0].row())}{more} failed{further}: {reason}"]

    def started(self, run_id: str, node: str | None) -> None:
        """Count a run in training on a node."""
        if node is not None:
            self._started_on[run_id] = node

    def evaluated(self, run_id: str) -> list[Failure]:
        """Return held failures that are no fault of the node, since this run trains there."""
        self._is_early = False
        self._killed_since.clear()
        node = self._started_on.get(run_id)
        for trials in self._here.values():
            if node in trials:
                trials[node].clear()
        return self._release(lambda failure: failure.node == node)

    def release(self) -> list[Failure]:
        """Return all held failures; they count against their runs."""
        return self._release(lambda failure: True)

    def _release(self, choose: Callable[[Failure], bool]) -> list[Failure]:
        released = [failure for failure in self._held if choose(failure)]
        self._held = [failure for failure in self._held if failure not in released]
        return released

    def failed(self, failure: Failure) -> tuple[list[Failure], bool]:
        """Return the failures that now count against their runs, and whether this one's node is left for it."""
        if self._leaves(failure.run_ids, failure.reason, failure.node):
            return [], True
        if self._is_early:
            self._early.append(failure)
        if self._is_elsewhere(failure.node) and self._here[failure.kind].keys() == {failure.node}:
            self._held.append(failure)
            return [], False
        return [*self._release(lambda held: held.kind == failure.kind), failure], False

    def _leaves(self, run_ids: Collection[str], reason: str, node: str | None) -> bool:
        """Count a failed attempt to train these runs; return whether its node is left for it."""
        if node is None:
            return False
        kind, is_of_gpu = kind_of(reason), is_of_a_gpu(reason)
        nodes = self._here[kind]
        trials = nodes.setdefault(node, [])
        if all(trial.isdisjoint(run_ids) for trial in trials):
            trials.append(set(run_ids))
        self._started_on = {run_id: place for run_id, place in self._started_on.items() if place != node}
        is_of_node = is_of_gpu or (nodes.keys() == {node} and len(trials) >= FAILED_HERE)
        if is_of_node and self._is_elsewhere(node):
            self._excluded.add(node)
            self._release(lambda held: (held.node, held.kind) == (node, kind))
            return True
        if len(nodes) > 1 and not is_of_gpu:  # the nodes that were left for it are sound
            self._excluded.difference_update(nodes)
        return False

    def _is_elsewhere(self, node: str | None) -> bool:
        return node is not None and bool(self._usable() - {node})

    def killed(self, run_ids: Sequence[str]) -> bool:
        """Count a kill by Ray's memory monitor for runs of which none is known to be its cause.

        Returns whether they had few so far, so that they resume. Raises UserError where kills of several trials follow
        each other: what trains at the same time does not fit into memory.
        """
        self._kills.update(run_ids)
        self._killed_since.append(tuple(run_ids))
        if len(self._killed_since) >= MAX_KILLS and len(set(self._killed_since)) > 1:
            raise UserError(
                f"Ray's memory monitor killed {len(self._killed_since)} workers before anything was evaluated: memory "
                f"does not hold what trains at the same time. {MEMORY_ADVICE} What is recorded is intact, and the same "
                f"command resumes."
            )
        return min(self._kills[run_id] for run_id in run_ids) < MAX_KILLS

    def check_alike(self, training: Set[Cell]) -> None:
        """Raise UserError if each of the cells that have started has failed, all for one reason.

        `training` are the cells of the runs that train now.
        """
        failures = self._early if self._is_early else []
        cells, kinds = {failure.cell for failure in failures}, {failure.kind for failure in failures}
        several = min(2, self._num_cells)
        if len(failures) >= FAILED_ALIKE and len(kinds) == 1 and len(cells) >= several and training <= cells:
            raise UserError(
                f"the first {len(failures)} trials all failed: {failures[0].reason}. The other runs were not started. "
                f"Once the reason is fixed, `run --retry-failed` trains them all."
            )


def _left(node: str | None, reason: str) -> list[str]:
    return [f"trials fail on {node_text(str(node))} ({failure_line(reason)}): it is left, its runs resume elsewhere"]


def _is_of_memory(reason: str) -> bool:
    return KILLED in reason or is_out_of_memory(reason)


def kind_of(reason: str) -> str:
    """Return what failures of one kind have in common: the line that says why, without paths, addresses and ids."""
    return PARTICULARS.sub("#", failure_line(reason))


def failure_lines(reasons: Mapping[str, str]) -> list[str]:
    """Return the first failure of each kind, by the title of its run, with its reason, and how many more there are."""
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for title, reason in reasons.items():
        kinds[kind_of(reason)].append(title)
    lines, rest = [], len(reasons)
    for first, *others in list(kinds.values())[:MAX_KINDS]:
        more = f" (and {len(others)} more like it)" if others else ""
        lines.append(f"  {first}: {failure_line(reasons[first])}{more}")
        rest -= 1 + len(others)
    lines += [f"  {rest} more, for other reasons"] if rest else []
    return [*lines, f"  {MEMORY_ADVICE}"] if any(KILLED in reason for reason in reasons.values()) else lines


def advice_on(loss: RayLostError) -> str:
    """Return why a Ray that was started here may have died, or may not have started, and what to do about it."""
    processes, cpus = os.getloadavg()[0], os.cpu_count() or 1
    if (free := free_memory()) < SHORT_OF_MEMORY:
        return f"Memory is short here: {free:.0%} of it is free. {MEMORY_ADVICE}"
    if loss.killed:
        return "It was killed, as the system does when memory runs out: `dmesg` says whether it did."
    if processes >= BUSY * cpus:
        busy = f"{processes:.0f} processes compute on {cpus} CPUs"
        return f"This machine is busy: {busy}, and Ray did not start in time. Try again when it is less so."
    return ""
