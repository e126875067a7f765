"""Progress of a study's runs while they train: counts, the best of each cell, the time left; and its display."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from lr_sweep.common.text import counted, duration, rate_text
from lr_sweep.sweep.plan.cost import wall_time
from lr_sweep.sweep.study.runs import Cell, WantedRun
from lr_sweep.trainables.engine import Evaluation
from lr_sweep.trainables.worker.messages import Advanced, Event, Finished, evaluations

REFRESH_S = 0.5
PLAIN_EVERY_S = 30.0
"""Seconds between two plain lines where the console is no terminal."""
_TABLE_FRAME_LINES = 7
"""Lines of the display that are no row of the table: its borders and heads, one for hidden rows, two of summary."""
UNFINISHED = ("waiting", "running")
AXES = ("task", "model", "variant")
"""Names of the parts of a cell."""

Paces = Mapping[Cell | None, float]
"""The mean pace of each cell; under None, that of all. Empty: nothing is known."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The study at one moment."""

    counts: dict[str, int]
    """Runs by status: `done` (complete, stopped, and all that were done before), `running`, `diverged`, `failed`,
    `waiting`."""
    total_runs: int
    steps_per_s: float
    """Gradient steps a second, over all running runs; evaluations count as time without steps."""
    elapsed_s: float
    time_left_s: float | None
    """Steps, evaluations and checkpoints at the present pace; None: no pace is known yet."""
    failed_attempts: int
    """Starts of trials in this sweep that failed, those that were tried again included."""


@dataclass(kw_only=True)
class _Run:
    wanted: WantedRun
    status: str = "waiting"
    step: int = 0
    pace: float | None = None
    """Seconds of its trial that a step takes, evaluations included; the runs of a trial share its time."""

    def pace_by(self, paces: Paces) -> float:
        """Return its own pace, else that of its cell, else the mean of all."""
        return self.pace or paces.get(self.wanted.cell) or paces[None]

    def seconds_left(self, paces: Paces) -> float:
        """Return how long the rest of the run takes."""
        return max(0, self.wanted.num_steps - self.step) * self.pace_by(paces)


