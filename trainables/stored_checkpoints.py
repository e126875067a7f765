"""Checkpoints in an object store, for runs that go on on other machines; this machine's disk holds copies.

Object stores show an object once it is whole, and a checkpoint's name has its checksum, so what is found is intact or
noticed. Uploads are made by a thread, of the newest checkpoint alone: training never waits for one but at a run's end.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from datasets.files import hash_file
from trainables.checkpoint import checkpoints, keep_newest, load_newest_checkpoint, remove_partial

if TYPE_CHECKING:
    from torch import Tensor

PATIENCE_S = 600.0
"""How long the start and the end of a run wait for a store that does not answer; between them, nothing does."""
LEAVING_PATIENCE_S = 60.0
"""The same, of a run that is stopped."""
RETRY_S = 5.0
"""Between two attempts."""
PIECE_BYTES = 8 << 20
"""Checkpoints are fetched in pieces of this size."""

log = logging.getLogger(__name__)

T = TypeVar("T")


class CheckpointStore:
    """The checkpoints of runs below `<uri>/checkpoints/<run id>/`, as far as one process has to do with them."""

    def __init__(self, uri: str, *, patience_s: float = PATIENCE_S) -> None:
        self.uri, self.patience_s = uri, patience_s
        self._wake = threading.Condition()
        self._pending: dict[Path, int] = {}
        """Local folders whose newest checkpoint is to be uploaded, and how many the store keeps."""
        self._current: Path | None = None
        self._reason = "no answer"
        self._thread: threading.Thread | None = None
        self._opened: tuple[Any, PurePosixPath] | None = None

    def fetch_newer(self, folder: Path, step: int, on_damaged: Callable[[Path], None]) -> bool:
        """Fetch a run's newest intact checkpoint beyond a step into its local folder; False: there is none.

        Raises:
            OSError: the store does not answer.
        """
        for name in self._patiently(partial(self._names, folder)):
            if int(name.split("-")[1]) <= step:
                return False
            path = self._patiently(partial(self._fetch, folder, name))
            if path is not None and hash_file(path)[:16] == path.stem.split("-")[2]:
                return True
            if path is not None:  # removed there, so that an intact one of this name can take its place
                on_damaged(path.replace(path.with_name(f"damaged-{name}")))
                self._patiently(partial(self._remove, folder, name))
        return False

    def push(self, folder: Path, num_kept: int) -> None:
        """Have the newest checkpoint of a local folder uploaded, and old ones removed there; returns at once."""
        with self._wake:
            self._pending[folder] = num_kept
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="checkpoint-store", daemon=True)
                self._thread.start()

    def wait(self, folders: list[Path], patience_s: float = LEAVING_PATIENCE_S) -> bool:
        """Wait until what was to be pushed of these folders is there; False: it is not, after so long."""
        with self._wake:
            return self._wake.wait_for(lambda: not {*self._pending, self._current} & {*folders}, patience_s)

    def finish(self, folders: list[Path]) -> None:
        """Wait for the last checkpoints of runs that have ended, then free this machine's disk of the copies.

        Raises:
            OSError: the store does not answer.
        """
        if not self.wait(folders, self.patience_s):
            raise self._away(self._reason)
        for folder in folders:
            keep_newest(folder, 0)

    def fetch_weights(self, folder: Path) -> None:
        """Fetch weights that a study had a recipe for into their folder, unless they are there.

        Raises:
            OSError: the store does not answer.
        """
        if (folder / "model.safetensors").is_file():
            return
        names = self._patiently(partial(self._list, f"pretrained/{folder.name}"))
        for name in sorted(names, key=lambda name: name.endswith(".safetensors")):  # those count as there once it is
            self._patiently(partial(self._download, f"pretrained/{folder.name}/{name}", folder / name))

    def _work(self) -> None:
        """Upload until nothing is left to upload."""
        while True:
            with self._wake:
                if not self._pending:
                    self._thread = None
                    return
                self._current = next(iter(self._pending))
                num_kept = self._pending.pop(self._current)
            try:
                self._upload_newest(self._current, num_kept)
            except OSError as problem:
                self._reason = _reason(problem)
                log.warning("%s takes no checkpoint (%s); it is tried again", self.uri, self._reason)
                with self._wake:
                    self._pending.setdefault(self._current, num_kept)
                time.sleep(RETRY_S)
            with self._wake:
                self._current = None
                self._wake.notify_all()

    def _upload_newest(self, folder: Path, num_kept: int) -> None:
        import pyarrow as pa

        here, there = checkpoints(folder), self._names(folder)
        try:
            if here and here[0].name not in there:
                with pa.memory_map(str(here[0])) as content:
                    filesystem, root = self._open()
                    stream = filesystem.open_output_stream(str(root / "checkpoints" / folder.name / here[0].name))
                    stream.write(content.read_buffer())
                    stream.close()  # not by `with`, which would put half an object there if `write` was interrupted
        except FileNotFoundError:  # a newer one was saved meanwhile, and is next
            return
        for name in sorted({*there, *(path.name for path in here[:1])}, reverse=True)[num_kept:]:
            self._remove(folder, name)

    def _fetch(self, folder: Path, name: str) -> Path | None:
        """Fetch a checkpoint, whole; None: it is gone, since there is a newer one."""
        try:
            return self._download(f"checkpoints/{folder.name}/{name}", folder / name)
        except FileNotFoundError:
            return None

    def _download(self, name: str, path: Path) -> Path:
        filesystem, root = self._open()
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"partial-{os.getpid()}")
        with filesystem.open_input_stream(str(root / name)) as stream, beside.open("wb") as file:
            shutil.copyfileobj(stream, file, PIECE_BYTES)
        return beside.replace(path)

    def _names(self, folder: Path) -> list[str]:
        """List a run's checkpoints, newest first."""
        names = self._list(f"checkpoints/{folder.name}")
        return sorted((name for name in names if name.startswith("step-")), reverse=True)

    def _list(self, folder: str) -> list[str]:
        from pyarrow.fs import FileSelector

        filesystem, root = self._open()
        return [
            found.base_name
            for found in filesystem.get_file_info(FileSelector(str(root / folder), allow_not_found=True))
        ]

    def _remove(self, folder: Path, name: str) -> None:
        filesystem, root = self._open()
        try:
            filesystem.delete_file(str(root / "checkpoints" / folder.name / name))
        except FileNotFoundError:
            return

    def _open(self) -> tuple[Any, PurePosixPath]:
        if self._opened is None:
            from pyarrow.fs import FileSystem

            filesystem, root = FileSystem.from_uri(self.uri)
            self._opened = filesystem, PurePosixPath(root)
        return self._opened

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask the store until it answers."""
        end = time.monotonic() + self.patience_s
        while True:
            try:
                return ask()
            except OSError as problem:
                if problem.errno is not None:  # this machine's disk; problems with the store have no number
                    raise
                if time.monotonic() > end:
                    raise self._away(_reason(problem)) from problem
                log.warning("%s does not answer (%s); it is asked again", self.uri, _reason(problem))
                time.sleep(RETRY_S)

    def _away(self, reason: str) -> OSError:
        return OSError(errno.EHOSTUNREACH, f"{self.uri} for {self.patience_s:.0f} s: {reason}")


def newest_checkpoint(
    folder: Path, store: CheckpointStore | None, on_damaged: Callable[[Path], None]
) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return what `load_newest_checkpoint` does, of this machine's disk and of a store if there is one.

    Raises:
        OSError: the store does not answer.
    """
    remove_partial(folder)
    saved = load_newest_checkpoint(folder, on_damaged)
    step = saved[1]["step"] if saved is not None else -1
    if store is not None and store.fetch_newer(folder, step, on_damaged):
        return load_newest_checkpoint(folder, on_damaged)
    return saved


def _reason(problem: OSError) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0]
