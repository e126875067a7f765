"""Where everything in a results directory is, and the errors about a file that is damaged or cannot be read.

No other module joins these names.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from lr_sweep.common.errors import UserError


class RecordError(UserError):
    """The record is missing, damaged or of another format; the message names the file and says what to do."""


class UnreadableError(RecordError):
    """A file could not be read, which says nothing about what is in it."""


def _study_file(name: str) -> Callable[[Paths, str], Path]:
    """Return a method that returns the path of a file by the name of its study."""
    return lambda paths, study: paths.study(study) / name.format(study=study)


class Paths:
    """The files and folders of a results directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.format = root / "format.json"
        self.runs, self.curves = root / "runs", root / "curves"
        self.studies = root / "studies"
        self.all_checkpoints, self.pretrained = root / "checkpoints", root / "pretrained"
        self.tune, self.logs, self.stop_requests = root / "tune", root / "logs", root / "stop"
        self.sweep_stop = self.stop_requests / "sweep"
        self.timings = root / "timings.json"
        self.pretraining_progress = root / "pretraining-progress.json"
        self.mlflow_database, self.mlflow_artifacts = root / "mlflow.db", root / "mlflow-artifacts"
        self.writer_lock, self.holder = root / "writer.lock", root / "writer.json"

    def run(self, run_id: str) -> Path:
        """Return the file of a finished run's row."""
        return self.runs / f"{run_id}.parquet"

    def curve(self, run_id: str) -> Path:
        """Return the file of a run's evaluations."""
        return self.curves / f"{run_id}.parquet"

    def checkpoints(self, run_id: str) -> Path:
        """Return the folder of a run's checkpoints."""
        return self.all_checkpoints / run_id

    def log(self, run_id: str) -> Path:
        """Return the log of a run, on the machine of the driver alone."""
        return self.logs / "runs" / f"{run_id}.log"

    def study(self, name: str) -> Path:
        """Return the folder of a study; raises RecordError if the name is not a plain folder name."""
        if name in ("", ".", "..") or Path(name).name != name:
            raise RecordError(
                f"got {name!r} as the name of a study, want a plain name without slashes"
            )
        return self.studies / name

    def study_folders(self) -> list[Path]:
        """Return what is in the folder of studies, by name."""
        return sorted(self.studies.glob("*"))

    facts = _study_file("study.json")
    """A study's title, metric and search; written last."""
    options = _study_file("{study}.yaml")
    wanted = _study_file("wanted.parquet")
    proposals = _study_file("proposals.parquet")
    """The learning rates that a study's search has proposed."""
    rungs = _study_file("rungs.parquet")
    """What a study's early stopping decided."""
    progress = _study_file("progress.json")
    """What `status` reads while a sweep is running."""
    started = _study_file("started.json")
    """With what folders and CPUs a study was started; it stays on this machine."""
    report = _study_file("report")


def unreadable(path: Path, error: OSError) -> str:
    """Return what kept this user from a file or folder."""
    reason = error.strerror or str(error)
    return f"cannot read {path}: {reason}. It may be intact: check its disk and its permissions, and try again"


def closed_folder(folder: Path) -> str | None:
    """Return why this user may not list or enter a folder; None: it is open, or nothing is there."""
    try:
        for entry in os.scandir(folder):
            entry.stat(follow_symlinks=False)
            break
    except OSError as error:
        return unreadable(folder, error) if os.path.lexists(folder) else None
    return None


def is_folder(path: Path) -> bool:
    """Tell whether a path is a folder's; False where this user may not look."""
    try:
        return path.is_dir()
    except PermissionError:
        return False
