"""What a check is given, one cell of a sweep, and what it reports."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.statistics.selection.best import (
    Cell,
    cell_of,
    rows_by_cell,
    was_tried,
)
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.common.text import rate_text

Level = Literal["problem", "note"]


@dataclass(frozen=True, kw_only=True)
class CheckFinding:
    """One thing to know about one cell before believing its number."""

    check: str
    """Its name, as `edge`: docs/checks.md lists all."""
    level: Level
    """`problem`: the number may change, or cannot carry a conclusion; `note`: anything else worth knowing."""
    task: str
    model: str
    variant: str
    message: str
    fix: str
    """What to do about it; empty: nothing to be done."""
    learning_rates: Collection[float] = ()
    """To add to the study; often none."""
    condition: str = ""
    """Why the variant may yet be better than its number; often empty. It ends a sentence that another variant leads
    this one, and a sentence that both are equal: `as far as the grid reaches: sgd still improves at 1e-1`."""

    @property
    def cell(self) -> Cell:
        """Task, model and variant."""
        return self.task, self.model, self.variant


def finding_of(
    cell: Cell,
    check: str,
    level: Level,
    message: str,
    fix: str = "",
    rates: Collection[float] = (),
    condition: str = "",
) -> CheckFinding:
    """Label a finding of a cell; `rates` are learning rates to add."""
    task, model, variant = cell
    return CheckFinding(
        check=check,
        level=level,
        task=task,
        model=model,
        variant=variant,
        message=message,
        fix=fix,
        learning_rates=tuple(rates),
        condition=condition,
    )


@dataclass(frozen=True, kw_only=True)
class SweptCell:
    """A cell of a study, as checks read it."""

    row: Row
    """A row of `StudySummary.cells`."""
    rates: Sequence[Row]
    """Its rows of `StudySummary.learning_rates`, rising, those without values included."""
    study: StudySummary

    @property
    def key(self) -> Cell:
        """Task, model and variant."""
        return cell_of(self.row)

    @property
    def metric(self) -> Metric:
        """The study's metric."""
        return self.study.metric

    @property
    def finding(self) -> partial[CheckFinding]:
        """`finding_of` this cell: takes its other arguments."""
        return partial(finding_of, self.key)

    @property
    def tried(self) -> list[Row]:
        """The rates that bound the sweep or show its peak: runs that failed or are missing do neither."""
        return [row for row in self.rates if was_tried(row)]

    def asking_for(
        self,
        check: str,
        message: str,
        further: Collection[float],
        condition: str,
    ) -> CheckFinding:
        """Report that learning rates are needed.

        Where the study has such rates, untried, their runs are the fix; a search is to propose more rates.
        """
        rates = sorted(further)
        fix = f"add {', '.join(map(rate_text, rates))} to the learning rates"
        untried = [row["learning_rate"] for row in self.rates if not was_tried(row)]
        waiting = [rate_text(rate) for rate in untried if rates[0] <= rate <= rates[-1]]
        if waiting:
            fix = f"train the runs at {', '.join(waiting)}, which have no value"
            rates = []
        elif self.study.search is not None:
            fix = f"raise `rates`, now {self.study.search.rates}, or widen the range"
            rates = []
        return self.finding(check, "problem", message, fix, rates, condition)


def swept_cells(summary: StudySummary) -> Iterator[SweptCell]:
    """Yield the cells of a study with what checks read of them."""
    rates = rows_by_cell(summary.learning_rates)
    for row in summary.cells.to_dict("records"):
        yield SweptCell(row=row, rates=rates[cell_of(row)], study=summary)


def problems_first(
    findings: Iterable[CheckFinding],
) -> tuple[CheckFinding, ...]:
    """Order findings as reports list them."""
    return tuple(sorted(findings, key=lambda finding: finding.level != "problem"))


def conditions_of(findings: Iterable[CheckFinding]) -> dict[Cell, str]:
    """Return by cell the first condition that a comparison with it has to name."""
    conditions: dict[Cell, str] = {}
    for finding in findings:
        if finding.condition:
            conditions.setdefault(finding.cell, finding.condition)
    return conditions
