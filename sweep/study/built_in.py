"""Studies whose runs train models of this program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import Len
from pydantic import (
    PlainValidator,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from lr_sweep.common.errors import unknown
from lr_sweep.common.files import Fields, ReadFields
from lr_sweep.datasets import TASKS, data_checksum
from lr_sweep.datasets.task import missing_names, options_content
from lr_sweep.sweep.study.cells import (
    Cells,
    StudyCell,
    changed,
    own_budget,
    own_protocol,
    variants_of,
)
from lr_sweep.sweep.study.model import StudyModel
from lr_sweep.sweep.study.search import Axis, Range, Space
from lr_sweep.sweep.study.study import Examples, Study, StudyTask
from lr_sweep.sweep.study.validation import Loc, Mistakes, each_entry, mistake, read_record, shown
from lr_sweep.trainables.factors import depends_on_budget
from lr_sweep.trainables.parts import VARIANTS, Variant
from lr_sweep.trainables.run import Protocol, Run, attention_for

_ADAM = ("adam", "adamw", "muon")
READ_WITH = {
    "adam_beta1": ("optimizer", _ADAM),
    "adam_beta2": ("optimizer", _ADAM),
    "adam_eps": ("optimizer", _ADAM),
    "momentum": ("optimizer", ("sgd",)),
    "lion_beta1": ("optimizer", ("lion",)),
    "lion_beta2": ("optimizer", ("lion",)),
    "muon_momentum": ("optimizer", ("muon",)),
    "base_width": ("parametrization", ("mup",)),
    "decay_fraction": ("schedule", ("warmup-stable-decay",)),
}
MATRICES = {"attention", "feedforward", "last_attention"}
NOT_SEARCHED = (
    "precision",
    "evaluate_every",
    "train_examples_evaluated",
    "test_evaluated",
    "attention",
)
"""Options of how a run is measured or computed: a search would compare what is not alike."""
MAX_CELLS = 5000
"""Largest number of tasks x models x variants, counted before models are read; checking so many takes seconds."""
MAX_CHECKS = 20_000
"""Most combinations of a space's values with a study's tasks and variants; each is checked."""


class BuiltInStudy(Study):
    """A study that trains models of this program on tasks of this program."""

    unused_resources: ClassVar = {"processes_per_run": (1,)}
    why_unused = "only a function of the user's own trains a run in several processes"

    protocol: Annotated[Protocol, PlainValidator(partial(read_record, Protocol))] = Protocol()
    """How each run is trained and evaluated."""
    variants: Annotated[dict[str, SerializeAsAny[Variant]], PlainValidator(variants_of)]
    """What is trained and how it starts: known names, or a mapping with your own."""
    models: Annotated[dict[str, StudyModel], Len(1)]
    """Known names, or a mapping with your own; tables show the name."""

    # --- fields

    @classmethod
    def read_options(cls, task: str, given: ReadFields) -> Any:
        """Build the options of a task, defaults filled in; raises its mistakes."""
        if task not in TASKS:
            raise ValueError(unknown("task", task, TASKS))
        if missing := missing_names(TASKS[task]):
            raise ValueError(
                f"its module lacks {', '.join(missing)}; datasets/task.py says what each returns"
            )
        return read_record(TASKS[task].Options, given, more_keys=("num_steps",))

    @field_validator("models", mode="before")
    @classmethod
    def _build_models(cls, models: Any, info: ValidationInfo) -> Any:
        variants, cells = info.data.get("variants", {}), info.data.get("cells") or (Cells(),)
        factors = [
            len(info.data.get("tasks", ())),
            len(models) if isinstance(models, Mapping) else 0,
            len(variants),
        ]
        if (number := prod(factors)) > MAX_CELLS:
            raise ValueError(
                f"{' x '.join(map(str, factors))} (tasks, models, variants) are {number} cells, want at most "
                f"{MAX_CELLS}; split it into several studies, which share their runs"
            )

        def build(name: str, value: Any) -> StudyModel:
            wanted_by = (
                variant
                for variant, parts in variants.items()
                if parts.needs_weights
                and any(some.have(models=name, variants=variant) for some in cells)
            )
            return StudyModel.named(name, value, next(wanted_by, None), info.context)

        return each_entry(models, build)

    # --- what goes together

    @model_validator(mode="after")
    def _check_protocols(self) -> BuiltInStudy:
        cells = list(self.cell_list())
        _check_options(self, cells)
        if self.selection == "final" and any(
            cell.protocol.test_evaluated == "best" for cell in cells
        ):
            raise mistake(
                "final: got it with test_evaluated: best, which leaves out the test split at a budget's last step; "
                "want selection: best, or test_evaluated: always",
                "selection",
            )
        if self.search is not None and self.search.space:
            _check_space(self, self.search.space)
        return self

    # --- what its runs are

    @property
    def bodies(self) -> Mapping[str, StudyModel]:
        """The models that this program builds, by name."""
        return self.models

    @property
    def data_sets(self) -> Mapping[str, StudyTask]:
        """The tasks whose examples this program loads, by name."""
        return self.tasks

    @property
    def for_gpus(self) -> tuple[str, ...]:
        """The options that need a GPU."""
        return ("precision: tf32",) if self.protocol.precision == "tf32" else ()

    def starts_from_weights(self, variant: str) -> bool:
        """Return whether a variant starts from pretrained weights, or from what they are like."""
        return self.variants[variant].needs_weights

    def examples(self, task: str, data_dir: Path) -> Examples:
        """Identify a task's examples; raises DataError if files are there but cannot be identified."""
        given, definition = self.tasks[task].options, TASKS[task]
        options, origin = options_content(given), definition.origin(given, data_dir)
        if (
            options.get("source") == "auto"
        ):  # the same data is the same run, whether it was named or found
            options["source"] = origin
        return Examples(
            options, data_checksum(task, given, data_dir), origin, definition.shape(given)
        )

    def run(
        self, cell: StudyCell, options: ReadFields, examples: Examples, weights: str | None
    ) -> Run:
        """Return a run of a cell with options that a search chose; `weights` is the checksum of pretrained weights."""
        parts, size = self.variants[cell.variant], self.models[cell.model].body_size
        protocol = changed(cell.protocol, options)
        assert examples.shape, "that of a task of this program is known"
        return Run(
            task=cell.task,
            task_options=examples.options,
            data_checksum=examples.checksum,
            model=size,
            initialisation=parts.initialisation,
            weights_checksum=weights,
            trained=parts.trained,
            learning_rate=0.0,
            seed=0,
            protocol=replace(
                protocol, attention=attention_for(protocol, size, examples.shape.num_tokens)
            ),
            schedule_steps=cell.num_steps if depends_on_budget(protocol) else None,
        )

    def fetch(self, data_dir: Path) -> None:
        """Fetch the data sets; raises DataError if one cannot be fetched, or is damaged."""
        for name, task in self.tasks.items():
            TASKS[name].fetch(task.options, data_dir)

    def plain(self) -> Fields:
        """Return the study as its file has it, with all defaults filled in, as plain JSON values."""
        content = super().plain()
        for model in content["models"].values():
            recipe = (model["pretrained"] or {}).get("pretrain", {})
            recipe |= recipe.pop("options", {})
        if self.variants.keys() <= VARIANTS.keys():
            content["variants"] = list(self.variants)
        return content


