"""The findings of a study's checks: as text for a terminal, as a table, as JSON for a machine."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd

from lr_sweep.analysis.report.blocks import Table
from lr_sweep.analysis.report.texts import laid_out
from lr_sweep.analysis.statistics.checks.finding import CheckFinding
from lr_sweep.analysis.statistics.selection.summary import GROUP
from lr_sweep.common.text import counted, rate_text

MAX_LINES = 40
"""Findings shown in a terminal; the report has all."""
MOST_NAMED = 8
"""Variants, or tasks, that a folded finding names; more are counted."""

Group = tuple[str, str]
"""Task and model."""


def folded(findings: Sequence[CheckFinding], cells: pd.DataFrame) -> list[CheckFinding]:
    """Fold findings that differ in nothing but their cells, for readers; a folded one names all of them.

    Those that come first stay first. `cells`: of `StudySummary`, all that there are.
    """
    variants_of = {
        (str(t), str(m)): list(rows["variant"]) for (t, m), rows in cells.groupby(GROUP, sort=False)
    }
    alike: dict[CheckFinding, dict[Group, list[str]]] = {}
    for each in findings:
        said = replace(each, task="", model="", variant="")
        alike.setdefault(said, defaultdict(list))[each.task, each.model].append(each.variant)
    return [each for said, found in alike.items() for each in _placed(said, found, variants_of)]


def _placed(
    said: CheckFinding, found: dict[Group, list[str]], variants_of: dict[Group, list[str]]
) -> list[CheckFinding]:
    """Name the cells that share a finding: a line for each set of variants, with the tasks and models that it is of."""
    groups: defaultdict[str, list[Group]] = defaultdict(list)
    for group, variants in found.items():
        groups[_some(variants, variants_of[group], "variant")].append(group)
    return [
        replace(said, task=task, model=model, variant=variants)
        for variants, named in groups.items()
        for task, model in _named_groups(named, list(variants_of))
    ]


def _named_groups(named: list[Group], every: list[Group]) -> list[Group]:
    """Return tasks and models as text: together if they are all there are, or have one model, else one by one."""
    tasks, models = (list(dict.fromkeys(names)) for names in zip(*every, strict=True))
    if len(named) == len(every):
        return [(_some(tasks, tasks, "task"), _some(models, models, "model"))]
    if len(models) > 1:
        return named
    return [(_some([task for task, _ in named], tasks, "task"), models[0])]


def _some(names: list[str], every: list[str], noun: str) -> str:
    if len(names) == 1:
        return names[0]
    if len(names) == len(every):
        return f"all {len(every)} {noun}s"
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{len(names)} of {len(every)} {noun}s ({', '.join(names[:MOST_NAMED])}{more})"


def checks_line(findings: Sequence[CheckFinding]) -> str:
    """Count findings, as one sentence: `Checks: 2 problems, 1 note.`"""
    found = count_problems(findings)
    counts = [(found, "problem"), (len(findings) - found, "note")]
    return f"Checks: {', '.join(counted(*each) for each in counts if each[0]) or 'nothing found'}."


def findings_text(
    findings: Sequence[CheckFinding], tried: Collection[float], of_study: bool = True
) -> str:
    """Write findings for a terminal, a line each; `tried` are the learning rates of the study, or of the table."""
    lines = [checks_line(findings).removesuffix(".").lower()]
    for each in findings[:MAX_LINES]:
        fix = f"; {each.fix}" if each.fix else ""
        lines.append(
            f"  {each.level}: {each.task} {each.model} {each.variant}: {each.message}{fix}"
        )
    if len(findings) > MAX_LINES:
        lines.append(f"  and {len(findings) - MAX_LINES} more in the report")
    to_add, setting = _suggested(findings, tried)
    if to_add and of_study:
        lines.append(f"  with what is to be added, the study's line reads:  {setting}")
    elif to_add:
        lines.append(f"  learning rates to add:  {to_add}")
    return "\n".join(lines)


def findings_table(
    findings: Sequence[CheckFinding], tried: Collection[float], of_study: bool = True
) -> Table:
    """Lay findings out for the report."""
    to_add, setting = _suggested(findings, tried)
    rows = pd.DataFrame([asdict(finding) for finding in findings])
    return replace(
        laid_out("checks", rows, to_add=to_add, setting=setting, of_study=of_study), stacked=True
    )


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


def count_problems(findings: Sequence[CheckFinding]) -> int:
    """Count those that `--strict` fails on."""
    return sum(finding.level == "problem" for finding in findings)


def _suggested(findings: Sequence[CheckFinding], tried: Collection[float]) -> tuple[str, str]:
    added = _to_add(findings, tried)
    listed = ", ".join(map(rate_text, sorted({*added, *tried})))
    return ", ".join(map(rate_text, added)), f"learning_rates: [{listed}]" if added else ""


def _to_add(findings: Sequence[CheckFinding], tried: Collection[float]) -> list[float]:
    return sorted({rate for finding in findings for rate in finding.learning_rates} - set(tried))
