"""What follows when trials fail: for their runs, and for the whole sweep."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set

from lr_sweep.common.errors import UserError
from lr_sweep.common.text import counted, failure_line
from lr_sweep.sweep.plan.placement import CohortSizes, is_out_of_memory
from lr_sweep.sweep.results.run_state import run_title
from lr_sweep.sweep.study.runs import Cell, WantedRun
from lr_sweep.trainables.worker.ray_internals import KILLED

FAILED_ALIKE = 3
"""Trials that fail for one reason, before anything is evaluated, after which a sweep ends: the rest would, too."""
MAX_KINDS = 5
"""Kinds of failures that are printed with their reasons."""
MEMORY_ADVICE = (
    "Train less at once, with a smaller --cpus (on a cluster a larger --cpus-per-trial) or with --runs-per-trial 1, or "
    "end other programs."
)
PARTICULARS = re.compile(r"~?/[^\s'\",;)]*|\b\w*\d[\w.:-]*")
"""Paths, and words with digits: addresses, ports, process ids, hexadecimal ids, numbers."""


class Failures:
    """The failures of a sweep that trains runs of `num_cells` cells; `sizes` says how many runs train together."""

    def __init__(self, num_cells: int, sizes: CohortSizes) -> None:
        self._num_cells, self._sizes = num_cells, sizes
        self._early: list[tuple[Cell, str]] = []
        """Cells and reasons of the failures before anything was evaluated."""
        self._is_early = True
        self._kinds_shown: set[str] = set()

    def separate(self, runs: Sequence[WantedRun], reason: str) -> str:
        """Train fewer of these runs together, since it is not known which one failed; return a message."""
        now = self._sizes.halve(runs[0], len(runs), remember=is_out_of_memory(reason))
        what = f"{len(runs)} runs that trained together failed ({reason})"
        return f"{what}; they resume from their checkpoints, {now} at a time"

    def first_of_kind(self, runs: Sequence[WantedRun], reason: str, further: str = "") -> list[str]:
        """Return what to print of a failure: of each kind the first one, since many runs may fail for one reason."""
        kind = kind_of(reason)
        if kind in self._kinds_shown or len(self._kinds_shown) >= MAX_KINDS:
            return []
        self._kinds_shown.add(kind)
        more = f" and {counted(len(runs) - 1, 'run')} in the same trial" if len(runs) > 1 else ""
        return [f"{run_title(runs[0].row())}{more} failed{further}: {reason}"]

    def evaluated(self) -> None:
        """Note that a run was evaluated: from now on, failures alike do not end the sweep."""
        self._is_early = False

    def failed(self, cell: Cell, reason: str, training: Set[Cell]) -> None:
        """Count a trial that failed for good; `training` are the cells of the runs that train now.

        Raises UserError if each of the cells that have started has failed, all for one reason.
        """
        if not self._is_early:
            return
        self._early.append((cell, reason))
        cells, kinds = {cell for cell, _ in self._early}, {kind_of(reason) for _, reason in self._early}
        several = min(2, self._num_cells)
        if len(self._early) >= FAILED_ALIKE and len(kinds) == 1 and len(cells) >= several and training <= cells:
            raise UserError(
                f"the first {len(self._early)} trials all failed: {failure_line(self._early[0][1])}. The other runs "
                f"were not started. Once the reason is fixed, `run --retry-failed` trains them all."
            )


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
