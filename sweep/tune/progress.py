"""Progress of a study's runs while they train: counts, the best of each cell, the time left. Draws nothing."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.sweep.plan.cost import wall_time
from lr_sweep.sweep.study.runs import Cell, WantedRun
from lr_sweep.trainables.curve import Evaluation
from lr_sweep.trainables.events import Advanced, Event, Finished, Started

Clock = Callable[[], float]
"""Returns seconds since some moment, unaffected by changes of the system's time."""

QUIET_S = 5.0
"""Workers report every two seconds of training; one that has not reported for this long may be evaluating."""

UNFINISHED = ("waiting", "running")
"""Statuses of runs that have not ended."""


@dataclass(frozen=True, kw_only=True)
class RunPace:
    """Seconds of its trial that a run takes; the runs of a trial share its time."""

    step_s: float
    """A gradient step."""
    evaluation_s: float
    """An evaluation with its checkpoint."""


def mean_pace(paces: Collection[RunPace]) -> RunPace:
    """Return the mean of one or more."""
    return RunPace(step_s=fmean(pace.step_s for pace in paces), evaluation_s=fmean(pace.evaluation_s for pace in paces))


class Best(NamedTuple):
    """The best validation accuracy so far, or another metric, with the run's learning rate and the step."""

    accuracy: float
    learning_rate: float
    step: int
    metric: Metric = ACCURACY


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
    evaluating: int
    """Running runs that, at their pace, have taken the steps to their next evaluation, and have not reported it."""
    silent_s: float
    """Since a running run last reported; 0: none runs."""

    def as_dict(self) -> dict[str, Any]:
        """Return what `status` reads, as JSON values."""
        return {name: getattr(self, name) for name in ("counts", "steps_per_s", "time_left_s", "evaluating")}


