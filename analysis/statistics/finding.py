"""What a check reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from lr_sweep.analysis.statistics.selection import CELL
from lr_sweep.common.text import rate_text

Row = dict[Any, Any]
"""A row of `StudySummary.cells` or `StudySummary.learning_rates`."""
Rates = tuple[float, ...]
Key = tuple[Any, ...]
"""Task, model and variant of a cell."""

Level = Literal["problem", "note"]


@dataclass(frozen=True, kw_only=True)
class CheckFinding:
    """One thing to know about one cell before believing its number."""

    check: str
    """`untuned`, `edge`, `cliff`, `narrow`, `unstable`, `missing`, `diverged`, `improving`, `gap`, `stuck`,
    `flat`, `identical`, `one-seed`, `fewer-seeds`, `unequal`, `unequal-seeds`, `short`, `stopped` or `code`, and of
    tables `chosen-on-test`, `not-chosen` or `settings`: docs/checks.md."""
    level: Level
    """`problem`: the number may change, or cannot carry a conclusion; `note`: anything else worth knowing."""
    task: str
    model: str
    variant: str
    message: str
    fix: str
    """What to do about it; empty: nothing to be done."""
    learning_rates: Rates = ()
    """To add to the study; often none."""


def finding_of(cell: Row, check: str, level: Level, message: str, fix: str = "", rates: Rates = ()) -> CheckFinding:
    """Label a finding of a cell; `rates` are learning rates to add, which is then the fix."""
    labels = {name: cell[name] for name in CELL}
    if rates:
        fix = f"add {', '.join(map(rate_text, rates))} to the learning rates"
    return CheckFinding(check=check, level=level, **labels, message=message, fix=fix, learning_rates=rates)


def problems_first(found: list[CheckFinding]) -> tuple[CheckFinding, ...]:
    """Order findings as reports list them."""
    return tuple(sorted(found, key=lambda finding: finding.level != "problem"))
