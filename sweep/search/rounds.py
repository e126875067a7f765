"""Rounds of runs: proposes learning rates, then fresh seeds, for the cells whose earlier runs have ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

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
from lr_sweep.common.files import Fields
from lr_sweep.sweep.study.runs import (
    Cell,
    fresh_allowed,
    further_seeds,
    grids_of,
    num_proposals,
    options_text,
)
from lr_sweep.sweep.study.search import Point
from lr_sweep.sweep.study.study import Study

from .state import FRESH, REFINE, WINNER, Proposal, StudyState, present_seeds

CURVE_COLUMNS = ("run_id", "step", "validation")
"""Columns that a search reads. Test data cannot guide it; they only say whether a cell gets further fresh seeds."""


def next_proposals(state: StudyState) -> list[Proposal]:
    """Return the next round: learning rates of each cell that gets more of them now, else fresh seeds.

    Cells wait for their failed runs if the state has `retry_failed`.
    """
    return _next_rates(state) or _next_winners(state) or _next_fresh(state)


def _round(
    cell: Cell, sampler: str, number: int, earlier: Sequence[Proposal], chosen: Iterable[Fields]
) -> list[Proposal]:
    """Return proposals of a cell in the round after the `earlier` ones, numbered from `number` on."""
    shared = cell._asdict() | {
        "sampler": sampler,
        "round": earlier[-1].round + 1 if earlier else 1,
    }
    return [
        Proposal(**shared, number=number, **fields) for number, fields in enumerate(chosen, number)
    ]


def _next_rates(state: StudyState) -> list[Proposal]:
    """Return learning rates for the cells that get a further round now.

    A cell of a search gets its first round at once. Each further one, and every one of a refinement, waits until no
    run of the cell is left to train. Cells that `--only` leaves out wait.
    """
    search, stored = state.study.search, state.stored.rates
    most, ready = num_proposals(state.study), _ready_cells(state)
    cells = [
        cell
        for cell in grids_of(state.study)
        if len(stored.get(cell, [])) < most
        and (cell in ready or (search is not None and cell not in stored))
    ]
    if not cells:
        return []

    observed = _observed(state)
    new: list[Proposal] = []
    for cell in cells:
        earlier = stored.get(cell, [])
        points = _next_points(state.study, cell, earlier, observed.get(cell, {}))
        chosen = [
            {"learning_rate": point.learning_rate, "options": options_text(point.options)}
            for point in points
        ]
        new += _round(cell, search.sampler if search else REFINE, len(earlier), earlier, chosen)
    return new


def _next_points(
    study: Study, cell: Cell, earlier: Sequence[Proposal], observed: Mapping[float, Observation]
) -> list[Point]:
    maximise = study.measured.higher_is_better
    left = num_proposals(study) - len(earlier)
    if (search := study.search) is None:
        rates = refined_rates(list(observed.values()), min(ROUND_SIZE, left), maximise=maximise)
        return [Point(rate) for rate in rates]

    # Imported late: a grid does not wait for Optuna.
    from .samplers import next_points

    tried = [(proposal.point, observed[proposal.learning_rate]) for proposal in earlier]
    return next_points(search, cell, tried, min(search.round_size, left), maximise=maximise)


def _next_winners(state: StudyState) -> list[Proposal]:
    """Return the best rates of each cell whose rates have all ended: those that get all seeds now."""
    study, most = state.study, num_proposals(state.study)
    if study.winners is None:
        return []
    ready, observed = _ready_cells(state), _observed(state)
    new: list[Proposal] = []
    for cell in grids_of(study):
        earlier, before = state.stored.rates.get(cell, []), state.stored.winners.get(cell, [])
        if len(earlier) < most or cell not in ready:
            continue
        known = {winner.learning_rate for winner in before}
        best = _ranked(observed[cell], study.measured.sign)[: study.winners]
        chosen = [{"learning_rate": rate} for rate in best if rate not in known]
        new += _round(cell, WINNER, len(before), earlier, chosen)
    return new


def _ranked(observed: Mapping[float, Observation], sign: int) -> list[float]:
    """Return the rates with a value from the best to the worst; of equal ones the smaller is first."""
    values = {rate: point.value for rate, point in observed.items() if point.value is not None}
    return sorted(values, key=lambda rate: (-comparable(sign * values[rate]), rate))


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
    study = state.study
    if study.fresh is None or state.reconciled.left:
        return []
    summary, most = summary_of(state), fresh_allowed(study)
    rates = summary.cells.set_index(CELL)["learning_rate"]
    new: list[Proposal] = []
    for names, number in next_seeds(summary).items():
        cell, rate = Cell(*names), float(rates[names])
        earlier = state.stored.fresh.get(cell, [])
        known = present_seeds(study, earlier).get(rate, ())
        number = min(number, most[cell] - len(known))
        seeds = further_seeds(study, known, number)
        chosen = [{"learning_rate": rate, "seed": seed} for seed in seeds]
        new += _round(cell, FRESH, len(earlier), earlier, chosen)
    return new


def _ended_cells(state: StudyState) -> set[Cell]:
    left = {run.cell for run in state.reconciled.left if not run.fresh}
    return {run.cell for run in state.wanted if not run.fresh} - left


def _ready_cells(state: StudyState) -> set[Cell]:
    """Return the cells of `--only` that have no run left to train."""
    return {
        cell
        for cell in _ended_cells(state)
        if all(name in state.only.get(axis, (name,)) for axis, name in cell._asdict().items())
    }


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
        Cell(*cell): {point.learning_rate: point for point in points}
        for cell, points in observed.items()
    }
