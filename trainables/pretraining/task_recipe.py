"""How a model is pretrained here on a task whose examples are generated (Lu et al. 2021, section 3.2: bit memory)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from lr_sweep.common.limits import Count, LearningRate, Seed, Steps
from lr_sweep.datasets import TASKS
from lr_sweep.datasets.checksum import data_checksum
from lr_sweep.datasets.task import ENDLESS, options_content
from lr_sweep.trainables.parts import EVERYTHING
from lr_sweep.trainables.run import ModelSize, Protocol, Run

NO_FILES = Path()
"""In place of a data directory: endless tasks read none."""


@dataclass(frozen=True, kw_only=True)
class TaskRecipe:
    """Training of all parts of a model from its random start on a task. Everything in it can change the weights."""

    predicts: ClassVar[str] = "answer"
    """What its losses are means over."""
    task: str
    """Task whose examples are drawn at every step, such as `bit-memory`."""
    options: Any
    """The task's options; a study has them beside the other fields."""
    num_steps: Steps
    """Gradient steps."""
    batch_size: Count = 8
    """Examples a gradient step."""
    learning_rate: LearningRate = 1e-3
    """Constant learning rate of Adam (Lu et al. 2021, appendix C)."""
    seed: Seed = 0
    """Seed of the initial weights, the examples and dropout; not that of a run."""

    @property
    def num_tokens(self) -> int:
        """Tokens of an example; at most the model's `positions`."""
        return TASKS[self.task].shape(self.options).num_tokens

    def run(self, size: ModelSize) -> Run:
        """Return the training as a run, by the default protocol; it is evaluated at its end alone."""
        return Run(
            task=self.task,
            task_options=options_content(self.options),
            data_checksum=data_checksum(self.task, self.options, NO_FILES),
            model=size,
            initialisation="random",
            weights_checksum=None,
            trained=EVERYTHING,
            learning_rate=self.learning_rate,
            seed=self.seed,
            protocol=Protocol(batch_size=self.batch_size, evaluate_every=self.num_steps),
        )

    def folder(self, root: Path, size: ModelSize) -> Path:
        """Return the folder the weights are saved in, named after everything that goes into them."""
        return root / f"gpt2-{size.layers}x{size.width}-{self.run(size).run_id[:12]}"

    def description(self, size: ModelSize) -> str:
        """Return what tables call the weights."""
        return (
            f"GPT-2 of {size.layers} layers x width {size.width}, all of it trained for {self.num_steps} steps "
            f"({self.num_steps * self.batch_size:,} examples) on {self.task}"
        )


def endless_tasks() -> list[str]:
    """Return the names of the tasks whose examples are drawn at every step, which need no data directory."""
    return [name for name, task in TASKS.items() if task.num_train(task.Options()) == ENDLESS]
