"""Folders of Hydra's multirun, of Ray Tune, and of Lightning's CSVLogger: the settings of runs, and what they measured.

Each reader returns None for a folder without runs of its tool, and raises UserError for what cannot be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from lr_sweep.analysis.judge.names import ROLES, plain, words
from lr_sweep.analysis.judge.readers.from_rows import flattened, table_of_rows, with_labels
from lr_sweep.analysis.judge.readers.json_rows import read_json_file
from lr_sweep.analysis.judge.readers.tensorboard import scalars
from lr_sweep.analysis.judge.table_file import MOST_BYTES, TableFile, read_table_file
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import as_version_1_2, read_plain

HYDRA_CONFIG = ".hydra/config.yaml"
HYDRA_METRICS = (".csv", ".jsonl", ".ndjson", ".json")
"""Endings of files of metrics; those with the first ending that is there are read."""
RAY_RESULTS, RAY_SETTINGS, RAY_ERROR = "result.json", "params.json", "error.txt"
RAY_LEFT_OUT = words(
    """config hostname node_ip pid date timestamp done experiment_tag checkpoint_dir_name time_this_iter_s
    time_since_restore iterations_since_restore should_checkpoint"""
)
"""What Ray adds to a report, beside the time in all."""
LIGHTNING_METRICS, LIGHTNING_SETTINGS = "metrics.csv", "hparams.yaml"


def read_hydra(folder: Path) -> TableFile | None:
    """Read every job below a folder, with its seed and the settings that any job overrode."""
    if not (jobs := sorted(path.parent.parent for path in folder.rglob(HYDRA_CONFIG))):
        return None
    configs = [flattened(yaml_mapping(job / HYDRA_CONFIG)) for job in jobs]
    values = {name: {str(config.get(name)) for config in configs} for config in configs for name in config}
    varied = [name for name in values if len(values[name]) > 1 or plain(name) in ROLES["seed"]]
    varied = varied if any(len(values[name]) > 1 for name in varied) else list(values)
    rows: list[dict[str, Any]] = []
    for job, config in zip(jobs, configs, strict=True):
        settings = {f"config.{name}": config.get(name) for name in varied}
        rows += [{"run": str(job.relative_to(folder)), **row, **settings} for row in _measured_by(job)]
    return table_of_rows(folder, rows, "jobs of Hydra")


def _measured_by(job: Path) -> list[dict[str, Any]]:
    """Return what a job of Hydra measured; a job without a file of metrics failed."""
    if events := scalars(job):
        return events
    files = sorted(path for path in job.rglob("*") if path.suffix in HYDRA_METRICS and ".hydra" not in path.parts)
    for end in HYDRA_METRICS:
        if found := [path for path in files if path.suffix == end]:
            if len(found) > 1:
                raise UserError(f"{job} has several {end} files, {found[0].name} and {found[1].name}: leave one")
            return (read_table_file if end == ".csv" else read_json_file)(found[0]).rows
    return [{"status": "failed"}]


def read_ray_tune(folder: Path) -> TableFile | None:
    """Read every report of every trial, of a whole experiment or of one trial."""
    trials = [path.parent for path in sorted(folder.rglob(RAY_SETTINGS)) if (path.parent / RAY_RESULTS).exists()]
    rows = [row for trial in trials for row in _reports(trial)]
    return table_of_rows(folder, rows, "folders of Ray Tune") if trials else None


def _reports(trial: Path) -> Iterator[dict[str, Any]]:
    settings = flattened(_object(trial / RAY_SETTINGS, _text(trial / RAY_SETTINGS)), "config/", "/")
    state = "ERROR" if (trial / RAY_ERROR).exists() else "TERMINATED"
    lines = _text(trial / RAY_RESULTS).split("\n")
    reports = [_object(trial / RAY_RESULTS, line) for line in lines if line.strip()]
    for report in reports or [{}]:
        kept = {name: value for name, value in report.items() if name not in RAY_LEFT_OUT}
        yield {**settings, **flattened(kept, mark="/"), "trial_id": trial.name, "state": state}


def _object(path: Path, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: a line is no JSON ({reason(error)}): was it cut? Remove the line") from error
    if not isinstance(found, dict):
        raise UserError(f"{path}: got {text[:60]!r}, want an object")
    return found


def read_lightning(folder: Path) -> TableFile | None:
    """Read every run below a folder in which some run has its settings."""
    paths = sorted(folder.rglob(LIGHTNING_METRICS))
    if not any((path.parent / LIGHTNING_SETTINGS).exists() for path in paths):
        return None
    runs = []
    for path in paths:
        settings = flattened(yaml_mapping(path.parent / LIGHTNING_SETTINGS), "hparams.")
        runs.append((str(path.parent.relative_to(folder)), [settings | row for row in read_table_file(path).rows]))
    return table_of_rows(folder, with_labels(runs), "folders of Lightning's CSVLogger")


def yaml_mapping(path: Path) -> dict[str, Any]:
    """Read a mapping in YAML, whatever its tags: nothing is made of them; raises UserError."""
    if not path.exists():
        return {}
    try:
        found = YAML().load(as_version_1_2(_text(path)))
    except (ValueError, RecursionError, YAMLError) as error:  # ValueError: of a date that no calendar has
        raise UserError(f"{path} cannot be read ({reason(error)})") from error
    return dict(found) if isinstance(found, dict) else {}


def _text(path: Path) -> str:
    try:
        return read_plain(path, MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({reason(error)})") from error
