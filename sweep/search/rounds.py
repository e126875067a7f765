"""Rounds of runs: proposes learning rates, then fresh seeds, for the cells whose earlier runs have ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.read import read_curves, read_runs
from lr_sweep.analysis.record.rungs import with_stops
from lr_sweep.analysis.statistics.observations import Observation, observations
from lr_sweep.analysis.statistics.refinement import ROUND_SIZE, refined_rates
from lr_sweep.analysis.statistics.selection import comparable
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.reconcile import reconcile
from lr_sweep.sweep.search.proposals import (
    REFINE,
    WINNER,
    Proposal,
    add_proposals,
    read_proposals,
    read_proposed,
    read_winners,
)
from lr_sweep.sweep.study.backbones import Backbone
from lr_sweep.sweep.study.only import ALL_RUNS, Only
from lr_sweep.sweep.study.runs import (
    Cell,
    WantedRun,
    by_cell,
    grids_of,
    num_proposals,
    options_text,
    stopped_rates,
    wanted_runs,
)
from lr_sweep.sweep.study.search import Point
from lr_sweep.sweep.study.study import Study

RUN_COLUMNS = ("run_id", "status", "num_steps", "diverged_at_step", "failure")
CURVE_COLUMNS = ("run_id", "step", "validation_accuracy")
"""Test data cannot guide a search: it is not read. Fresh seeds, whose test data end a comparison, choose nothing."""


class Rounds:
    """A study's wanted runs, which a search, a refinement or `decide` adds to; those of a plain grid are all there."""

    def __init__(
        self,
        study: Study,
        backbones: Mapping[str, Backbone],
        results: Results,
        data_dir: Path,
        only: Only = ALL_RUNS,
    ) -> None:
        self._study, self._backbones, self._results = study, backbones, results
        self._data_dir, self._only = data_dir, only
        self._metric: Metric = replace(study.measured, model=study.selection)

    def wanted(self) -> list[WantedRun]:
        """Return the runs that the study wants so far."""
        proposed = read_proposed(self._results, self._study)
        return wanted_runs(self._study, self._backbones, self._data_dir, proposed)

    def is_open(self) -> bool:
        """Return whether some cell gets a further round now."""
        return bool(self._next_proposals(0))

    def _open_cells(self, max_attempts: int) -> dict[Cell, Sequence[Proposal]]:
        """Return the cells that get a further round now, with their proposals so far.

        A cell of a search gets its first round at once. Each further one, and every one of a refinement, waits until no
        run of the cell is left to train. Cells that `--only` leaves out wait.
        """
        if not (number := num_proposals(self._study)):
            return {}
        proposals, ready = read_proposals(self._results, self._study), self._ended_cells(max_attempts)
        at_once = self._study.search is not None
        return {
            cell: earlier
            for cell in grids_of(self._study)
            if len(earlier := proposals.get(cell, [])) < number
            and ((at_once and not earlier) or (cell in ready and _is_in(cell, self._only)))
        }

    def advance(self, max_attempts: int = 0) -> list[Proposal]:
        """Propose and store the next round of each open cell; return what that added.

        Cells with failed runs that were started fewer times than `max_attempts` wait for these.
        """
        if new := self._next_proposals(max_attempts):
            add_proposals(self._results, self._study.study, new)
        return new

    def _next_proposals(self, max_attempts: int) -> list[Proposal]:
        return self._next_rates(max_attempts) or self._next_fresh(max_attempts)

    def _next_fresh(self, max_attempts: int) -> list[Proposal]:
        """Return a further round of fresh seeds, once no run of the study is left to train."""
        if self._study.decide is None or self._to_train(wanted := self.wanted(), max_attempts):
            return []
        from lr_sweep.sweep.search.fresh import next_fresh  # imported late: other studies do not wait for it

        return next_fresh(self._study, wanted, self._results)

    def _next_rates(self, max_attempts: int) -> list[Proposal]:
        if not (cells := self._open_cells(max_attempts)):
            return self._next_winners(max_attempts)
        found = self._observed()
        new = [
            Proposal(
                **cell._asdict(),
                number=len(earlier) + index,
                round=earlier[-1].round + 1 if earlier else 1,
                learning_rate=point.learning_rate,
                sampler=REFINE if self._study.search is None else self._study.search.sampler,
                options=options_text(point.options),
            )
            for cell, earlier in cells.items()
            for index, point in enumerate(self._next_points(cell, earlier, found.get(cell, {})))
        ]
        return new or self._next_winners(max_attempts)  # a cell whose runs were all lost is not refined

    def _next_points(self, cell: Cell, earlier: Sequence[Proposal], found: Mapping[float, Observation]) -> list[Point]:
        """Return the points of a cell's next round, by those observed so far."""
        left, maximise = num_proposals(self._study) - len(earlier), self._metric.higher_is_better
        if (search := self._study.search) is None:
            return list(map(Point, refined_rates(list(found.values()), min(ROUND_SIZE, left), maximise=maximise)))
        from lr_sweep.sweep.search.samplers import next_points  # imported late: a grid does not wait for Optuna

        tried = [(each.point, found[each.learning_rate]) for each in earlier]
        return next_points(search, cell, tried, min(search.round_size, left), maximise=maximise)

    def _next_winners(self, max_attempts: int) -> list[Proposal]:
        """Return the best rates of each cell whose rates have all ended: those that get all seeds now."""
        if self._study.winners is None:
            return []
        proposals, stored = read_proposals(self._results, self._study), read_winners(self._results, self._study)
        found, ready = self._observed(), self._ended_cells(max_attempts)
        new: list[Proposal] = []
        for cell in grids_of(self._study):
            earlier, before = proposals.get(cell, []), stored.get(cell, [])
            if len(earlier) < num_proposals(self._study) or cell not in ready or not _is_in(cell, self._only):
                continue
            known = {each.learning_rate for each in before}
            best = [rate for rate in self._ranked(found[cell])[: self._study.winners] if rate not in known]
            last = earlier[-1].round if earlier else 0
            new += [
                Proposal(
                    **cell._asdict(), number=len(before) + index, round=last + 1, learning_rate=rate, sampler=WINNER
                )
                for index, rate in enumerate(best)
            ]
        return new

    def _ranked(self, observed: Mapping[float, Observation]) -> list[float]:
        """Return the rates with a value from the best to the worst; of equal ones the smaller is first."""
        known = {rate: each.value for rate, each in observed.items() if each.value is not None}
        return sorted(known, key=lambda rate: (-comparable(self._metric.sign * known[rate]), rate))

    def _ended_cells(self, max_attempts: int = 0) -> set[Cell]:
        """Return the cells of which no run that chooses is left to train."""
        wanted = [run for run in self.wanted() if not run.fresh]
        return by_cell(wanted).keys() - by_cell(self._to_train(wanted, max_attempts)).keys() if wanted else set()

    def _to_train(self, wanted: Sequence[WantedRun], max_attempts: int) -> Sequence[WantedRun]:
        stopped = stopped_rates(self._study, self._results.root)
        return reconcile(wanted, self._results, max_attempts=max_attempts, stopped=stopped).to_train

    def _is_observed(self, run: WantedRun) -> bool:
        """Return whether a run's values are read; where only winners have all seeds, rates compare on the first."""
        if run.fresh:
            return False
        return self._study.winners is None or run.run.seed == self._study.seed_list()[0]

    def _observed(self) -> dict[Cell, dict[float, Observation]]:
        """Return what is known of each cell's rates, of those whose runs have all ended."""
        ended = self._ended_cells()
        rows = [run.row() for run in self.wanted() if run.cell in ended and self._is_observed(run)]
        if not rows:
            return {}
        ids = [row["run_id"] for row in rows]
        runs = read_runs(self._results.root, ids, RUN_COLUMNS)
        curves = read_curves(self._results.root, ids, CURVE_COLUMNS)
        wanted = with_stops(pd.DataFrame(rows), stopped_rates(self._study, self._results.root))
        found = observations(wanted, runs, curves, self._metric)
        return {Cell(*cell): {each.learning_rate: each for each in rates} for cell, rates in found.items()}


def _is_in(cell: Cell, only: Only) -> bool:
    """Return whether `--only` names some runs of a cell."""
    return all(value in only.get(axis, (value,)) for axis, value in cell._asdict().items())
