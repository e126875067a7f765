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
from lr_sweep.trainables.factors import depends_on_budget
from lr_sweep.trainables.parts import VARIANTS, Variant
from lr_sweep.trainables.run import Protocol, Run, attention_for

from .cells import (
    Cells,
    StudyCell,
    changed,
    own_options,
    variants_of,
)
from .model import StudyModel
from .search import Axis, Range, Space
from .study import Examples, Study, StudyTask
from .validation import FIXED, Loc, Mistakes, each_entry, mistake, read_record

MATRICES = {"attention", "feedforward", "last_attention"}
NOT_SEARCHED = ("precision", "evaluate_every", "train_examples_evaluated", "test_evaluated")
"""Options of how a run is measured or computed: a search would compare what is not alike."""
MAX_CHECKS = 20_000
"""Most combinations of a space's values with a study's cells; each is checked."""


class BuiltInStudy(Study):
    """A study that trains models of this program on tasks of this program."""

    task_steps: ClassVar = ("num_steps", "evaluate_every")
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
        return read_record(TASKS[task].Options, given, more_keys=cls.task_steps)

    @field_validator("models", mode="before")
    @classmethod
    def _build_models(cls, models: Any, info: ValidationInfo) -> Any:
        variants, cells = info.data.get("variants", {}), info.data.get("cells") or (Cells(),)

        def build(name: str, value: Any) -> StudyModel:
            wanted_by = (
                variant
                for variant, parts in variants.items()
                if parts.needs_weights
                and any(entry.have(models=name, variants=variant) for entry in cells)
            )
            return StudyModel.named(name, value, next(wanted_by, None), info.context)

        return each_entry(models, build)

    # --- what goes together

    @model_validator(mode="after")
    def _check_protocols(self) -> BuiltInStudy:
        cells = list(self.cell_list())
        with Mistakes() as mistakes:
            for (loc, problem), where in _problems(self, cells).items():
                everywhere = len(where) == len(cells)
                mistakes.add(problem if everywhere else f"{problem} ({where[0]})", *loc)
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
        # The same data is the same run, whether it was named or found.
        if options.get("source") == "auto":
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


Problems = Mapping[tuple[Loc, str], Sequence[str]]
"""The tasks and variants that have a problem, by where its mistake is and what it is."""


def _problems(study: BuiltInStudy, cells: Sequence[StudyCell]) -> Problems:
    """Return which options of the cells' protocols do not go together, at the variant's options or the study's."""
    problems: dict[tuple[Loc, str], list[str]] = defaultdict(list)
    for cell in cells:
        own, budget = own_options(study.variants[cell.variant])
        loc: Loc = ("variants", cell.variant) if own or budget else ("protocol",)
        for problem in _problems_of(study, cell):
            problems[loc, problem].append(f"{cell.task}, {cell.variant}")
    return problems


def _problems_of(study: BuiltInStudy, cell: StudyCell) -> Iterator[str]:
    protocol, num_steps, variant = cell.protocol, cell.num_steps, study.variants[cell.variant]
    num_train = TASKS[cell.task].num_train(study.tasks[cell.task].options)
    if num_steps % protocol.evaluate_every:
        yield f"evaluate_every: {num_steps} steps are no multiple of {protocol.evaluate_every}"
    if protocol.batch_size > num_train:
        yield f"batch_size: the training split has {num_train} examples; want that or less"
    if protocol.warmup_steps + _decay_steps(protocol, num_steps) > num_steps:
        yield f"warmup_steps: {protocol.warmup_steps} leave no room for the schedule in {num_steps} steps; want fewer"
    if own_options(variant)[1] and not depends_on_budget(protocol):
        yield "num_steps: has no effect on runs with schedule: constant; want schedule: cosine or warmup-stable-decay"
    if protocol.optimizer == "muon" and MATRICES.isdisjoint(variant.trained):
        yield "optimizer: muon trains matrices of attention and feedforward, which are frozen; want another optimizer"
    if protocol.parametrization == "mup":
        yield from _of_mup(protocol, study.models[cell.model].size.family)


def _decay_steps(protocol: Protocol, num_steps: int) -> int:
    if protocol.schedule == "warmup-stable-decay":
        return max(1, round(protocol.decay_fraction * num_steps))
    return int(depends_on_budget(protocol))


def _of_mup(protocol: Protocol, family: str) -> Iterator[str]:
    if family != "gpt2":
        yield f"parametrization: mup is there for gpt2 alone, got a {family}; want standard"
    if protocol.optimizer not in ("adam", "adamw", "lion"):
        yield f"parametrization: mup has no rule for optimizer: {protocol.optimizer}; want adam, adamw or lion"
    if protocol.optimizer == "adam" and protocol.weight_decay:
        yield "weight_decay: mup has no rule for that of adam, which is in the gradient; want 0, or optimizer: adamw"


def _check_space(study: BuiltInStudy, space: Space) -> None:
    """Raise what is wrong with the options that a study's search chooses, alone and together."""
    own = {name for variant in study.variants.values() for name in own_options(variant)[0]}
    with Mistakes() as mistakes:
        for name, axis in space.items():
            with mistakes.below("search", "space", name):
                _check_axis(name, axis, own)
    ends, cells = [_ends(axis) for axis in space.values()], list(study.cell_list())
    if (number := prod(map(len, ends))) * len(cells) > MAX_CHECKS:
        raise mistake(
            f"these are {number} combinations of values x {len(cells)} cells to check, want at most {MAX_CHECKS}; "
            "give fewer values",
            "search",
            "space",
        )
    problems = dict[str, None]()
    for values in product(*ends):
        options = dict(zip(space, values, strict=True))
        chosen = [cell._replace(protocol=changed(cell.protocol, options)) for cell in cells]
        problems |= dict.fromkeys(problem for _, problem in _problems(study, chosen))
    with Mistakes() as mistakes:
        for problem in problems:
            mistakes.add(problem, "search", "space")


def _check_axis(name: str, axis: Axis, own: Collection[str]) -> None:
    if name not in (options := vars(Protocol()).keys() - FIXED):
        raise ValueError(unknown("option", name, options))
    if name in NOT_SEARCHED:
        raise ValueError(
            "is how runs are measured or computed, and the same in all runs of a cell; leave it out"
        )
    if name in own:
        raise ValueError("some variants set it themselves; leave it out there, or here")
    for value in _ends(axis):
        try:
            changed(Protocol(), {name: value})
        except ValidationError as error:
            hint = "; for whole numbers want a list of values" if isinstance(axis, Range) else ""
            raise ValueError(error.errors()[0]["msg"] + hint) from error


def _ends(axis: Axis) -> Sequence[Any]:
    return (axis.low, axis.high) if isinstance(axis, Range) else axis
