"""Study -> runs: the grid written out, each run with its id, its budget and the names it has in tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from pathlib import Path
from typing import Any, NamedTuple

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.record.rungs import NOTHING_STOPPED, StoppedRates, read_stopped
from lr_sweep.analysis.statistics.further_rates import stand_ins
from lr_sweep.datasets import TASKS
from lr_sweep.datasets.sources import data_checksum
from lr_sweep.datasets.task import TaskShape, options_content
from lr_sweep.sweep.study.backbones import Backbone
from lr_sweep.sweep.study.own import AnyStudy, OwnStudy
from lr_sweep.sweep.study.study import Study
from lr_sweep.trainables.memory import trained_parameters
from lr_sweep.trainables.own.run import OwnFiles, OwnRun
from lr_sweep.trainables.pretraining.weights import WeightsSource
from lr_sweep.trainables.run import AnyRun, Run, attention_for
from lr_sweep.trainables.schedules import depends_on_budget

NOT_PROPOSED = "not-proposed-yet"


class Cell(NamedTuple):
    """What one number of a table is about: everything of a run but learning rate and seed."""

    task: str
    model: str
    variant: str


@dataclass(frozen=True, kw_only=True)
class WantedRun:
    """A run that a study wants, up to a step budget, under the study's names."""

    run: AnyRun
    run_id: str
    """`run.run_id`, kept: a hash takes time."""
    model: str
    variant: str
    num_steps: int
    """The step budget."""
    shape: TaskShape | None
    """Of the task's examples; None: of a training function of the user's own, it is not known."""
    weights: WeightsSource | None = None
    """Where pretrained weights are; None for random initialisation."""
    pretrained_on: str | None = None
    """Name of the weights in tables; None for random initialisation."""
    data_origin: str
    """Where the task's data come from."""
    metric: Metric = ACCURACY
    """What is measured on validation and test data."""
    own_files: OwnFiles | None = None
    """Files of the user's own training function; None: the run is a built-in one."""

    @property
    def cell(self) -> Cell:
        """Task, model and variant."""
        return Cell(self.run.task, self.model, self.variant)

    @property
    def trained_parameters(self) -> int | None:
        """How many numbers the run trains; None: it is not known."""
        return trained_parameters(self.run, self.shape) if isinstance(self.run, Run) and self.shape else None

    def row(self) -> dict[str, Any]:
        """Return the run's row in `wanted.parquet`."""
        names = ("run_id", "model", "variant", "num_steps", "pretrained_on", "data_origin")
        row = {name: getattr(self, name) for name in names}
        row["trained_parameters"] = self.trained_parameters
        return row | {name: getattr(self.run, name) for name in ("task", "learning_rate", "seed")}


Proposed = Mapping[Cell, Sequence[float]]
"""Learning rates of each cell that a search or a refinement has proposed, in ascending order."""
NOTHING_PROPOSED: Proposed = {}


def wanted_runs(
    study: AnyStudy, backbones: Mapping[str, Backbone], data_dir: Path, proposed: Proposed = NOTHING_PROPOSED
) -> list[WantedRun]:
    """Write out a study's grid, and what its search or refinement has proposed so far.

    Seeds are outermost, so that every cell has its first seed early.

    Raises:
        DataError: data files are there but cannot be identified.
    """
    if isinstance(study, OwnStudy):
        firsts = _first_of_own_cells(study, data_dir)
    else:
        firsts = _first_of_cells(study, backbones, data_dir)
    grids = grids_of(study)
    cells = [(first, sorted({*grids[first.cell], *proposed.get(first.cell, ())})) for first in firsts]
    return _written_out(cells, study.seed_list())


def num_proposals(study: AnyStudy) -> int:
    """Return how many learning rates are proposed for each cell in all; 0: the study is a grid."""
    return study.search.rates if study.search is not None else study.refine or 0


def stopped_rates(study: AnyStudy, results: Path) -> StoppedRates:
    """Return the learning rates that the study's rule stopped; none without a rule: then their runs train further."""
    return read_stopped(results, study.study) if study.stop_early is not None else NOTHING_STOPPED


def grids_of(study: AnyStudy) -> dict[Cell, tuple[float, ...]]:
    """Return the learning rates that each cell has from the start, in the study's order; none for a search."""
    if isinstance(study, OwnStudy):
        return dict.fromkeys(study_cells(study), study.learning_rate_grid())
    return {Cell(cell.task, cell.model, cell.variant): cell.learning_rates for cell in study.cell_list()}


