"""The findings of a study's checks: as a list for the report and the terminal, as JSON for a machine."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd

from lr_sweep.analysis.statistics.checks.finding import CheckFinding
from lr_sweep.analysis.statistics.selection.best import CELL, Cell, cell_of
from lr_sweep.common.text import counted, rate_text

from .blocks import Bullets

MOST_NAMED = 8
"""Cells that a folded finding names; more are counted."""
CellNames = Mapping[Cell, str]
"""How a report names a cell: by its variant, and by task and model where there are several."""


def cell_names(cells: pd.DataFrame) -> CellNames:
    """Name each of the cells of `StudySummary`."""
    shown = [name for name in CELL if name == "variant" or cells[name].nunique() > 1]
    rows = cells.to_dict("records")
    return {cell_of(row): " ".join(row[name] for name in shown) for row in rows}


def folded(findings: Sequence[CheckFinding], names: CellNames) -> dict[CheckFinding, str]:
    """Fold findings that differ in nothing but their cells, for readers, and name these; the first stay first."""
    cells: dict[CheckFinding, list[Cell]] = {}
    for finding in findings:
        text = replace(finding, task="", model="", variant="")
        cells.setdefault(text, []).append(finding.cell)
    return {text: _named([names[cell] for cell in cells[text]], len(names)) for text in cells}


def _named(cells: list[str], num_cells: int) -> str:
    if 1 < len(cells) == num_cells:
        return "all variants"
    if len(cells) <= MOST_NAMED:
        return ", ".join(cells)
    return f"{', '.join(cells[:MOST_NAMED])} and {len(cells) - MOST_NAMED} more"


def checks_line(findings: Collection[CheckFinding]) -> str:
    """Count findings, as one sentence: `Checks: 2 problems, 1 note.`"""
    num_problems = count_problems(findings)
    counts = {"problem": num_problems, "note": len(findings) - num_problems}
    named = [counted(number, level) for level, number in counts.items() if number]
    return f"Checks: {', '.join(named) or 'nothing found'}."


def findings_list(
    findings: Mapping[CheckFinding, str], tried: Collection[float], from_table: bool
) -> Bullets:
    """Write findings, an item each, problems first.

    Args:
        findings: the result of `folded`.
        tried: the learning rates of the study, or of the table.
        from_table: whether there is no study's file to change.
    """
    items = []
    for finding, cells in findings.items():
        fix = f"; {finding.fix}" if finding.fix else ""
        items.append(f"{finding.level}: {cells}: {finding.message}{fix}")
    if to_add := _to_add(findings, tried):
        added = ", ".join(map(rate_text, to_add))
        every = ", ".join(map(rate_text, sorted({*to_add, *tried})))
        line = f"with what is to be added, the study's line reads: `learning_rates: [{every}]`"
        items.append(f"learning rates to add: {added}" if from_table else line)
    return Bullets(items)


def write_checks_json(
    folder: Path, study: str, findings: Sequence[CheckFinding], tried: Collection[float]
) -> None:
    """Write `checks.json`; the fields of its findings are those of `CheckFinding`."""
    content = {
        "format": 1,
        "study": study,
        "num_problems": count_problems(findings),
        "findings": [asdict(finding) for finding in findings],
        "learning_rates_tried": sorted(tried),
        "learning_rates_to_add": _to_add(findings, tried),
    }
    (folder / "checks.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def count_problems(findings: Collection[CheckFinding]) -> int:
    """Count those that `--strict` fails on."""
    return sum(finding.level == "problem" for finding in findings)


def _to_add(findings: Iterable[CheckFinding], tried: Collection[float]) -> list[float]:
    return sorted({rate for finding in findings for rate in finding.learning_rates} - set(tried))
