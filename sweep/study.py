"""What a study is: a question as data. `sweep.study_file` reads and writes it as YAML."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from datasets import TASKS
from datasets.task import missing_names
from sweep.errors import unknown
from sweep.learning_rates import LearningRateGrid
from sweep.study_model import StudyModel
from sweep.validation import (
    AtLeast1,
    Fraction,
    LearningRate,
    Mistakes,
    NameRule,
    Positive,
    Seed,
    Steps,
    Strict,
    dataclass_fields,
    dataclass_from,
    each_entry,
    some_distinct,
)
from trainables.parts import VARIANTS
from trainables.run import Protocol

MAX_RUNS = 100_000
"""Of a study. Its plan takes some ten seconds then; and what trains so many runs is better split into studies."""
MAX_SEEDS = 1000
"""More is taken for a slip: `seeds: 2021` asks for 2021 seeds, `seeds: [2021]` for one."""


def _one_line(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("want one line of text")
    return text


_protocol_from = dataclass_from(
    Protocol,
    {
        "batch_size": AtLeast1,
        "adam_beta1": Fraction,
        "adam_beta2": Fraction,
        "adam_eps": Positive,
        "gradient_clip_norm": Positive,
        "dropout": Fraction,
        "input_dropout": Fraction,
        "input_gain": Positive,
        "position_std": Field(ge=0, le=1e30),
        "evaluate_every": Steps,
        "train_examples_evaluated": AtLeast1,
    },
)


class StudyTask(Strict):
    """A task's step budget and options. In the file both stand side by side."""

    num_steps: int
    """Gradient steps of each run; a multiple of `protocol.evaluate_every`."""
    options: Any
    """The task's own `Options`, defaults filled in."""

    @classmethod
    def named(cls, name: str, value: Any, protocol: Protocol | None) -> StudyTask:
        """Build a task from what stands under its name in a study.

        Args:
            name: in `datasets.TASKS`.
            value: a mapping of `num_steps` and options.
            protocol: of the study; None: not known, because it is wrong itself.

        Raises:
            ValidationError: unknown name, wrong values.
        """
        if name not in TASKS:
            raise ValueError(unknown("task", name, TASKS))
        if missing := missing_names(TASKS[name]):
            raise ValueError(f"its module lacks {', '.join(missing)}; datasets/task.py says what each returns")
        kind = TASKS[name].Options
        if isinstance(value, cls):
            value = {"num_steps": value.num_steps} | vars(value.options)
        budget = Annotated[int, Steps, _multiple_of(protocol.evaluate_every if protocol else 1)]
        fields: dict[str, Any] = {"num_steps": (budget, ...)} | dataclass_fields(kind, {})
        given = dict(create_model(name, __base__=Strict, **fields).model_validate(value))
        task = cls(num_steps=given.pop("num_steps"), options=kind(**given))
        num_train = TASKS[name].num_train(task.options)
        if protocol and protocol.batch_size > num_train:
            raise ValueError(f"its training split has {num_train} examples; lower protocol.batch_size to that or less")
        return task


def _multiple_of(evaluate_every: int) -> AfterValidator:
    def check(num_steps: int) -> int:
        below = num_steps // evaluate_every * evaluate_every
        if num_steps != below:
            nearest = f"{below} or {below + evaluate_every}" if below else str(evaluate_every)
            raise ValueError(
                f"{num_steps} is not a multiple of protocol.evaluate_every = {evaluate_every}; {nearest} is"
            )
        return num_steps

    return AfterValidator(check)


SMALLEST_SHARE = 0.001
"""Of a GPU. A trial takes hundreds of megabytes of one, and Ray counts in steps of 0.0001."""


class Resources(Strict):
    """What a trial gets. None of it changes a run's numbers."""

    cpus_per_trial: Annotated[int, AtLeast1] = 1
    """CPU cores."""
    gpus_per_trial: Annotated[float, Field(ge=0, le=1)] = 0
    """GPUs, one at most; a fraction lets so many trials share one, whose memory nothing then divides."""
    engine: Literal["stacked", "plain"] = "stacked"
    """`stacked` trains the runs of a trial together; `plain`, the definition of the experiment, one after the other."""
    compile: bool = False
    """Hand steps of the stacked engine to `torch.compile`: minutes a cell before it begins; needs a C++ compiler."""
    runs_per_trial: Annotated[int, AtLeast1] | None = None
    """Largest cohort; null: as many runs of a cell as keep every device busy, and as fit into its memory."""
    retries: Annotated[int, Field(ge=0, le=1000)] = 2
    """Times that a trial is started again after a crash."""

    @field_validator("gpus_per_trial")
    @classmethod
    def _share_of_a_gpu(cls, gpus: float) -> float:
        if 0 < gpus < SMALLEST_SHARE:
            raise ValueError(f"got {gpus:g}, want 0, or from {SMALLEST_SHARE:g} to 1")
        return gpus

    @field_validator("compile")
    @classmethod
    def _compile_what_is_stacked(cls, compiled: bool, info: ValidationInfo) -> bool:
        if compiled and info.data.get("engine") == "plain":
            raise ValueError(
                "got true with engine: plain, which is never compiled; want engine: stacked, or no compile"
            )
        return compiled


