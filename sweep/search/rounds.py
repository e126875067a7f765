"""Rounds of runs: proposes learning rates, then fresh seeds, for the cells whose earlier runs have ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from lr_sweep.analysis.record.read import read_curves, read_runs
from lr_sweep.analysis.record.study import StudyInfo, with_stops
from lr_sweep.analysis.statistics.comparisons.fresh import most_left, next_seeds
from lr_sweep.analysis.statistics.rates.refinement import (
    ROUND_SIZE,
    Observation,
    observations,
    refined_rates,
)
from lr_sweep.analysis.statistics.selection.best import CELL, comparable
from lr_sweep.analysis.statistics.selection.summary import RUN_COLUMNS, StudySummary
from lr_sweep.analysis.study_summary import summarised
from lr_sweep.sweep.study.only import Only
from lr_sweep.sweep.study.runs import (
    Cell,
    fresh_allowed,
    further_seeds,
    grids_of,
    num_proposals,
    options_text,
)
from lr_sweep.sweep.study.search import Point

from .state import FRESH, REFINE, WINNER, Proposal, StudyState, present_seeds

CURVE_COLUMNS = ("run_id", "step", "validation")
"""Columns that a search reads. Test data cannot guide it; they only say whether a cell gets further fresh seeds."""


def next_proposals(state: StudyState) -> list[Proposal]:
    """Return the next round: learning rates of each cell that gets more of them now, else fresh seeds.

    Cells wait for their failed runs if the state has `retry_failed`.
    """
    if not (num_proposals(state.study) or state.study.winners):
        return _next_fresh(state)
    return _next_rates(state) or _next_winners(state) or _next_fresh(state)


def _round(
    cell: Cell, sampler: str, number: int, earlier: Sequence[Proposal], *chosen: dict[str, Any]
) -> list[Proposal]:
    of_round = cell._asdict() | {
        "sampler": sampler,
        "round": earlier[-1].round + 1 if earlier else 1,
    }
    return [
        Proposal(**of_round, number=number + index, **each) for index, each in enumerate(chosen)
    ]


def _next_rates(state: StudyState) -> list[Proposal]:
    if not (cells := _open_cells(state)):
        return []
    search, observed, new = state.study.search, _observed(state), list[Proposal]()
    for cell, earlier in cells.items():
        points = _next_points(state, cell, earlier, observed.get(cell, {}))
        chosen = [
            {"learning_rate": rate, "options": options_text(options)} for rate, options in points
        ]
        new += _round(cell, search.sampler if search else REFINE, len(earlier), earlier, *chosen)
    return new


def _open_cells(state: StudyState) -> dict[Cell, Sequence[Proposal]]:
    """Return the cells that get a further round now, with their proposals so far.

    A cell of a search gets its first round at once. Each further one, and every one of a refinement, waits until no
    run of the cell is left to train. Cells that `--only` leaves out wait.
    """
    at_once, ready = state.study.search is not None, _ended_cells(state)
    return {
        cell: earlier
        for cell in grids_of(state.study)
        if len(earlier := state.stored.rates.get(cell, [])) < num_proposals(state.study)
        and ((at_once and not earlier) or (cell in ready and _is_in(cell, state.only)))
    }


def _next_points(
    state: StudyState,
    cell: Cell,
    earlier: Sequence[Proposal],
    observed: Mapping[float, Observation],
) -> list[Point]:
    left, maximise = (
        num_proposals(state.study) - len(earlier),
        state.study.measured.higher_is_better,
    )
    if (search := state.study.search) is None:
        return list(
            map(
                Point,
                refined_rates(list(observed.values()), min(ROUND_SIZE, left), maximise=maximise),
            )
        )
    from .samplers import (
        next_points,
    )  # imported late: a grid does not wait for Optuna

    tried = [(each.point, observed[each.learning_rate]) for each in earlier]
    return next_points(search, cell, tried, min(search.round_size, left), maximise=maximise)


def _next_winners(state: StudyState) -> list[Proposal]:
    """Return the best rates of each cell whose rates have all ended: those that get all seeds now."""
    study, new = state.study, list[Proposal]()
    if study.winners is None:
        return []
    observed, ready = _observed(state), _ended_cells(state)
    for cell in grids_of(study):
        earlier, before = state.stored.rates.get(cell, []), state.stored.winners.get(cell, [])
        if len(earlier) < num_proposals(study) or cell not in ready or not _is_in(cell, state.only):
            continue
        known, best = (
            {each.learning_rate for each in before},
            _ranked(observed[cell], study.measured.sign),
        )
        rates = [{"learning_rate": rate} for rate in best[: study.winners] if rate not in known]
        new += _round(cell, WINNER, len(before), earlier, *rates)
    return new


def _ranked(observed: Mapping[float, Observation], sign: int) -> list[float]:
    """Return the rates with a value from the best to the worst; of equal ones the smaller is first."""
    known = {rate: each.value for rate, each in observed.items() if each.value is not None}
    return sorted(known, key=lambda rate: (-comparable(sign * known[rate]), rate))


def summary_of(state: StudyState) -> StudySummary:
    """Summarise what the record has of the runs that a study wants so far."""
    study = state.study
    metric = replace(study.measured, model=study.selection)
    info = StudyInfo(
        study=study.study,
        title=study.title,
        metric=metric,
        fresh=study.fresh,
        equal_within=study.equal_within,
    )
    rows = pd.DataFrame([run.row() for run in state.wanted])
    return summarised(state.results.root, info, rows, state.stopped).summary


def most_fresh(state: StudyState) -> dict[Cell, int]:
    """Return how many fresh seeds each cell may have in the end; until the rates are chosen, all that are allowed."""
    summary, allowed = summary_of(state), fresh_allowed(state.study)
    if summary.runs["status"].eq("missing").any():
        return allowed
    left = {run.run_id for run in state.reconciled.left}
    ended = Counter(run.cell for run in state.wanted if run.fresh and run.run_id not in left)
    return {
        Cell(*names): min(allowed[Cell(*names)], ended[Cell(*names)] + number)
        for names, number in most_left(summary).items()
    }


def _next_fresh(state: StudyState) -> list[Proposal]:
    """Return fresh seeds for the cells that need more of them, at their chosen rates.

    All wanted runs have ended: so a round depends on values alone, and not on which runs ended first.
    """
    study, new = state.study, list[Proposal]()
    if study.fresh is None or state.reconciled.left:
        return []
    summary, most = summary_of(state), fresh_allowed(study)
    rates = summary.cells.set_index(CELL)["learning_rate"]
    for names, number in next_seeds(summary).items():
        cell, rate = Cell(*names), float(rates[names])
        earlier = state.stored.fresh.get(cell, [])
        known = present_seeds(study, earlier).get(rate, ())
        number = min(number, most[cell] - len(known))  # runs that the user stopped count here
        seeds = [
            {"learning_rate": rate, "seed": seed} for seed in further_seeds(study, known, number)
        ]
        new += _round(cell, FRESH, len(earlier), earlier, *seeds)
    return new


def _ended_cells(state: StudyState) -> set[Cell]:
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
    observed = observations(wanted, runs, curves, replace(study.measured, model=study.selection))
    return {
        Cell(*cell): {each.learning_rate: each for each in rates}
        for cell, rates in observed.items()
    }


def _is_in(cell: Cell, only: Only) -> bool:
    return all(value in only.get(axis, (value,)) for axis, value in cell._asdict().items())
