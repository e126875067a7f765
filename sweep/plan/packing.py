"""How runs are packed into trials: which runs form a cohort, and how many of a cohort train at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise

from lr_sweep.common.errors import UserError
from lr_sweep.common.text import rate_text
from lr_sweep.datasets.task import TaskShape
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.files import write_cohort_sizes
from lr_sweep.sweep.study.runs import Cell, WantedRun, alike
from lr_sweep.sweep.study.settings import Resources
from lr_sweep.trainables.run import Precision, Run, engine_of
from lr_sweep.trainables.worker.memory import part_sizes
from lr_sweep.trainables.worker.ray_internals import KILLED

Group = tuple[WantedRun, ...]
"""The runs of a cohort; all are of one cell, and have the same options."""

WEIGHT_TRAFFIC: dict[Precision, int] = {"bf16": 3600, "tf32": 1900, "fp32": 260}
"""Tokens whose products with a weight take a GPU as long as its step of Adam: memory is slow beside arithmetic. From
floors computed for an H200; fp32 by the ratio of its peak to that of tf32, 67 to 494 TFLOP/s."""


def cohorts(to_train: Sequence[WantedRun], resources: Resources, at_once: int) -> list[Group]:
    """Group runs, given in the study's order, into cohorts, one for each trial; only the stacked engine trains several.

    `runs_per_trial` bounds a cohort, and cohorts come in the order of their first runs. Where it is None, a cell is one
    cohort, or is divided until each of the `at_once` trials that train at the same time has one, cells with more work
    into more; those with the most work come first, so that no long trial starts last.
    """
    order = {run.run_id: index for index, run in enumerate(to_train)}
    cells = alike(to_train)
    size = 1 if resources.engine == "plain" else resources.runs_per_trial
    if size is not None:
        groups = [group for runs in cells for group in _chunks(runs, 1 if _is_alone(runs, resources) else size)]
        return sorted(groups, key=lambda group: order[group[0].run_id])
    on_gpu = resources.gpus_per_trial > 0
    groups = _even_groups([runs for runs in cells if not _is_alone(runs, resources)], at_once, on_gpu=on_gpu)
    groups += [group for runs in cells if _is_alone(runs, resources) for group in _chunks(runs, 1)]
    return sorted(groups, key=lambda group: (-total_work(group, on_gpu=on_gpu), order[group[0].run_id]))


def _is_alone(runs: Sequence[WantedRun], resources: Resources) -> bool:
    return engine_of(runs[0].run, resources.engine) != "stacked"


def _chunks(runs: Sequence[WantedRun], size: int) -> list[Group]:
    return [tuple(runs[start : start + size]) for start in range(0, len(runs), size)]


def _even_groups(cells: Sequence[Sequence[WantedRun]], at_once: int, *, on_gpu: bool) -> list[Group]:
    """Divide cells so that the group with the most work has as little as possible."""
    work, numbers = [total_work(runs, on_gpu=on_gpu) for runs in cells], [1] * len(cells)
    for _ in range(at_once - len(cells)):
        divisible = [index for index, runs in enumerate(cells) if numbers[index] < len(runs)]
        if not divisible:
            break
        numbers[max(divisible, key=lambda index: work[index] / numbers[index])] += 1
    groups = []
    for runs, number in zip(cells, numbers, strict=True):
        bounds = [len(runs) * part // number for part in range(number + 1)]
        groups += [tuple(runs[start:end]) for start, end in pairwise(bounds)]
    return groups


def total_work(runs: Iterable[WantedRun], *, on_gpu: bool) -> float:
    """Return the multiplications of runs up to their budgets, without evaluations.

    What a training function of the user's own does is not known: of such runs, it is their steps.
    """
    return sum(run.num_steps * _step_work(run, on_gpu=on_gpu) for run in runs)


def _step_work(wanted: WantedRun, *, on_gpu: bool) -> float:
    run = wanted.run
    return multiplications(run, wanted.shape, on_gpu=on_gpu) if isinstance(run, Run) and wanted.shape else 1.0


def multiplications(run: Run, task: TaskShape, *, on_gpu: bool) -> float:
    """Return the multiplications of a gradient step: the body's matrix products, forward and back.

    Exact enough to divide runs among devices. On a GPU a trained weight's memory traffic counts, too; on a CPU
    arithmetic outweighs it.
    """
    sizes, tokens = part_sizes(run.model, task), run.protocol.batch_size * task.num_tokens
    traffic = WEIGHT_TRAFFIC[run.protocol.precision]
    work = 3 * 2 * tokens * run.model.layers * task.num_tokens * run.model.width  # scores and values; 2 of 3 are back
    for part in ("attention", "feedforward"):
        trained = part in run.trained
        work += sizes[part] * (tokens * (3 if trained else 2) + (traffic if trained and on_gpu else 0))
    return float(work)


class CohortSizes:
    """How many runs of each cell train at once: all, or fewer after they ran out of memory; kept beside the results."""

    def __init__(self, results: Results) -> None:
        self._results, self._file = results, results.cohort_sizes
        self._most = self._read()

    def of(self, group: Sequence[WantedRun]) -> int:
        """Return how many runs of a group are to train at once."""
        return min(len(group), self._most.get(_key(group[0]), len(group)))

    def halve(self, run: WantedRun, num_runs: int, *, remember: bool) -> int:
        """Allow half as many runs of a cell as were training, for later sweeps, too, if `remember`; return how many."""
        self._most[_key(run)] = num_runs // 2
        if remember:
            write_cohort_sizes(self._results, {**self._read(), _key(run): num_runs // 2})
        return num_runs // 2

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
    """Return whether a trial itself ran out of memory: our words, or torch's; not where `KILLED` by Ray."""
    signs = ("outofmemory", "out of memory", "memoryerror", "can't allocate memory")
    return KILLED not in reason and any(sign in reason.lower() for sign in signs)


def largest_groups(groups: Iterable[Group]) -> dict[Cell, Group]:
    """Return the largest group of each cell."""
    return {group[0].cell: group for group in sorted(groups, key=len)}


def trial_name(group: Sequence[WantedRun]) -> str:
    """Name a trial for Ray's logs after its first run, which is in no other trial."""
    first = group[0]
    more = f"_and_{len(group) - 1}_more" if len(group) > 1 else ""
    return f"{'_'.join(first.cell)}_lr_{rate_text(first.run.learning_rate)}_seed_{first.run.seed}{more}"
