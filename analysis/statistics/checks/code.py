"""The check `code`: were a task's runs trained by one version of its code and of the engine?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from lr_sweep.analysis.record.columns import ENGINE, Now, files_text, versions_of
from lr_sweep.analysis.statistics.checks.finding import CheckFinding, Level, finding_of
from lr_sweep.analysis.statistics.selection.best import CELL, each_cell, labels_of

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
    labelled = labelled.assign(versions=versions)
    of_tasks = labelled.groupby("task", sort=False)
    return [finding for _, rows in of_tasks for finding in _task_findings(rows, now)]


def _task_findings(rows: pd.DataFrame, now: Now | None) -> Iterator[CheckFinding]:
    of_task = rows["versions"].tolist()
    mixed = _mixed(of_task)
    files = set[str]().union(*of_task) if now else set[str]()
    here = {file: {version} for file in files if now and (version := now(file)) is not None}
    for cell, of_cell in each_cell(rows):
        runs = of_cell["versions"].tolist()
        mixed_here = mixed & set[str]().union(*runs)
        texts = [*_mixed_texts(runs, mixed_here), *_other_texts(runs, here)]
        if texts:
            of_engine = all(file.startswith(ENGINE) for file in mixed_here)
            level: Level = "note" if of_engine else "problem"
            yield finding_of(labels_of(cell), "code", level, "; ".join(texts), FIX)


def _mixed(runs: Sequence[Versions]) -> set[str]:
    """Return the files of which runs were trained by several versions."""
    versions = {(file, version) for run in runs for file in run for version in run[file]}
    counts = Counter(file for file, _ in versions)
    return {file for file, number in counts.items() if number > 1}


def _mixed_texts(runs: Sequence[Versions], mixed: set[str]) -> Iterator[str]:
    resumed = [_mixed([run]) for run in runs]
    if any(resumed):
        yield f"{_share(resumed)} resumed after a change of {files_text(set().union(*resumed))}"
    elif mixed:
        yield f"the task's runs were trained by several versions of {files_text(mixed)}"


def _other_texts(runs: Sequence[Versions], here: Versions) -> Iterator[str]:
    others = [{file for file in run if run[file] != here.get(file, run[file])} for run in runs]
    if any(others):
        files = files_text(set().union(*others))
        yield f"{_share(others)} were trained by another version of {files} than is here"


def _share(files_of_runs: Sequence[set[str]]) -> str:
    return f"{sum(map(bool, files_of_runs))} of {len(files_of_runs)} runs"