def _check_options(study: BuiltInStudy, cells: Sequence[StudyCell]) -> None:
    """Raise which options of the cells' protocols do not go together, at the variant's options or the study's."""
    found: dict[tuple[Loc, str], list[str]] = defaultdict(list)
    for task, model, name, _, protocol, num_steps in cells:
        variant, options = study.variants[name], study.tasks[task].options
        family = study.models[model].body_size.family
        loc: Loc = ("variants", name) if own_protocol(variant) else ("protocol",)
        for problem in [
            *_unread_options(protocol),
            *_of_task(protocol, num_steps, TASKS[task].num_train(options)),
            *(_of_budget(protocol) if own_budget(variant) else ()),
            *_of_parts(protocol, variant.trained),
            *(_of_mup(protocol, family) if protocol.parametrization == "mup" else ()),
        ]:
            found[loc, problem].append(f"{task}, {name}")
    with Mistakes() as mistakes:
        for (loc, problem), where in found.items():
            mistakes.add(problem if len(where) == len(cells) else f"{problem} ({where[0]})", *loc)


def _unread_options(protocol: Protocol) -> Iterator[str]:
    for option, (other, values) in READ_WITH.items():
        chosen, given = getattr(protocol, other), getattr(protocol, option)
        if chosen not in values and given != getattr(Protocol(), option):
            wanted = f"leave it out, or want {other}: {' or '.join(values)}"
            yield f"{option}: {shown(given)} has no effect with {other}: {chosen}; {wanted}"
    if protocol.attention is not None and not protocol.dropout:
        yield f"attention: {shown(protocol.attention)} has no effect with dropout: 0; leave it out"


