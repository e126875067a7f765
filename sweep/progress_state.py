"""What is known of a study's runs while they train: no clock, no output."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sweep.time_left import RunPace, mean_pace, wall_time

Cell = tuple[str, str, str]
"""task, model, variant"""

QUIET_S = 5.0
"""Workers report every two seconds of training; one that has not for so long may be evaluating."""


@dataclass(frozen=True, kw_only=True)
class RunLabel:
    """What the display says of a run."""

    task: str
    model: str
    variant: str
    learning_rate: float
    seed: int
    num_steps: int
    """Its step budget."""
    evaluate_every: int
    """Gradient steps between its evaluations."""

    @property
    def cell(self) -> Cell:
        """Everything but learning rate and seed."""
        return self.task, self.model, self.variant


@dataclass(kw_only=True)
class _RunState:
    status: str = "waiting"
    step: int = 0
    pace: RunPace | None = None
    """As last reported; None: not yet."""
    reported_at: float = -math.inf
    """When it last reported anything."""


@dataclass(frozen=True, kw_only=True)
class Best:
    """The highest validation accuracy so far."""

    validation_accuracy: float
    """Fraction in [0, 1]."""
    learning_rate: float
    step: int


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The study at one moment."""

    counts: dict[str, int]
    """Runs by status: `done` (complete, and all that were done before), `running`, `diverged`, `failed`, `waiting`."""
    total_runs: int
    steps_per_s: float
    """Gradient steps a second, over all running runs; evaluations count as time without steps."""
    elapsed_s: float
    time_left_s: float | None
    """Steps, evaluations and checkpoints at the present pace; None: none is known yet."""
    evaluating: int
    """Running runs that, at their pace, have taken the steps to their next evaluation, and have not reported it."""
    silent_s: float
    """Since a running run last reported; 0: none runs."""


@dataclass(kw_only=True)
class ProgressState:
    """What is known of a study's runs.

    Args:
        total_runs: runs that the study wants.
        done_before: of those, how many were done when we started. They count as done and have no part in the time left.
        cells: labels of the other runs, by run id.
        started_at: in seconds of some clock; all times are.
        expected: the pace of cells until one of their runs reports it.
    """

    total_runs: int
    done_before: int
    cells: Mapping[str, RunLabel]
    started_at: float
    expected: Mapping[Cell, RunPace] = field(default_factory=dict)
    best: dict[Cell, Best] = field(default_factory=dict)
    _runs: dict[str, _RunState] = field(init=False)
    _trials: list[list[str]] = field(init=False)
    _at_once: int = 1

    def __post_init__(self) -> None:
        assert self.done_before + len(self.cells) == self.total_runs, "every run is done before or has a label"
        self._runs = {run_id: _RunState() for run_id in self.cells}
        self._trials = [[run_id] for run_id in self.cells]

    def packed(self, trials: Sequence[Sequence[str]], at_once: int) -> None:
        """From here on these runs train together, in trials that start in this order, so many at once."""
        self._trials, self._at_once = [list(trial) for trial in trials], at_once

    def started(self, run_id: str, now: float, step: int = 0) -> None:
        """A run trains now, from this step on."""
        run = self._runs[run_id]
        run.status, run.step, run.reported_at = "running", step, now

    def advanced(self, run_id: str, now: float, step: int, pace: RunPace | None) -> None:
        """A run has taken so many steps in all, lately at this pace; None: too few to tell."""
        run = self._runs[run_id]
        run.status, run.step, run.pace, run.reported_at = "running", step, pace or run.pace, now

    def evaluation(self, run_id: str, step: int, validation_accuracy: float) -> None:
        """A run was evaluated; of equal accuracies the first stays the best."""
        label = self.cells[run_id]
        best = self.best.get(label.cell)
        if math.isfinite(validation_accuracy) and (best is None or validation_accuracy > best.validation_accuracy):
            self.best[label.cell] = Best(
                validation_accuracy=validation_accuracy, learning_rate=label.learning_rate, step=step
            )

    def finished(self, run_id: str, status: str) -> None:
        """A run ended as `complete`, `diverged` or `failed`; one that is tried again may start once more."""
        self._runs[run_id].status = status

    def interrupted(self, run_ids: Iterable[str]) -> None:
        """These runs do not train at the moment, if they did; they resume later."""
        for run_id in run_ids:
            if self._runs[run_id].status == "running":
                self._runs[run_id].status = "waiting"

    def summary(self, now: float) -> Summary:
        """Sum up."""
        paces = self._paces()
        trials = [_Trial(self, trial, paces, now) for trial in self._trials]
        running = [trial for trial in trials if trial.running]
        return Summary(
            counts=self._counts(),
            total_runs=self.total_runs,
            steps_per_s=sum(trial.steps_per_s() for trial in running),
            elapsed_s=max(0.0, now - self.started_at),
            time_left_s=self._time_left_s(trials, known=bool(paces)),
            evaluating=sum(len(trial.running) for trial in running if trial.evaluates()),
            silent_s=min((trial.silent_s for trial in running), default=0.0),
        )

    def cell_counts(self) -> dict[Cell, tuple[int, int, int]]:
        """Count each cell's runs that ended, that run, and all that were left to do at the start."""
        counts: dict[Cell, tuple[int, int, int]] = {}
        for run_id, label in self.cells.items():
            status = self._runs[run_id].status
            ended, running, total = counts.get(label.cell, (0, 0, 0))
            counts[label.cell] = (
                ended + (status not in ("waiting", "running")),
                running + (status == "running"),
                total + 1,
            )
        return counts

    def _counts(self) -> dict[str, int]:
        counts = {"done": self.done_before, "running": 0, "diverged": 0, "failed": 0, "waiting": 0}
        for run in self._runs.values():
            counts["done" if run.status == "complete" else run.status] += 1
        return counts

    def _paces(self) -> dict[Cell | None, RunPace]:
        """Return the mean pace of each cell, of running runs where any has reported one; under None, that of all."""
        reported: dict[tuple[Cell | None, bool], list[RunPace]] = {}
        for run_id, run in self._runs.items():
            if run.pace is not None:
                for cell in (self.cells[run_id].cell, None):
                    reported.setdefault((cell, run.status == "running"), []).append(run.pace)
        found: dict[Cell | None, RunPace] = {}
        found.update(self.expected.items())
        if self.expected:
            found[None] = mean_pace(list(self.expected.values()))
        for (cell, _), paces in sorted(reported.items(), key=lambda item: item[0][1]):  # running ones last: they count
            found[cell] = mean_pace(paces)
        return found

    def _time_left_s(self, trials: Sequence[_Trial], *, known: bool) -> float | None:
        left = [trial for trial in trials if trial.left]
        if not left or not known:
            return None if left else 0.0
        in_order = sorted(left, key=lambda trial: not trial.running)  # those that run have a place already
        return wall_time([trial.seconds() for trial in in_order], max(1, self._at_once))


