"""What every study is: an experiment as data. `sweep.study.file` reads and writes it as YAML.

A study has its runs trained by a model of this program (`sweep.study.built_in`) or by a function of the user's own
(`sweep.study.own`); each is a subclass that says how its axes are read and what a run of it is.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from annotated_types import Interval, Len
from pydantic import (
    AfterValidator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.record.study import Fresh
from lr_sweep.common.errors import unknown
from lr_sweep.common.files import Fields, ReadFields
from lr_sweep.common.limits import Count, Positive, Seed, Steps
from lr_sweep.datasets.task import TaskShape
from lr_sweep.trainables.own.run import OwnFiles
from lr_sweep.trainables.run import AnyRun

from .cells import (
    AXES,
    Cells,
    StudyCell,
    ascending,
    by_names,
    changed,
    check_cells,
    own_options,
)
from .model import StudyModel
from .search import RatesOrSearch, Search
from .settings import FreshSeeds, Resources, StoppingRule
from .validation import (
    EXAMPLES,
    Mistakes,
    Notes,
    OneLine,
    Strict,
    StudyName,
    Tags,
    by_type,
    each_entry,
    mistake,
    shown,
    some_distinct,
)

MAX_RUNS = 100_000
"""Largest number of runs of a study; a plan of so many takes ten seconds."""
FACTS = ("tags", "notes", "refine", "winners", "stop_early", "equal_within", "target")
"""Fields that reports read, where they are not the default."""
LEAST_GRID = 3
"""Learning rates of a grid that can be refined: with fewer, no peak can be seen to lie inside."""


Seeds = Annotated[
    # `seeds: 2021` would mean 2021 seeds, `[2021]` means one.
    Annotated[int, Interval(ge=1, le=1000), Tag("(int)")]
    | Annotated[tuple[Seed, ...], AfterValidator(some_distinct), Tag("(tuple)")],
    by_type("a whole number n, for seeds 0 to n - 1, or a list of seeds"),
]


class StudyTask(Strict):
    """A task's step budget and options; the file has both in one mapping."""

    num_steps: Steps
    """Gradient steps of each run; a multiple of `evaluate_every`."""
    evaluate_every: Steps | None = None
    """Gradient steps between evaluations; None: as in the study's protocol."""
    options: Any
    """A built-in task's `Options`, defaults filled in; the options that the study gives to a function's task."""


class Examples(NamedTuple):
    """What is known of a task's examples before they are loaded."""

    options: Fields
    """The task's options, as plain JSON values."""
    checksum: str
    origin: str
    shape: TaskShape | None = None
    """None: it is not known, since a function of the user's own reads them."""
    files: OwnFiles | None = None
    """The function's files; None: this program reads the examples."""


