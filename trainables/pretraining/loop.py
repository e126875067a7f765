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

    def measure(self) -> None:
        """Note how good the model is; called before its first step."""

    def take_step(self) -> float:
        """Take the next gradient step and return its loss."""

    def facts(self) -> dict[str, Any]:
        """Return what `pretraining.json` says of the training, after its last step."""

    def save(self, folder: Path) -> object:
        """Write `config.json` and `model.safetensors` into a new folder."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what is needed to resume: tensors by name, and plain JSON values with `step` among them."""

    def load_state(self, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
        """Resume from what `state` returned."""


def train_and_save(
    start: Callable[[], Trainee],
    num_steps: int,
    folder: Path,
    on_step: OnStep,
    *,
    checkpoint_every_s: float,
    num_threads: int | None = None,
) -> dict[str, Any]:
    """Train what `start` returns, or resume an earlier call that did not end; save it with its facts, and return those.

    `num_threads`: CPU threads of torch; None: as many as there are. They are restored at the end.
    """
    with _threads_kept(num_threads):
        trainee = start()
        checkpoints = pretraining_checkpoints(folder)
        saved = checkpoint.newest_checkpoint(checkpoints, None, lambda path: log.warning("%s is damaged", path))
        if saved is None:
            trainee.measure()
        else:
            trainee.load_state(*saved)
        _train(trainee, num_steps, checkpoints, on_step, checkpoint_every_s)
        facts = trainee.facts()
    _save(trainee, facts, folder)
    return facts


def _train(trainee: Trainee, num_steps: int, checkpoints: Path, on_step: OnStep, checkpoint_every_s: float) -> None:
    saved_at = time.monotonic()
    while trainee.step < num_steps:
        loss = trainee.take_step()
        if time.monotonic() - saved_at >= checkpoint_every_s:
            checkpoint.save_checkpoint(checkpoints, *trainee.state())
            checkpoint.keep_newest(checkpoints, checkpoint.NUM_KEPT)
            saved_at = time.monotonic()
        on_step(trainee.step, loss)


@contextmanager
def _threads_kept(number: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(number or before)
        yield
    finally:
        torch.set_num_threads(before)


def _save(trainee: Trainee, facts: dict[str, Any], folder: Path) -> None:
    """Write a folder that is there whole or not at all, and remove the checkpoints; the facts get sha256s."""
    remove_dead_partials(folder.parent)
    partial = partial_path(folder)
    shutil.rmtree(partial, ignore_errors=True)
    with checkpoint.disk_errors(partial):
        trainee.save(partial)
    follow_umask(partial / WEIGHTS)
    others = {path.name: hash_file(path) for path in sorted(partial.iterdir()) if path.name != WEIGHTS}
    checked = sealed(facts | {"weights_sha256": hash_file(partial / WEIGHTS), FILES: others})
    (partial / FACTS).write_text(json.dumps(checked, indent=2) + "\n")
    for path in partial.iterdir():
        flush(path)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    shutil.rmtree(pretraining_checkpoints(folder), ignore_errors=True)
