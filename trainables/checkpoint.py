"""A run's checkpoints: whole files, named by step and checksum, the newest two kept; on disk and in an object store.

From a store, runs resume on other machines, and this machine's disk holds copies. A thread uploads the newest
checkpoint alone: training never waits for one but at a run's end.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import platform
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from lr_sweep.common.background import BackgroundWorker
from lr_sweep.common.errors import reason
from lr_sweep.common.files import Fields, flush, follow_umask, hash_file, make_folder
from lr_sweep.common.object_store import ObjectStore

if TYPE_CHECKING:  # `plan` and `show` look at files alone, and torch takes seconds to import
    from .numerics import State, Tensors

Version = Fields
"""`from_step`, and `files`: versions (`source_code`) of the files that trained from there on; None: not known."""
History = list[Version]
"""Which code trained a run, in the order of its steps."""

NUM_KEPT = 2
"""Checkpoints kept while a run trains: the newest, and the one before it in case the newest is damaged."""
PATIENCE_S = 600.0
"""Seconds for which the start and the end of a run wait for a store that does not answer; training never waits."""
LEAVING_PATIENCE_S = 60.0
"""Seconds for which a run that is stopped waits for a store that does not answer."""
RETRY_S = 5.0
"""Seconds between two attempts to upload a checkpoint."""

log = logging.getLogger(__name__)


def save_checkpoint(
    folder: Path, tensors: Tensors, progress: Fields, history: History | None = None
) -> Path:
    """Write `step-<step>-<sha256 prefix>.safetensors` atomically; raises OSError if the disk refuses it."""
    from safetensors.torch import save_file

    make_folder(folder)
    # Another machine may train this run for a while: one that is cut off from the cluster, but not from the disk.
    partial = folder / f"partial-{platform.node()}-{os.getpid()}"
    try:
        contiguous = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
        # In one entry: safetensors writes several in an order that differs from call to call.
        kept = progress | ({"code": history} if history else {})
        with disk_errors(partial):
            save_file(contiguous, partial, metadata={"progress": json.dumps(kept)})
        follow_umask(partial)
        flush(partial)
        path = folder / f"step-{progress['step']:09d}-{hash_file(partial)[:16]}.safetensors"
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return path


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Raise as OSError what the disk refuses safetensors (0.8), which raises an error of its own."""
    try:
        yield
    except SafetensorError as error:
        if (named := re.search(r"\(os error (\d+)\)", str(error))) is None:
            raise
        code = int(named[1])
        raise OSError(code, os.strerror(code), str(path)) from error


def keep_newest(folder: Path, number: int) -> None:
    """Remove all but the newest checkpoints."""
    for old in checkpoints(folder)[number:]:
        old.unlink(missing_ok=True)


def load_newest_checkpoint(folder: Path, on_damaged: Callable[[Path], None]) -> State | None:
    """Return tensors (on the CPU) and progress of the newest intact checkpoint; None where there is none.

    A damaged file is renamed, so that it is not counted among the newest; `on_damaged` is called with its new path.
    """
    for path in checkpoints(folder):
        try:
            if (saved := read_checkpoint(path)) is not None:
                return saved
            on_damaged(path.replace(path.with_name(f"damaged-{path.name}")))
        # A worker whose driver was killed lives on for a moment, and has saved a newer one.
        except FileNotFoundError:
            return load_newest_checkpoint(folder, on_damaged)
    return None


def read_checkpoint(path: Path) -> State | None:
    """Return tensors (on the CPU) and progress; None: it is damaged. Raises FileNotFoundError if nothing is there."""
    is_none = not path.is_file() and os.path.lexists(path)
    if is_none or hash_file(path)[:16] != path.stem.split("-")[2]:
        return None
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        progress = json.loads(file.metadata()["progress"])
    return tensors, {name: value for name, value in progress.items() if name != "code"}


def newest_history(folder: Path) -> History:
    """Return which code trained the newest checkpoint, by its header alone; empty: none is there, or not known."""
    code = newest_progress(folder).get("code")
    return code if isinstance(code, list) else []


def newest_progress(folder: Path) -> Fields:
    """Return what the header of the newest checkpoint says of its run; empty: none is there, or it is damaged."""
    for path in checkpoints(folder)[:1]:
        try:
            with safe_open(path, framework="numpy") as file:
                return dict(json.loads((file.metadata() or {})["progress"]))
        except (OSError, SafetensorError, ValueError, KeyError, TypeError):
            pass  # removed meanwhile, or damaged, which is reported at the resume
    return {}


