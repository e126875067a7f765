"""What a study is: an experiment as data. `sweep.study.file` reads and writes it as YAML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    PlainValidator,
    SerializeAsAny,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from lr_sweep.common.errors import unknown
from lr_sweep.datasets import TASKS
from lr_sweep.datasets.task import TaskShape, missing_names
from lr_sweep.sweep.study.cells import AXES, Cells, ProtocolField, StudyCell, by_names, changed, check_cells
from lr_sweep.sweep.study.fields import MAX_CELLS, MAX_RUNS, Seeds, StudyName, Title, listed, multiple_of
from lr_sweep.sweep.study.learning_rates import alike, ascending
from lr_sweep.sweep.study.model import StudyModel
from lr_sweep.sweep.study.protocols import check_protocols
from lr_sweep.sweep.study.search import RatesOrSearch, Refine, Search, Winners, check_refine, check_winners
from lr_sweep.sweep.study.space import check_space
from lr_sweep.sweep.study.stop_early import StopEarly
from lr_sweep.sweep.study.validation import (
    AtLeast1,
    Mistakes,
    Steps,
    Strict,
    dataclass_fields,
    each_entry,
    mistake,
)
from lr_sweep.sweep.study.variants import checked_axes, own_protocol, variants_of, written_out
from lr_sweep.trainables.memory import part_sizes
from lr_sweep.trainables.parts import Variant
from lr_sweep.trainables.run import Protocol

ANY_TASK = TaskShape(num_tokens=1, num_classes=1, token_dim=1)
"""Which parts a model has does not depend on the task."""


class StudyTask(Strict):
    """A task's step budget and options; the file has both in one mapping."""

    num_steps: int
    """Gradient steps of each run; a multiple of `protocol.evaluate_every`."""
    options: Any
    """The task's own `Options`, defaults filled in."""

    @classmethod
    def named(cls, name: str, value: Any, protocol: Protocol | None) -> StudyTask:
        """Build a task from its entry in a study, or raise its mistakes; `protocol` is None if it has mistakes."""
        if name not in TASKS:
            raise ValueError(unknown("task", name, TASKS))
        if missing := missing_names(TASKS[name]):
            raise ValueError(f"its module lacks {', '.join(missing)}; datasets/task.py says what each returns")
        kind = TASKS[name].Options
        if isinstance(value, cls):
            value = {"num_steps": value.num_steps} | vars(value.options)
        budget = Annotated[int, Steps, multiple_of(protocol.evaluate_every if protocol else 1)]
        fields: dict[str, Any] = {"num_steps": (budget, ...)} | dataclass_fields(kind, {})
        given = dict(create_model(name, __base__=Strict, **fields).model_validate(value))
        task = cls(num_steps=given.pop("num_steps"), options=kind(**given))
        num_train = TASKS[name].num_train(task.options)
        if protocol and protocol.batch_size > num_train:
            raise ValueError(f"its training split has {num_train} examples; lower protocol.batch_size to that or less")
        return task


class Resources(Strict):
    """What a trial holds and how it trains. None of it changes a run's numbers."""

    cpus_per_trial: Annotated[int, AtLeast1] = 1
    """CPU cores."""
    gpus_per_trial: Annotated[float, Field(ge=0, le=1)] = 0
    """GPUs, one at most; with a fraction, trials share one, and its memory is not divided among them."""
    engine: Literal["stacked", "plain"] = "stacked"
    """`stacked` trains the runs of a trial together; `plain`, the reference, one after the other."""
    compile: bool = False
    """Use `torch.compile` in the stacked engine: takes minutes for each cell, needs a C++ compiler."""
    runs_per_trial: Annotated[int, AtLeast1] | None = None
    """Largest cohort; null: as many runs of a cell as keep all devices busy and fit into memory."""
    retries: Annotated[int, Field(ge=0, le=1000)] = 2
    """How many times a trial is started again after a crash."""

    @field_validator("gpus_per_trial")
    @classmethod
    def _check_share(cls, gpus: float) -> float:
        if 0 < gpus < 0.001:  # a trial takes hundreds of megabytes, and Ray counts in steps of 0.0001
            raise ValueError(f"got {gpus:g}, want 0, or from 0.001 to 1")
        return gpus

    @field_validator("compile")
    @classmethod
    def _check_compile(cls, compiled: bool, info: ValidationInfo) -> bool:
        if compiled and info.data.get("engine") == "plain":
            raise ValueError("got true with engine: plain, which is never compiled; want engine: stacked")
        return compiled


