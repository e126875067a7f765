"""A run's checkpoints on disk: whole files, named by step and checksum, the newest two kept."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

NUM_KEPT = 2
"""While a run trains: the newest, and the one before it in case the newest turns out damaged."""

log = logging.getLogger(__name__)


def save_checkpoint(
    folder: Path, tensors: dict[str, Tensor], progress: dict[str, Any], num_kept: int = NUM_KEPT
) -> Path:
    """Write `step-<step>-<sha256 prefix>.safetensors` atomically, then remove all but the newest `num_kept`.

    Raises:
        OSError: the disk is full or not writable; earlier checkpoints are untouched.
    """
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"partial-{os.getpid()}"
    try:
        contiguous = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
        save_file(contiguous, partial, metadata={"progress": json.dumps(progress)})
        _flush(partial)
        path = folder / f"step-{progress['step']:09d}-{file_sha256(partial)[:16]}.safetensors"
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    for old in checkpoints(folder)[num_kept:]:
        old.unlink(missing_ok=True)
    return path


def load_newest_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return tensors (on the CPU) and progress of the newest intact checkpoint; None where there is none.

    A file whose checksum is not the one in its name is reported, left for inspection, and passed over.
    """
    for path in checkpoints(folder):
        if file_sha256(path)[:16] != path.stem.split("-")[2]:
            log.warning("checkpoint %s is damaged (its checksum differs); going back to the one before it", path)
            continue
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, json.loads(file.metadata()["progress"])  # noqa: SIM118
    return None


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoint files, newest first."""
    return sorted(folder.glob("step-*-*.safetensors"), reverse=True)


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file's bytes in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
