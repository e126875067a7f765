"""Findings of the sweep's checks, and how they are told: to a terminal, to a reader, to a machine."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from analysis.record import StudyInfo
from analysis.table_formats import Table, write_tables
from analysis.text import rate_text

Level = Literal["problem", "note"]

MAX_LINES = 40
"""Findings shown in a terminal; the report has all."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing to know about one cell before believing its number."""

    check: str
    """`untuned`, `edge`, `narrow`, `missing`, `diverged`, `improving`, `gap`, `stuck`, `identical`, `one-seed`
    or `code`; see docs/checks.md."""
    level: Level
    """`problem`: the number may change, or cannot carry a conclusion; `note`: anything else worth knowing."""
    task: str
    model: str
    variant: str
    message: str
    fix: str
    """What to do about it; empty: nothing to be done."""
    learning_rates: tuple[float, ...]
    """To add to the study; often none."""


def problems(findings: Collection[Finding]) -> list[Finding]:
    """Return those that `--strict` fails on."""
    return [finding for finding in findings if finding.level == "problem"]


def sorted_findings(findings: Collection[Finding]) -> list[Finding]:
    """Return problems first, otherwise in the order given."""
    return sorted(findings, key=lambda finding: finding.level != "problem")


def findings_text(findings: Sequence[Finding], tried: Collection[float]) -> str:
    """Tell findings to a terminal, a line each.

    Args:
        findings: from `checks.check_sweep`.
        tried: the study's learning rates.
    """
    lines = [f"checks: {_count(findings)}"]
    for each in findings[:MAX_LINES]:
        fix = f"; {each.fix}" if each.fix else ""
        lines.append(f"  {each.level}: {each.task} {each.model} {each.variant}: {each.message}{fix}")
    if len(findings) > MAX_LINES:
        lines.append(f"  and {len(findings) - MAX_LINES} more in the report")
    if setting := _setting(findings, tried):
        lines.append(f"  with what is to be added, the study's line reads:  {setting}")
    return "\n".join(lines)


def findings_table(findings: Sequence[Finding], tried: Collection[float]) -> Table:
    """Tell findings to a reader of the report; arguments as `findings_text`."""
    rows = tuple((e.level, e.task, e.model, e.variant, e.message, e.fix) for e in findings)
    setting = _setting(findings, tried)
    what = "Problem: the number may change, or cannot carry a conclusion. Note: anything else worth knowing."
    return Table(
        title="Checks",
        caption=what + (f" With all that is to be added, the study's line reads: {setting}." if setting else ""),
        header=("level", "task", "model", "variant", "found", "what to do"),
        rows=rows,
    )


def write_findings(folder: Path, info: StudyInfo, findings: Sequence[Finding], tried: Collection[float]) -> Table:
    """Write `checks.json`, whose fields are those of `Finding`, and the table `checks`; return the table."""
    content = {
        "format": 1,
        "study": info.study,
        "num_problems": len(problems(findings)),
        "findings": [asdict(finding) for finding in findings],
        "learning_rates_tried": sorted(tried),
        "learning_rates_to_add": _to_add(findings, tried),
    }
    (folder / "checks.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    shown = findings_table(findings, tried)
    write_tables(folder, {"checks": shown})
    return shown


def _count(findings: Sequence[Finding]) -> str:
    if not findings:
        return "nothing found"
    found = len(problems(findings))
    counts = [(found, "problem"), (len(findings) - found, "note")]
    return ", ".join(f"{number} {name}{'s' if number > 1 else ''}" for number, name in counts if number)


def _setting(findings: Sequence[Finding], tried: Collection[float]) -> str:
    """Write the study's setting with every suggested learning rate in it; empty: none is suggested."""
    added = _to_add(findings, tried)
    listed = ", ".join(rate_text(rate) for rate in sorted({*added, *tried}))
    return f"learning_rates: [{listed}]" if added else ""


def _to_add(findings: Sequence[Finding], tried: Collection[float]) -> list[float]:
    return sorted({rate for finding in findings for rate in finding.learning_rates} - set(tried))
