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
from torch import Tensor

from lr_sweep.datasets import TASKS
from lr_sweep.datasets.loaded import load_checked
from lr_sweep.trainables.models.config import GPT2
from lr_sweep.trainables.plain.engine import Training
from lr_sweep.trainables.plain.evaluation import evaluate
from lr_sweep.trainables.pretraining.recipe import NO_FILES, TaskRecipe
from lr_sweep.trainables.pretraining.weights import CONFIG, WEIGHTS, WeightsError
from lr_sweep.trainables.run import ModelSize


class TaskTrainee:
    """A plain run, step by step, that knows how accurate it was at step 0."""

    def __init__(self, size: ModelSize, recipe: TaskRecipe, device: torch.device) -> None:
        data = load_checked(recipe.task, TASKS[recipe.task], recipe.options, NO_FILES).to(device)
        self.recipe, self.training = recipe, Training(recipe.run(size), data, None, device)
        self.accuracy_before = math.nan

    @property
    def step(self) -> int:
        """Gradient steps taken."""
        return self.training.progress.step

    def measure(self) -> None:
        """Note how accurate the model is; called before its first step."""
        self.accuracy_before = self._accuracy()

    def take_step(self) -> float:
        """Take the next gradient step and return its loss; raises WeightsError if training diverged."""
        began, progress = time.monotonic(), self.training.progress
        loss_sum = progress.loss_sum
        self.training.train_chunk(1)
        if progress.diverged:
            raise WeightsError(
                f"pretraining on {self.recipe.task} diverged at step {progress.diverged_at_step}: the loss is not "
                f"finite. Lower learning_rate = {self.recipe.learning_rate:g} in the study's `pretrain` recipe."
            )
        progress.elapsed_s += time.monotonic() - began
        return progress.loss_sum - loss_sum

    def facts(self) -> dict[str, Any]:
        """Return what `pretraining.json` says of the training, after its last step."""
        return {
            "recipe": asdict(self.recipe),
            "size": asdict(self.training.run.model),
            "accuracy_before": self.accuracy_before,
            "accuracy": self._accuracy(),
            "duration_s": self.training.progress.elapsed_s,
            "torch": torch.__version__,
        }

    def save(self, folder: Path) -> None:
        """Write the body by GPT-2's names; it has no token table."""
        folder.mkdir(parents=True)
        sizes = {name: getattr(self.training.run.model, attribute) for name, attribute in GPT2.sizes.items()}
        config = {"architectures": ["GPT2Model"], "model_type": GPT2.model_type, "vocab_size": 1} | sizes
        (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
        tensors = {name: tensor.cpu() for name, tensor in self.training.model.body.state_dict().items()}
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what is needed to resume: tensors by name, and plain JSON values."""
        tensors, progress = self.training.state()
        return tensors, progress | {"accuracy_before": self.accuracy_before}

    def load_state(self, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
        """Resume from what `state` returned."""
        self.accuracy_before = progress["accuracy_before"]
        self.training.load_state(tensors, {name: x for name, x in progress.items() if name != "accuracy_before"})

    def _accuracy(self) -> float:
        """Return the accuracy on the test split, a fraction."""
        with self.training.products:
            return evaluate(self.training.model, self.training.data, self.training.data.test)[1]
