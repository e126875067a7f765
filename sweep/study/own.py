"""A study of one's own training function: what its file may contain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sized
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    PlainValidator,
    TypeAdapter,
    ValidationInfo,
    field_validator,
    model_validator,
)

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.sweep.study.fields import MAX_RUNS, Seeds, StudyName, Title, listed, multiple_of
from lr_sweep.sweep.study.learning_rates import ascending
from lr_sweep.sweep.study.own_files import code_files, data_files, trainable_text
from lr_sweep.sweep.study.search import RatesOrSearch, Refine, Search, Winners, check_refine, check_winners
from lr_sweep.sweep.study.stop_early import StopEarly
from lr_sweep.sweep.study.study import Resources, Study
from lr_sweep.sweep.study.validation import Mistakes, NameRule, Steps, Strict, each_entry, mistake, shown
from lr_sweep.trainables.own.run import OwnFiles

FUNCTION = "train"
"""Label of the model and the variant of a study that names none."""
UNUSED_RESOURCES = {"engine": ("stacked",), "compile": (False,), "runs_per_trial": (None, 1)}
"""Resources that have no effect here, with the values that say nothing else."""

_NAME = TypeAdapter(Annotated[str, NameRule])


class StudyMetric(Strict):
    """What `session.report` is given of the validation and of the test split."""

    name: str
    """For tables and figures."""
    higher_is_better: bool
    """False for a loss."""
    is_fraction: bool = False
    """Whether values are from 0 to 1, and written in percent."""


class OwnProtocol(Strict):
    """How each run is evaluated."""

    evaluate_every: Annotated[int, Steps]
    """Gradient steps between evaluations; step budgets are multiples of it."""


class OwnTask(Strict):
    """A task's step budget and options; the file has both in one mapping."""

    num_steps: int
    options: dict[str, Any]


def _metric(value: Any) -> Metric:
    return value if isinstance(value, Metric) else Metric(**dict(StudyMetric.model_validate(value)))


def plain(value: Any) -> Any:
    """Return an option as JSON has it; raises ValueError for other values."""
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    raise ValueError(
        f"got {shown(value)}, want text, a finite number, true, false, null, or lists and mappings of these"
    )


def _options(name: str, value: Any) -> dict[str, Any]:
    """Build the options of a model or a variant, which may be empty."""
    _NAME.validate_python(name)
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"got {shown(value)}, want a mapping of options, or nothing")
    return dict(each_entry(value or {}, lambda _, option: plain(option)))


def _named_options(value: Any) -> Any:
    """Build mappings of options by name, of a list of names or of a mapping."""
    if isinstance(value, tuple):
        value = dict.fromkeys(value)
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f"got {shown(value)}, want a mapping of names to options, or a list of names")
    return each_entry(value, _options)


def _budget(info: ValidationInfo) -> TypeAdapter[int]:
    """Return what validates step budgets, by the steps between evaluations if these are no mistake."""
    every = info.data["protocol"].evaluate_every if "protocol" in info.data else 1
    return TypeAdapter(Annotated[int, Steps, multiple_of(every)])


def _one() -> dict[str, dict[str, Any]]:
    return {FUNCTION: {}}


