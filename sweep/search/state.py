"""What a study wants, what was proposed for it, and what the record holds of it: computed once a round."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from lr_sweep.analysis.record.columns import PROPOSALS
from lr_sweep.analysis.record.read import read_rows
from lr_sweep.analysis.record.study import NOTHING_STOPPED, StoppedRates
from lr_sweep.sweep.results.directory import Results, write_parquet
from lr_sweep.sweep.results.run_state import RunStates, State, read_ends, states_of
from lr_sweep.sweep.study.backbones import Backbone
from lr_sweep.sweep.study.only import ALL_RUNS, Only, select
from lr_sweep.sweep.study.runs import (
    Cell,
    Proposed,
    WantedRun,
    first_fresh_seed,
    grids_of,
    num_proposals,
    stand_in_runs,
    stopped_rates,
    wanted_runs,
)
from lr_sweep.sweep.study.search import NO_OPTIONS, Point
from lr_sweep.sweep.study.study import Study

REFINE = "refine"
WINNER = "winner"
FRESH = "fresh"
"""The `sampler` of proposals that refine a grid, give a rate all seeds, or give a chosen rate one more seed."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A learning rate that a cell is to try; a row of `proposals.parquet`."""

    task: str
    model: str
    variant: str
    number: int
    """From 0, in the cell; proposals of a search, its winners, a refinement and fresh seeds are numbered apart."""
    round: int
    learning_rate: float
    sampler: str
    options: str | None = None
    """JSON of what was chosen with it; None: nothing."""
    seed: int | None = None
    """The fresh seed; None: the study's own."""

    @property
    def cell(self) -> Cell:
        """Task, model and variant."""
        return Cell(self.task, self.model, self.variant)

    @property
    def point(self) -> Point:
        """Learning rate and options."""
        return Point(self.learning_rate, json.loads(self.options) if self.options else NO_OPTIONS)


@dataclass(frozen=True, kw_only=True)
class Stored:
    """What was proposed for the cells of a study so far, in its order."""

    rates: Mapping[Cell, list[Proposal]]
    """Learning rates of its search or refinement, as many as the study asks for."""
    winners: Mapping[Cell, list[Proposal]]
    """Rates that were given all seeds; none where every rate has them."""
    fresh: Mapping[Cell, list[Proposal]]
    """Fresh seeds, at the present rate and at former ones."""


def read_stored(results: Results, study: Study) -> Stored:
    """Return what was proposed for a study; nothing for a plain grid.

    A study that was searched before it had a grid keeps both kinds; those of its present kind count.

    Raises RecordError if the file is damaged.
    """
    number = num_proposals(study)
    if not (number or study.winners or study.fresh):
        return Stored(rates={}, winners={}, fresh={})
    stored = _stored(results, study.study)
    rates = stored.get("" if study.search else REFINE, {})
    return Stored(
        rates={cell: proposals[:number] for cell, proposals in rates.items()} if number else {},
        winners=stored.get(WINNER, {}) if study.winners else {},
        fresh=stored.get(FRESH, {}) if study.fresh else {},
    )


def present_seeds(study: Study, given: Sequence[Proposal]) -> dict[float, tuple[int, ...]]:
    """Return a cell's fresh seeds at the rate of the latest one; a rate that was chosen twice has those of both times.

    Seeds that have become the study's own since choose now, and are not fresh.
    """
    if not given:
        return {}
    rate, first = given[-1].learning_rate, first_fresh_seed(study)
    seeds = {
        proposal.seed
        for proposal in given
        if proposal.learning_rate == rate and proposal.seed is not None and proposal.seed >= first
    }
    assert study.fresh, "only then seeds are given"
    return {rate: tuple(sorted(seeds)[: study.fresh.max])}


def _proposed_in(cell: Cell, study: Study, stored: Stored) -> Proposed:
    proposals, winners = stored.rates.get(cell, ()), stored.winners.get(cell, ())
    return Proposed(
        rates=tuple(sorted(proposal.learning_rate for proposal in proposals)),
        options={
            proposal.learning_rate: proposal.point.options
            for proposal in proposals
            if proposal.options
        },
        winners=frozenset(winner.learning_rate for winner in winners) if study.winners else None,
        fresh=present_seeds(study, stored.fresh.get(cell, ())),
    )


def _stored(results: Results, study: str) -> dict[str, dict[Cell, list[Proposal]]]:
    """Return all proposals by kind and cell; `REFINE`, `WINNER`, `FRESH`, or empty for those of a search."""
    stored: dict[str, dict[Cell, list[Proposal]]] = {}
    for row in read_rows(results.proposals(study), PROPOSALS) or []:
        _add(Proposal(**row), stored)
    return stored


