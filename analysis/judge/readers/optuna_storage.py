"""A database or a journal of Optuna, by Optuna."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from lr_sweep.analysis.judge.readers.from_rows import table_of_rows
from lr_sweep.analysis.judge.table_file import TableFile
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import open_plain


def is_journal(path: Path) -> bool:
    """Return whether a file of JSON lines is a journal."""
    with open_plain(path) as file:
        line = file.readline(1_000_000)
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and {"op_code", "worker_id"} <= first.keys()


def read_optuna(path: Path, copy: Path) -> TableFile:
    """Read the trials of every study; several studies are variants. Raises UserError.

    `copy`: what is opened, and may be written to; `path` is what reports and messages show.
    """
    try:
        import optuna
    except ImportError as error:
        raise UserError(
            f"{path} is of Optuna, which is not installed here: `pip install optuna`, or write "
            "`study.trials_dataframe().to_csv('trials.csv')` where it is"
        ) from error
    optuna.logging.set_verbosity(logging.WARNING)
    try:
        if is_journal(copy):
            backend = optuna.storages.journal.JournalFileBackend(str(copy))
            storage = optuna.storages.JournalStorage(backend)
        else:
            storage = optuna.storages.RDBStorage(f"sqlite:///{copy}")
        studies = [optuna.load_study(study_name=name, storage=storage) for name in optuna.get_all_study_names(storage)]
        rows = [row for study in studies for row in _trials(study, len(studies) > 1)]
    except UserError:
        raise
    except Exception as error:  # of Optuna, of SQLAlchemy, or of a damaged file
        why = reason(error).replace(str(copy), str(path))
        raise UserError(f"{path} cannot be read as Optuna's ({why})") from error
    return table_of_rows(path, rows, f"{len(studies)} studies of Optuna" if len(studies) > 1 else "a study of Optuna")


def _trials(study: Any, is_variant: bool) -> list[dict[str, Any]]:
    if len(study.directions) > 1:
        raise UserError(f"the study {study.study_name} has several objectives: write a table with the one that counts")
    rows = []
    for trial in study.trials:
        settings = {f"params_{name}": value for name, value in trial.params.items()}
        noted = {f"user_attrs_{name}": value for name, value in trial.user_attrs.items()}
        row = {"number": trial.number, "value": trial.value, "state": trial.state.name, **settings, **noted}
        rows.append(row | {"direction": study.direction.name, **({"variant": study.study_name} if is_variant else {})})
    return rows
