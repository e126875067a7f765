"""Study -> runs: the grid written out, each run with its id, its budget and the names it has in tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, product
from pathlib import Path
from typing import Any, NamedTuple

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.record.rungs import NOTHING_STOPPED, StoppedRates, read_stopped
from lr_sweep.analysis.statistics.further_rates import stand_ins
from lr_sweep.datasets import TASKS
from lr_sweep.datasets.checksum import data_checksum
from lr_sweep.datasets.task import TaskShape, options_content
from lr_sweep.sweep.study.backbones import Backbone
from lr_sweep.sweep.study.cells import StudyCell, changed
from lr_sweep.sweep.study.own import AnyStudy, OwnStudy
from lr_sweep.sweep.study.proposed import NOTHING, Proposed, options_text
from lr_sweep.sweep.study.space import NO_OPTIONS, Options
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
    options: str | None = None
    """JSON of the options that a search chose for it; None: none."""
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
        names = ("run_id", "model", "variant", "num_steps", "pretrained_on", "data_origin", "options")
        row = {name: getattr(self, name) for name in names}
        row["trained_parameters"] = self.trained_parameters
        return row | {name: getattr(self.run, name) for name in ("task", "learning_rate", "seed")}


Proposals = Mapping[Cell, Proposed]
NOTHING_PROPOSED: Proposals = {}
MakeFirst = Callable[[Options], WantedRun]
"""Makes a run of a cell with some options of its own, without learning rate, seed and id."""


def wanted_runs(
    study: AnyStudy, backbones: Mapping[str, Backbone], data_dir: Path, proposed: Proposals = NOTHING_PROPOSED
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
    places = [
        place
        for make_first, (cell, grid) in zip(firsts, grids_of(study).items(), strict=True)
        for place in _places(make_first, grid, proposed.get(cell, NOTHING))
    ]
    return _written_out(places, study.seed_list())


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
    study: AnyStudy, backbones: Mapping[str, Backbone], data_dir: Path, proposed: Proposals
) -> list[WantedRun]:
    """Return the wanted runs, and stand-ins for those that are not proposed yet, for what a plan counts.

    The rates of stand-ins are guesses, and their ids are no ids of runs: they begin with `NOT_PROPOSED`.
    """
    wanted = wanted_runs(study, backbones, data_dir, proposed)
    if not num_proposals(study) and study.winners is None:
        return wanted
    guesses = {cell: _guesses(study, grid, proposed.get(cell, NOTHING)) for cell, grid in grids_of(study).items()}
    known = {run.run_id for run in wanted}
    guessed = [run for run in wanted_runs(study, backbones, data_dir, guesses) if run.run_id not in known]
    return wanted + [replace(run, run_id=f"{NOT_PROPOSED}-{index}") for index, run in enumerate(guessed)]


def _guesses(study: AnyStudy, grid: Sequence[float], proposed: Proposed) -> Proposed:
    known, left = {*grid, *proposed.rates}, num_proposals(study) - len(proposed.rates)
    rates = study.search.stand_ins(proposed.rates) if study.search is not None else stand_ins(known, left)
    if study.winners is None:
        return Proposed(rates=rates)
    winners, chosen = proposed.winners or frozenset(), bool(proposed.winners) and not rates
    guesses = () if chosen else sorted({*known, *rates} - winners)[: study.winners - len(winners)]
    return Proposed(rates=tuple({*rates, *guesses}), options=proposed.options, winners=frozenset(guesses))


def study_cells(study: AnyStudy) -> Iterator[Cell]:
    """Yield a study's cells in its order."""
    if isinstance(study, OwnStudy):
        yield from map(Cell._make, product(study.tasks, study.models, study.variants))
    else:
        yield from (Cell(cell.task, cell.model, cell.variant) for cell in study.cell_list())


class _Place(NamedTuple):
    """A learning rate of a cell."""

    first: WantedRun
    run_id: Callable[[float, int], str]
    """By learning rate and seed."""
    rate: float
    proposed: Proposed


