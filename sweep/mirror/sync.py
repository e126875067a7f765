"""`export --mlflow`: brings MLflow, which may be empty, in line with the record."""

from __future__ import annotations

import os
from collections.abc import Sequence

from lr_sweep.analysis.record.read import read_study, recorded_studies
from lr_sweep.common.errors import UserError
from lr_sweep.common.network import shown_uri
from lr_sweep.sweep.mirror.client import MirrorError, tracking_uri
from lr_sweep.sweep.mirror.mirror import Mirror
from lr_sweep.sweep.results.directory import Results, storage_problems


def sync(results: Results, names: Sequence[str]) -> str:
    """Mirror the named studies, or all, and return what MLflow holds now, as text; the same command resumes from there.

    Raises RecordError, MirrorError, and UserError if nothing was ever recorded or a sweep is running, which mirrors.
    """
    studies = list(names) or recorded_studies(results.root)
    for study in studies:
        read_study(results.root, study)
    if not studies:
        raise UserError(f"{results.root} holds no study yet; `run` one first, or give its --results.")
    uri = tracking_uri(results.root)
    results.prepare()
    with storage_problems(results.root), results.writing("export --mlflow"):
        lines = []
        for study in studies:
            mirror = Mirror(results.root, study, uri, results.uri)
            lines.append(f"{study}: {mirror.sync_all()} runs")
            if (folder := results.report(study)).is_dir():
                mirror.log_report(folder)
    return "\n".join([*lines, f"MLflow at {shown_uri(uri)} holds what the record holds"])


def mirror_report(results: Results, study: str) -> str:
    """Put a study's report into MLflow, if there is a store; return a line about it, or nothing.

    Not while a sweep runs, which does it at its end, nor from a copy of an object store's results.
    """
    own = results.mlflow_database
    if results.uri is not None or results.being_written() or not (own.exists() or "MLFLOW_TRACKING_URI" in os.environ):
        return ""
    try:
        Mirror(results.root, study, tracking_uri(results.root), results.uri).log_report(results.report(study))
    except MirrorError as error:
        return f"MLflow     does not have this report: {error}"
    return "MLflow     has it, too, as an artifact of the study"