def continued(history: History, step: int, files: dict[str, str] | None) -> History:
    """Return the history of a run that these files train from a step on; an empty one is not known."""
    before = [version for version in history if version["from_step"] < step]
    if not before and step > 0:
        before = [{"from_step": 0, "files": None}]
    if before and before[-1]["files"] == files:
        return before
    return [*before, {"from_step": step, "files": files}]


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoint files, newest first."""
    return sorted(folder.glob("step-*-*.safetensors"), reverse=True)


class CheckpointStore:
    """The checkpoints of this process's runs, below `<uri>/checkpoints/<run id>/`."""

    def __init__(self, uri: str, *, patience_s: float = PATIENCE_S) -> None:
        self.uri, self.patience_s = uri, patience_s
        self._patient = ObjectStore(uri, patience_s=patience_s)
        self._store = ObjectStore(uri, patience_s=0.0)  # `_uploads` tries again what fails
        self._num_kept: dict[Path, int] = {}
        self._uploads = BackgroundWorker(
            "checkpoint-store", self._upload_newest, self._report, retry_s=RETRY_S
        )

    def fetch_newer(self, folder: Path, step: int) -> Iterator[Path]:
        """Fetch a run's checkpoints beyond a step, newest first, and yield each; raises OSError without an answer."""
        with self._waited_for():
            names = _names(self._patient, folder)
        for name in names:
            if int(name.split("-")[1]) <= step:
                return
            # It may have been removed since, because there is a newer one.
            with suppress(FileNotFoundError), self._waited_for():
                self._patient.download(_object(folder, name), folder / name)
                yield folder / name

    def push(self, folder: Path, num_kept: int) -> None:
        """Have the newest checkpoint of a local folder uploaded, and old ones removed there; returns at once."""
        self._num_kept[folder] = num_kept
        self._uploads.submit(folder)

    def wait(self, folders: list[Path]) -> None:
        """Wait until the newest checkpoints of these folders are uploaded, for at most `LEAVING_PATIENCE_S`."""
        self._uploads.wait(folders, LEAVING_PATIENCE_S)

    def finish(self, folders: list[Path]) -> None:
        """Wait for the last checkpoints of ended runs, then remove the copies here; OSError without an answer."""
        if not self._uploads.wait(folders, self.patience_s):
            raise self._away(next(iter(self._uploads.failing.values()), OSError("no answer")))
        for folder in folders:
            keep_newest(folder, 0)

    def fetch_weights(self, folder: Path) -> None:
        """Fetch weights that a study had a recipe for into their folder, unless they are there; raises as `finish`."""
        if (folder / "model.safetensors").is_file():
            return
        with self._waited_for():
            names = self._patient.names(f"pretrained/{folder.name}")
            # The others count once the weights are here.
            for name in sorted(names, key=lambda name: name.endswith(".safetensors")):
                self._patient.download(name, folder / Path(name).name)

    def _upload_newest(self, folder: Path) -> None:
        there = _names(self._store, folder)
        for path in checkpoints(folder)[:1]:
            if path.name not in there:
                try:
                    self._store.upload(path, _object(folder, path.name))
                except FileNotFoundError:  # a newer one was saved meanwhile, and is next
                    return
                there = sorted([path.name, *there], reverse=True)
        for name in there[self._num_kept[folder] :]:
            self._store.remove(_object(folder, name))

    def _report(self, problem: Exception) -> None:
        log.warning("cannot upload a checkpoint to %s (%s); retrying", self.uri, reason(problem))

    @contextmanager
    def _waited_for(self) -> Iterator[None]:
        """Raise `_away` for what the store refuses, or does not answer in time."""
        try:
            yield
        except OSError as problem:
            if problem.errno is not None:  # this machine's disk, or an object that is gone
                raise
            raise self._away(problem) from problem

    def _away(self, problem: Exception) -> OSError:
        return OSError(
            errno.EHOSTUNREACH, f"{self.uri} for {self.patience_s:.0f} s: {reason(problem)}"
        )


def newest_checkpoint(
    folder: Path, store: CheckpointStore | None, on_damaged: Callable[[Path], None]
) -> State | None:
    """Return what `load_newest_checkpoint` does, of this machine's disk and of a store; raises as `fetch_newer`.

    Raises OSError (ELOOP) if the folder is a link.
    """
    if folder.is_symlink():
        raise OSError(
            errno.ELOOP, "it is a link, and nothing is written or removed through one", str(folder)
        )
    for path in folder.glob("partial-*"):  # of workers that died while they wrote a checkpoint
        path.unlink(missing_ok=True)
    saved = load_newest_checkpoint(folder, on_damaged)
    step = saved[1]["step"] if saved else -1
    for path in store.fetch_newer(folder, step) if store else ():
        fetched = load_newest_checkpoint(folder, on_damaged)
        if path.exists():  # intact
            return fetched
    return saved


def _names(store: ObjectStore, folder: Path) -> list[str]:
    names = (Path(name).name for name in store.names(f"checkpoints/{folder.name}"))
    return sorted((name for name in names if name.startswith("step-")), reverse=True)


def _object(folder: Path, name: str) -> str:
    return f"checkpoints/{folder.name}/{name}"
