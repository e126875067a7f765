"""`mlflow sync`: bring MLflow in line with the record, whatever happened to either; an empty store, too."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.record import read_study, recorded_studies
from sweep.errors import UserError
from sweep.mirror import Mirror
from sweep.mirror_writers import mirror_beside
from sweep.mlflow_store import shown_uri, tracking_uri
from sweep.results import Results, storage_problems


def sync(results: Results, names: Sequence[str]) -> str:
    """Mirror studies and return what MLflow holds now, as text.

    Args:
        results: a results directory.
        names: of recorded studies; none: all.

    Raises:
        RecordError: no such study, or the record is damaged.
        MirrorError: MLflow cannot be reached or refuses; the same command goes on from there.
        UserError: nothing was ever recorded, or a sweep is going on, which mirrors by itself.
    """
    studies = list(names) or recorded_studies(results.root)
    for study in studies:
        read_study(results.root, study)
    if not studies:
        raise UserError(f"{results.root} holds no study yet; `run` one first, or give its --results.")
    uri = tracking_uri(results.root)
    with storage_problems(results.root), results.writing("mlflow sync"):
        lines = []
        for study in studies:
            mirror_beside(results.root, study, uri)
            lines.append(f"{study}: {Mirror(results.root, study, uri).sync_all()} runs")
    return "\n".join([*lines, f"MLflow at {shown_uri(uri)} holds what the record holds"])
