"""Folders of Hydra's multirun: a job's configuration, and the metrics that it left in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lr_sweep.analysis.judge.names import ROLES
from lr_sweep.analysis.judge.readers import tensorboard
from lr_sweep.analysis.judge.readers.from_rows import flattened, table_of_rows
from lr_sweep.analysis.judge.readers.json_rows import read_json_file
from lr_sweep.analysis.judge.readers.lightning import yaml_mapping
from lr_sweep.analysis.judge.table_file import TableFile, read_table_file
from lr_sweep.analysis.judge.words import plain
from lr_sweep.common.errors import UserError

CONFIG = ".hydra/config.yaml"
ENDS = (".csv", ".jsonl", ".ndjson", ".json")
"""Of files of metrics, the first that is there."""


def is_hydra(folder: Path) -> bool:
    """Return whether a folder has jobs."""
    return next(folder.rglob(CONFIG), None) is not None


def read_hydra(folder: Path) -> TableFile:
    """Read every job below a folder, with its seed and the settings that any job overrode; raises UserError."""
    jobs = sorted(path.parent.parent for path in folder.rglob(CONFIG))
    configs = [flattened(yaml_mapping(job / CONFIG)) for job in jobs]
    values = {name: {str(config.get(name)) for config in configs} for config in configs for name in config}
    varied = [name for name in values if len(values[name]) > 1 or plain(name) in ROLES["seed"]]
    varied = varied if any(len(values[name]) > 1 for name in varied) else list(values)
    rows: list[dict[str, Any]] = []
    for job, config in zip(jobs, configs, strict=True):
        settings = {f"config.{name}": config.get(name) for name in varied}
        rows += [{"run": str(job.relative_to(folder)), **row, **settings} for row in _metrics(job)]
    return table_of_rows(folder, rows, "jobs of Hydra")


def _metrics(job: Path) -> list[dict[str, Any]]:
    """Return what a job measured; a job without a file of metrics failed."""
    if tensorboard.is_tensorboard(job):
        return tensorboard.scalars(job)
    files = sorted(path for path in job.rglob("*") if path.suffix in ENDS and ".hydra" not in path.parts)
    for end in ENDS:
        if found := [path for path in files if path.suffix == end]:
            if len(found) > 1:
                raise UserError(f"{job} has several {end} files, {found[0].name} and {found[1].name}: leave one")
            return (read_table_file if end == ".csv" else read_json_file)(found[0]).rows
    return [{"status": "failed"}]
