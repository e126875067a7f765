"""`export`: the curves of studies as a CSV file, and the record for MLflow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.report.blocks import write_csv as write_table
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import remove_dead_partials, whole_file
from lr_sweep.common.network import shown_uri
from lr_sweep.common.text import counted
from lr_sweep.sweep.results.directory import Results, storage_problems
from lr_sweep.sweep.results.run_state import LABELS

VALUES = tuple(f"{split}_{of}" for split in ("train", "validation", "test") for of in ("loss", "accuracy"))


def _curve_table(results: Results, studies: Sequence[str]) -> pd.DataFrame:
    frames = []
    for study in studies:
        wanted = record.read_wanted(results.root, study)
        curves = record.read_curves(results.root, wanted["run_id"])
        frames.append(wanted[["run_id", *LABELS]].assign(study=study).merge(curves, on="run_id"))
    return pd.concat(frames, ignore_index=True)[["study", *LABELS, "run_id", "step", *VALUES]]


def write_csv(results: Results, studies: Sequence[str], target: Path) -> str:
    """Write the curves into one file, which `judge`, pandas and W&B's import read; return what was written."""
    record.check_format(results.root)
    if target.exists():
        raise UserError(f"{target} exists; `export` overwrites nothing. Remove it, or name another path.")
    names = list(dict.fromkeys(studies)) or record.recorded_studies(results.root)
    table = _curve_table(results, names) if names else pd.DataFrame()
    if table.empty:
        raise UserError(f"{results.root} holds no evaluation to export; `run` a study first, or give its --results.")
    remove_dead_partials(target.parent)
    with storage_problems(target), whole_file(target) as partial:
        write_table(table, partial)
    return f"{target}: {counted(len(table), 'evaluation')} of {counted(table['run_id'].nunique(), 'run')}"


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
        raise UserError(f"{results.root} holds no study yet; `run` one first, or give its --results.")
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
