"""How a model is pretrained here, on text or on a task, and into which folder; nothing here needs torch."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Interval

from lr_sweep.common.files import read_plain
from lr_sweep.common.limits import Count, LearningRate, Seed, Steps
from lr_sweep.datasets import TASKS, data_checksum
from lr_sweep.datasets.task import ENDLESS, options_content
from lr_sweep.trainables.parts import EVERYTHING
from lr_sweep.trainables.run import ModelSize, Protocol, Run

from .weights import describe_training

DATA = "DATA"
"""Stands for the data directory in a path of text."""
NUM_BYTES = 256
"""The vocabulary: one token a byte."""
VALIDATION_SHARE = 0.05
"""Share of the bytes, from the end of the text, that is never trained on."""
DEFAULT_THREADS = 2
"""CPU threads of torch where a recipe names no number; the committed results are of machines with two cores."""
MAX_TEXT_BYTES = 2_000_000_000
"""The text is held in memory, a few times over."""
NO_FILES = Path()
"""In place of a data directory: endless tasks read none."""


@dataclass(frozen=True, kw_only=True)
class PretrainRecipe:
    """Next-token pretraining on text. Everything in it can change the weights; the defaults take minutes on a CPU."""

    predicts: ClassVar = "byte"
    """What its losses are means over."""
    text: Literal["python-stdlib"] | tuple[Path, ...] = "python-stdlib"
    """`python-stdlib`: sources of Python's standard library; or text files, in this order.

    A path that begins with `DATA/` is of the data directory."""
    num_steps: Steps = 600
    """Gradient steps."""
    batch_size: Count = 16
    """Sequences a gradient step."""
    num_tokens: Annotated[int, Interval(ge=2, le=1_000_000)] = 128
    """Tokens a sequence (context), one a byte of text; at most the model's `positions`."""
    learning_rate: LearningRate = 1e-3
    """Peak of AdamW's learning rate: linear warm-up, cosine."""
    seed: Seed = 0
    """Seed of the initial weights and the order of the text; not that of a run."""
    num_threads: Annotated[int, Interval(ge=1, le=1024)] | None = None
    """CPU threads of torch, on which the rounding depends; null: 2 (`DEFAULT_THREADS`)."""

    @property
    def threads(self) -> int:
        """CPU threads of torch."""
        return self.num_threads or DEFAULT_THREADS

    def content(self) -> dict[str, Any]:
        """Return its fields by name, without a `num_threads` of None: it came later, and folders keep their names."""
        return {
            name: value
            for name, value in asdict(self).items()
            if (name, value) != ("num_threads", None)
        }

    def files(self, data_dir: Path) -> list[Path]:
        """Return the files of its text."""
        if isinstance(self.text, str):
            return _stdlib_sources()
        return [
            data_dir.joinpath(*path.parts[1:]) if in_data_dir(path) else path for path in self.text
        ]

    def corpus_name(self) -> str:
        """Return what tables call its text."""
        if isinstance(self.text, str):
            return f"the Python {sys.version_info.major}.{sys.version_info.minor} standard library's source"
        return ", ".join(path.name for path in self.text)

    def folder(self, root: Path, size: ModelSize, corpus: bytes) -> Path:
        """Return the folder the weights are saved in, named after everything that goes into them."""
        content = {
            "size": asdict(size),
            "recipe": self.content() | {"text": hashlib.sha256(corpus).hexdigest()},
        }
        return _folder(
            root, size, hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        )

    def description(self, size: ModelSize) -> str:
        """Return what tables call the weights."""
        return describe_training(asdict(size), self.content(), self.corpus_name())


def in_data_dir(path: Path) -> bool:
    """Return whether a text's path is `DATA/...`, a file in the data directory, wherever that is."""
    return len(path.parts) > 1 and path.parts[0] == DATA


def read_corpus(paths: Iterable[Path]) -> bytes:
    """Return the whole text; raises OSError if a file is unreadable or no plain file, or they are too large."""
    left, parts = MAX_TEXT_BYTES, []
    for path in paths:
        parts.append(read_plain(path, left))
        left -= len(parts[-1])
    return b"\n".join(parts)


def _stdlib_sources() -> list[Path]:
    root = Path(sysconfig.get_path("stdlib"))
    left_out = {"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3"}
    sources = []
    for folder, folders, files in os.walk(root):
        # Not entered: installed packages may be far more than the library.
        folders[:] = set(folders) - left_out
        sources += [Path(folder) / name for name in files if name.endswith(".py")]
    return sorted(sources)


def held_out_from(num_bytes: int) -> int:
    """Return the offset at which the part of a text begins that is never trained on."""
    return int(num_bytes * (1 - VALIDATION_SHARE))


def fewest_bytes(num_tokens: int) -> int:
    """Return how long a text must be for a sequence of so many tokens, and the token after it, in the held-out part."""
    return next(n for n in itertools.count(num_tokens) if n - held_out_from(n) > num_tokens)


def _folder(root: Path, size: ModelSize, digest: str) -> Path:
    return root / f"gpt2-{size.layers}x{size.width}-{digest[:12]}"


def pretraining_checkpoints(folder: Path) -> Path:
    """Return the folder of checkpoints while the weights of a folder are trained."""
    return folder.with_name(f".{folder.name}.checkpoints")


@dataclass(frozen=True, kw_only=True)
class TaskRecipe:
    """Training of all parts of a model from its random start on a task. Everything in it can change the weights."""

    predicts: ClassVar = "answer"
    threads: ClassVar = None
    """The plain engine chooses the number of CPU threads."""
    task: str
    """Task with new examples at every step: `bit-memory` or `bit-xor`."""
    options: Any
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

    def files(self, data_dir: Path) -> list[Path]:
        """Return none: a task has no text."""
        return []

    def folder(self, root: Path, size: ModelSize, corpus: bytes) -> Path:
        """Return the folder the weights are saved in, named after everything that goes into them."""
        return _folder(root, size, self.run(size).run_id)

    def description(self, size: ModelSize) -> str:
        """Return what tables call the weights."""
        return (
            f"GPT-2 of {size.layers} layers x width {size.width}, all of it trained for {self.num_steps} steps "
            f"({self.num_steps * self.batch_size:,} examples) on {self.task}"
        )


Recipe = PretrainRecipe | TaskRecipe


def endless_tasks() -> list[str]:
    """Return the names of the tasks whose examples are drawn at every step, which need no data directory."""
    return [name for name, task in TASKS.items() if task.num_train(task.Options()) == ENDLESS]
