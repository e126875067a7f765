"""Proposals of a search or a refinement: which learning rates each cell tries, stored before they train."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from lr_sweep.analysis.record.columns import PROPOSALS
from lr_sweep.analysis.record.read import read_rows
from lr_sweep.sweep.results.directory import Results, write_parquet
from lr_sweep.sweep.study.own import AnyStudy
from lr_sweep.sweep.study.runs import Cell, num_proposals

REFINE = "refine"
"""The `sampler` of proposals that refine a grid."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A learning rate that a cell is to try; a row of `proposals.parquet`."""

    task: str
    model: str
    variant: str
    number: int
    """Of the cell's proposals, from 0; those of a search and of a refinement are numbered apart."""
    round: int
    """Of the cell's rounds, from 1."""
    learning_rate: float
    sampler: str

    @property
    def cell(self) -> Cell:
        """Task, model and variant."""
        return Cell(self.task, self.model, self.variant)


Proposals = Mapping[Cell, Sequence[Proposal]]
"""By cell, numbered from 0."""


def read_proposals(results: Results, study: AnyStudy) -> dict[Cell, list[Proposal]]:
    """Return the stored proposals of a study, of each cell as many as the study asks for; none for a plain grid.

    A study that was searched before it had a grid keeps both kinds; those of its present kind count.

    Raises RecordError if the file is damaged.
    """
    if not (number := num_proposals(study)):
        return {}
    stored = _stored(results, study.study)
    return {cell: of_cell[:number] for (cell, refines), of_cell in stored.items() if refines != bool(study.search)}


def add_proposals(results: Results, study: str, new: Iterable[Proposal]) -> None:
    """Add proposals to the stored ones, which stay as they are; all of them are stored, or none."""
    stored = _stored(results, study)
    for proposal in new:
        of_cell = stored.setdefault(_key(proposal), [])
        assert proposal.number == len(of_cell), "a cell's proposals are numbered in their order"
        of_cell.append(proposal)
    rows = [asdict(proposal) for key in sorted(stored) for proposal in stored[key]]
    write_parquet(results.proposals(study), rows, PROPOSALS)


def _key(proposal: Proposal) -> tuple[Cell, bool]:
    return proposal.cell, proposal.sampler == REFINE


def _stored(results: Results, study: str) -> dict[tuple[Cell, bool], list[Proposal]]:
    """Return all proposals by cell, and whether they refine a grid."""
    found: dict[tuple[Cell, bool], list[Proposal]] = {}
    for row in read_rows(results.proposals(study), PROPOSALS) or []:
        proposal = Proposal(**row)
        found.setdefault(_key(proposal), []).append(proposal)
    return found


def rates_of(proposals: Proposals) -> dict[Cell, tuple[float, ...]]:
    """Return the proposed learning rates of each cell in ascending order, as a grid has them."""
    return {cell: tuple(sorted(each.learning_rate for each in of_cell)) for cell, of_cell in proposals.items()}