@dataclass(kw_only=True)
class _RunState:
    wanted: WantedRun
    status: str = "waiting"
    step: int = 0
    pace: RunPace | None = None
    """As last reported; None: not yet."""
    reported_at: float = -math.inf
    """When it last reported anything."""

    def seconds_left(self, pace: RunPace) -> float:
        """Return how long the rest takes; an evaluation that was due at `step` is done."""
        num_steps, every = self.wanted.num_steps, self.wanted.run.steps_between_evaluations
        evaluations = max(0, num_steps // every - self.step // every)
        return max(0, num_steps - self.step) * pace.step_s + evaluations * pace.evaluation_s

    def seconds_to_evaluation(self, pace: RunPace) -> float:
        """Return how long the steps take from the last report to the next evaluation."""
        every = self.wanted.run.steps_between_evaluations
        return pace.step_s * (every - self.step % every)


@dataclass(kw_only=True)
class StudyProgress:
    """Progress of a study's `runs` to train, updated by the driver.

    The others of `total_runs`, which are those of `--only`, count as done and have no part in the time left. `expected`
    is the pace of cells until one of their runs reports it. `clock` is for the time left and elapsed.
    """

    runs: Sequence[WantedRun]
    total_runs: int
    expected: Mapping[Cell, RunPace] = field(default_factory=dict)
    clock: Clock = time.monotonic
    best: dict[Cell, Best] = field(default_factory=dict)
    _trials: Sequence[Sequence[str]] = field(init=False)
    _at_once: int = 1

    def __post_init__(self) -> None:
        self._started_at = self.clock()
        self._runs = {run.run_id: _RunState(wanted=run) for run in self.runs}
        self._trials = [[run.run_id] for run in self.runs]

    def add(self, runs: Iterable[WantedRun]) -> None:
        """Note that further runs are to train: the next round of a search."""
        new = {run.run_id: _RunState(wanted=run) for run in runs}
        self._runs |= new
        self.total_runs += len(new)

    def packed(self, trials: Sequence[Sequence[str]], at_once: int) -> None:
        """Note that from now on these runs train together, in trials that start in this order, `at_once` at a time."""
        self._trials, self._at_once = trials, at_once

    def event(self, event: Event) -> None:
        """Take in what a worker reports of a run. A run that is retried may start more than once."""
        run = self._runs[event.run_id]
        run.status, run.step, run.reported_at = "running", event.step, self.clock()
        evaluations: Sequence[Evaluation] = ()
        match event:
            case Started():
                evaluations = event.curve
            case Advanced():
                evaluations = [event.evaluation] if event.evaluation else []
                if event.step_s is not None and event.evaluation_s is not None:
                    run.pace = RunPace(step_s=event.step_s, evaluation_s=event.evaluation_s)
            case Finished():
                run.status = event.status
        for evaluation in evaluations:
            self._note_best(run.wanted, evaluation)

    def _note_best(self, wanted: WantedRun, evaluation: Evaluation) -> None:
        """Keep the best of a cell; of equal accuracies the first."""
        accuracy, best = evaluation.validation_accuracy, self.best.get(wanted.cell)
        sign = wanted.metric.sign
        if math.isfinite(accuracy) and (best is None or sign * accuracy > sign * best.accuracy):
            self.best[wanted.cell] = Best(accuracy, wanted.run.learning_rate, evaluation.step, wanted.metric)

    def failed(self, run_id: str) -> None:
        """Note that a run failed."""
        self._runs[run_id].status = "failed"

    def interrupted(self, run_ids: Iterable[str]) -> None:
        """Note that these runs do not train at the moment, if they did; they resume later."""
        for run_id in run_ids:
            if self._runs[run_id].status == "running":
                self._runs[run_id].status = "waiting"

    def summary(self) -> Summary:
        """Sum up this moment."""
        now, paces = self.clock(), self._paces()
        trials = [_Trial([self._runs[run_id] for run_id in trial], paces, now) for trial in self._trials]
        left = sorted((trial for trial in trials if trial.left), key=lambda trial: not trial.running)
        running = [trial for trial in left if trial.running]
        time_left_s = None
        if paces or not left:
            time_left_s = wall_time([trial.seconds_left() for trial in left], max(1, self._at_once))
        return Summary(
            counts=self._counts(),
            total_runs=self.total_runs,
            steps_per_s=sum(trial.steps_per_s() for trial in running),
            elapsed_s=max(0.0, now - self._started_at),
            time_left_s=time_left_s,
            evaluating=sum(len(trial.running) for trial in running if trial.evaluates()),
            silent_s=min((trial.silent_s for trial in running), default=0.0),
        )

    def statuses(self) -> dict[Cell, list[str]]:
        """Return the statuses of each cell's runs, of those to train."""
        found: dict[Cell, list[str]] = {}
        for run in self._runs.values():
            found.setdefault(run.wanted.cell, []).append(run.status)
        return found

    def _counts(self) -> dict[str, int]:
        counts = {"done": self.total_runs - len(self._runs), "running": 0, "diverged": 0, "failed": 0, "waiting": 0}
        for run in self._runs.values():
            counts["done" if run.status in ("complete", "stopped") else run.status] += 1
        return counts

    def _paces(self) -> dict[Cell | None, RunPace]:
        """Return the mean pace of each cell, of running runs if any has reported one; under None, that of all."""
        found: dict[Cell | None, RunPace] = {}
        found.update(self.expected.items())
        if self.expected:
            found[None] = mean_pace(self.expected.values())
        running, ended = defaultdict[Cell | None, list[RunPace]](list), defaultdict[Cell | None, list[RunPace]](list)
        for run in self._runs.values():
            if run.pace is not None:
                for cell in (run.wanted.cell, None):
                    (running if run.status == "running" else ended)[cell].append(run.pace)
        return found | {cell: mean_pace(paces) for cell, paces in (ended | running).items()}


class _Trial:
    """The runs of a trial that have not ended, at one moment."""

    def __init__(self, runs: Iterable[_RunState], paces: Mapping[Cell | None, RunPace], now: float) -> None:
        self.left = [run for run in runs if run.status in UNFINISHED]
        self.running = [run for run in self.left if run.status == "running"]
        self.silent_s = now - max((run.reported_at for run in self.running), default=now)
        self._paces = paces

    def _pace(self, run: _RunState) -> RunPace:
        if run.status == "running" and run.pace is not None:
            return run.pace
        return self._paces.get(run.wanted.cell) or self._paces[None]

    def seconds_left(self) -> float:
        """Return how long the rest takes; between reports that falls with the clock."""
        left = sum(run.seconds_left(self._pace(run)) for run in self.left)
        if not self.running:
            return left
        evaluation_s = sum(self._pace(run).evaluation_s for run in self.running)
        return left - min(self.silent_s, self._seconds_to_evaluation() + evaluation_s)

    def _seconds_to_evaluation(self) -> float:
        return sum(run.seconds_to_evaluation(self._pace(run)) for run in self.running)

    def evaluates(self) -> bool:
        """Return whether, at its pace, it must have reached an evaluation since it last reported."""
        return bool(self._paces) and self.silent_s >= max(QUIET_S, self._seconds_to_evaluation())

    def steps_per_s(self) -> float:
        """Return the steps of all its runs a second; evaluations take their part of the time."""
        if not self._paces:
            return 0.0
        paces = [(self._pace(run), run.wanted.run.steps_between_evaluations) for run in self.running]
        step_s = sum(pace.step_s + pace.evaluation_s / every for pace, every in paces)
        return len(paces) / step_s if step_s > 0 else 0.0
