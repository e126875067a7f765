"""Early stopping: judges the learning rates of each cell at rungs, stores that, then asks workers to end runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from statistics import fmean

from lr_sweep.analysis.record.columns import RUNGS
from lr_sweep.analysis.record.read import read_curves, read_judgements
from lr_sweep.analysis.record.study import Judgement, RateKey
from lr_sweep.analysis.statistics.rates.further_rates import kept_rates
from lr_sweep.sweep.results.directory import Results, write_parquet
from lr_sweep.sweep.results.recorder import Sink
from lr_sweep.sweep.study.runs import Cell, WantedRun, by_cell
from lr_sweep.sweep.study.study import Study
from lr_sweep.trainables.worker.messages import Event, Finished, Report, evaluations

CURVE_COLUMNS = ("run_id", "step", "validation_accuracy")
"""Test data cannot stop a run: it is not read."""


class EarlyStopping(Sink):
    """Judges a study's learning rates by its rule; without one every run trains to its budget.

    A learning rate is judged once at each rung, by the mean over those of its seeds that are there, and its seeds are
    stopped together: rates are chosen by means over all seeds, so one with a part of them could not be chosen.
    """

    def __init__(self, study: Study, results: Results, wanted: Sequence[WantedRun]) -> None:
        self._rule, self._results, self._study = (rule := study.stop_early), results, study.study
        self._final = study.selection == "final"
        self._runs: dict[str, WantedRun] = {}
        self._cells: dict[Cell, list[WantedRun]] = {}
        self._curves: defaultdict[str, dict[int, float]] = defaultdict(dict)
        self._judgements = read_judgements(results.root, study.study) if rule else []
        self._changed: set[Cell] = set()
        self._ended: set[str] = set()
        self.add(wanted)

    def add(self, wanted: Iterable[WantedRun]) -> None:
        """Compare further runs, too, but not fresh ones, which choose nothing.

        What the record holds of runs counts once a run of their cell reports, and not before: a driver that died may
        have recorded an evaluation of a part of a cohort.
        """
        new = {run.run_id: run for run in wanted if run.run_id not in self._runs and not run.fresh}
        if self._rule is None or not new:
            return
        self._runs |= new
        self._cells = by_cell(self._runs.values())
        curves = read_curves(self._results.root, list(new), CURVE_COLUMNS)
        for run_id, step, value in curves[list(CURVE_COLUMNS)].itertuples(index=False):
            self._curves[run_id][int(step)] = float(value)

    def event(self, event: Report) -> None:
        """Take in what a worker reports of a run."""
        if self._rule is None or event.run_id not in self._runs:
            return
        if isinstance(event, Finished):
            self._ended.add(event.run_id)
        if found := evaluations(event):
            self._curves[event.run_id] |= {each.step: each.validation_accuracy for each in found}
            self._changed.add(self._runs[event.run_id].cell)

    def judge(self) -> None:
        """Judge what was reported since the last call, store that, then ask workers to end what is stopped."""
        new = [judgement for cell in sorted(self._changed) for judgement in self._judged(cell)]
        self._changed.clear()
        if new:
            self._judgements += new
            write_parquet(
                self._results.rungs(self._study), [asdict(each) for each in self._judgements], RUNGS
            )
        if any(not each.kept for each in new):
            self.request()

    def request(self) -> None:
        """Ask workers to end runs of stopped learning rates; one that waits ends when it starts."""
        stopped = self._stopped()
        for run_id, run in self._runs.items():
            if _key(run) in stopped and run_id not in self._ended:
                self._results.request_stop(run_id)

    def explained(self, event: Event) -> Event:
        """Add the rung to the end of a run that a rule stopped."""
        if (
            not isinstance(event, Finished)
            or event.status != "stopped"
            or event.run_id not in self._runs
        ):
            return event
        return replace(event, stopped_at_step=self._stopped().get(_key(self._runs[event.run_id])))

    def _stopped(self) -> dict[RateKey, int]:
        return {each.key: each.step for each in self._judgements if not each.kept}

    def _judged(self, cell: Cell) -> list[Judgement]:
        assert self._rule is not None, "nothing changes without a rule"
        first = self._cells[cell][0]
        before = {(each.key, each.step) for each in self._judgements}
        stopped, found = self._stopped(), list[Judgement]()
        rungs = self._rule.rungs(first.num_steps, first.run.steps_between_evaluations)
        reached = {step for run in self._cells[cell] for step in self._curves[run.run_id]}
        for step in sorted(step for step in reached if step in rungs):
            best, means = self._values(cell, step, stopped)
            new = [rate for rate in best if ((*cell, rate), step) not in before]
            if not new:
                continue
            kept = kept_rates(best, means)
            for rate in new:
                value = first.metric.sign * best[rate] if math.isfinite(best[rate]) else None
                labels = cell._asdict() | {"learning_rate": rate, "step": step, "value": value}
                found.append(Judgement(**labels, num_compared=len(best), kept=rate in kept))
            stopped |= {each.key: each.step for each in found if not each.kept}
        return found

    def _values(
        self, cell: Cell, step: int, stopped: dict[RateKey, int]
    ) -> tuple[dict[float, float], dict[float, float]]:
        """Return the values at a rung and the running means by learning rate, of those not stopped before it."""
        best, means = defaultdict[float, list[float]](list), defaultdict[float, list[float]](list)
        for run in self._cells[cell]:
            if (
                step not in (curve := self._curves[run.run_id])
                or stopped.get(_key(run), step) < step
            ):
                continue
            so_far = [
                run.metric.sign * value
                for at, value in curve.items()
                if at <= step and math.isfinite(value)
            ]
            latest = run.metric.sign * curve[step]
            value = latest if self._final else max(so_far, default=-math.inf)
            best[run.run.learning_rate].append(value if math.isfinite(value) else -math.inf)
            means[run.run.learning_rate].append(fmean(so_far) if so_far else -math.inf)
        return {rate: fmean(each) for rate, each in best.items()}, {
            rate: fmean(each) for rate, each in means.items()
        }


def _key(run: WantedRun) -> RateKey:
    return (*run.cell, run.run.learning_rate)