class Study(Strict):
    """Tasks x models x variants x learning rates x seeds, with step budgets and a protocol.

    The order of fields matters: a field is checked against those before it, and recorded studies are written in it.
    """

    study: StudyName = Field(default=None, validate_default=True)
    """Name of the study; default: the name of its file. Another name is refused."""
    title: OneLine = Field(default_factory=lambda given: given.get("study", ""))
    """One line, shown in tables; default: the study's name."""
    tags: Tags = Field(default_factory=dict)
    """Words, or a mapping of keys to texts, by which you find the study in MLflow; they change no run."""
    notes: Notes = ""
    """Text of up to 4000 characters for reports and MLflow; it changes no run."""
    protocol: Any
    """How each run is trained and evaluated."""
    variants: Any
    """Ways of training that are compared, by name."""
    cells: Annotated[tuple[Cells, ...], Len(1, 1000)] | None = None
    """Its cells, each in one entry; null: all tasks x models x variants."""
    num_steps: Steps | None = Field(default=None, exclude=True)
    """Gradient steps of each run, unless its task has others; of a command by default 1."""
    tasks: Annotated[dict[str, StudyTask], Len(1)] = Field(default=None, validate_default=True)
    """Tasks by name, each with options, `num_steps` and `evaluate_every`; default of a function: one."""
    models: Any
    """Models by name; tables show the name."""
    search: Search | None = None
    """Chooses learning rates in rounds; null: they are `learning_rates`."""
    learning_rates: RatesOrSearch = Field(default=None, validate_default=True)
    """A grid or a list; null: with a `search`."""
    refine: Annotated[int, Interval(ge=1, le=20)] | None = None
    """Learning rates added to each cell's grid once it has ended; null: none."""
    winners: Count | None = None
    """Learning rates of each cell that get all seeds, once all had the first; null: all."""
    stop_early: StoppingRule | None = None
    """`median` stops learning rates that are behind in their cell; null: none."""
    fresh: FreshSeeds | None = None
    """Number of seeds, 2 to 200, that are added at each chosen rate and compare variants, or as many as it takes.

    null: the study's own seeds compare the variants.
    """
    seeds: Seeds
    """A number n, for seeds 0 to n - 1, or a list."""
    selection: Literal["best", "final"] = "best"
    """Which model of a run counts: the best on validation data, or the last."""
    equal_within: Positive | None = None
    """Differences below it are none, in points or the metric's unit; null: none are."""
    target: float | dict[str, float] | None = None
    """Validation value to which steps are counted, in percent or the metric's unit, or one for each of some tasks."""
    resources: Resources = Resources()
    """What each trial holds."""

    gone: ClassVar = {"paired": False, "decide": None}
    """Options of earlier versions, with the values that changed nothing."""
    has_default_task: ClassVar = False
    """Whether a study without tasks has one, named as the study."""
    task_steps: ClassVar[tuple[str, ...]] = ("num_steps",)
    """Fields of `StudyTask` that a task may have beside its options."""
    unused_resources: ClassVar[dict[str, tuple[Any, ...]]]
    """Resources that have no effect on such a study, with the values that say nothing else."""
    why_unused: ClassVar[str]

    @field_validator("resources")
    @classmethod
    def _check_resources(cls, resources: Resources) -> Resources:
        with Mistakes() as mistakes:
            for name, allowed in cls.unused_resources.items():
                if getattr(resources, name) not in allowed:
                    mistakes.add(f"has no effect here: {cls.why_unused}; leave it out", name)
        return resources

    # --- what each way of training implements

    @classmethod
    @abstractmethod
    def read_options(cls, task: str, given: ReadFields) -> Any:
        """Build the options of a task; raises its mistakes."""

    @abstractmethod
    def examples(self, task: str, data_dir: Path) -> Examples:
        """Identify a task's examples; raises DataError if files are there but cannot be identified."""

    @abstractmethod
    def run(
        self, cell: StudyCell, options: ReadFields, examples: Examples, weights: str | None
    ) -> AnyRun:
        """Return a run of a cell with options that a search chose; `weights` is the checksum of pretrained weights."""

    @abstractmethod
    def fetch(self, data_dir: Path) -> None:
        """Fetch data sets, or check that data files are here; raises DataError."""

    @property
    def measured(self) -> Metric:
        """What is measured on validation and test data."""
        return ACCURACY

    @property
    def files(self) -> OwnFiles | None:
        """The files of the user's own function; None: this program's models are trained."""
        return None

    @property
    def bodies(self) -> Mapping[str, StudyModel]:
        """The models that this program builds, by name."""
        return {}

    @property
    def data_sets(self) -> Mapping[str, StudyTask]:
        """The tasks whose examples this program loads, by name."""
        return {}

    @property
    def for_gpus(self) -> tuple[str, ...]:
        """The options that need a GPU."""
        return ()

    def starts_from_weights(self, variant: str) -> bool:
        """Return whether a variant starts from pretrained weights that this program loads."""
        return False

    # --- fields

    @field_validator("tasks", mode="before")
    @classmethod
    def _build_tasks(cls, tasks: Any, info: ValidationInfo) -> Any:
        def build(name: str, value: Any) -> StudyTask:
            if value is not None and not isinstance(value, Mapping):
                raise ValueError(f"got {shown(value)}, want a mapping of options, with num_steps")
            given = {"num_steps": info.data.get("num_steps"), **(value or {})}
            steps = {field: given.pop(field, None) for field in cls.task_steps}
            with Mistakes() as mistakes:
                if steps["num_steps"] is not None:
                    with mistakes.below():
                        task = StudyTask(**steps, options=None)
                        with mistakes.below("num_steps"):
                            _check_budget(task.num_steps, task.evaluate_every, info)
                elif "num_steps" in info.data:  # else the study's is a mistake itself
                    mistakes.add(
                        "its step budget is missing: give num_steps here, or for the whole study"
                    )
                with mistakes.below():
                    options = cls.read_options(name, given)
            return StudyTask(**{**steps, "num_steps": steps["num_steps"] or 1}, options=options)

        if tasks is None and cls.has_default_task:
            tasks = {info.data.get("study", "train"): {}}
        elif tasks is None:
            raise ValueError(f"missing; write `tasks: {EXAMPLES['tasks']}`")
        return each_entry(tasks, build)

    @field_validator("num_steps")
    @classmethod
    def _check_num_steps(cls, num_steps: int | None, info: ValidationInfo) -> int | None:
        if num_steps is not None and "evaluate_every" not in cls.task_steps:
            _check_budget(num_steps, None, info)
        return num_steps

    # --- what goes together

    @model_validator(mode="after")
    def _check_cells(self) -> Study:
        with Mistakes() as mistakes:
            for index, cells in enumerate(self.cells or ()):
                if self.search and cells.learning_rates is not None:
                    mistakes.add(
                        "the study has a `search`; leave it out", "cells", index, "learning_rates"
                    )
        if self.cells is not None:
            check_cells(self.cells, self.axes_by_name())
        return self

    def check_number(self) -> None:
        """Raise ValidationError for too many runs."""
        grids = [cell.learning_rates for cell in self.cell_list()]
        more, fresh = self.refine or 0, self.fresh.max if self.fresh else 0
        num_rates = [more + (self.search.rates if self.search else len(grid)) for grid in grids]
        num_runs = len(self.seed_list()) * sum(num_rates) + len(grids) * fresh
        if num_runs > MAX_RUNS:
            raise mistake(
                f"tasks x models x variants x learning rates x seeds are {num_runs} runs, want at most {MAX_RUNS}; "
                "split it into several studies, which share their runs"
            )

    @model_validator(mode="after")
    def _check_rounds(self) -> Study:
        self.check_number()
        least = min(len(cell.learning_rates) for cell in self.cell_list())
        num_rates = (self.search.rates if self.search else least) + (self.refine or 0)
        if self.refine and self.search:
            raise mistake(
                "the study has a `search`, which is not refined: raise its `rates`, leave this out",
                "refine",
            )
        if self.refine and least < LEAST_GRID:
            raise mistake(
                f"got a grid of {least} learning rates, want at least {LEAST_GRID} to refine it",
                "refine",
            )
        for task in self.target if isinstance(self.target, dict) else ():
            if task not in self.tasks:
                raise mistake(unknown("task", task, self.tasks), "target")
        if self.winners and len(self.seed_list()) == 1:
            raise mistake(
                "has no effect with one seed; want more seeds, or leave it out", "winners"
            )
        if self.winners and self.winners >= num_rates:
            raise mistake(
                f"got {self.winners}, want fewer than the {num_rates} learning rates of a cell",
                "winners",
            )
        return self

    # --- what it says

    def axes_by_name(self) -> dict[str, ReadFields]:
        """Return the study's tasks, models and variants."""
        return {axis: getattr(self, axis) for axis in AXES}

    def cell_list(self) -> Iterator[StudyCell]:
        """Yield the study's cells, by task, model and variant in the study's order."""
        axes, entries = self.axes_by_name(), self.cells or (Cells(),)
        entry_of = {names: entry for entry, names in by_names(entries, axes)}
        rates = [ascending(cells.learning_rates or self.learning_rates or ()) for cells in entries]
        trained = {
            (task, variant): self._trained(task, variant)
            for task, variant in product(self.tasks, self.variants)
        }
        for task, model, variant in product(*axes.values()):
            if (entry := entry_of.get((task, model, variant))) is not None:
                yield StudyCell(task, model, variant, rates[entry], *trained[task, variant])

    def _trained(self, task: str, variant: str) -> tuple[Any, int]:
        """Return the protocol and the step budget of a variant's runs on a task."""
        own, num_steps = own_options(self.variants[variant])
        every = self.tasks[task].evaluate_every
        interval = {} if every is None else {"evaluate_every": every}
        return changed(self.protocol, interval | own), num_steps or self.tasks[task].num_steps

    def learning_rate_grid(self) -> tuple[float, ...]:
        """Return the learning rates of the study's cells in ascending order; none for a search."""
        return tuple(sorted({rate for cell in self.cell_list() for rate in cell.learning_rates}))

    def seed_list(self) -> tuple[int, ...]:
        """Return the seeds in the study's order."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    def with_options(self, gpus_per_trial: float | None = None, fresh: int | None = None) -> Study:
        """Return the study with other GPUs of a trial, or so many fresh seeds; None: its own.

        Raises ValidationError for a wrong number of GPUs, below its field, or for too many runs.
        """
        changes: Fields = {}
        if gpus_per_trial is not None:
            resources = dict(self.resources) | {"gpus_per_trial": gpus_per_trial}
            changes["resources"] = Resources(**resources)
        if fresh is not None:
            changes["fresh"] = Fresh(max=fresh, until_decided=False)
        changed = self.model_copy(update=changes)
        changed.check_number()
        return changed

    def facts(self) -> Fields:
        """Return what reports read of it, as JSON values."""
        facts: Fields = {"selection": self.selection} if self.selection != "best" else {}
        facts |= {"search": self.search.facts()} if self.search else {}
        facts |= {"fresh": asdict(self.fresh)} if self.fresh else {}
        return facts | {name: getattr(self, name) for name in FACTS if getattr(self, name)}

    def plain(self) -> Fields:
        """Return the study as its file has it, with all defaults filled in, as plain JSON values."""
        content: Fields = self.model_dump(mode="json", warnings=False)
        for task in content["tasks"].values():
            task |= task.pop("options")
            if task["evaluate_every"] is None:
                del task["evaluate_every"]
        for name in self.unused_resources:
            del content["resources"][name]
        del content["search" if self.search is None else "learning_rates"]
        return content


def _check_budget(num_steps: int, every: int | None, info: ValidationInfo) -> None:
    """Raise ValueError if a step budget is no multiple of the steps between evaluations; None: the protocol's."""
    if every is None:
        every = info.data["protocol"].evaluate_every if "protocol" in info.data else 1
    if rest := num_steps % every:
        least = num_steps - rest
        nearest = f"{least} or {least + every}" if least else str(every)
        raise ValueError(f"{num_steps} is not a multiple of evaluate_every = {every}; {nearest} is")
