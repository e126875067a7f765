"""Cells of recorded grids, and their training replayed from the record: what a choice of learning rates gets and costs.

Learning rates are trained with all recorded seeds. A stopped one costs what its runs cost up to the rung.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from lr_sweep.analysis.record.read import read_curves, read_runs, read_study, read_wanted
from lr_sweep.analysis.statistics.rates.further_rates import kept_rates
from lr_sweep.analysis.statistics.rates.refinement import Observation
from lr_sweep.analysis.statistics.selection.best import CELL, MEAN_DIGITS
from lr_sweep.analysis.statistics.selection.summary import per_learning_rate, summarise
from lr_sweep.sweep.study.settings import StopEarly


@dataclass(frozen=True)
class Curves:
    """Means over the seeds of a cell, by learning rate and evaluation."""

    steps: np.ndarray
    """(E,), int64."""
    best: np.ndarray
    """(L, E), the best validation accuracy so far; NaN: no seed is there."""
    running: np.ndarray
    """(L, E), the running mean of validation accuracies."""
    run_steps: np.ndarray
    """(L, E), gradient steps of all seeds up to there."""


@dataclass(frozen=True)
class RecordedCell:
    """A cell of a full grid: means over seeds by learning rate, rising; NaN: no value."""

    labels: tuple[str, str, str]
    rates: np.ndarray
    """(L,), float64."""
    validation: np.ndarray
    """(L,), fractions."""
    test: np.ndarray
    """(L,), fractions."""
    curves: Curves | None = None
    """None: a report's table, which has no curves."""
    num_seeds: int = 1

    def best(self, tried: Sequence[int], number: int) -> list[int]:
        """Return the indices of the best tried rates, of equal ones the smaller first; fewer where none has a value."""
        known = [index for index in tried if not math.isnan(self.validation[index])]
        return sorted(
            known, key=lambda index: (-round(self.validation[index], MEAN_DIGITS), index)
        )[:number]

    def answer(self, tried: Sequence[int]) -> int | None:
        """Return the index of the best tried rate; None: none has a value."""
        return next(iter(self.best(tried, 1)), None)

    def nearest(self, rate: float, tried: Sequence[int]) -> int:
        """Return the index of the nearest rate of the grid that was not tried."""
        left = [index for index in range(len(self.rates)) if index not in tried]
        return min(left, key=lambda index: abs(math.log(self.rates[index] / rate)))

    def run_steps(self, index: int, at: int = -1) -> float:
        """Return the steps of all runs of a rate up to an evaluation; without curves a run counts 1."""
        return self.num_seeds if self.curves is None else float(self.curves.run_steps[index, at])

    @property
    def num_steps(self) -> float:
        """Steps of all runs of the grid."""
        return sum(self.run_steps(index) for index in range(len(self.rates)))


