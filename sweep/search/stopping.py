"""Early stopping: judges the learning rates of each cell at rungs, stores that, then asks workers to end runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from statistics import fmean

from lr_sweep.analysis.record.columns import RUNGS
from lr_sweep.analysis.record.read import read_curves, read_judgements
from lr_sweep.analysis.record.study import Judgement, RateKey
from lr_sweep.analysis.statistics.rates.further_rates import kept_rates
from lr_sweep.sweep.results.directory import Results, write_parquet
from lr_sweep.sweep.study.runs import Cell, WantedRun, by_cell
from lr_sweep.sweep.study.settings import rungs
from lr_sweep.sweep.study.study import Study
from lr_sweep.trainables.worker.messages import Event, Finished, Report, evaluations

CURVE_COLUMNS = ("run_id", "step", "validation")
"""Test data cannot stop a run: it is not read."""


class EarlyStopping:
    """Judges a study's learning rates by its rule; without one every run trains to its budget.

    A learning rate is judged once at each rung, by the mean over those of its seeds that are there, and its seeds are
    stopped together: rates are chosen by means over all seeds, so one with a part of them could not be chosen.
    """

    def __init__(self, study: Study, results: Results, wanted: Sequence[WantedRun]) -> None:
        self._rule = study.stop_early
        self._results, self._study = results, study.study
        self._final = study.selection == "final"
        self._runs: dict[str, WantedRun] = {}
        self._cells: dict[Cell, list[WantedRun]] = {}
        self._curves: defaultdict[str, dict[int, float]] = defaultdict(dict)
        self._judgements = read_judgements(results.root, study.study) if self._rule else []
        self._changed: set[Cell] = set()
        self._ended: set[str] = set()
        self.add(wanted)

    def add(self, wanted: Iterable[WantedRun]) -> None:
        """Compare further runs, too, but not fresh ones, which choose nothing.

        What the record holds of runs counts once a run of their cell reports, and not before: a driver that died may
        have recorded an evaluation of a part of a cohort.
        """
        if self._rule is None:
            return
        choosing = {run.run_id: run for run in wanted if not run.fresh}
        new_ids = choosing.keys() - self._runs.keys()
        self._runs |= choosing
        self._cells = by_cell(self._runs.values())
        curves = read_curves(self._results.root, sorted(new_ids), CURVE_COLUMNS)
        for run_id, step, value in curves[list(CURVE_COLUMNS)].itertuples(index=False):
            self._curves[run_id][int(step)] = float(value)

    def event(self, event: Report) -> None:
        """Take in what a worker reports of a run."""
        if self._rule is None or event.run_id not in self._runs:
            return
        if isinstance(event, Finished):
            self._ended.add(event.run_id)
        for evaluation in evaluations(event):
            self._curves[event.run_id][evaluation.step] = evaluation.validation
            self._changed.add(self._runs[event.run_id].cell)

    def judge(self) -> None:
        """Judge what was reported since the last call, store that, then ask workers to end what is stopped."""
        new = [judgement for cell in sorted(self._changed) for judgement in self._judged(cell)]
        self._changed.clear()
        if not new:
            return
        self._judgements += new
        rows = [asdict(judgement) for judgement in self._judgements]
        write_parquet(self._results.rungs(self._study), rows, RUNGS)
        self.request()

    def request(self) -> None:
        """Ask workers to end runs of stopped learning rates; one that waits ends when it starts."""
        stopped = self._stopped()
        for run_id, run in self._runs.items():
            if _key(run) in stopped and run_id not in self._ended:
                self._results.request_stop(run_id)

    def explained(self, event: Event) -> Event:
        """Add the rung to the end of a run that a rule stopped."""
        if not isinstance(event, Finished) or event.status != "stopped":
            return event
        run = self._runs.get(event.run_id)
        rung = None if run is None else self._stopped().get(_key(run))
        return replace(event, stopped_at_step=rung)

    def _stopped(self) -> dict[RateKey, int]:
        return {each.key: each.step for each in self._judgements if not each.kept}

    def _judged(self, cell: Cell) -> Iterator[Judgement]:
        """Judge the rates of a cell at each rung that a run has reached, where they were not judged before."""
        assert self._rule is not None, "nothing changes without a rule"
        first = self._cells[cell][0]
        judged = {(each.key, each.step) for each in self._judgements}
        stopped = self._stopped()
        judged_at = rungs(first.num_steps, first.run.steps_between_evaluations)
        reached = {step for run in self._cells[cell] for step in self._curves[run.run_id]}
        for step in sorted(reached.intersection(judged_at)):
            values, means = self._values(cell, step, stopped)
            kept = kept_rates(values, means)
            for rate, value in values.items():
                key = (*cell, rate)
                if (key, step) in judged:
                    continue
                yield Judgement(
                    **cell._asdict(),
                    learning_rate=rate,
                    step=step,
                    value=first.metric.sign * value if math.isfinite(value) else None,
                    num_compared=len(values),
                    kept=rate in kept,
                )
                if rate not in kept:
                    stopped[key] = step

    def _values(
        self, cell: Cell, step: int, stopped: Mapping[RateKey, int]
    ) -> tuple[dict[float, float], dict[float, float]]:
        """Return the values at a rung and the running means by learning rate, of those not stopped before it."""
        by_rate: dict[float, list[tuple[float, float]]] = defaultdict(list)
        for run in self._cells[cell]:
            if step in self._curves[run.run_id] and stopped.get(_key(run), step) >= step:
                by_rate[run.run.learning_rate].append(self._value_and_mean(run, step))
        values = {rate: fmean(value for value, _ in seeds) for rate, seeds in by_rate.items()}
        means = {rate: fmean(mean for _, mean in seeds) for rate, seeds in by_rate.items()}
        return values, means

    def _value_and_mean(self, run: WantedRun, step: int) -> tuple[float, float]:
        """Return what a run has reached at a step, and its mean up to it; higher is better, -inf: nothing finite."""
        curve = {at: run.metric.sign * value for at, value in self._curves[run.run_id].items()}
        so_far = [value for at, value in curve.items() if at <= step and math.isfinite(value)]
        if not so_far:
            return -math.inf, -math.inf
        value = curve[step] if self._final else max(so_far)
        return value if math.isfinite(value) else -math.inf, fmean(so_far)


def _key(run: WantedRun) -> RateKey:
    return (*run.cell, run.run.learning_rate)