def _add(proposal: Proposal, stored: dict[str, dict[Cell, list[Proposal]]]) -> None:
    kind = proposal.sampler if proposal.sampler in (REFINE, WINNER, FRESH) else ""
    stored.setdefault(kind, {}).setdefault(proposal.cell, []).append(proposal)


@dataclass(frozen=True, kw_only=True)
class Reconciled(RunStates[WantedRun]):
    """Every wanted run with its state, and the runs to train now."""

    left: tuple[WantedRun, ...]
    """The runs that are not over, also those that `only` leaves out."""
    only: Only

    @cached_property
    def to_train(self) -> tuple[WantedRun, ...]:
        """The runs to train now; raises UserError if no run has the values of `only`."""
        if not self.only:
            return self.left
        chosen = {run.run_id for run in select(self.wanted, self.only)}
        return tuple(run for run in self.left if run.run_id in chosen)

    def with_new(self, runs: Sequence[WantedRun]) -> Reconciled:
        """Return this with further runs, of which the record holds nothing."""
        if not runs:
            return self
        states = {**self.states, **{run.run_id: State.WAITING for run in runs}}
        return replace(self, wanted=[*self.wanted, *runs], states=states, left=(*self.left, *runs))


def reconcile(
    wanted: Sequence[WantedRun],
    results: Results,
    *,
    retry_failed: bool = False,
    only: Only = ALL_RUNS,
    stopped: StoppedRates = NOTHING_STOPPED,
) -> Reconciled:
    """Compare a study's runs with the record, which need not exist yet.

    A run of `only` is trained if it is new or started, and a failed one with `retry_failed`.
    `stopped` are the learning rates that the study's `stop_early` stopped.
    """
    ends = read_ends(results, [run.run_id for run in wanted], ("code", "resumed"))
    states = states_of([run.row() for run in wanted], ends, results, stopped)

    def is_open(run_id: str) -> bool:
        if states[run_id] is State.FAILED:
            return retry_failed
        return not states[run_id].over

    left = tuple(run for run in wanted if is_open(run.run_id))
    return Reconciled(wanted=wanted, states=states, left=left, ends=ends, only=only)


class StudyState:
    """A study at one moment: what was proposed for it, the runs that it wants, and what has become of them.

    A state does not change: its methods return the next one. `only` and `retry_failed` say which runs
    are to be trained (`reconcile`). Raises RecordError for damaged files, and DataError if data files are there but
    cannot be identified.
    """

    def __init__(
        self,
        study: Study,
        backbones: Mapping[str, Backbone],
        results: Results,
        data_dir: Path,
        *,
        only: Only = ALL_RUNS,
        retry_failed: bool = False,
    ) -> None:
        self.study, self.backbones = study, backbones
        self.results, self.data_dir = results, data_dir
        self.only, self.retry_failed = only, retry_failed
        self.stored = read_stored(results, study)
        self.proposed = {cell: _proposed_in(cell, study, self.stored) for cell in grids_of(study)}
        self.wanted = wanted_runs(study, backbones, data_dir, self.proposed)
        self.stopped = stopped_rates(study, results.root)

    @cached_property
    def reconciled(self) -> Reconciled:
        """The wanted runs with their states."""
        return reconcile(
            self.wanted,
            self.results,
            retry_failed=self.retry_failed,
            only=self.only,
            stopped=self.stopped,
        )

    def expected(self, most_fresh: Mapping[Cell, int]) -> Reconciled:
        """Return the wanted runs and stand-ins for those that are not proposed yet (`stand_in_runs`)."""
        stand_ins = stand_in_runs(
            self.study, self.backbones, self.data_dir, self.wanted, most_fresh
        )
        return self.reconciled.with_new(stand_ins)

    def with_proposals(self, new: Iterable[Proposal]) -> StudyState:
        """Store proposals, all or none of them, beside the earlier ones, which stay; return the state with them."""
        stored = _stored(self.results, self.study.study)
        for proposal in new:
            _add(proposal, stored)
        rows = [
            asdict(proposal)
            for cells in stored.values()
            for cell in sorted(cells)
            for proposal in cells[cell]
        ]
        write_parquet(self.results.proposals(self.study.study), rows, PROPOSALS)
        return self.again(retry_failed=self.retry_failed)

    def again(self, *, retry_failed: bool) -> StudyState:
        """Return the state as the record has it now."""
        given = self.study, self.backbones, self.results, self.data_dir
        return StudyState(*given, only=self.only, retry_failed=retry_failed)