def expected_runs(
    study: AnyStudy, backbones: Mapping[str, Backbone], data_dir: Path, proposed: Proposed
) -> list[WantedRun]:
    """Return the wanted runs, and stand-ins for those that are not proposed yet, for what a plan counts.

    The rates of stand-ins are guesses, and their ids are no ids of runs: they begin with `NOT_PROPOSED`.
    """
    wanted = wanted_runs(study, backbones, data_dir, proposed)
    if not num_proposals(study):
        return wanted
    guesses = {cell: _guesses(study, grid, proposed.get(cell, ())) for cell, grid in grids_of(study).items()}
    known = {run.run_id for run in wanted}
    guessed = [run for run in wanted_runs(study, backbones, data_dir, guesses) if run.run_id not in known]
    return wanted + [replace(run, run_id=f"{NOT_PROPOSED}-{index}") for index, run in enumerate(guessed)]


def _guesses(study: AnyStudy, grid: Sequence[float], proposed: Sequence[float]) -> tuple[float, ...]:
    if study.search is not None:
        return study.search.stand_ins(proposed)
    return stand_ins({*grid, *proposed}, num_proposals(study) - len(proposed))


def study_cells(study: AnyStudy) -> Iterator[Cell]:
    """Yield a study's cells in its order."""
    if isinstance(study, OwnStudy):
        yield from map(Cell._make, product(study.tasks, study.models, study.variants))
    else:
        yield from (Cell(cell.task, cell.model, cell.variant) for cell in study.cell_list())


def _written_out(cells: Sequence[tuple[WantedRun, Sequence[float]]], seeds: Sequence[int]) -> list[WantedRun]:
    siblings = [(first, first.run.sibling_ids(), rates) for first, rates in cells]
    return [
        replace(first, run=first.run.sibling(rate, seed), run_id=id_of(rate, seed))
        for seed in seeds
        for first, id_of, rates in siblings
        for rate in rates
    ]


def _first_of_own_cells(study: OwnStudy, data_dir: Path) -> Iterator[WantedRun]:
    """Yield what `_first_of_cells` does, of a study of the user's own training function."""
    files = replace(study.code, folders=(*study.code.folders, data_dir))
    for task, model, variant in product(study.tasks, study.models, study.variants):
        run = OwnRun(
            trainable=study.trainable,
            code=files.checksums(),
            data=study.data,
            task=task,
            model=model,
            variant=variant,
            options=study.tasks[task].options | study.models[model] | study.variants[variant],
            learning_rate=0.0,
            seed=0,
            evaluate_every=study.protocol.evaluate_every,
            metric=study.metric.as_json(),
        )
        yield WantedRun(
            run=run,
            run_id="",
            model=model,
            variant=variant,
            num_steps=study.tasks[task].num_steps,
            shape=None,
            data_origin=", ".join(study.data) or f"made by {study.trainable}",
            metric=study.metric,
            own_files=files,
        )


def _first_of_cells(study: Study, backbones: Mapping[str, Backbone], data_dir: Path) -> Iterator[WantedRun]:
    """Yield a run of each of `Study.cell_list`, without its learning rate, seed and id."""
    for name, cells in groupby(study.cell_list(), key=lambda cell: cell.task):
        task = study.tasks[name]
        definition, origin = TASKS[name], TASKS[name].origin(task.options, data_dir)
        options = options_content(task.options)
        if options.get("source") == "auto":  # the same data is the same run, whether it was named or found
            options["source"] = origin
        checksum, shape = data_checksum(name, task.options, data_dir), definition.shape(task.options)
        for _, model, variant, _, protocol in cells:
            backbone, parts = backbones[model], study.variants[variant]
            pretrained = parts.needs_weights
            run = Run(
                task=name,
                task_options=options,
                data_checksum=checksum,
                model=backbone.size,
                initialisation=parts.initialisation,
                weights_checksum=backbone.checksum if pretrained else None,
                trained=parts.trained,
                learning_rate=0.0,
                seed=0,
                protocol=replace(protocol, attention=attention_for(protocol, backbone.size, shape.num_tokens)),
                schedule_steps=task.num_steps if depends_on_budget(protocol) else None,
            )
            yield WantedRun(
                run=run,
                run_id="",
                model=model,
                variant=variant,
                num_steps=task.num_steps,
                shape=shape,
                weights=backbone.source if pretrained else None,
                pretrained_on=backbone.description if pretrained else None,
                data_origin=origin,
            )


def by_cell(wanted: Iterable[WantedRun]) -> dict[Cell, list[WantedRun]]:
    """Return the runs of each cell, cells in order of appearance."""
    cells: dict[Cell, list[WantedRun]] = {}
    for run in wanted:
        cells.setdefault(run.cell, []).append(run)
    return cells
