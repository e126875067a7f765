"""Rounds of runs: proposes learning rates, then fresh seeds, for the cells whose earlier runs have ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from lr_sweep.analysis.record.read import read_curves, read_runs
from lr_sweep.analysis.record.rungs import with_stops
from lr_sweep.analysis.statistics.rates.refinement import ROUND_SIZE, Observation, observations, refined_rates
from lr_sweep.analysis.statistics.selection.best import comparable
from lr_sweep.sweep.search.proposals import REFINE, WINNER, Proposal
from lr_sweep.sweep.search.state import StudyState
from lr_sweep.sweep.study.only import Only
from lr_sweep.sweep.study.runs import Cell, grids_of, num_proposals, options_text
from lr_sweep.sweep.study.search import Point

RUN_COLUMNS = ("run_id", "status", "num_steps", "diverged_at_step", "failure")
CURVE_COLUMNS = ("run_id", "step", "validation_accuracy")
"""Test data cannot guide a search: it is not read. Fresh seeds, whose test data end a comparison, choose nothing."""


def next_proposals(state: StudyState) -> list[Proposal]:
    """Return the next round: learning rates of each cell that gets more of them now, else fresh seeds.

    Cells wait for their failed runs that were started fewer times than the state's `max_attempts`.
    """
    return _next_rates(state) or _next_fresh(state)


def _next_rates(state: StudyState) -> list[Proposal]:
    if not (cells := _open_cells(state)):
        return _next_winners(state)
    search, found = state.study.search, _observed(state)
    new = [
        Proposal(
            **cell._asdict(),
            number=len(earlier) + index,
            round=earlier[-1].round + 1 if earlier else 1,
            learning_rate=point.learning_rate,
            sampler=REFINE if search is None else search.sampler,
            options=options_text(point.options),
        )
        for cell, earlier in cells.items()
        for index, point in enumerate(_next_points(state, cell, earlier, found.get(cell, {})))
    ]
    return new or _next_winners(state)  # a cell whose runs were all lost is not refined


def _open_cells(state: StudyState) -> dict[Cell, Sequence[Proposal]]:
    """Return the cells that get a further round now, with their proposals so far.

    A cell of a search gets its first round at once. Each further one, and every one of a refinement, waits until no
    run of the cell is left to train. Cells that `--only` leaves out wait.
    """
    if not (number := num_proposals(state.study)):
        return {}
    at_once, ready = state.study.search is not None, _ended_cells(state)
    return {
        cell: earlier
        for cell in grids_of(state.study)
        if len(earlier := state.stored.rates.get(cell, [])) < number
        and ((at_once and not earlier) or (cell in ready and _is_in(cell, state.only)))
    }


def _next_points(
    state: StudyState, cell: Cell, earlier: Sequence[Proposal], found: Mapping[float, Observation]
) -> list[Point]:
    """Return the points of a cell's next round, by those observed so far."""
    left, maximise = num_proposals(state.study) - len(earlier), state.study.measured.higher_is_better
    if (search := state.study.search) is None:
        return list(map(Point, refined_rates(list(found.values()), min(ROUND_SIZE, left), maximise=maximise)))
    from lr_sweep.sweep.search.samplers import next_points  # imported late: a grid does not wait for Optuna

    tried = [(each.point, found[each.learning_rate]) for each in earlier]
    return next_points(search, cell, tried, min(search.round_size, left), maximise=maximise)


def _next_winners(state: StudyState) -> list[Proposal]:
    """Return the best rates of each cell whose rates have all ended: those that get all seeds now."""
    study, proposals = state.study, state.stored.rates
    if study.winners is None:
        return []
    found, ready = _observed(state), _ended_cells(state)
    new: list[Proposal] = []
    for cell in grids_of(study):
        earlier, before = proposals.get(cell, []), state.stored.winners.get(cell, [])
        if len(earlier) < num_proposals(study) or cell not in ready or not _is_in(cell, state.only):
            continue
        known = {each.learning_rate for each in before}
        best = [rate for rate in _ranked(found[cell], study.measured.sign)[: study.winners] if rate not in known]
        last = earlier[-1].round if earlier else 0
        new += [
            Proposal(**cell._asdict(), number=len(before) + index, round=last + 1, learning_rate=rate, sampler=WINNER)
            for index, rate in enumerate(best)
        ]
    return new


def _ranked(observed: Mapping[float, Observation], sign: int) -> list[float]:
    """Return the rates with a value from the best to the worst; of equal ones the smaller is first."""
    known = {rate: each.value for rate, each in observed.items() if each.value is not None}
    return sorted(known, key=lambda rate: (-comparable(sign * known[rate]), rate))


def _next_fresh(state: StudyState) -> list[Proposal]:
    """Return a further round of fresh seeds, once no run of the study is left to train."""
    if state.study.decide is None or state.reconciled.left:
        return []
    from lr_sweep.sweep.search.fresh import next_fresh  # imported late: other studies do not wait for it

    return next_fresh(state)


def _ended_cells(state: StudyState) -> set[Cell]:
    """Return the cells of which no run that chooses is left to train."""
    left = {run.cell for run in state.reconciled.left if not run.fresh}
    return {run.cell for run in state.wanted if not run.fresh} - left


def _observed(state: StudyState) -> dict[Cell, dict[float, Observation]]:
    """Return what is known of each cell's rates, of those whose runs have all ended.

    Where only winners have all seeds, rates compare on the first seed.
    """
    study, ended = state.study, _ended_cells(state)
    seeds = study.seed_list() if study.winners is None else study.seed_list()[:1]
    choosing = [run for run in state.wanted if not run.fresh and run.run.seed in seeds]
    rows = [run.row() for run in choosing if run.cell in ended]
    if not rows:
        return {}
    ids = [row["run_id"] for row in rows]
    runs = read_runs(state.results.root, ids, RUN_COLUMNS)
    curves = read_curves(state.results.root, ids, CURVE_COLUMNS)
    wanted = with_stops(pd.DataFrame(rows), state.stopped)
    found = observations(wanted, runs, curves, replace(study.measured, model=study.selection))
    return {Cell(*cell): {each.learning_rate: each for each in rates} for cell, rates in found.items()}


def _is_in(cell: Cell, only: Only) -> bool:
    """Return whether `--only` names some runs of a cell."""
    return all(value in only.get(axis, (value,)) for axis, value in cell._asdict().items())