class OwnStudy(Strict):
    """An experiment as data, of the user's own function: tasks x models x variants x learning rates x seeds."""

    study: StudyName
    """Name: of the file, of the study's folder in the results directory, and on the command line."""
    title: Title
    """One line, shown in tables; default: the study's name."""
    trainable: Annotated[str, AfterValidator(trainable_text)]
    """File and function, such as `train.py:train`; the file is beside the study."""
    code: Annotated[OwnFiles, PlainValidator(code_files)] = Field(default=None, validate_default=True)
    """Files that the function's numbers come from; default: the trainable's alone."""
    data: Annotated[dict[str, str], PlainValidator(data_files)] = Field(default_factory=dict)
    """Data files, with their sha256."""
    metric: Annotated[Metric, PlainValidator(_metric)] = ACCURACY
    """What is measured; default: an accuracy."""
    protocol: OwnProtocol
    """How each run is evaluated."""
    num_steps: Annotated[int, Steps] | None = None
    """Gradient steps of each run, of tasks that have no `num_steps` of their own."""
    tasks: dict[str, OwnTask] = Field(default=None, validate_default=True)
    """By name, with step budgets and options; default: one, named as the study."""
    models: Annotated[dict[str, dict[str, Any]], PlainValidator(_named_options)] = Field(default_factory=_one)
    """By name, with options; default: one."""
    variants: Annotated[dict[str, dict[str, Any]], PlainValidator(_named_options)] = Field(default_factory=_one)
    """By name, with options; default: one."""
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
    """Which step of a run the report measures: the best on validation data, or the last."""
    paired: bool = False
    """Whether the report compares variants by seed, where seeds are seen to move them alike."""
    equal_within: Annotated[float, Field(gt=0)] | None = None
    """Differences below it are none, in points of percent, or of another metric in its unit; null: none are."""
    resources: Resources = Resources()
    """What each trial holds; a trial trains one run."""

    @field_validator("num_steps")
    @classmethod
    def _check_budget(cls, num_steps: int | None, info: ValidationInfo) -> int | None:
        return num_steps if num_steps is None else _budget(info).validate_python(num_steps)

    @field_validator("tasks", mode="before")
    @classmethod
    def _build_tasks(cls, tasks: Any, info: ValidationInfo) -> Any:
        budget, default = _budget(info), info.data.get("num_steps")
        if tasks is None:
            tasks = {info.data.get("study", FUNCTION): {}}

        def build(name: str, value: Any) -> OwnTask:
            options = _options(name, value)
            given = options.pop("num_steps", default)
            if given is None and "num_steps" in info.data:  # else the study's is a mistake itself
                raise ValueError("its step budget is missing: give num_steps here, or for the whole study")
            return OwnTask(
                num_steps=1 if given is None else budget.validate_python(given, strict=True), options=options
            )

        return each_entry(tasks, build)

    @field_validator("resources")
    @classmethod
    def _check_resources(cls, resources: Resources) -> Resources:
        mistakes = Mistakes()
        for name, allowed in UNUSED_RESOURCES.items():
            if getattr(resources, name) not in allowed:
                mistakes.add("has no effect here: runs of the user's own function train one by one; leave it out", name)
        mistakes.raise_all()
        return resources

    @model_validator(mode="after")
    def _check_options(self) -> OwnStudy:
        axes = {"tasks": {name: task.options for name, task in self.tasks.items()}}
        axes |= {"models": self.models, "variants": self.variants}
        seen: dict[str, str] = {}
        for axis, entries in axes.items():
            names = {option for options in entries.values() for option in options}
            if twice := sorted(names & seen.keys()):
                raise mistake(f"{', '.join(twice)}: an option of `{seen[twice[0]]}`, too; give it another name", axis)
            seen |= dict.fromkeys(names, axis)
        if twice := sorted(seen.keys() & (self.search.space if self.search else {})):
            raise mistake(f"{twice[0]}: an option of `{seen[twice[0]]}`, too; leave it out in one", "search", "space")
        return self

    @model_validator(mode="after")
    def _check_size(self) -> OwnStudy:
        check_refine(self.refine, self.search, [self.learning_rate_grid()])
        num_rates = self.search.rates if self.search else len(self.learning_rate_grid()) + (self.refine or 0)
        check_winners(self.winners, num_rates, len(self.seed_list()))
        axes: tuple[Sized, ...] = (self.tasks, self.models, self.variants, self.seed_list())
        if (number := num_rates * math.prod(len(axis) for axis in axes)) > MAX_RUNS:
            raise mistake(f"these are {number} runs, want at most {MAX_RUNS}; split it into several studies")
        return self

    @property
    def cells(self) -> None:
        """Return that it is a full grid."""

    @property
    def for_gpus(self) -> tuple[str, ...]:
        """Return the options that need a GPU: what a function needs is its own business."""
        return ()

    def learning_rate_grid(self) -> tuple[float, ...]:
        """Return the learning rates in ascending order; none for a search."""
        return ascending(self.learning_rates or ())

    def seed_list(self) -> tuple[int, ...]:
        """Return the seeds in the study's order."""
        return listed(self.seeds)


AnyStudy = Study | OwnStudy


def own_to_plain(study: OwnStudy) -> dict[str, Any]:
    """Return a study as its file has it, with all defaults filled in."""
    content = study.model_dump(mode="json", exclude={"code", "metric", "num_steps", "tasks", "resources"})
    resources = {name: value for name, value in study.resources.model_dump().items() if name not in UNUSED_RESOURCES}
    return content | {
        "code": list(study.code.code),
        "metric": dict(study.metric.as_json()),
        "tasks": {name: {"num_steps": task.num_steps} | task.options for name, task in study.tasks.items()},
        "resources": resources,
    }
