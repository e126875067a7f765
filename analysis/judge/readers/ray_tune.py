"""Folders of Ray Tune: of a whole experiment, or of one trial."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lr_sweep.analysis.judge.readers.from_rows import flattened, table_of_rows
from lr_sweep.analysis.judge.table_file import MOST_BYTES, TableFile
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import read_plain

RESULTS, SETTINGS, ERROR = "result.json", "params.json", "error.txt"
LEFT_OUT = {
    "config",
    "hostname",
    "node_ip",
    "pid",
    "date",
    "timestamp",
    "done",
    "experiment_tag",
    "checkpoint_dir_name",
}
LEFT_OUT |= {"time_this_iter_s", "time_since_restore", "iterations_since_restore", "should_checkpoint"}
"""What Ray adds to a report, beside the time in all."""


def is_ray_tune(folder: Path) -> bool:
    """Return whether a folder has trials."""
    return next(_trials(folder), None) is not None


def _trials(folder: Path) -> Iterator[Path]:
    yield from (path.parent for path in sorted(folder.rglob(SETTINGS)) if (path.parent / RESULTS).exists())


def read_ray_tune(folder: Path) -> TableFile:
    """Read every report of every trial; raises UserError."""
    rows = [row for trial in _trials(folder) for row in _reports(trial)]
    return table_of_rows(folder, rows, "folders of Ray Tune")


def _reports(trial: Path) -> Iterator[dict[str, Any]]:
    settings = flattened(_json(trial / SETTINGS, _text(trial / SETTINGS)), "config/", "/")
    state = "ERROR" if (trial / ERROR).exists() else "TERMINATED"
    reports = [_json(trial / RESULTS, line) for line in _text(trial / RESULTS).split("\n") if line.strip()]
    for report in reports or [{}]:
        kept = {name: value for name, value in report.items() if name not in LEFT_OUT}
        yield {**settings, **flattened(kept, mark="/"), "trial_id": trial.name, "state": state}


def _text(path: Path) -> str:
    try:
        return read_plain(path, MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({reason(error)})") from error


def _json(path: Path, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: a line is no JSON ({reason(error)}): was it cut? Remove the line") from error
    if not isinstance(found, dict):
        raise UserError(f"{path}: got {text[:60]!r}, want an object")
    return found
