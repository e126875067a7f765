"""Pretrains all parts of a GPT-2 on a task by the plain engine's steps, and saves its body.

Lu et al. 2021, section 3.2 and appendix D.2: "after first being fully finetuned on Bit Memory following default random
initialization".
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from lr_sweep.datasets import TASKS
from lr_sweep.datasets.loaded import load_checked
from lr_sweep.trainables.evaluation import evaluate
from lr_sweep.trainables.pretraining.fit import FAMILY, SIZES
from lr_sweep.trainables.pretraining.loop import OnStep, resume, save_weights, threads_kept, train_to
from lr_sweep.trainables.pretraining.task_recipe import NO_FILES, TaskRecipe
from lr_sweep.trainables.pretraining.weights import CONFIG, WEIGHTS, WeightsError
from lr_sweep.trainables.run import ModelSize
from lr_sweep.trainables.training import Training


def pretrain_on_task(
    size: ModelSize,
    recipe: TaskRecipe,
    folder: Path,
    device: torch.device,
    on_step: OnStep,
    *,
    checkpoint_every_s: float = 60.0,
) -> dict[str, Any]:
    """Train and save `config.json`, `model.safetensors` (the body alone) and `pretraining.json`, whole or not at all.

    Resumes from the newest checkpoint of an earlier call that did not end, on a CPU to the same bytes.

    Returns:
        What `pretraining.json` holds: the recipe, and the accuracy on the task's test examples before and after.

    Raises:
        WeightsError: the training diverged.
    """
    definition = TASKS[recipe.task]
    data = load_checked(recipe.task, definition, recipe.options, NO_FILES).to(device)
    with threads_kept():
        training = _TaskTraining(recipe.run(size), data, None, device)
        if not resume(training, folder):
            training.accuracy_before = training.accuracy()
        train_to(recipe.num_steps, training, folder, on_step, checkpoint_every_s)
        after = training.accuracy()
    facts = {
        "recipe": asdict(recipe),
        "size": asdict(size),
        "accuracy_before": training.accuracy_before,
        "accuracy": after,
        "duration_s": training.progress.elapsed_s,
        "torch": torch.__version__,
    }
    save_weights(folder, facts, lambda path: _save_body(training.model.body, size, path))
    return facts


class _TaskTraining(Training):
    """A plain run, step by step, that knows how accurate it was at step 0."""

    accuracy_before = math.nan

    @property
    def step(self) -> int:
        """Gradient steps taken."""
        return self.progress.step

    def take_step(self) -> float:
        """Take the next gradient step and return its loss; raise WeightsError if it is not finite."""
        began, loss_sum = time.monotonic(), self.progress.loss_sum
        self._train_chunk(1)
        if self.diverged:
            raise WeightsError(
                f"pretraining on {self.run.task} diverged at step {self.progress.diverged_at_step}: the loss is not "
                f"finite. Lower learning_rate = {self.run.learning_rate:g} in the study's `pretrain` recipe."
            )
        self.progress.elapsed_s += time.monotonic() - began
        return self.progress.loss_sum - loss_sum

    def accuracy(self) -> float:
        """Return the accuracy on the test split, a fraction."""
        with self.products:
            return evaluate(self.model, self.data, self.data.test)[1]

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what `Training.state` does, and the accuracy before."""
        tensors, progress = super().state()
        return tensors, progress | {"accuracy_before": self.accuracy_before}

    def load_state(self, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
        """Resume from what `state` returned."""
        self.accuracy_before = progress["accuracy_before"]
        super().load_state(tensors, {name: value for name, value in progress.items() if name != "accuracy_before"})


def _save_body(body: nn.Module, size: ModelSize, folder: Path) -> None:
    """Write a body by GPT-2's names; it has no token table."""
    folder.mkdir(parents=True)
    config = {"architectures": ["GPT2Model"], "model_type": FAMILY, "vocab_size": 1}
    config |= {name: getattr(size, attribute) for name, attribute in SIZES.items()}
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    tensors = {name: tensor.cpu() for name, tensor in body.state_dict().items()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