def _of_task(protocol: Protocol, num_steps: int, num_train: int) -> Iterator[str]:
    if num_steps % protocol.evaluate_every:
        yield f"evaluate_every: {num_steps} steps are no multiple of {protocol.evaluate_every}"
    if protocol.batch_size > num_train:
        yield f"batch_size: the training split has {num_train} examples; want that or less"
    if protocol.warmup_steps + _decay_steps(protocol, num_steps) > num_steps:
        yield f"warmup_steps: {protocol.warmup_steps} leave no room for the schedule in {num_steps} steps; want fewer"


def _of_budget(protocol: Protocol) -> Iterator[str]:
    if not depends_on_budget(protocol):
        yield "num_steps: has no effect on runs with schedule: constant; want schedule: cosine or warmup-stable-decay"


def _decay_steps(protocol: Protocol, num_steps: int) -> int:
    if protocol.schedule == "warmup-stable-decay":
        return max(1, round(protocol.decay_fraction * num_steps))
    return int(depends_on_budget(protocol))


def _of_parts(protocol: Protocol, trained: Sequence[str]) -> Iterator[str]:
    if protocol.optimizer == "muon" and MATRICES.isdisjoint(trained):
        yield "optimizer: muon trains matrices of attention and feedforward, which are frozen; want another optimizer"


def _of_mup(protocol: Protocol, family: str) -> Iterator[str]:
    if family != "gpt2":
        yield f"parametrization: mup is there for gpt2 alone, got a {family}; want standard"
    if protocol.optimizer not in ("adam", "adamw", "lion"):
        yield f"parametrization: mup has no rule for optimizer: {protocol.optimizer}; want adam, adamw or lion"
    if protocol.optimizer == "adam" and protocol.weight_decay:
        yield "weight_decay: mup has no rule for that of adam, which is in the gradient; want 0, or optimizer: adamw"


def _check_space(study: BuiltInStudy, space: Space) -> None:
    """Raise what is wrong with the options that a study's search chooses."""
    own = {name for entry in study.cells or () for name in entry.protocol}
    own |= {name for variant in study.variants.values() for name in own_protocol(variant)}
    with Mistakes() as mistakes:
        for name, axis in space.items():
            with mistakes.below("search", "space", name):
                _check_axis(name, axis, own)
    with Mistakes() as mistakes:
        for problem in list(dict.fromkeys(_combined(study, space)))[:5]:
            mistakes.add(problem, "search", "space")


def _check_axis(name: str, axis: Axis, own: Collection[str]) -> None:
    if name not in (options := vars(Protocol())):
        raise ValueError(unknown("option", name, options))
    if name in NOT_SEARCHED:
        raise ValueError(
            "is how runs are measured or computed, and the same in all runs of a cell; leave it out"
        )
    if name in own:
        raise ValueError("some variants or cells set it themselves; leave it out there, or here")
    for value in _ends(axis):
        try:
            changed(Protocol(), {name: value})
        except ValidationError as error:
            hint = "; for whole numbers want a list of values" if isinstance(axis, Range) else ""
            raise ValueError(error.errors()[0]["msg"] + hint) from error


def _ends(axis: Axis) -> Sequence[Any]:
    return (axis.low, axis.high) if isinstance(axis, Range) else axis


def _combined(study: BuiltInStudy, space: Space) -> Iterator[str]:
    """Yield what is wrong with the combinations of the axes' values, or ends; raise ValidationError for too many."""
    ends = [_ends(axis) for axis in space.values()]
    # Of models the family alone makes a difference, and learning rates make none.
    of_family = {study.models[name].size.family: name for name in reversed(study.models)}
    first = {name: of_family[model.size.family] for name, model in study.models.items()}
    cells = list(
        dict.fromkeys(
            c._replace(model=first[c.model], learning_rates=()) for c in study.cell_list()
        )
    )
    if (number := prod(map(len, ends))) * len(cells) > MAX_CHECKS:
        counts = f"these are {number} combinations of values x {len(cells)} of tasks and variants"
        raise mistake(
            f"{counts} to check, want at most {MAX_CHECKS}; give fewer values", "search", "space"
        )
    for values in product(*ends):
        options = dict(zip(space, values, strict=True))
        try:
            _check_options(
                study, [cell._replace(protocol=changed(cell.protocol, options)) for cell in cells]
            )
        except ValidationError as error:
            yield from (detail["msg"] for detail in error.errors())
