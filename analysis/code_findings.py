"""The check of a study's code: whether its runs, and the files that are here, are of one version."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pandas as pd

from analysis.code_versions import ENGINE, Now, files_text, versions_of
from analysis.findings import Finding
from analysis.selection import CELL


def code_findings(wanted: pd.DataFrame, runs: pd.DataFrame, now: Now | None = None) -> list[Finding]:
    """Find cells whose runs were trained by several versions of the code, or by another one than is here.

    Args:
        wanted: as `record.read_wanted` gives it.
        runs: `run_id`, `num_steps` and `code` of ended runs.
        now: None: nothing is compared with the code that is here.
    """
    known = runs.dropna(subset=["code"])
    labelled = wanted[["run_id", *CELL]].merge(known[["run_id", "num_steps", "code"]], on="run_id")
    return [finding for _, rows in labelled.groupby("task", sort=False) for finding in _task_findings(rows, now)]


def _task_findings(rows: pd.DataFrame, now: Now | None) -> Iterator[Finding]:
    versions = [versions_of(code, steps) for code, steps in rows[["code", "num_steps"]].itertuples(index=False)]
    of_task: dict[str, set[str]] = defaultdict(set)
    for run in versions:
        for file, found in run.items():
            of_task[file] |= found
    several = {file for file, found in of_task.items() if len(found) > 1}
    changed = {file for file, found in of_task.items() if now and now(file) is not None and found != {now(file)}}
    cells: dict[tuple[str, ...], list[dict[str, set[str]]]] = defaultdict(list)
    for key, run in zip(rows[CELL].itertuples(index=False, name=None), versions, strict=True):
        cells[key].append(run)
    for key, cell in cells.items():
        if finding := _finding(dict(zip(CELL, key, strict=True)), cell, several, changed, now):
            yield finding


def _finding(
    labels: dict[str, Any], cell: list[dict[str, set[str]]], several: set[str], changed: set[str], now: Now | None
) -> Finding | None:
    """Say of one cell what its runs' versions are; `several` and `changed` are files of the whole task."""
    inside = [{file for file, found in run.items() if len(found) > 1} for run in cell]
    others = [{f for f in changed & run.keys() if now and run[f] != {now(f)}} for run in cell]
    among = several & set().union(*cell)
    parts = []
    if any(inside):
        number = f"{sum(map(bool, inside))} of {len(cell)} runs"
        parts.append(f"{number} resumed after a change of {files_text(set().union(*inside))}")
    elif among:
        parts.append(f"the task's runs were trained by several versions of {files_text(among)}")
    if any(others):
        number = f"{sum(map(bool, others))} of {len(cell)} runs"
        parts.append(f"{number} were trained by another version of {files_text(set().union(*others))} than is here")
    if not parts:
        return None
    of_data = any(not file.startswith(ENGINE) for file in among)
    return Finding(
        check="code",
        level="problem" if of_data else "note",
        **labels,
        message="; ".join(parts),
        fix="if that changes numbers, train the study into a new results directory",
        learning_rates=(),
    )
