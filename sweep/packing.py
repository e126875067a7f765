"""How runs are packed into trials: which train together, and how many of them at once."""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Sequence
from itertools import pairwise

from analysis.text import rate_text
from sweep.errors import UserError
from sweep.progress_state import RunLabel
from sweep.results import Results, write_json
from sweep.runs import WantedRun
from sweep.study import Resources
from sweep.work import total_work

Cell = tuple[str, str, str]


def cohorts(to_train: Sequence[WantedRun], resources: Resources, at_once: int) -> list[tuple[WantedRun, ...]]:
    """Group runs into what one trial trains: runs of one cell, in the study's order.

    Args:
        to_train: in the study's order.
        resources: `runs_per_trial` bounds a group; where it is None, a cell is one group, or as many as it takes to
            give each of `at_once` trials one, the more the more work a cell is. The plain engine gains nothing from
            groups, and trains single runs.
        at_once: trials that train at the same time.

    Returns:
        The groups in the order of their first runs; where `runs_per_trial` is None, those with the most work first, so
        that none is left over at the end.
    """
    cells: dict[Cell, list[WantedRun]] = {}
    for run in to_train:
        cells.setdefault(run.cell, []).append(run)
    place = {run.run_id: index for index, run in enumerate(to_train)}
    size = 1 if resources.engine == "plain" else resources.runs_per_trial
    if size is None:
        on_gpu = resources.gpus_per_trial > 0
        groups = _even_groups([(runs, total_work(runs, on_gpu=on_gpu)) for runs in cells.values()], at_once)
        return sorted(groups, key=lambda group: (-total_work(group, on_gpu=on_gpu), place[group[0].run_id]))
    groups = [group for runs in cells.values() for group in _groups_of(runs, size)]
    return sorted(groups, key=lambda group: place[group[0].run_id])


def _even_groups(cells: Sequence[tuple[list[WantedRun], float]], at_once: int) -> list[tuple[WantedRun, ...]]:
    """Divide cells, given with their work, so that the group with the most work has as little as can be."""
    numbers = [1] * len(cells)
    divisible = [(-work, index) for index, (runs, work) in enumerate(cells) if len(runs) > 1]  # work of each group
    heapq.heapify(divisible)
    for _ in range(at_once - len(cells)):
        if not divisible:
            break
        _, index = heapq.heappop(divisible)
        runs, work = cells[index]
        numbers[index] += 1
        if numbers[index] < len(runs):
            heapq.heappush(divisible, (-work / numbers[index], index))
    return [group for (runs, _), number in zip(cells, numbers, strict=True) for group in _parts_of(runs, number)]


def _parts_of(runs: Sequence[WantedRun], number: int) -> list[tuple[WantedRun, ...]]:
    bounds = [len(runs) * part // number for part in range(number + 1)]
    return [tuple(runs[start:end]) for start, end in pairwise(bounds)]


def _groups_of(runs: Sequence[WantedRun], size: int) -> list[tuple[WantedRun, ...]]:
    return [tuple(runs[start : start + size]) for start in range(0, len(runs), size)]


def useful_trials(num_runs: int, resources: Resources) -> int:
    """Return how many trials at once so many runs have any use for."""
    return math.ceil(num_runs / (resources.runs_per_trial or 1))


class Places:
    """How many runs of each cell train at once, as far as running out of memory has taught; kept beside the results."""

    def __init__(self, results: Results) -> None:
        self._file = results.root / "places.json"
        self._most = self._read()

    def of(self, group: Sequence[WantedRun]) -> int:
        """Return how many runs of a group are to train at once."""
        return min(len(group), self._most.get(_key(group[0]), len(group)))

    def halve(self, run: WantedRun, were: int, *, remember: bool) -> int:
        """Allow half as many of a run's cell as were training; return how many.

        Args:
            run: one of the cell.
            were: runs that trained at once when it went wrong, at least 2.
            remember: for later sweeps, too.
        """
        self._most[_key(run)] = were // 2
        if remember:
            write_json(self._file, {**self._read(), _key(run): were // 2})
        return were // 2

    def _read(self) -> dict[str, int]:
        if not self._file.is_file():
            return {}
        try:
            return {str(cell): int(most) for cell, most in json.loads(self._file.read_text()).items()}
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(f"cannot read {self._file} ({error}): delete it; `run` finds out again") from error


def _key(run: WantedRun) -> str:
    return "/".join(run.cell)


def is_out_of_memory(reason: str) -> bool:
    """Tell whether a trial failed for want of memory: ours and torch's words, or Ray's of a worker that it killed."""
    return any(
        sign in reason.lower() for sign in ("outofmemory", "out of memory", "memoryerror", "can't allocate memory")
    )


def trial_name(group: Sequence[WantedRun]) -> str:
    """Name a trial for Ray's logs after its first run, which is in no other trial."""
    first = group[0]
    more = f"_and_{len(group) - 1}_more" if len(group) > 1 else ""
    return f"{'_'.join(first.cell)}_lr_{rate_text(first.run.learning_rate)}_seed_{first.run.seed}{more}"


def run_label(run: WantedRun) -> RunLabel:
    """Return what the display says of a run."""
    return RunLabel(
        task=run.run.task,
        model=run.model,
        variant=run.variant,
        learning_rate=run.run.learning_rate,
        seed=run.run.seed,
        num_steps=run.num_steps,
        evaluate_every=run.run.protocol.evaluate_every,
    )
