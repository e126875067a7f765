"""Study -> runs: the grid written out, each run with its id, its budget and the names it has in tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from datasets import TASKS
from datasets.sources import data_checksum
from datasets.task import TaskShape
from sweep.pretraining import Backbone
from sweep.study import Study, StudyTask
from trainables.parts import VARIANTS
from trainables.pretrained import WeightsSource
from trainables.run import Run


@dataclass(frozen=True, kw_only=True)
class WantedRun:
    """A run that a study wants, up to a step budget, under the study's names."""

    run: Run
    run_id: str
    """`run.run_id`, hashed once."""
    model: str
    variant: str
    num_steps: int
    """The step budget."""
    shape: TaskShape
    weights: WeightsSource | None
    """Where pretrained weights are; None for random initialisation."""
    pretrained_on: str | None
    """What tables call the weights; None for random initialisation."""
    data_origin: str

    @property
    def cell(self) -> tuple[str, str, str]:
        """Task, model and variant: what one number of a table is about."""
        return self.run.task, self.model, self.variant

    def row(self) -> dict[str, Any]:
        """Return the run's row in `wanted.parquet`."""
        run = self.run
        return {
            "run_id": self.run_id,
            "task": run.task,
            "model": self.model,
            "variant": self.variant,
            "learning_rate": run.learning_rate,
            "seed": run.seed,
            "num_steps": self.num_steps,
            "pretrained_on": self.pretrained_on,
            "data_origin": self.data_origin,
        }


def wanted_runs(study: Study, backbones: dict[str, Backbone], data_dir: Path) -> list[WantedRun]:
    """Write out a study's grid, seeds outermost, so that every cell has its first seed early.

    Args:
        study: what to write out.
        backbones: each model of the study, with its weights as far as they are known (`sweep.pretraining`).
        data_dir: where data sets are; an id includes which data it is.

    Raises:
        DataError: data files are there but cannot be identified.
    """
    tasks = {name: _task_facts(name, task, data_dir) for name, task in study.tasks.items()}
    cells = [
        _cell(study, backbones[model], task, facts, model, variant)
        for task, facts in tasks.items()
        for model in study.models
        for variant in study.variants
    ]
    rates = study.learning_rate_grid()
    return [cell(learning_rate, seed) for seed in study.seed_list() for cell in cells for learning_rate in rates]


@dataclass(frozen=True, kw_only=True)
class _TaskFacts:
    num_steps: int
    options: dict[str, Any]
    checksum: str
    shape: TaskShape
    origin: str


def _task_facts(name: str, task: StudyTask, data_dir: Path) -> _TaskFacts:
    definition = TASKS[name]
    options, origin = dataclasses.asdict(task.options), definition.origin(task.options, data_dir)
    if options.get("source") == "auto":  # the same data is the same run, whether it was named or found
        options["source"] = origin
    return _TaskFacts(
        num_steps=task.num_steps,
        options=options,
        checksum=data_checksum(name, task.options, data_dir),
        shape=definition.shape(task.options),
        origin=origin,
    )


def _cell(
    study: Study, backbone: Backbone, task: str, facts: _TaskFacts, model: str, variant: str
) -> Callable[[float, int], WantedRun]:
    """Return what makes the runs of a cell from learning rate and seed."""
    initialisation, trained = VARIANTS[variant].initialisation, VARIANTS[variant].trained
    pretrained = initialisation == "pretrained"
    run_of = partial(
        Run,
        task=task,
        task_options=facts.options,
        data_checksum=facts.checksum,
        model=backbone.size,
        initialisation=initialisation,
        weights_checksum=backbone.checksum if pretrained else None,
        trained=trained,
        protocol=study.protocol,
    )
    id_of = run_of(learning_rate=0.0, seed=0).sibling_ids()

    def wanted_run(learning_rate: float, seed: int) -> WantedRun:
        return WantedRun(
            run=run_of(learning_rate=learning_rate, seed=seed),
            run_id=id_of(learning_rate, seed),
            model=model,
            variant=variant,
            num_steps=facts.num_steps,
            shape=facts.shape,
            weights=backbone.source if pretrained else None,
            pretrained_on=backbone.description if pretrained else None,
            data_origin=facts.origin,
        )

    return wanted_run


def by_cell(wanted: Iterable[WantedRun]) -> dict[tuple[str, str, str], list[WantedRun]]:
    """Return the runs of each cell, cells in order of appearance."""
    cells: dict[tuple[str, str, str], list[WantedRun]] = {}
    for run in wanted:
        cells.setdefault(run.cell, []).append(run)
    return cells
