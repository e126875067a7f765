"""`export`: the curves of studies for other programs, and the record for MLflow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.record.columns import SPLITS
from lr_sweep.analysis.record.study import with_stops
from lr_sweep.analysis.report.blocks import write_csv as write_table
from lr_sweep.analysis.statistics.selection.summary import account
from lr_sweep.analysis.study_summary import RUN_COLUMNS
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import remove_dead_partials, whole_file
from lr_sweep.common.network import shown_uri
from lr_sweep.common.text import counted
from lr_sweep.sweep.results.directory import Results, storage_problems
from lr_sweep.sweep.results.run_state import LABELS

LOSSES = ("train_loss", "validation_loss", "test_loss")


def _curve_table(results: Results, studies: Sequence[str]) -> pd.DataFrame:
    """Return evaluations within each study's budgets; a run without one has a row without a step."""
    frames = []
    for study in studies:
        wanted = with_stops(
            record.read_wanted(results.root, study), record.stopped_of(results.root, study)
        )
        runs = account(wanted, record.read_runs(results.root, wanted["run_id"], RUN_COLUMNS))
        curves = record.read_curves(results.root, wanted["run_id"]).astype({"step": "Int64"})
        points = runs.merge(curves, on="run_id", how="left")
        within = points[~points["step"].gt(points["num_steps"]).fillna(False)]
        frames.append(
            within.assign(study=study, **record.read_study(results.root, study).metric.columns)
        )
    return pd.concat(frames, ignore_index=True)


def write_csv(results: Results, studies: Sequence[str], target: Path) -> str:
    """Write the curves into one file, for `judge`, pandas and W&B's import; return what was written.

    What training functions logged is written into a second file, `TARGET-logged.csv`, which `judge` does not read.
    """
    curves, labels = _checked(results, studies), ["study", *LABELS, "run_id"]
    measured = [*SPLITS, *LOSSES, *ACCURACY.columns]
    tables = {target: curves[[*labels, "status", "step", *measured]]}
    logged = record.logged_values(curves, labels)
    if not logged.empty:
        tables[target.with_stem(f"{target.stem}-logged")] = logged
    for path in tables:
        _check_target(path)
    for path, rows in tables.items():
        with storage_problems(path), whole_file(path) as partial:
            write_table(rows, partial)
    counts = (
        counted(curves["step"].count(), "evaluation"),
        counted(curves["run_id"].nunique(), "run"),
    )
    return f"{', '.join(map(str, tables))}: {' of '.join(counts)}"


def write_mlflow(results: Results, studies: Sequence[str]) -> str:
    """Bring MLflow, which may be empty, in line with the record; return what it holds. The same command resumes.

    Raises RecordError, MirrorError, and UserError if nothing was ever recorded or a sweep is running, which mirrors.
    """
    from lr_sweep.sweep.mirror.client import tracking_uri
    from lr_sweep.sweep.mirror.mirror import Mirror

    names = list(studies) or record.recorded_studies(results.root)
    for study in names:
        record.read_study(results.root, study)
    if not names:
        raise UserError(
            f"{results.root} holds no study yet; `run` one first, or give its --results."
        )
    uri = tracking_uri(results.root)
    results.prepare()
    with storage_problems(results.root), results.writing("export --mlflow"):
        lines = []
        for study in names:
            mirror = Mirror(results.root, study, uri, results.uri)
            lines.append(f"{study}: {mirror.sync_all()} runs")
            if (folder := results.report(study)).is_dir():
                mirror.log_report(folder)
    return "\n".join([*lines, f"MLflow at {shown_uri(uri)} holds what the record holds"])


def _check_target(target: Path) -> None:
    if target.exists():
        raise UserError(
            f"{target} exists; `export` overwrites nothing. Remove it, or name another path."
        )
    if not target.parent.is_dir():
        raise UserError(f"there is no folder {target.parent}; make it, or name a path elsewhere.")
    remove_dead_partials(target.parent)


def _checked(results: Results, studies: Sequence[str]) -> pd.DataFrame:
    record.check_format(results.root)
    names = list(dict.fromkeys(studies)) or record.recorded_studies(results.root)
    table = _curve_table(results, names) if names else pd.DataFrame()
    if table.empty or table["step"].isna().all():
        raise UserError(
            f"{results.root} holds no evaluation to export; `run` a study first, or give its --results."
        )
    return table
