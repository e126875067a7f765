"""Consequences of failed trials: for their runs, for the machine, and for the whole sweep.

| what fails | what is tried again, and how often |
|---|---|
| a trial, by an exception or a dead worker | the trial, `resources.retries` times |
| a trial of several runs, for lack of memory or after its retries | its runs, half as many at a time, down to one |
| a run alone, after its retries; a session that is used wrongly | nothing: the run has failed |
| a machine that is lost or taken away | its trials, elsewhere; five losses between two evaluations use up no retry |
| device, disk or process, under two trials on one machine alone | its trials, elsewhere; the sweep leaves the machine |
| three attempts in a row, alike, before any run is evaluated | nothing: the sweep ends |
| Ray on this machine | Ray; after five deaths in a row before any run ends, nothing |

Every attempt resumes from the newest checkpoint. Tune retries a trial, behind those that wait; the driver does the
rest, in its next pass over the runs that are left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

from lr_sweep.common.text import Say, counted, failure_kind, failure_line
from lr_sweep.sweep.plan.placement import Group, Placement, is_out_of_memory
from lr_sweep.sweep.results.run_state import run_title
from lr_sweep.sweep.study.runs import Cell, WantedRun
from lr_sweep.trainables.worker.ray_internals import KILLED

from .broken_nodes import BrokenNodes
from .nodes import Machines
from .trials import TrialFailed, TrialInterrupted

FAILED_ALIKE = 3
"""Failed attempts in a row of one kind, before any run is evaluated, after which a sweep ends."""
MAX_KINDS = 5
"""Kinds of failures that are printed with their reasons."""
MEMORY_ADVICE = (
    "Train less at once, with a smaller --cpus or, in the study's `resources`, `runs_per_trial: 1` (on a cluster a "
    "larger `cpus_per_trial`), or end other programs."
)


class Failures:
    """The failed attempts of a sweep, and what follows from each; `say` is called with notes for the user."""

    def __init__(self, machines: Machines, placement: Placement, say: Say) -> None:
        self._machines, self._say = machines, say
        self._nodes = BrokenNodes(partial(machines.usable, placement), machines.excluded, say)
        self._at_once: dict[Cell, int] = {}
        """Most runs that train together, of cells in which more have failed together."""
        self.early: list[tuple[Sequence[WantedRun], str]] = []
        """Runs and reasons of the failed attempts before any run was evaluated."""
        self._anything_evaluated = False
        self._under_way: dict[str, Cell] = {}
        """Cells of the trials that have started and not failed, by the id of their first run."""
        self._kinds_shown: set[str] = set()

    def trial_started(self, run_ids: Sequence[str], cell: Cell, node: str | None = None) -> None:
        """Note that a trial of a cell has started on a node."""
        self._under_way[run_ids[0]] = cell
        self._nodes.started(run_ids, node)

    def trial_stopped(self, run_ids: Sequence[str]) -> None:
        """Note that a trial does not train at the moment."""
        self._under_way.pop(run_ids[0], None)

    def run_evaluated(self, run_id: str) -> None:
        """Note that a run was evaluated: from now on, failures do not end the sweep."""
        self._anything_evaluated = True
        self._nodes.evaluated(run_id)

    def runs_at_once(self, group: Group) -> int:
        """Return how many runs of a group are to train at once."""
        return min(len(group), self._at_once.get(group[0].cell, len(group)))

    def consequence(
        self, runs: Sequence[WantedRun], trial: TrialInterrupted, num_training: int
    ) -> tuple[str, bool]:
        """Return what follows from a failed attempt: a text for the logs, and whether the runs have failed.

        `runs` are those that trained in it, or all where none did; `num_training` is how many trained.
        """
        assert trial.reason is not None, "a lost machine is no failed attempt"
        is_of_node = self._nodes.blames([run.run_id for run in runs], trial.reason, trial.node)
        is_final = isinstance(trial, TrialFailed) and not is_of_node
        if num_training > 1 and (is_final or KILLED in trial.reason):
            return self._separated(runs, trial.reason), False
        further = "" if is_final else "; it is tried again"
        self._say_first_of_kind(runs, trial.reason, further)
        return f"failed: {trial.reason}{further}", is_final

    def reason_to_end(self, runs: Sequence[WantedRun], reason: str, node: str | None = None) -> str:
        """Count a failed attempt to train these runs; return why the sweep ends now, or nothing.

        It ends if no run was evaluated and as many attempts failed as the table above says, unless a trial of another
        cell is under way, which may work. A broken node and runs that lack memory together do not count.
        """
        if self._anything_evaluated or node in self._machines.excluded:
            return ""
        if is_out_of_memory(reason) and len(runs) > 1:
            return ""
        self.early.append((runs, reason))
        failed_cells = {run.cell for failed_runs, _ in self.early for run in failed_runs}
        last_kinds = [failure_kind(early_reason) for _, early_reason in self.early[-FAILED_ALIKE:]]
        are_alike = len(last_kinds) == FAILED_ALIKE and len(set(last_kinds)) == 1
        if not (are_alike and failed_cells.issuperset(self._under_way.values())):
            return ""
        advice = f" {MEMORY_ADVICE}" if KILLED in reason else ""
        return (
            f"the first {len(self.early)} attempts all failed, before any run was evaluated: {failure_line(reason)}. "
            f"The other runs were not started. Once the reason is fixed, `run --retry-failed` trains them all.{advice}"
        )

    def _separated(self, runs: Sequence[WantedRun], reason: str) -> str:
        """Train fewer of these runs together, since it is not known which one failed; return a message."""
        at_once = len(runs) // 2
        self._at_once[runs[0].cell] = at_once
        what = f"{len(runs)} runs that trained together failed ({reason})"
        text = f"{what}; they resume from their checkpoints, {at_once} at a time"
        self._say(text)
        return text

    def _say_first_of_kind(self, runs: Sequence[WantedRun], reason: str, further: str) -> None:
        """Print the first failure of each kind alone, since many runs may fail for one reason."""
        kind = failure_kind(reason)
        is_full = len(self._kinds_shown) >= MAX_KINDS
        if is_full or kind in self._kinds_shown:
            return
        self._kinds_shown.add(kind)
        more = f" and {counted(len(runs) - 1, 'run')} in the same trial" if len(runs) > 1 else ""
        self._say(f"{run_title(runs[0].row())}{more} failed{further}: {reason}")


def failure_lines(reasons: Mapping[str, str]) -> list[str]:
    """Return the first failure of each kind, by the title of its run, with its reason, and how many more there are."""
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for title, reason in reasons.items():
        kinds[failure_kind(reason)].append(title)
    shown = list(kinds.values())[:MAX_KINDS]
    lines = []
    for first, *same_kind in shown:
        more = f" (and {len(same_kind)} more like it)" if same_kind else ""
        lines.append(f"  {first}: {failure_line(reasons[first])}{more}")
    if hidden := len(reasons) - sum(map(len, shown)):
        lines.append(f"  {hidden} more, for other reasons")
    if any(KILLED in reason for reason in reasons.values()):
        lines.append(f"  {MEMORY_ADVICE}")
    return lines
