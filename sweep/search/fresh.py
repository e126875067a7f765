"""Fresh seeds of a study with `decide`: what they have decided, and the next round of them."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from lr_sweep.analysis.record.read import StudyInfo
from lr_sweep.analysis.statistics.comparisons.decision import Decision
from lr_sweep.analysis.study_summary import summarised
from lr_sweep.sweep.search.proposals import FRESH, Proposal, present_seeds
from lr_sweep.sweep.search.state import StudyState
from lr_sweep.sweep.study.runs import Cell, further_seeds


def decision_of(state: StudyState) -> Decision:
    """Return what the record says of the pairs of a study, from the runs that it wants so far."""
    study = state.study
    assert study.decide, "else there is nothing to decide"
    metric = replace(study.measured, model=study.selection)
    info = StudyInfo(study=study.study, title=study.title, metric=metric, decide=study.decide.recorded)
    rows = pd.DataFrame([run.row() for run in state.wanted])
    found = summarised(state.results.root, info, rows, state.stopped).decision
    assert found, "the study has `decide`"
    return found


def next_fresh(state: StudyState) -> list[Proposal]:
    """Return the next round of fresh seeds, one or two for each cell of an undecided pair, at its chosen rate.

    All wanted runs have ended: so a round depends on values alone, and not on which runs ended first.
    """
    study, decision, given = state.study, decision_of(state), state.stored.fresh
    rates, found = dict(zip(decision.cells, decision.rates, strict=True)), list[Proposal]()
    for cell, number in decision.next_seeds().items():
        earlier, rate = given.get(Cell(*cell), []), rates[cell]
        seeds = present_seeds(study, earlier).get(rate, ())
        number = min(number, decision.settings.max_seeds - len(seeds))  # runs that the user stopped count here
        found += [
            Proposal(
                **Cell(*cell)._asdict(),
                number=len(earlier) + index,
                round=earlier[-1].round + 1 if earlier else 1,
                learning_rate=rate,
                sampler=FRESH,
                seed=seed,
            )
            for index, seed in enumerate(further_seeds(study, seeds, number))
        ]
    return found
