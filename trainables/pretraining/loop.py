"""Pretrains a model by a recipe: steps with checkpoints between them, then a folder of weights that is there whole."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from lr_sweep.common.files import flush, follow_umask, hash_file, partial_path, remove_dead_partials, sealed
from lr_sweep.trainables import checkpoint
from lr_sweep.trainables.pretraining.on_task import TaskTrainee
from lr_sweep.trainables.pretraining.on_text import TextTrainee
from lr_sweep.trainables.pretraining.recipe import Recipe, TaskRecipe, pretraining_checkpoints
from lr_sweep.trainables.pretraining.weights import FACTS, FILES, WEIGHTS
from lr_sweep.trainables.run import ModelSize

Trainee = TextTrainee | TaskTrainee
OnStep = Callable[[int, float], None]
"""Called with each step and its training loss in nats."""

log = logging.getLogger(__name__)


def pretrain(
    size: ModelSize,
    recipe: Recipe,
    corpus: bytes,
    folder: Path,
    device: torch.device,
    on_step: OnStep,
    *,
    checkpoint_every_s: float = 60.0,
) -> dict[str, Any]:
    """Train and save `config.json`, `model.safetensors` and `pretraining.json` into `folder`, whole or not at all.

    Resumes from the newest checkpoint of an earlier call that did not end. The bytes are those of training without a
    break; on the same kind of processor they do not depend on how many threads this process has.

    Returns:
        What `pretraining.json` holds: the recipe, and how good the model was before and after: the accuracy on the
        task's test examples, or bits per byte of held-out text, also during training (`curve`, pairs of step and bits).

    Raises:
        WeightsError: the training diverged.
    """
    with _threads_kept(recipe.threads):
        if isinstance(recipe, TaskRecipe):
            trainee: Trainee = TaskTrainee(size, recipe, device)
        else:
            trainee = TextTrainee(size, recipe, corpus, device)
        checkpoints = pretraining_checkpoints(folder)
        saved = checkpoint.newest_checkpoint(checkpoints, None, lambda path: log.warning("%s is damaged", path))
        if saved is None:
            trainee.measure()
        else:
            trainee.load_state(*saved)
        _train(trainee, recipe.num_steps, checkpoints, on_step, checkpoint_every_s)
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
