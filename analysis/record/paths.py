"""Where everything in a results directory is, and the errors about a file that is damaged or cannot be read.

No other module joins these names. Of a file that cannot be read an error says whose it is and what to do, never that it
is damaged.
"""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
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
        self.runs, self.curves, self.index = root / "runs", root / "curves", root / "index.parquet"
        self.studies = root / "studies"
        self.all_checkpoints, self.pretrained = root / "checkpoints", root / "pretrained"
        self.tune, self.logs, self.stop_requests = root / "tune", root / "logs", root / "stop"
        self.sweep_stop = self.stop_requests / "sweep"
        self.timings, self.cohort_sizes = root / "timings.json", root / "places.json"
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
            raise RecordError(f"got {name!r} as the name of a study, want a plain name without slashes")
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
    """Return what kept this user from a file, and what to do about it."""
    if isinstance(error, PermissionError):
        return denied(path)
    reason = error.strerror or str(error)
    return misplaced(path) or f"cannot read {path}: {reason}. It may be intact: check its disk, and try again"


def misplaced(path: Path, want: str = "a file") -> str | None:
    """Return what to say of a link that leads nowhere, or of what is no plain file (or `a folder`, if that is wanted).

    None: it is right, or nothing is there.
    """
    if not os.path.lexists(path):
        return None
    if not path.exists():
        to = path.readlink()
        mend = "mount its disk, or put back what it leads to; or delete the link, and it counts as missing"
        return f"cannot read {path}: it is a link to {to}, where nothing can be read: {mend}"
    kind = "a folder" if path.is_dir() else "a file" if path.is_file() else "a device, a pipe or a socket"
    mend = "move it away, and it counts as missing"
    return None if kind == want else f"cannot read {path}: it is {kind}, want {want}: {mend}"


def denied(path: Path) -> str:
    """Return who owns a file or folder that this user may not read, or write to, and what gives the right to."""
    path = path.absolute()
    verb = "write to" if _may(path, os.R_OK | (os.X_OK if is_folder(path) else 0)) else "read"
    cannot, keep = f"cannot {verb} {path}: permission denied", "It may be intact: keep it"
    closed = _closed(path)
    try:
        found = closed.stat()
    except OSError:  # it is gone, or the file system itself forbids
        return f"{cannot}. {keep}"
    owner, me = _name(pwd.getpwuid, found.st_uid), _name(pwd.getpwuid, os.geteuid())
    command = f"`{_command(path, closed, found, verb)}`"
    mend = f"run {command}" if owner == me else f"ask {owner} for {command}, or do this as {owner}"
    whose = f"{owner} (group {_name(grp.getgrgid, found.st_gid)}, mode {stat.S_IMODE(found.st_mode):04o})"
    subject = "It" if closed == path else closed
    return f"{cannot}. {subject} belongs to {whose}, this is {me}: {mend}. {keep}"


def closed_folder(folder: Path) -> str | None:
    """Return what to say of a folder whose files this user may not list or use, or of what is in its place.

    None: it is open, or nothing is there.
    """
    if not is_folder(folder):
        return misplaced(folder, "a folder")
    return None if _may(folder, os.R_OK | os.X_OK) else denied(folder)


def is_folder(path: Path) -> bool:
    """Tell whether a path is a folder's; False where this user may not look."""
    try:
        return path.is_dir()
    except PermissionError:
        return False


def _may(path: Path, rights: int) -> bool:
    return os.access(path, rights, effective_ids=os.access in os.supports_effective_ids)


def _closed(path: Path) -> Path:
    """Return the first folder above a file that may not be entered, or the file."""
    return next((folder for folder in reversed(path.parents) if not _may(folder, os.X_OK)), path)


def _command(path: Path, closed: Path, found: os.stat_result, verb: str) -> str:
    groups = {os.getegid(), *os.getgroups()}
    who = "u" if found.st_uid == os.geteuid() else "g" if found.st_gid in groups else "o"
    quoted = shlex.quote(str(closed))
    if verb != "read":
        return f"chmod {who}+w {quoted}"
    if not stat.S_ISDIR(found.st_mode):
        return f"chmod {who}+r {quoted}"
    # A folder above may hold what is not meant to be shared.
    return f"chmod -R {who}+rX {quoted}" if closed == path else f"chmod {who}+rx {quoted}"


def _name(look_up: Callable[[int], tuple[object, ...]], number: int) -> str:
    """Return the name of a user or group, its number if it has none here."""
    try:
        return str(look_up(number)[0])
    except KeyError:
        return str(number)