def _places(make_first: MakeFirst, grid: Sequence[float], proposed: Proposed) -> Iterator[_Place]:
    made: dict[str | None, tuple[WantedRun, Callable[[float, int], str]]] = {}
    for rate in sorted({*grid, *proposed.rates}):
        options = proposed.options.get(rate, NO_OPTIONS)
        if (text := options_text(options)) not in made:
            first = replace(make_first(options), options=text)
            made[text] = first, first.run.sibling_ids()
        yield _Place(*made[text], rate, proposed)


def _written_out(places: Sequence[_Place], seeds: Sequence[int]) -> list[WantedRun]:
    return [
        replace(first, run=first.run.sibling(rate, seed), run_id=run_id(rate, seed))
        for seed in seeds
        for first, run_id, rate, proposed in places
        if proposed.has_seed(rate, seed == seeds[0])
    ]


def _first_of_own_cells(study: OwnStudy, data_dir: Path) -> Iterator[MakeFirst]:
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
        first = WantedRun(
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
        yield partial(_own_first, first, run)


def _own_first(first: WantedRun, run: OwnRun, options: Options) -> WantedRun:
    return replace(first, run=replace(run, options={**run.options, **options}))


def _first_of_cells(study: Study, backbones: Mapping[str, Backbone], data_dir: Path) -> Iterator[MakeFirst]:
    """Yield what makes a run of each of `Study.cell_list`."""
    for name, cells in groupby(study.cell_list(), key=lambda cell: cell.task):
        task = study.tasks[name]
        definition, origin = TASKS[name], TASKS[name].origin(task.options, data_dir)
        options = options_content(task.options)
        if options.get("source") == "auto":  # the same data is the same run, whether it was named or found
            options["source"] = origin
        checksum, shape = data_checksum(name, task.options, data_dir), definition.shape(task.options)
        examples = _Examples(options, checksum, shape, origin)
        for cell in cells:
            yield partial(_first, study, cell, backbones[cell.model], examples)


class _Examples(NamedTuple):
    """What runs of a task have in common."""

    options: dict[str, Any]
    checksum: str
    shape: TaskShape
    origin: str


def _first(study: Study, cell: StudyCell, backbone: Backbone, examples: _Examples, options: Options) -> WantedRun:
    parts, num_steps = study.variants[cell.variant], study.tasks[cell.task].num_steps
    pretrained, protocol = parts.needs_weights, changed(cell.protocol, options)
    run = Run(
        task=cell.task,
        task_options=examples.options,
        data_checksum=examples.checksum,
        model=backbone.size,
        initialisation=parts.initialisation,
        weights_checksum=backbone.checksum if pretrained else None,
        trained=parts.trained,
        learning_rate=0.0,
        seed=0,
        protocol=replace(protocol, attention=attention_for(protocol, backbone.size, examples.shape.num_tokens)),
        schedule_steps=num_steps if depends_on_budget(protocol) else None,
    )
    return WantedRun(
        run=run,
        run_id="",
        model=cell.model,
        variant=cell.variant,
        num_steps=num_steps,
        shape=examples.shape,
        weights=backbone.source if pretrained else None,
        pretrained_on=backbone.description if pretrained else None,
        data_origin=examples.origin,
    )


def alike(wanted: Iterable[WantedRun]) -> list[list[WantedRun]]:
    """Return the runs that differ in learning rate and seed alone, which can train together, by cell and options."""
    groups: dict[tuple[Cell, str | None], list[WantedRun]] = {}
    for run in wanted:
        groups.setdefault((run.cell, run.options), []).append(run)
    return list(groups.values())


def by_cell(wanted: Iterable[WantedRun]) -> dict[Cell, list[WantedRun]]:
    """Return the runs of each cell, cells in order of appearance."""
    cells: dict[Cell, list[WantedRun]] = {}
    for run in wanted:
        cells.setdefault(run.cell, []).append(run)
    return cells