def _list_or(tag: str, *kinds: type) -> Any:
    """Return a function that tags a list, or a value of the kinds; None for anything else."""
    return lambda value: "(list)" if isinstance(value, tuple) else tag if isinstance(value, kinds) else None


class Study(Strict):
    """A question as data: tasks x models x variants x learning rates x seeds, with budgets and a protocol.

    Protocol and variants come before what is checked against them.
    """

    study: Annotated[str, NameRule]
    """Name: of the file, of the study's folder in the results directory, and on the command line."""
    title: Annotated[str, AfterValidator(_one_line)] = Field(default_factory=lambda given: given.get("study", ""))
    """One line, shown in tables; default: the study's name."""
    protocol: Annotated[Protocol, PlainValidator(_protocol_from)] = Protocol()
    """How each run is trained and evaluated; see `trainables.run.Protocol`."""
    variants: Annotated[tuple[str, ...], AfterValidator(some_distinct)]
    """Names in `trainables.parts.VARIANTS`."""
    tasks: Annotated[dict[str, StudyTask], Field(min_length=1)]
    """By their names in `datasets.TASKS`."""
    models: Annotated[dict[str, StudyModel], Field(min_length=1)]
    """By a known name (`trainables.models.MODELS`) or one of the study's own, which stands in tables."""
    learning_rates: Annotated[
        Annotated[LearningRateGrid, Tag("(grid)")]
        | Annotated[tuple[Annotated[float, LearningRate], ...], AfterValidator(some_distinct), Tag("(list)")],
        Discriminator(
            _list_or("(grid)", dict, LearningRateGrid),
            custom_error_type="mistake",
            custom_error_message="want a grid, {low: 1e-6, high: 1e-2, per_decade: 2}, or a list",
        ),
    ]
    """A grid or a list."""
    seeds: Annotated[
        Annotated[int, Field(ge=1, le=MAX_SEEDS), Tag("(number)")]
        | Annotated[tuple[Annotated[int, Seed], ...], AfterValidator(some_distinct), Tag("(list)")],
        Discriminator(
            _list_or("(number)", int),
            custom_error_type="mistake",
            custom_error_message="want a whole number n, for seeds 0 to n - 1, or a list of seeds",
        ),
    ]
    """A number n, for 0 to n - 1, or a list."""
    resources: Resources = Resources()
    """What each trial gets."""

    @field_validator("study")
    @classmethod
    def _check_file_name(cls, study: str, info: ValidationInfo) -> str:
        if info.context and study != info.context["stem"]:
            raise ValueError(
                f"{study!r} is not the file's name; call the file {study}.yaml or the study {info.context['stem']}"
            )
        return study

    @field_validator("variants")
    @classmethod
    def _check_variants(cls, variants: tuple[str, ...]) -> tuple[str, ...]:
        mistakes = Mistakes()
        for index, name in enumerate(variants):
            if name not in VARIANTS:
                mistakes.add(unknown("variant", name, VARIANTS), index)
        mistakes.raise_all()
        return variants

    @field_validator("tasks", mode="before")
    @classmethod
    def _build_tasks(cls, tasks: Any, info: ValidationInfo) -> Any:
        return each_entry(tasks, lambda name, value: StudyTask.named(name, value, info.data.get("protocol")))

    @field_validator("models", mode="before")
    @classmethod
    def _build_models(cls, models: Any, info: ValidationInfo) -> Any:
        pretrained = [name for name in info.data.get("variants", ()) if VARIANTS[name].initialisation == "pretrained"]
        wanted_by = pretrained[0] if pretrained else None
        return each_entry(models, lambda name, value: StudyModel.named(name, value, wanted_by, info.context))

    @model_validator(mode="after")
    def _check_size(self) -> Study:
        num_seeds = self.seeds if isinstance(self.seeds, int) else len(self.seeds)
        axes = (len(self.tasks), len(self.models), len(self.variants), len(self.learning_rates), num_seeds)
        mistakes, product = Mistakes(), " x ".join(map(str, axes))
        if math.prod(axes) > MAX_RUNS:
            mistakes.add(
                f"{product} (tasks, models, variants, learning rates, seeds) are {math.prod(axes)} runs, want at most "
                f"{MAX_RUNS}; split it into several studies, which share their runs"
            )
        mistakes.raise_all()
        return self

    def learning_rate_grid(self) -> tuple[float, ...]:
        """Return the learning rates, rising."""
        rates = self.learning_rates
        return rates.values() if isinstance(rates, LearningRateGrid) else tuple(sorted(rates))

    def seed_list(self) -> tuple[int, ...]:
        """Return the seeds in the order asked for."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds
