"""Writes the report of a table into a folder that holds nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from lr_sweep.analysis.judge.readers.sources import expanded
from lr_sweep.analysis.report.folder import replacing
from lr_sweep.analysis.statistics.comparisons.pairs import comparisons
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.analysis.study_files import Study, write_files
from lr_sweep.analysis.study_report import Report
from lr_sweep.common.errors import UserError, reason, translated
from lr_sweep.common.files import read_plain

LIST = "judged.json"
"""Lists the files of the report: a folder with any other file is never replaced."""
CELLS = [*CELL, "learning_rate", "num_values", "validation_mean", "test_mean", "test_sem"]
PAIR = [
    *("task", "model", "variant", "other", "difference", "low", "high", "corrected_p", "distinguishable", "equal"),
    "further_seeds",
]
"""Columns of `StudySummary.cells` and of `comparisons` in JSON."""
MOST_LISTED = 10_000_000
"""Bytes of the list."""


def write_judged(study: Study, folder: Path) -> Report:
    """Write a report; a folder that holds an earlier one, and nothing else, is replaced once all is written.

    Raises UserError if the folder holds anything else, or cannot be written to.
    """
    with translated((OSError, RuntimeError), partial(_unwritable, folder)):
        folder = folder.resolve()
        _check_ours(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with replacing(folder) as new:
            text = write_files(new, study)
            names = sorted(path.name for path in new.iterdir())
            content = {"format": 1, "table": study.info.study, "read": study.about_table, "files": names}
            (new / LIST).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    files = tuple(folder / name for name in [*names, LIST])
    return Report(folder=folder, files=files, text=text, findings=study.findings)


def check_apart(sources: Sequence[str], folder: Path) -> None:
    """Raise UserError where a report would replace a table that is judged: one of an earlier report."""
    with translated((OSError, RuntimeError), partial(_unwritable, folder)):
        out = folder.resolve()
        paths = [Path(path.removeprefix("sqlite:///")).resolve() for each in sources for path in expanded(each)]
    for path in paths:
        if out in path.parents:
            raise UserError(f"--out {folder}: it holds {path.name}, which is judged: name another folder")


def judged_json(study: Study, report: Report) -> dict[str, Any]:
    """Return what was judged as content for JSON; `checks` is the report's `checks.json`."""
    pairs = comparisons(study.summary) if study.summary.metric.chosen_on else pd.DataFrame(columns=PAIR)
    frames = {"cells": study.summary.cells[CELLS], "comparisons": pairs[PAIR]}
    return {
        "table": study.info.study,
        "read_as": list(study.about_table),
        "metric": study.summary.metric.as_json(),
        "text": report.text,
        **{name: json.loads(frame.to_json(orient="records", double_precision=15)) for name, frame in frames.items()},
        "checks": json.loads((report.folder / "checks.json").read_text(encoding="utf-8")),
        "report": str(report.page),
    }


def _unwritable(folder: Path, error: Exception) -> UserError:
    what = error.strerror if isinstance(error, OSError) and error.strerror else reason(error)
    return UserError(f"--out {folder}: the report cannot be written there: {what}. Name another folder")


def _check_ours(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError(f"--out {folder}: a file is there: name another folder")
    there = {path.name for path in folder.iterdir()}
    try:
        ours = set(map(str, json.loads(read_plain(folder / LIST, MOST_LISTED))["files"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        ours = set()
    if others := sorted(there - {LIST, *ours}):
        raise UserError(
            f"--out {folder}: it has files that are not of an earlier `judge`, such as {others[0]}: name another folder"
        )