def counted_first(study: Any) -> Any:
    """Return a study's mapping; raise ValidationError if its tasks, models and variants are too many to combine."""
    given = [study.get(axis) for axis in AXES] if isinstance(study, Mapping) else []
    factors = [len(names) for names in given if isinstance(names, Mapping | tuple)]
    if (number := prod(factors)) > MAX_CELLS:
        raise mistake(
            f"{' x '.join(map(str, factors))} (tasks, models, variants) are {number} cells, want at most {MAX_CELLS}; "
            f"split it into several studies, which share their runs"
        )
    return study


class Study(Strict):
    """An experiment as data: tasks x models x variants x learning rates x seeds, with budgets and a protocol.

    Protocol and variants come before the fields that are checked against them.
    """

    study: StudyName
    """Name: of the file, of the study's folder in the results directory, and on the command line."""
    title: Title
    """One line, shown in tables; default: the study's name."""
    protocol: ProtocolField = Protocol()
    """How each run is trained and evaluated; see `trainables.run.Protocol`."""
    axes: Annotated[dict[str, Any], PlainValidator(checked_axes)] = Field(default={}, exclude=True)
    """Values of protocol options, each of which every variant is trained with; empty once written out in `variants`."""
    variants: Annotated[dict[str, SerializeAsAny[Variant]], PlainValidator(variants_of)]
    """A list of names in `trainables.parts.VARIANTS`, or a mapping with further ones (`StudyVariant`)."""
    cells: Annotated[tuple[Cells, ...], Field(min_length=1, max_length=1000)] | None = None
    """The cells that the study has, a cell in one entry at most; null: all tasks x models x variants."""
    tasks: Annotated[dict[str, StudyTask], Field(min_length=1)]
    """By their names in `datasets.TASKS`."""
    models: Annotated[dict[str, StudyModel], Field(min_length=1)]
    """By a known name (`trainables.models.MODELS`) or one of the study's own; tables show it."""
    search: Search | None = None
    """Learning rates that are chosen in rounds; null: they are `learning_rates`."""
    learning_rates: RatesOrSearch = Field(default=None, validate_default=True)
    """A grid or a list; null with a `search`."""
    refine: Refine = None
    """Learning rates to add to each cell's grid once its runs have ended; null: none."""
    winners: Winners = None
    """Learning rates of each cell that are trained with all seeds, once all were tried with the first; null: all."""
    stop_early: StopEarly | None = None
    """A rule that stops learning rates that are behind the others of their cell; null: all train to their budget."""
    seeds: Seeds
    """A number n, for 0 to n - 1, or a list."""
    selection: Literal["best", "final"] = "best"
    """Which model of a run the report measures: the best on validation data, or the one at the step budget."""
    paired: bool = False
    """Whether the report compares variants by seed, where seeds are seen to move them alike."""
    equal_within: Annotated[float, Field(gt=0)] | None = None
    """Differences below it are none, in points of percent, or of another metric in its unit; null: none are."""
    resources: Resources = Resources()
    """What each trial holds."""

    @model_validator(mode="before")
    @classmethod
    def _write_out(cls, study: Any) -> Any:
        return counted_first(written_out(study))

    @field_validator("tasks", mode="before")
    @classmethod
    def _build_tasks(cls, tasks: Any, info: ValidationInfo) -> Any:
        return each_entry(tasks, lambda name, value: StudyTask.named(name, value, info.data.get("protocol")))

    @field_validator("models", mode="before")
    @classmethod
    def _build_models(cls, models: Any, info: ValidationInfo) -> Any:
        variants, cells = info.data.get("variants", {}), info.data.get("cells") or (Cells(),)

        def build(name: str, value: Any) -> StudyModel:
            wanted_by = (
                variant
                for variant, parts in variants.items()
                if parts.needs_weights and any(some.have(models=name, variants=variant) for some in cells)
            )
            return StudyModel.named(name, value, next(wanted_by, None), info.context)

        return each_entry(models, build)

    @model_validator(mode="after")
    def _check_cells(self) -> Study:
        if self.cells is not None:
            self._check_searched_cells(self.cells)
            check_cells(self.cells, {axis: getattr(self, axis) for axis in AXES}, self.protocol)
        return self

    def _check_searched_cells(self, entries: Sequence[Cells]) -> None:
        mistakes = Mistakes()
        for index, cells in enumerate(entries):
            if self.search and cells.learning_rates is not None:
                mistakes.add("the study has a `search`; leave it out", "cells", index, "learning_rates")
        mistakes.raise_all()

    @model_validator(mode="after")
    def _check_size(self) -> Study:
        each, more = self.search.rates if self.search else 0, self.refine or 0
        num_runs = len(self.seed_list()) * sum(more + (each or len(cell.learning_rates)) for cell in self.cell_list())
        if num_runs > MAX_RUNS:
            num_rates = more + (each or len(self.learning_rates or ()))
            axes = [len(self.tasks), len(self.models), len(self.variants), num_rates, len(self.seed_list())]
            raise mistake(
                f"{' x '.join(map(str, axes))} (tasks, models, variants, learning rates, seeds) are {num_runs} "
                f"runs, want at most {MAX_RUNS}; split it into several studies, which share their runs"
            )
        return self

    @model_validator(mode="after")
    def _check_rates(self) -> Study:
        if wrong := alike(self.learning_rate_grid()):
            raise mistake(f"the cells' learning rates {wrong}", "cells")
        return self

    @model_validator(mode="after")
    def _check_refine(self) -> Study:
        check_refine(self.refine, self.search, [cell.learning_rates for cell in self.cell_list()])
        each = self.search.rates if self.search else min(len(cell.learning_rates) for cell in self.cell_list())
        check_winners(self.winners, each + (self.refine or 0), len(self.seed_list()))
        return self

    @model_validator(mode="after")
    def _check_parts(self) -> Study:
        mistakes = Mistakes()
        for model, variant in dict.fromkeys((cell.model, cell.variant) for cell in self.cell_list()):
            size, trained = self.models[model].body_size, self.variants[variant].trained
            sizes = part_sizes(size, ANY_TASK)
            if not any(sizes[part] for part in trained):
                lacking = f"a {size.family} of this size has no {' and no '.join(trained)}"
                mistakes.add(f"variant {variant!r} would train nothing of it: {lacking}", "models", model)
        mistakes.raise_all()
        return self

    @model_validator(mode="after")
    def _check_protocols(self) -> Study:
        cells = list(self.cell_list())
        check_protocols(cells, self.tasks, self.variants)
        if self.selection == "final" and any(cell.protocol.test_evaluated == "best" for cell in cells):
            raise mistake(
                "final: got it with test_evaluated: best, which leaves out the test split at a budget's last step; "
                "want selection: best, or test_evaluated: always",
                "selection",
            )
        return self

    @model_validator(mode="after")
    def _check_space(self) -> Study:
        if self.search is not None and self.search.space:
            own = {name for cells in self.cells or () for name in cells.protocol}
            own |= {name for variant in self.variants.values() for name in own_protocol(variant)}
            check_space(self.search.space, list(self.cell_list()), self.tasks, self.variants, own)
        return self

    def cell_list(self) -> Iterator[StudyCell]:
        """Yield the study's cells, by task, model and variant in the study's order."""
        axes = {axis: getattr(self, axis) for axis in AXES}
        entries = self.cells or (Cells(),)
        found = {names: entry for entry, names in by_names(entries, axes)}
        rates = [ascending(cells.learning_rates or self.learning_rates or ()) for cells in entries]
        protocols = {name: changed(self.protocol, own_protocol(variant)) for name, variant in self.variants.items()}
        for task, model, variant in product(*axes.values()):
            if (entry := found.get((task, model, variant))) is not None:
                protocol = changed(protocols[variant], entries[entry].protocol)
                yield StudyCell(task, model, variant, rates[entry], protocol)

    def learning_rate_grid(self) -> tuple[float, ...]:
        """Return the learning rates of the study's cells in ascending order; none for a search."""
        return tuple(sorted({rate for cell in self.cell_list() for rate in cell.learning_rates}))

    def seed_list(self) -> tuple[int, ...]:
        """Return the seeds in the study's order."""
        return listed(self.seeds)

    @property
    def for_gpus(self) -> tuple[str, ...]:
        """Return the options that need a GPU."""
        protocols = [cell.protocol for cell in self.cell_list()]
        tf32 = ["precision: tf32"] if self.protocol.precision == "tf32" else []
        fused = ["attention: fused"] if any(each.attention == "fused" for each in protocols) else []
        return (*tf32, *fused)

    def with_weights(self) -> set[str]:
        """Return the models of which some cell starts from pretrained weights."""
        return {cell.model for cell in self.cell_list() if self.variants[cell.variant].needs_weights}
