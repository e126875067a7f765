"""Folders that Lightning's CSVLogger wrote: `metrics.csv` with `hparams.yaml` beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from lr_sweep.analysis.judge.readers.from_rows import flattened, table_of_rows, with_labels
from lr_sweep.analysis.judge.table_file import MOST_BYTES, TableFile, read_table_file
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import read_plain
from lr_sweep.common.yaml_text import as_version_1_2

METRICS, SETTINGS = "metrics.csv", "hparams.yaml"


def is_lightning(folder: Path) -> bool:
    """Return whether a folder has runs of the logger."""
    return any((path.parent / SETTINGS).exists() for path in folder.rglob(METRICS))


def read_lightning(folder: Path) -> TableFile:
    """Read every run below a folder; raises UserError."""
    runs = []
    for path in sorted(folder.rglob(METRICS)):
        settings = flattened(yaml_mapping(path.parent / SETTINGS), "hparams.")
        runs.append((str(path.parent.relative_to(folder)), [settings | row for row in read_table_file(path).rows]))
    return table_of_rows(folder, with_labels(runs), "folders of Lightning's CSVLogger")


def yaml_mapping(path: Path) -> dict[str, Any]:
    """Read a mapping in YAML, whatever its tags: nothing is made of them; raises UserError."""
    if not path.exists():
        return {}
    try:
        found = YAML().load(as_version_1_2(read_plain(path, MOST_BYTES).decode()))
    except (OSError, ValueError, RecursionError, YAMLError) as error:  # ValueError: of a date that no calendar has
        raise UserError(f"{path} cannot be read ({reason(error)})") from error
    return dict(found) if isinstance(found, dict) else {}
