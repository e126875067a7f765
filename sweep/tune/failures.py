"""Consequences of failed trials: for their runs, for the machine, and for the whole sweep.

| what fails | what is tried again, and how often |
|---|---|
| a trial, by an exception or a dead worker | the trial, `resources.retries` times |
| a trial of several runs, for lack of memory or after its retries | its runs, half as many at a time, down to one |
| a run alone, after its retries; a session that is used wrongly | nothing: the run has failed |
| a machine that is lost or taken away | its trials, elsewhere; five losses between two evaluations use up no retry |
| device, disk or process, under two trials on one machine alone | its trials, elsewhere; the sweep leaves the machine |
| the first three attempts alike, or the first five, before any run is evaluated | nothing: the sweep ends |
| Ray on this machine | Ray; after five deaths in a row before any run ends, nothing |

Every attempt resumes from the newest checkpoint. Tune retries a trial, behind those that wait; the driver does the
rest, in its next pass over the runs that are left.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from lr_sweep.common.text import counted, failure_kind, failure_line
from lr_sweep.sweep.plan.placement import CohortSizes, is_out_of_memory
from lr_sweep.sweep.results.run_state import run_title
from lr_sweep.sweep.study.runs import Cell, WantedRun
from lr_sweep.trainables.worker.ray_internals import KILLED

FAILED_ALIKE = 3
"""Failed attempts of one kind, before any run is evaluated, after which a sweep ends."""
FAILED_AT_ALL = 5
"""The same for attempts that fail for different reasons."""
MAX_KINDS = 5
"""Kinds of failures that are printed with their reasons."""
MEMORY_ADVICE = (
    "Train less at once, with a smaller --cpus (on a cluster a larger --cpus-per-trial) or with --runs-per-trial 1, or "
    "end other programs."
)
WORKER_DID_NOT_START = "the worker did not start"
"""Begins the reason of a trial whose process failed before it trained."""
MACHINE_FAULTS = re.compile(
    # A failed assertion on a GPU is an index out of range, in the code that runs there.
    r"cuda error(?!.*assert)|cuda gpus are available|nvidia driver|nccl error"
    r"|input/output error|stale file handle|read-only file system|no space left|want sha256"
    rf"|\bdied\b|{WORKER_DID_NOT_START}",
    re.IGNORECASE,
)
"""Signs of a device, a disk (or its data files) or a process that failed under a run."""


class Failures:
    """The failed attempts of a sweep; `sizes` says how many runs train together."""

    def __init__(self, sizes: CohortSizes) -> None:
        self._sizes = sizes
        self.early: list[tuple[Sequence[WantedRun], str]] = []
        """Runs and reasons of the failed attempts before any run was evaluated."""
        self._anything_evaluated = False
        self._under_way: dict[str, Cell] = {}
        """Cells of the trials that have started and not failed, by the id of their first run."""
        self._kinds_shown: set[str] = set()

    def separate(self, runs: Sequence[WantedRun], reason: str) -> str:
        """Train fewer of these runs together, since it is not known which one failed; return a message."""
        now = self._sizes.halve(runs[0], len(runs), remember=is_out_of_memory(reason))
        what = f"{len(runs)} runs that trained together failed ({reason})"
        return f"{what}; they resume from their checkpoints, {now} at a time"

    def first_of_kind(self, runs: Sequence[WantedRun], reason: str, further: str = "") -> list[str]:
        """Return what to print of a failure: of each kind the first one, since many runs may fail for one reason."""
        kind = failure_kind(reason)
        if kind in self._kinds_shown or len(self._kinds_shown) >= MAX_KINDS:
            return []
        self._kinds_shown.add(kind)
        more = f" and {counted(len(runs) - 1, 'run')} in the same trial" if len(runs) > 1 else ""
        return [f"{run_title(runs[0].row())}{more} failed{further}: {reason}"]

    def started(self, trial: str, cell: Cell) -> None:
        """Note that a trial of a cell has started; `trial` is the id of its first run."""
        self._under_way[trial] = cell

    def interrupted(self, trial: str) -> None:
        """Note that a trial does not train at the moment."""
        self._under_way.pop(trial, None)

    def evaluated(self) -> None:
        """Note that a run was evaluated: from now on, failures do not end the sweep."""
        self._anything_evaluated = True

    def attempt_failed(self, runs: Sequence[WantedRun], reason: str) -> str:
        """Count a failed attempt to train these runs; return why the sweep ends now, or nothing.

        It ends if no run was evaluated and as many attempts failed as the table above says, unless a trial of another
        cell is under way, which may work.
        """
        if self._anything_evaluated:
            return ""
        self.early.append((runs, reason))
        failed_cells = {run.cell for failed_runs, _ in self.early for run in failed_runs}
        num_kinds = len({failure_kind(early_reason) for _, early_reason in self.early})
        enough = FAILED_ALIKE if num_kinds == 1 else FAILED_AT_ALL
        if len(self.early) < enough or not failed_cells.issuperset(self._under_way.values()):
            return ""
        advice = f" {MEMORY_ADVICE}" if KILLED in reason else ""
        return (
            f"the first {len(self.early)} attempts all failed, before any run was evaluated: {failure_line(reason)}. "
            f"The other runs were not started. Once the reason is fixed, `run --retry-failed` trains them all.{advice}"
        )


def is_machine_fault(reason: str) -> bool:
    """Return whether a device, a disk or a process failed, and not the code that trains, nor for lack of memory."""
    if KILLED in reason or is_out_of_memory(reason):
        return False
    return MACHINE_FAULTS.search(failure_line(reason)) is not None


def failure_lines(reasons: Mapping[str, str]) -> list[str]:
    """Return the first failure of each kind, by the title of its run, with its reason, and how many more there are."""
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for title, reason in reasons.items():
        kinds[failure_kind(reason)].append(title)
    lines, rest = [], len(reasons)
    for first, *others in list(kinds.values())[:MAX_KINDS]:
        more = f" (and {len(others)} more like it)" if others else ""
        lines.append(f"  {first}: {failure_line(reasons[first])}{more}")
        rest -= 1 + len(others)
    lines += [f"  {rest} more, for other reasons"] if rest else []
    return (
        [*lines, f"  {MEMORY_ADVICE}"]
        if any(KILLED in reason for reason in reasons.values())
        else lines
    )
