"""What all pretraining shares: steps with checkpoints between them, and a folder of weights that is there whole."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from lr_sweep.common.files import flush, follow_umask, hash_file, partial_path, remove_dead_partials, sealed
from lr_sweep.trainables import checkpoint
from lr_sweep.trainables.pretraining.recipe import pretraining_checkpoints
from lr_sweep.trainables.pretraining.weights import FACTS, FILES, WEIGHTS

OnStep = Callable[[int, float], None]
"""Called with each step and its training loss in nats."""

log = logging.getLogger(__name__)


class Trainee(Protocol):
    """A model in training, with all that its next step depends on."""

    @property
    def step(self) -> int:
        """Gradient steps taken."""

    def take_step(self) -> float:
        """Take the next gradient step and return its loss."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what is needed to resume: tensors by name, and plain JSON values with `step` among them."""

    def load_state(self, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
        """Resume from what `state` returned."""


def resume(trainee: Trainee, folder: Path) -> bool:
    """Load the newest intact checkpoint of a pretraining into `folder` that did not end; False: there is none."""
    saved = checkpoint.newest_checkpoint(
        pretraining_checkpoints(folder), None, lambda path: log.warning("%s is damaged", path)
    )
    if saved is not None:
        trainee.load_state(*saved)
    return saved is not None


def train_to(num_steps: int, trainee: Trainee, folder: Path, on_step: OnStep, checkpoint_every_s: float) -> None:
    """Take the steps that are left, and save a checkpoint each time so many seconds have passed."""
    checkpoints = pretraining_checkpoints(folder)
    saved_at = time.monotonic()
    while trainee.step < num_steps:
        loss = trainee.take_step()
        if time.monotonic() - saved_at >= checkpoint_every_s:
            checkpoint.save_checkpoint(checkpoints, *trainee.state())
            checkpoint.keep_newest(checkpoints, checkpoint.NUM_KEPT)
            saved_at = time.monotonic()
        on_step(trainee.step, loss)


@contextmanager
def threads_kept(number: int | None = None) -> Iterator[None]:
    """Set torch's number of CPU threads for the block, None: leave it; and restore it, if the block sets it, too."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(number or before)
        yield
    finally:
        torch.set_num_threads(before)


def save_weights(folder: Path, facts: dict[str, Any], write: Callable[[Path], object]) -> None:
    """Have `write` put `config.json` and weights into a folder, add the facts, and remove the checkpoints.

    The folder is there whole or not at all; the facts get the weights' sha256.
    """
    remove_dead_partials(folder.parent)
    partial = partial_path(folder)
    shutil.rmtree(partial, ignore_errors=True)
    write(partial)
    follow_umask(partial / WEIGHTS)
    others = {path.name: hash_file(path) for path in sorted(partial.iterdir()) if path.name != WEIGHTS}
    checked = sealed(facts | {"weights_sha256": hash_file(partial / WEIGHTS), FILES: others})
    (partial / FACTS).write_text(json.dumps(checked, indent=2) + "\n")
    for path in partial.iterdir():
        flush(path)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    shutil.rmtree(pretraining_checkpoints(folder), ignore_errors=True)
