"""Studies whose runs train models of this program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Len
from pydantic import Field, PlainValidator, SerializeAsAny, ValidationInfo, field_validator, model_validator

from lr_sweep.common.errors import unknown
from lr_sweep.datasets import TASKS
from lr_sweep.datasets.checksum import data_checksum
from lr_sweep.datasets.task import TaskShape, missing_names, options_content
from lr_sweep.sweep.study.cells import AXES, MAX_CELLS, Cells, StudyCell, changed
from lr_sweep.sweep.study.model import StudyModel
from lr_sweep.sweep.study.protocols import check_protocols
from lr_sweep.sweep.study.space import check_space
from lr_sweep.sweep.study.study import Examples, Study, StudyTask
from lr_sweep.sweep.study.validation import Mistakes, each_entry, mistake, read_record
from lr_sweep.sweep.study.variants import checked_axes, own_protocol, variants_of, written_out
from lr_sweep.trainables.memory import part_sizes
from lr_sweep.trainables.parts import VARIANTS, Variant
from lr_sweep.trainables.run import Protocol, Run, attention_for
from lr_sweep.trainables.schedules import depends_on_budget

ANY_TASK = TaskShape(num_tokens=1, num_classes=1, token_dim=1)
"""Which parts a model has does not depend on the task."""


class BuiltInStudy(Study):
    """A study that trains models of this program on tasks of this program."""

    protocol: Annotated[Protocol, PlainValidator(partial(read_record, Protocol))] = Protocol()
    """How each run is trained and evaluated."""
    variants: Annotated[dict[str, SerializeAsAny[Variant]], PlainValidator(variants_of)]
    """What is trained and how it starts: a list of known names, or a mapping with variants of the study's own."""
    models: Annotated[dict[str, StudyModel], Len(1)]
    """Models by a known name or by one of the study's own; tables show the name."""
    axes: Annotated[dict[str, Any], PlainValidator(checked_axes)] = Field(default={}, exclude=True)
    """Lists of values of protocol options; every variant is trained with each of their combinations."""

    # --- fields

    @model_validator(mode="before")
    @classmethod
    def _write_out(cls, study: Any) -> Any:
        return _counted(written_out(study))

    @classmethod
    def read_options(cls, task: str, given: Mapping[str, Any]) -> Any:
        """Build the options of a task, defaults filled in; raises its mistakes."""
        if task not in TASKS:
            raise ValueError(unknown("task", task, TASKS))
        if missing := missing_names(TASKS[task]):
            raise ValueError(f"its module lacks {', '.join(missing)}; datasets/task.py says what each returns")
        return read_record(TASKS[task].Options, given, more_keys=("num_steps",))

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

    # --- what goes together

    @model_validator(mode="after")
    def _check_parts(self) -> BuiltInStudy:
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
    def _check_protocols(self) -> BuiltInStudy:
        cells = list(self.cell_list())
        check_protocols(cells, self.tasks, self.variants)
        if self.selection == "final" and any(cell.protocol.test_evaluated == "best" for cell in cells):
            raise mistake(
                "final: got it with test_evaluated: best, which leaves out the test split at a budget's last step; "
                "want selection: best, or test_evaluated: always",
                "selection",
            )
        if self.search is not None and self.search.space:
            own = {name for entry in self.cells or () for name in entry.protocol}
            own |= {name for variant in self.variants.values() for name in own_protocol(variant)}
            check_space(self.search.space, cells, self.tasks, self.variants, own)
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
        tf32 = ["precision: tf32"] if self.protocol.precision == "tf32" else []
        fused = any(cell.protocol.attention == "fused" for cell in self.cell_list())
        return (*tf32, *(["attention: fused"] if fused else []))

    def starts_from_weights(self, variant: str) -> bool:
        """Return whether a variant starts from pretrained weights, or from what they are like."""
        return self.variants[variant].needs_weights

    def examples(self, task: str, data_dir: Path) -> Examples:
        """Identify a task's examples; raises DataError if files are there but cannot be identified."""
        given, definition = self.tasks[task].options, TASKS[task]
        options, origin = options_content(given), definition.origin(given, data_dir)
        if options.get("source") == "auto":  # the same data is the same run, whether it was named or found
            options["source"] = origin
        return Examples(options, data_checksum(task, given, data_dir), origin, definition.shape(given))

    def run(self, cell: StudyCell, options: Mapping[str, Any], examples: Examples, weights: str | None) -> Run:
        """Return a run of a cell with options that a search chose; `weights` is the checksum of pretrained weights."""
        parts, size = self.variants[cell.variant], self.models[cell.model].body_size
        protocol, num_steps = changed(cell.protocol, options), self.tasks[cell.task].num_steps
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
            protocol=replace(protocol, attention=attention_for(protocol, size, examples.shape.num_tokens)),
            schedule_steps=num_steps if depends_on_budget(protocol) else None,
        )

    def fetch(self, data_dir: Path) -> None:
        """Fetch the data sets; raises DataError if one cannot be fetched, or is damaged."""
        for name, task in self.tasks.items():
            TASKS[name].fetch(task.options, data_dir)

    def plain(self) -> dict[str, Any]:
        """Return the study as its file has it, with all defaults filled in, as plain JSON values."""
        content = super().plain()
        for model in content["models"].values():
            recipe = (model["pretrained"] or {}).get("pretrain", {})
            recipe |= recipe.pop("options", {})
        if self.variants.keys() <= VARIANTS.keys():
            content["variants"] = list(self.variants)
        return content


def _counted(study: Any) -> Any:
    """Return a study's mapping; raise ValidationError if its tasks, models and variants are too many to combine."""
    given = [study.get(axis) for axis in AXES] if isinstance(study, Mapping) else []
    factors = [len(names) for names in given if isinstance(names, Mapping | tuple)]
    if (number := prod(factors)) > MAX_CELLS:
        raise mistake(
            f"{' x '.join(map(str, factors))} (tasks, models, variants) are {number} cells, want at most {MAX_CELLS}; "
            f"split it into several studies, which share their runs"
        )
    return study
