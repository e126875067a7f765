"""The findings of a study's checks: as text for a terminal, as a table, as JSON for a machine."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path

from lr_sweep.analysis.report.blocks import Table
from lr_sweep.analysis.statistics.checks import CheckFinding
from lr_sweep.analysis.text import rate_text

MAX_LINES = 40
"""Findings shown in a terminal; the report has all."""


def checks_line(findings: Sequence[CheckFinding]) -> str:
    """Count findings, as one sentence: `Checks: 2 problems, 1 note.`"""
    found = count_problems(findings)
    counts = [(found, "problem"), (len(findings) - found, "note")]
    counted = ", ".join(f"{number} {name}{'s' if number > 1 else ''}" for number, name in counts if number)
    return f"Checks: {counted or 'nothing found'}."


def findings_text(findings: Sequence[CheckFinding], tried: Collection[float], of_study: bool = True) -> str:
    """Write findings for a terminal, a line each; `tried` are the learning rates of the study, or of the table."""
    lines = [checks_line(findings).removesuffix(".").lower()]
    for each in findings[:MAX_LINES]:
        fix = f"; {each.fix}" if each.fix else ""
        lines.append(f"  {each.level}: {each.task} {each.model} {each.variant}: {each.message}{fix}")
    if len(findings) > MAX_LINES:
        lines.append(f"  and {len(findings) - MAX_LINES} more in the report")
    if setting := _setting(findings, tried):
        added = f"learning rates to add:  {_rates_to_add(findings, tried)}"
        lines.append(f"  with what is to be added, the study's line reads:  {setting}" if of_study else f"  {added}")
    return "\n".join(lines)


def findings_table(findings: Sequence[CheckFinding], tried: Collection[float], of_study: bool = True) -> Table:
    """Lay findings out for the report."""
    setting = _setting(findings, tried)
    added = f" Learning rates to add: {_rates_to_add(findings, tried)}."
    line = f" With all that is to be added, the study's line reads: {setting}." if of_study else added
    what = "Problem: the number may change, or cannot carry a conclusion. Note: anything else worth knowing."
    return Table(
        title="Checks",
        caption=what + (line if setting else ""),
        header=("level", "task", "model", "variant", "found", "what to do"),
        stacked=True,
        rows=tuple((e.level, e.task, e.model, e.variant, e.message, e.fix) for e in findings),
    )


def write_checks_json(folder: Path, study: str, findings: Sequence[CheckFinding], tried: Collection[float]) -> None:
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


def count_problems(findings: Sequence[CheckFinding]) -> int:
    """Count those that `--strict` fails on."""
    return sum(finding.level == "problem" for finding in findings)


def _setting(findings: Sequence[CheckFinding], tried: Collection[float]) -> str:
    """Write the study's setting with every suggested learning rate in it; empty: none is suggested."""
    added = _to_add(findings, tried)
    listed = ", ".join(rate_text(rate) for rate in sorted({*added, *tried}))
    return f"learning_rates: [{listed}]" if added else ""


def _rates_to_add(findings: Sequence[CheckFinding], tried: Collection[float]) -> str:
    return ", ".join(map(rate_text, _to_add(findings, tried)))


def _to_add(findings: Sequence[CheckFinding], tried: Collection[float]) -> list[float]:
    return sorted({rate for finding in findings for rate in finding.learning_rates} - set(tried))
