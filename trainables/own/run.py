"""A run of a training function of the user's own: what can change its numbers. Nothing here needs torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from lr_sweep.trainables.run import PROTOCOL_VERSION, AnyRun

RANK_TIMEOUT_S = 600.0
"""Seconds after which torch.distributed itself ends a collective of NCCL."""


@dataclass(frozen=True, kw_only=True)
class OwnFiles:
    """The files of a training function, as they travel to the process that calls it."""

    trainable: str
    """The function, as `train.py:train`."""
    code: Mapping[str, bytes]
    """Contents of the code files, by name relative to the study."""
    folders: tuple[Path, ...]
    """Where data files are looked for, by their names: the study's folder, then the data directory."""

    @cached_property
    def checksums(self) -> dict[str, str]:
        """sha256 of the code files, by name."""
        return {name: hashlib.sha256(content).hexdigest() for name, content in self.code.items()}


@dataclass(frozen=True, kw_only=True)
class OwnRun(AnyRun):
    """One (task, model, variant, learning rate, seed) of a training function, with all that the function can see.

    Not in it is the step budget: a run with a larger one resumes.
    """

    files: OwnFiles
    """The code; the run's id has its sha256."""
    data: Mapping[str, str]
    """sha256 of every data file, by its name relative to the study."""
    task: str
    model: str
    variant: str
    options: Mapping[str, Any]
    """Plain JSON values: those of the task, of the model and of the variant."""
    learning_rate: float
    seed: int
    evaluate_every: int
    """Gradient steps between evaluations."""
    metric: Mapping[str, Any]
    """What `session.report` is given of each split: `name`, `higher_is_better`, `is_fraction`."""
    processes: int = 1
    """Processes that train it together; one per device."""
    weights_checksum: None = None

    @property
    def data_checksum(self) -> str:  # type: ignore[override]
        """16 hex digits of the sha256 of `data`; `none`: the study names no data files."""
        if not self.data:
            return "none"
        return hashlib.sha256(json.dumps(dict(self.data), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def steps_between_evaluations(self) -> int:
        """Gradient steps from one evaluation to the next."""
        return self.evaluate_every

    def sibling(self, learning_rate: float, seed: int) -> OwnRun:
        """Return the run that differs in learning rate and seed alone."""
        return replace(self, learning_rate=learning_rate, seed=seed)

    def content(self) -> dict[str, Any]:
        """Return the run as plain JSON values."""
        same = ("task", "model", "variant", "learning_rate", "seed", "weights_checksum", "data_checksum")
        mappings = ("data", "options", "metric")
        return {
            **{name: getattr(self, name) for name in same},
            "trainable": self.files.trainable,
            "code": self.files.checksums,
            **{name: dict(getattr(self, name)) for name in mappings},
            "protocol": {"evaluate_every": self.evaluate_every},
            "protocol_version": PROTOCOL_VERSION,
            # Sums over ranks round otherwise, and the function sees WORLD_SIZE. Of one process, ids are as ever.
            **({"processes": self.processes} if self.processes > 1 else {}),
        }


def own_run(run: AnyRun) -> OwnRun:
    """Return a run that is known to be of a training function."""
    assert isinstance(run, OwnRun), f"a run of a training function, got {run}"
    return run