class StudyProgress:
    """Progress of a study's `runs` to train, updated by the driver.

    The others of `total_runs`, which are those of `--only`, count as done and have no part in the time left.
    `clock`: for the time elapsed.
    """

    def __init__(
        self,
        runs: Sequence[WantedRun],
        total_runs: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total_runs, self.clock, self._started_at = total_runs, clock, clock()
        self.best: dict[Cell, tuple[WantedRun, Evaluation]] = {}
        """The best validation result of each cell so far, and its run."""
        self.failed_attempts = 0
        self._runs: dict[str, _Run] = {}
        self._left: dict[str, WantedRun] = {}
        """The runs that have not ended; each event asks how many these are."""
        self._expect(runs)
        self._trials: Sequence[Sequence[str]] = [[run_id] for run_id in self._runs]
        self._at_once = 1

    def add(self, runs: Sequence[WantedRun]) -> None:
        """Note that further runs are to train: the next round of a search."""
        self._expect(runs)
        self.total_runs += len(runs)

    def _expect(self, runs: Sequence[WantedRun]) -> None:
        self._runs |= {run.run_id: _Run(wanted=run) for run in runs}
        self._left |= {run.run_id: run for run in runs}

    def packed(self, trials: Sequence[Sequence[str]], at_once: int) -> None:
        """Note that from now on these runs train together, in trials that start in this order, `at_once` at a time."""
        self._trials, self._at_once = trials, at_once

    def event(self, event: Event) -> None:
        """Take in what a worker reports of a run. A run that is retried may start more than once."""
        run = self._runs[event.run_id]
        run.status, run.step = "running", event.step
        match event:
            case Advanced(step_s=float() as step_s):
                every = run.wanted.run.steps_between_evaluations
                run.pace = step_s + (event.evaluation_s or 0.0) / every
            case Finished():
                run.status = event.status
                self._left.pop(event.run_id, None)

        cell, sign = run.wanted.cell, run.wanted.metric.sign
        for evaluation in evaluations(event):  # of equal ones, the first is the best
            value = sign * evaluation.validation
            best = sign * self.best[cell][1].validation if cell in self.best else -math.inf
            if math.isfinite(value) and value > best:
                self.best[cell] = run.wanted, evaluation

    def failed(self, run_id: str) -> None:
        """Note that a run failed."""
        self._runs[run_id].status = "failed"
        self._left.pop(run_id, None)

    def interrupted(self, run_ids: Iterable[str]) -> None:
        """Note that these runs do not train at the moment, if they did; they resume later."""
        for run_id in run_ids:
            if self._runs[run_id].status == "running":
                self._runs[run_id].status = "waiting"

    def training(self) -> dict[str, int]:
        """Return the step of each run that trains now."""
        return {run_id: run.step for run_id, run in self._runs.items() if run.status == "running"}

    def cell_of(self, run_id: str) -> Cell:
        """Return the cell of a run."""
        return self._runs[run_id].wanted.cell

    def has_ended(self, run_id: str) -> bool:
        """Return whether a run has ended, by an error, too."""
        return run_id not in self._left

    def ended(self) -> dict[str, str]:
        """Return the statuses of the runs that have ended, by id."""
        return {run_id: run.status for run_id, run in self._runs.items() if self.has_ended(run_id)}

    def left(self, run_ids: Iterable[str] | None = None) -> list[WantedRun]:
        """Return which of these runs have not ended; None: of all."""
        if run_ids is None:
            return list(self._left.values())
        return [self._left[run_id] for run_id in run_ids if run_id in self._left]

    def summary(self) -> Summary:
        """Sum up this moment."""
        paces = self._paces()
        trials = [[self._runs[run.run_id] for run in self.left(trial)] for trial in self._trials]
        left = sorted(filter(None, trials), key=lambda trial: not _running(trial))
        time_left_s = None
        if paces or not left:
            seconds = [sum(run.seconds_left(paces) for run in trial) for trial in left]
            time_left_s = wall_time(seconds, max(1, self._at_once))
        return Summary(
            counts=self._counts(),
            total_runs=self.total_runs,
            steps_per_s=sum(_steps_per_s(_running(trial), paces) for trial in left),
            elapsed_s=max(0.0, self.clock() - self._started_at),
            time_left_s=time_left_s,
            failed_attempts=self.failed_attempts,
        )

    def statuses(self) -> dict[Cell, list[str]]:
        """Return the statuses of each cell's runs, of those to train."""
        statuses: dict[Cell, list[str]] = {}
        for run in self._runs.values():
            statuses.setdefault(run.wanted.cell, []).append(run.status)
        return statuses

    def _counts(self) -> dict[str, int]:
        counts = dict.fromkeys(("done", "running", "diverged", "failed", "waiting"), 0)
        counts["done"] = self.total_runs - len(self._runs)
        for run in self._runs.values():
            counts["done" if run.status in ("complete", "stopped") else run.status] += 1
        return counts

    def _paces(self) -> Paces:
        """Return the mean pace of each cell, by its runs that have reported one."""
        reported = defaultdict[Cell | None, list[float]](list)
        for run in self._runs.values():
            if run.pace is not None:
                reported[run.wanted.cell].append(run.pace)
                reported[None].append(run.pace)
        return {cell: fmean(paces) for cell, paces in reported.items()}


def _running(trial: Iterable[_Run]) -> list[_Run]:
    return [run for run in trial if run.status == "running"]


def _steps_per_s(runs: Sequence[_Run], paces: Paces) -> float:
    """Return the steps a second of runs that share the time of one trial; 0: no pace is known."""
    seconds = sum(run.pace_by(paces) for run in runs) if paces else 0.0
    return len(runs) / seconds if seconds > 0 else 0.0


class Display:
    """Shows progress; a context manager. It draws only when `tick` is called: call it often.

    The clock is that of `progress`.
    """

    def __init__(self, progress: StudyProgress, console: Console) -> None:
        self._progress, self._console, self._clock = progress, console, progress.clock
        self._drawn_at = self._clock()
        self._interval_s = REFRESH_S if console.is_terminal else PLAIN_EVERY_S
        self._live = Live(
            console=console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            get_renderable=self._render,
        )

    def __enter__(self) -> Display:
        if self._console.is_terminal:
            self._live.start(refresh=True)
        return self

    def __exit__(self, *exception: object) -> None:
        nothing = not self._progress.best and not self._progress.ended()
        if self._console.is_terminal:
            self._live.transient = nothing
            self._live.stop()
        elif not nothing:
            self._print_line()

    def note(self, message: str) -> None:
        """Print a message above the live display; may be called from any thread."""
        self._console.print(Text(message), soft_wrap=not self._console.is_terminal)

    def tick(self) -> None:
        """Draw again if it is time to."""
        now = self._clock()
        if now - self._drawn_at < self._interval_s:
            return
        self._drawn_at = now
        if self._console.is_terminal:
            self._live.refresh()
        else:
            self._print_line()

    def _print_line(self) -> None:
        self._console.print(Text(summary_line(self._progress.summary())), soft_wrap=True)

    def _render(self) -> Group:
        summary = summary_line(self._progress.summary()).split(" | ", maxsplit=1)
        lines = [Text(part, no_wrap=True, overflow="ellipsis") for part in summary]
        room = self._console.height - _TABLE_FRAME_LINES
        return Group(*_cells_table(self._progress, room), *lines) if room > 0 else Group(*lines)


def summary_line(summary: Summary) -> str:
    """Return `3/8 runs done, 2 running, ... | 40.0 steps/s | elapsed 0:01:00 | left 0:10:00`."""
    counts = summary.counts
    runs = ", ".join(
        f"{counts[status]} {status}" for status in ("running", "diverged", "failed", "waiting")
    )
    left = "unknown" if summary.time_left_s is None else duration(summary.time_left_s)
    attempts = (
        f" ({counted(summary.failed_attempts, 'failed attempt')})"
        if summary.failed_attempts
        else ""
    )
    parts = [
        f"{counts['done']}/{summary.total_runs} runs done, {runs}{attempts}",
        f"{summary.steps_per_s:.1f} steps/s",
    ]
    parts += [f"elapsed {duration(summary.elapsed_s)}", f"left {left}"]
    return " | ".join(parts)


def _cells_table(progress: StudyProgress, max_rows: int) -> list[Table | Text]:
    """Return the best validation value of each cell, without a task and a model that all cells share.

    Where not all cells fit, those that train now come first, then those with a result.
    """
    cells = progress.statuses()
    ranked = sorted(
        cells, key=lambda cell: ("running" not in cells[cell], cell not in progress.best)
    )
    shown = set(ranked[:max_rows])
    names_by_axis = dict(zip(AXES, zip(*cells, strict=True), strict=True))
    axes = [
        axis for axis, names in names_by_axis.items() if axis == "variant" or len(set(names)) > 1
    ]

    numbers = (Column(name, no_wrap=True) for name in ("ended", "best", "rate", "step"))
    table = Table(*axes, *numbers, box=SIMPLE_HEAD, pad_edge=False)
    for cell in filter(shown.__contains__, cells):
        ended = sum(status not in UNFINISHED for status in cells[cell])
        result = []
        if cell in progress.best:
            run, best = progress.best[cell]
            score = run.metric.score_text(best.validation)
            result = [score, rate_text(run.run.learning_rate), str(best.step)]
        # On a narrow terminal names are cut, numbers are not.
        names = [Text(getattr(cell, axis), no_wrap=True, overflow="ellipsis") for axis in axes]
        table.add_row(*names, f"{ended}/{len(cells[cell])}", *result)

    hidden = len(cells) - len(shown)
    return [table, Text(f"and {hidden} more cells")] if hidden else [table]
