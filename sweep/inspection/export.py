"""`export`: the curves of studies for other programs, and the record for MLflow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.report.blocks import write_csv as write_table
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import remove_dead_partials, whole_file, whole_folder
from lr_sweep.common.network import shown_uri
from lr_sweep.common.text import counted, rate_text
from lr_sweep.sweep.results.directory import Results, storage_problems
from lr_sweep.sweep.results.run_state import LABELS

VALUES = tuple(f"{split}_{of}" for split in ("train", "validation", "test") for of in ("loss", "accuracy"))


def _curve_table(results: Results, studies: Sequence[str]) -> pd.DataFrame:
    frames = []
    for study in studies:
        wanted = record.read_wanted(results.root, study)
        curves = record.read_curves(results.root, wanted["run_id"])
        frames.append(wanted[["run_id", *LABELS]].assign(study=study).merge(curves, on="run_id"))
    found = pd.concat(frames, ignore_index=True)
    return found[["study", *LABELS, "run_id", "step", *VALUES, "time_ms"]]


def write_csv(results: Results, studies: Sequence[str], target: Path) -> str:
    """Write the curves into one file, which `judge`, pandas and W&B's import read; return what was written."""
    table = _checked(results, studies, target)
    with storage_problems(target), whole_file(target) as partial:
        write_table(table.drop(columns="time_ms"), partial)
    return f"{target}: {_counts(table)}"


def write_tensorboard(results: Results, studies: Sequence[str], target: Path) -> str:
    """Write an event file a run, in `target/STUDY/TASK/MODEL/VARIANT/lr=RATE,seed=SEED`; return what was written."""
    from tensorboardX import SummaryWriter

    table = _checked(results, studies, target)
    with storage_problems(target), whole_folder(target) as made:
        for names, curve in table.groupby(["study", *LABELS], sort=False):
            *cell, rate, seed = map(str, names)
            folder = made.joinpath(*map(_checked_name, cell), f"lr={rate_text(float(rate))},seed={seed}")
            with SummaryWriter(str(folder)) as writer:
                for row in curve.to_dict("records"):
                    for value in VALUES:
                        split, of = value.split("_")
                        writer.add_scalar(f"{of}/{split}", row[value], row["step"], walltime=row["time_ms"] / 1000)
    return f"{target}: {_counts(table)}; look at it with `tensorboard --logdir {target}`"


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


def _checked_name(name: str) -> str:
    """Return a name from a record, which another program may have written; raises UserError if it leads elsewhere."""
    if Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name:
        raise UserError(f"got the name {name!r} in the record, which is none of a folder: export with --csv")
    return name


def _check_target(target: Path) -> None:
    if target.exists():
        raise UserError(f"{target} exists; `export` overwrites nothing. Remove it, or name another path.")
    if not target.parent.is_dir():
        raise UserError(f"there is no folder {target.parent}; make it, or name a path elsewhere.")
    remove_dead_partials(target.parent)


def _checked(results: Results, studies: Sequence[str], target: Path) -> pd.DataFrame:
    record.check_format(results.root)
    _check_target(target)
    names = list(dict.fromkeys(studies)) or record.recorded_studies(results.root)
    table = _curve_table(results, names) if names else pd.DataFrame()
    if table.empty:
        raise UserError(f"{results.root} holds no evaluation to export; `run` a study first, or give its --results.")
    return table


def _counts(table: pd.DataFrame) -> str:
    return f"{counted(len(table), 'evaluation')} of {counted(table['run_id'].nunique(), 'run')}"