@dataclass
class Replay:
    """The training of rates of a cell in rounds, with a rule that stops some of them, or None."""

    cell: RecordedCell
    rule: StopEarly | None
    tried: list[int] = field(default_factory=list)
    stopped: dict[int, int] = field(default_factory=dict)
    """Step of the rung, by the index of the rate."""
    run_steps: float = 0.0
    _there: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Rates that reached a rung, by its step."""

    def train(self, round_: Sequence[int]) -> None:
        """Train rates together."""
        self.tried += round_
        alive, curves = list(round_), self.cell.curves
        if curves is None:
            self.run_steps += sum(map(self.cell.run_steps, alive))
            return
        every, budget = int(curves.steps[0]), int(curves.steps[-1])
        for step in self.rule.rungs(budget, every) if self.rule else ():
            at = int(np.searchsorted(curves.steps, step))
            alive = [
                index for index in alive if not math.isnan(curves.best[index, at])
            ]  # the others diverged
            self._there[step] += alive
            kept = self._kept(curves, step, at)
            for index in [index for index in alive if index not in kept]:
                self.stopped[index] = step
            alive = [index for index in alive if index in kept]
        for index in round_:
            at = int(np.searchsorted(curves.steps, self.stopped.get(index, budget)))
            self.run_steps += self.cell.run_steps(index, at)

    def _kept(self, curves: Curves, step: int, at: int) -> set[int]:
        assert self.rule is not None, "only a rule has rungs"
        best = {float(index): float(curves.best[index, at]) for index in self._there[step]}
        if not best:
            return set()
        means = {index: float(curves.running[int(index), at]) for index in best}
        return {int(index) for index in kept_rates(best, means)}

    def observation(self, index: int) -> Observation:
        """Return what a search observes at a rate that was trained to the budget."""
        value, rate = float(self.cell.validation[index]), float(self.cell.rates[index])
        if math.isnan(value):
            return Observation(rate, "diverged", None)
        return Observation(rate, "measured", value)

    @property
    def answer(self) -> int | None:
        """The index of the best rate that was trained to the budget; None: none has a value."""
        return self.cell.answer([index for index in self.tried if index not in self.stopped])


def report_runs(path: Path) -> pd.DataFrame:
    """Read a report's `runs.csv`, with the study's metric in the columns `validation` and `test`."""
    runs = pd.read_csv(path)
    metric = next(name for name in runs if name.startswith("test_")).removeprefix("test_")
    return runs.rename(columns={f"{split}_{metric}": split for split in ("validation", "test")})


def read_cells(path: Path) -> list[RecordedCell]:
    """Read the cells of a report's `runs.csv`; a rate counts if every seed has a value there."""
    rates = per_learning_rate(report_runs(path))
    return [_cell(labels, rows) for labels, rows in rates.groupby(CELL, sort=False)]


def _cell(labels: object, rows: pd.DataFrame, curves: Curves | None = None) -> RecordedCell:
    rows = rows.sort_values("learning_rate")
    whole = rows["num_values"].eq(rows["num_values"].max()) & rows["num_values"].gt(0)
    validation, test = (
        rows[name].where(whole).to_numpy(float) for name in ("validation_mean", "test_mean")
    )
    assert isinstance(labels, tuple), "a cell has three labels"
    task, model, variant = map(str, labels)
    rates, seeds = rows["learning_rate"].to_numpy(float), int(rows["num_wanted"].max())
    return RecordedCell((task, model, variant), rates, validation, test, curves, seeds)


def read_record(results: Path, study: str, seed: int | None = None) -> list[RecordedCell]:
    """Read the cells of a study's record, with their curves; cells with runs that are not recorded are left out.

    `seed`: of the runs that are read; None: all.
    """
    wanted, info = read_wanted(results, study), read_study(results, study)
    wanted = wanted if seed is None else wanted[wanted["seed"] == seed]
    runs, points = read_runs(results, wanted["run_id"]), read_curves(results, wanted["run_id"])
    summary = summarise(wanted, runs, points, info.metric)
    points = wanted.merge(points.drop(columns=["num_steps"], errors="ignore"), on="run_id")
    cells = []
    for labels, rows in summary.learning_rates.groupby(CELL, sort=False):
        if rows["missing"].sum() + rows["failed"].sum() == 0:
            mine = points[(points[CELL] == list(labels)).all(axis=1)]
            cells.append(_cell(labels, rows, _curves(mine)))
    return cells


def _curves(points: pd.DataFrame) -> Curves:
    points = points[points["step"] <= points["num_steps"]].sort_values(["run_id", "step"])
    by_run = points.groupby("run_id")["validation"]
    running = by_run.transform(lambda values: values.expanding().mean())
    points = points.assign(best=by_run.cummax(), running=running)
    steps = np.array(sorted(points["step"].unique()))
    by_step = points.groupby(["learning_rate", "step"])
    means = by_step[["best", "running"]].mean().unstack()
    num_runs = by_step.size().unstack().fillna(0)
    return Curves(
        steps=steps,
        best=means["best"].to_numpy(float),
        running=means["running"].to_numpy(float),
        run_steps=num_runs.mul(np.diff(steps, prepend=0), axis=1).cumsum(axis=1).to_numpy(float),
    )
