"""A run's checkpoints on disk: whole files, named by step and checksum, the newest two kept."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from datasets.files import follow_umask, hash_file

if TYPE_CHECKING:  # `plan` and `show` look at files alone, and torch takes seconds to import
    from torch import Tensor

Version = dict[str, Any]
"""`from_step`, and `files`: versions (`datasets.sources`) of the files that trained from there on; None: not known."""
History = list[Version]
"""Which code trained a run, in the order of its steps."""

NUM_KEPT = 2
"""While a run trains: the newest, and the one before it in case the newest turns out damaged."""


def save_checkpoint(
    folder: Path, tensors: dict[str, Tensor], progress: dict[str, Any], history: History | None = None
) -> Path:
    """Write `step-<step>-<sha256 prefix>.safetensors` atomically.

    Args:
        folder: the run's folder of checkpoints.
        tensors: on any device.
        progress: plain JSON values.
        history: which code trained it, for `newest_history`; None: not known.

    Raises:
        OSError: the disk is full or not writable; earlier checkpoints are untouched.
    """
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    # Another machine may train this run for a while: one that is cut off from the cluster, but not from the disk.
    partial = folder / f"partial-{platform.node()}-{os.getpid()}"
    try:
        contiguous = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
        # In one entry: safetensors writes several in an order that differs from call to call.
        kept = progress | ({"code": history} if history else {})
        save_file(contiguous, partial, metadata={"progress": json.dumps(kept)})
        follow_umask(partial)
        flush(partial)
        path = folder / f"step-{progress['step']:09d}-{hash_file(partial)[:16]}.safetensors"
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return path


def keep_newest(folder: Path, number: int) -> None:
    """Remove all but the newest checkpoints."""
    for old in checkpoints(folder)[number:]:
        old.unlink(missing_ok=True)


def load_newest_checkpoint(
    folder: Path, on_damaged: Callable[[Path], None]
) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return tensors (on the CPU) and progress of the newest intact checkpoint; None where there is none.

    A file whose checksum is not the one in its name is passed over. It is renamed, so that it is not counted among the
    newest when old ones are removed, and left for inspection; `on_damaged` is called with its new path.
    """
    for path in checkpoints(folder):
        try:
            intact = hash_file(path)[:16] == path.stem.split("-")[2]
            if intact:
                with safe_open(path, framework="pt") as file:
                    tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                    progress = json.loads(file.metadata()["progress"])
                return tensors, {name: value for name, value in progress.items() if name != "code"}
            on_damaged(path.replace(path.with_name(f"damaged-{path.name}")))
        except FileNotFoundError:  # a worker whose driver was killed lives on for a moment, and has saved a newer one
            return load_newest_checkpoint(folder, on_damaged)
    return None


def newest_history(folder: Path) -> History:
    """Return which code trained the newest checkpoint, by its header alone; empty: none is there, or not known."""
    for path in checkpoints(folder)[:1]:
        try:
            with safe_open(path, framework="numpy") as file:
                return list(json.loads((file.metadata() or {}).get("progress", "{}")).get("code", []))
        except (
            OSError,
            SafetensorError,
            ValueError,
            AttributeError,
            TypeError,
        ):  # removed meanwhile, or damaged, which is reported at the resume
            return []
    return []


def continued(history: History, step: int, files: dict[str, str] | None) -> History:
    """Return the history of a run that these files train from a step on; an empty one is not known."""
    before = [version for version in history if version["from_step"] < step]
    if not before and step > 0:
        before = [{"from_step": 0, "files": None}]
    if before and before[-1]["files"] == files:
        return before
    return [*before, {"from_step": step, "files": files}]


def remove_partial(folder: Path) -> None:
    """Remove what workers left that died while they wrote a checkpoint."""
    for path in folder.glob("partial-*"):
        path.unlink(missing_ok=True)


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoint files, newest first."""
    return sorted(folder.glob("step-*-*.safetensors"), reverse=True)


def flush(path: Path) -> None:
    """Wait until the system has put a file on its disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