class _Trial:
    """The runs of a trial at one moment."""

    def __init__(
        self, state: ProgressState, run_ids: Sequence[str], paces: Mapping[Cell | None, RunPace], now: float
    ) -> None:
        known = [(state.cells[run_id], state._runs[run_id]) for run_id in run_ids]
        self.left = [(label, run) for label, run in known if run.status in ("waiting", "running")]
        self.running = [(label, run) for label, run in self.left if run.status == "running"]
        self.silent_s = now - max((run.reported_at for _, run in self.running), default=now)
        self._paces = paces

    def _pace(self, label: RunLabel, run: _RunState) -> RunPace:
        if run.status == "running" and run.pace is not None:
            return run.pace
        return self._paces.get(label.cell) or self._paces[None]

    def seconds(self) -> float:
        """Return how long what is left of it takes; between reports that falls with the clock."""
        left = sum(
            self._pace(label, run).seconds(run.step, label.num_steps, label.evaluate_every) for label, run in self.left
        )
        if not self.running:
            return left
        evaluation_s = sum(self._pace(label, run).evaluation_s for label, run in self.running)
        return left - min(self.silent_s, self._to_evaluation_s() + evaluation_s)

    def _to_evaluation_s(self) -> float:
        """Return how long the steps took, from the last report on, to the next evaluation."""
        return sum(
            self._pace(label, run).step_s * (label.evaluate_every - run.step % label.evaluate_every)
            for label, run in self.running
        )

    def evaluates(self) -> bool:
        """Return whether it must have reached an evaluation since it last reported, at its pace."""
        return bool(self._paces) and self.silent_s >= max(QUIET_S, self._to_evaluation_s())

    def steps_per_s(self) -> float:
        """Return the steps of all its runs a second, where evaluations take their part of the time."""
        if not self._paces:
            return 0.0
        step_s = (
            pace.step_s + pace.evaluation_s / label.evaluate_every
            for label, run in self.running
            for pace in [self._pace(label, run)]
        )
        return len(self.running) / total if (total := sum(step_s)) > 0 else 0.0
