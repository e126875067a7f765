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
        self._has_rule = study.stop_early is not None
        self._results, self._study = results, study.study
        self._final = study.selection == "final"
        self._runs: dict[str, WantedRun] = {}
        self._cells: dict[Cell, list[WantedRun]] = {}
        self._curves: defaultdict[str, dict[int, float]] = defaultdict(dict)
        """Validation values by step, of each run; higher is better."""
        self._judgements = read_judgements(results.root, study.study) if self._has_rule else []
        self._changed: set[Cell] = set()
        self.add(wanted)

    def add(self, wanted: Iterable[WantedRun]) -> None:
        """Compare further runs, too, but not fresh ones, which choose nothing.

        What the record holds of runs counts once a run of their cell reports, and not before: a driver that died may
        have recorded an evaluation of a part of a cohort.
        """
        if not self._has_rule:
            return
        choosing = {run.run_id: run for run in wanted if not run.fresh}
        new_ids = choosing.keys() - self._runs.keys()
        self._runs |= choosing
        self._cells = by_cell(self._runs.values())
        curves = read_curves(self._results.root, sorted(new_ids), CURVE_COLUMNS)
        for run_id, step, value in curves[list(CURVE_COLUMNS)].itertuples(index=False):
            self._curves[run_id][int(step)] = self._runs[run_id].metric.sign * float(value)

    def event(self, event: Report) -> None:
        """Take in what a worker reports of a run."""
        if (run := self._runs.get(event.run_id)) is None:
            return
        for evaluation in evaluations(event):
            self._curves[event.run_id][evaluation.step] = run.metric.sign * evaluation.validation
            self._changed.add(run.cell)

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
        """Ask workers to end runs of stopped learning rates; one that waits ends when it starts, an ended one stays."""
        stopped = self._stopped()
        for run_id, run in self._runs.items():
            if _key(run) in stopped:
                self._results.request_stop(run_id)

    def explained(self, event: Event) -> Event:
        """Add the rung to the end of a run that a rule stopped."""
        if not isinstance(event, Finished) or event.status != "stopped":
            return event
        run = self._runs.get(event.run_id)
        rung = None if run is None else self._stopped().get(_key(run))
        return replace(event, stopped_at_step=rung)

    def _stopped(self) -> dict[RateKey, int]:
        return {
            judgement.key: judgement.step for judgement in self._judgements if not judgement.kept
        }

    def _judged(self, cell: Cell) -> Iterator[Judgement]:
        """Judge the rates of a cell at each rung that a run has reached, where they were not judged before."""
        runs = self._cells[cell]
        first = runs[0]
        judged = {(judgement.key, judgement.step) for judgement in self._judgements}
        stopped = self._stopped()
        reached = {step for run in runs for step in self._curves[run.run_id]}
        rungs_reached = reached.intersection(
            rungs(first.num_steps, first.run.steps_between_evaluations)
        )
        for step in sorted(rungs_reached):
            values, means = self._values(runs, step, stopped)
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
        self, runs: Iterable[WantedRun], step: int, stopped: Mapping[RateKey, int]
    ) -> tuple[dict[float, float], dict[float, float]]:
        """Return the values at a rung and the running means by learning rate, of those not stopped before it."""
        values, means = defaultdict[float, list[float]](list), defaultdict[float, list[float]](list)
        for run in runs:
            curve = self._curves[run.run_id]
            if step in curve and stopped.get(_key(run), step) >= step:
                so_far = [value for at, value in curve.items() if at <= step]
                finite = [value for value in so_far if math.isfinite(value)] or [-math.inf]
                value = curve[step] if self._final else max(finite)
                rate = run.run.learning_rate
                values[rate].append(value if math.isfinite(value) else -math.inf)
                means[rate].append(fmean(finite))
        return _means(values), _means(means)


def _means(numbers: Mapping[float, Sequence[float]]) -> dict[float, float]:
    return {rate: fmean(numbers_of_seeds) for rate, numbers_of_seeds in numbers.items()}


def _key(run: WantedRun) -> RateKey:
    return (*run.cell, run.run.learning_rate)
