"""What an unpacked archive holds, read without trusting it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from safetensors import SafetensorError, safe_open

from analysis.record import RecordError, read_planned, read_study, read_wanted
from sweep.archive import CHECKPOINT, refused
from sweep.merge import RecordedRun, mistakes, read_run
from sweep.results import Results

NOT_A_CHECKPOINT = (SafetensorError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What `check_checkpoint` raises."""
_FOUND_WRONG = (RecordError, pa.ArrowException, OSError, *NOT_A_CHECKPOINT)
"""What readers raise for files that are not what they should be."""


class Staged:
    """An unpacked archive: a results directory that is not trusted."""

    def __init__(self, archive: Path, folder: Path) -> None:
        self.archive, self.results = archive, Results(folder)

    @contextmanager
    def checked(self, what: str) -> Iterator[None]:
        """Refuse the archive for whatever a reader finds wrong."""
        try:
            yield
        except _FOUND_WRONG as error:
            reason = str(error).replace(f"{self.results.root}/", "").split(": delete it")[0].split(": run ")[0]
            raise refused(self.archive, f"{what} is not as this program writes it ({reason})") from error

    @cached_property
    def run_ids(self) -> list[str]:
        """Of runs with a row, a curve or a checkpoint."""
        root = self.results.root
        tables = {path.stem for folder in ("runs", "curves") for path in root.glob(f"{folder}/*")}
        return sorted(tables | {path.name for path in root.glob("checkpoints/*")})

    def run(self, run_id: str) -> RecordedRun | None:
        """Read a run and check it."""
        with self.checked(f"run {run_id}"):
            run = read_run(self.results.root, run_id)
            wrong = mistakes(run) if run else []
            if wrong:
                raise ValueError("; ".join(wrong))
        return run

    def checkpoint(self, run_id: str) -> Path | None:
        """Return the file of a run's newest checkpoint, checked; None: it came without."""
        path = newest_checkpoint(self.results, run_id)
        if path is not None:
            with self.checked(f"checkpoint {path.name} of run {run_id}"):
                check_checkpoint(path, sha256_of(path))
        return path

    def weights(self, folder: Path) -> Path:
        """Return the file of pretrained weights, checked to be one of tensors."""
        path = folder / "model.safetensors"
        with self.checked(f"pretrained/{folder.name}"):
            _metadata(path)
        return path

    def studies(self) -> list[str]:
        """Return the names of the studies, checked."""
        names = sorted(path.name for path in self.results.root.glob("studies/*"))
        for name in names:
            with self.checked(f"study {name}"):
                read_wanted(self.results.root, name)
                read_planned(self.results.root, name)
                if read_study(self.results.root, name).study != name:
                    raise ValueError("its study.json is another study's")
        return names


def newest_checkpoint(results: Results, run_id: str) -> Path | None:
    """Return a run's checkpoint of the highest step, intact or not; None: it has none."""
    found = [path for path in results.checkpoints(run_id).glob("step-*") if CHECKPOINT.fullmatch(path.name)]
    return max(found, key=checkpoint_step, default=None)


def check_checkpoint(path: Path, sha256: str) -> None:
    """Make sure that a file is a checkpoint as a trainer saves it.

    Raises:
        NOT_A_CHECKPOINT: one of these; it is not.
        OSError: it cannot be read.
    """
    named = CHECKPOINT.fullmatch(path.name)
    if named is None:
        raise ValueError("its name is not of a checkpoint")
    if not sha256.startswith(named[2]):
        raise ValueError("its sha256 is not the one in its name")
    if json.loads(_metadata(path)["progress"])["step"] != checkpoint_step(path):
        raise ValueError("its step is not the one in its name")


def checkpoint_step(checkpoint: Path) -> int:
    """Return the step in a checkpoint's name."""
    return int(checkpoint.name.split("-")[1])


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file's bytes in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _metadata(path: Path) -> dict[str, str]:
    """Return the texts in the header of a safetensors file."""
    with safe_open(path, framework="numpy") as file:
        return file.metadata() or {}
