"""The check `code`: were a task's runs trained by one version of its code and of the engine?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from lr_sweep.analysis.record.columns import (
    ENGINE,
    Now,
    files_text,
    versions_of,
)
from lr_sweep.analysis.statistics.selection.best import (
    CELL,
    each_cell,
)

from .finding import CheckFinding, Level, finding_of

Versions = Mapping[str, set[str]]
"""Versions of each file that a run was trained by."""
FIX = "if that changes numbers, train the study into a new results directory"


def code_findings(
    wanted: pd.DataFrame, runs: pd.DataFrame, now: Now | None = None
) -> list[CheckFinding]:
    """Report cells whose runs were trained by several versions of the code, or by another than `now` gives."""
    known = runs.dropna(subset=["code"])[["run_id", "num_steps", "code"]]
    labelled = wanted[["run_id", *CELL]].merge(known, on="run_id")
    trained = zip(labelled["code"], labelled["num_steps"], strict=True)
    versions: list[Any] = [versions_of(code, steps) for code, steps in trained]
    labelled["versions"] = versions
    by_task = labelled.groupby("task", sort=False)
    return [finding for _, rows in by_task for finding in _task_findings(rows, now)]


def _task_findings(rows: pd.DataFrame, now: Now | None) -> Iterator[CheckFinding]:
    mixed_of_task = _mixed(rows["versions"].tolist())
    for cell, of_cell in each_cell(rows):
        runs = of_cell["versions"].tolist()
        files = set[str]().union(*runs)
        mixed = mixed_of_task & files
        several = ""
        if mixed:
            several = f"the task's runs were trained by several versions of {files_text(mixed)}"
        changed = _changed_text(runs, _versions_now(files, now))
        texts = list(filter(None, [several, changed]))
        if texts:
            is_engine = all(file.startswith(ENGINE) for file in mixed)
            level: Level = "note" if is_engine else "problem"
            yield finding_of(cell, "code", level, "; ".join(texts), FIX)


def _versions_now(files: set[str], now: Now | None) -> Versions:
    """Return the version that each file has now, of those that are there."""
    versions = {file: now(file) for file in files} if now else {}
    return {file: {version} for file, version in versions.items() if version is not None}


def _mixed(runs: Sequence[Versions]) -> set[str]:
    """Return the files of which runs were trained by several versions."""
    versions: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        for file in run:
            versions[file] |= run[file]
    return {file for file in versions if len(versions[file]) > 1}


def _changed_text(runs: Sequence[Versions], now: Versions) -> str:
    changed = [_changed_since(run, now) for run in runs]
    if not any(changed):
        return ""
    number = sum(map(bool, changed))
    files = files_text(set().union(*changed))
    return f"{number} of {len(runs)} runs were trained by another version of {files} than is here"


def _changed_since(run: Versions, now: Versions) -> set[str]:
    return {file for file in run if run[file] != now.get(file, run[file])}
