"""Writes docs/study-file.md: every field of a study file, from the models that read it.

    python -m benchmarks.study_reference

Types, defaults and limits are those of the code, explanations the first sentences of the docstrings below the fields.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Interval
from pydantic import BaseModel

from lr_sweep.datasets import TASKS
from lr_sweep.sweep.study.built_in import BuiltInStudy
from lr_sweep.sweep.study.cells import Cells, StudyVariant
from lr_sweep.sweep.study.command import CommandMetrics, CommandStudy
from lr_sweep.sweep.study.model import (
    FolderWeights,
    HubWeights,
    PretrainedHere,
    ShippedWeights,
    StudyModel,
)
from lr_sweep.sweep.study.own import FunctionStudy, OwnStudy, StudyMetric
from lr_sweep.sweep.study.search import LearningRateGrid, Range, Search
from lr_sweep.sweep.study.settings import AsManyAsItTakes, Resources
from lr_sweep.sweep.study.study import Study
from lr_sweep.sweep.study.validation import is_fixed
from lr_sweep.trainables.models import FAMILIES, size_type
from lr_sweep.trainables.pretraining.recipe import PretrainRecipe, TaskRecipe
from lr_sweep.trainables.run import Protocol

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "study-file.md"
INTRODUCTION = """\
# The study file

A study is a question, written as a YAML file; [own training functions](own-training.md) explain one step by
step. The studies of this program are in [sweep/studies](../sweep/studies/quickstart.yaml). This page lists
every field. A field with `*` must be given. For the others, the value after `=` is the default, and the
brackets have the other values that are possible. A study is YAML 1.2. Unknown keys and values of another
type are refused. `python -m benchmarks.study_reference` writes this page.
"""
SECTIONS: dict[str, tuple[type, ...]] = {
    "Study": (Study,),
    "Study that trains models of this program": (BuiltInStudy,),
    "Study of a function or a command of your own": (OwnStudy, FunctionStudy, CommandStudy),
    "`protocol`": (Protocol,),
    "`metric`": (StudyMetric,),
    "`metrics` of a command": (CommandMetrics,),
    "`cells[]`": (Cells,),
    "`variants.NAME`": (StudyVariant,),
    "`models.NAME`": (StudyModel,),
    "`models.NAME.pretrained`": (ShippedWeights, HubWeights, FolderWeights, PretrainedHere),
    "`pretrain`, on text": (PretrainRecipe,),
    "`pretrain`, on a task": (TaskRecipe,),
    "`learning_rates`": (LearningRateGrid,),
    "`search`": (Search,),
    "`search.space.OPTION`": (Range,),
    "`fresh`, as many as it takes": (AsManyAsItTakes,),
    "`resources`": (Resources,),
}
LARGE = 10**9
REQUIRED = object()
Entry = tuple[str, str]
"""A field with its default and values, and its explanation."""
PLAIN = {int: "int", float: "number", str: "text", Path: "path", type(None): "null"}


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the text of the page."""
    sections = [_section(title, {"": _entries(*kinds)}) for title, kinds in SECTIONS.items()]
    sections.append(
        _section("`models.NAME.size`", {family: _entries(size_type(family)) for family in FAMILIES})
    )
    sections.append(
        _section("`tasks.NAME`", {name: _entries(task.Options) for name, task in TASKS.items()})
    )
    return "\n".join([INTRODUCTION, *sections])


def _section(title: str, entries: Mapping[str, list[Entry]]) -> str:
    """Return a section; entries that several kinds of a thing have alike are there once, below these kinds' names."""
    kinds: dict[Entry, list[str]] = {}
    for kind, each in entries.items():
        for entry in each:
            kinds.setdefault(entry, []).append(kind)
    groups: dict[str, list[str]] = {}
    for (field, explanation), found in kinds.items():
        names = ", ".join(found) if len(found) < len(entries) else ""
        groups.setdefault(names, []).append(
            textwrap.fill(
                f"- {field}: {explanation}",
                100,
                subsequent_indent="  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        )
    parts = [
        "\n".join([f"{names}:\n\n" * bool(names) + lines[0], *lines[1:], ""])
        for names, lines in groups.items()
    ]
    return "\n".join([f"## {title}", "", *parts])


def _entries(*kinds: type) -> list[Entry]:
    """Return the fields of models or dataclasses; one that several of them have is there once, as in the first."""
    entries: dict[str, Entry] = {}
    for kind in kinds:
        hints, explained = get_type_hints(kind, include_extras=True), _explanations(kind)
        for name, default in _defaults(kind).items():
            if hints[name] is not Any:  # else a subclass says what it is
                entry = _field(name, hints[name], default), explained[name]
                entries.setdefault(name, entry)
    return list(entries.values())


def _field(name: str, hint: Any, default: Any) -> str:
    """Return `` `at_once` = null (int ≥1) ``: a field with its default and the values that it may have."""
    shown = _value(default)
    marked = (
        f"`{name}`*" if default is REQUIRED else f"`{name}` = {shown}" if shown else f"`{name}`"
    )
    alternatives = [each for each in dict.fromkeys(_values(hint)) if each != shown]
    values = "" if alternatives == ["mapping"] else ", ".join(alternatives)
    if isinstance(default, int | float):  # which says whether it is a whole number
        values = re.sub(r"^(int|number) ?", "", values)
    return f"{marked} ({values})" if values else marked


def _defaults(kind: type) -> dict[str, Any]:
    """Return the fields of a model or a dataclass with their defaults; a kind of study has those that are its own."""
    if issubclass(kind, BaseModel):
        own = (
            vars(kind)["__annotations__"]
            if issubclass(kind, Study) and kind is not Study
            else kind.model_fields
        )
        fields = {name: field for name, field in kind.model_fields.items() if name in own}
        return {
            name: REQUIRED if field.is_required() else field.get_default(call_default_factory=False)
            for name, field in fields.items()
        }
    missing = dataclasses.MISSING
    return {
        field.name: REQUIRED if field.default is field.default_factory is missing else field.default
        for field in dataclasses.fields(kind)
        if not is_fixed(kind, field.name)
    }


def _explanations(kind: type) -> dict[str, str]:
    """Return the first sentence of the docstring below each field, of those that a class inherits, too."""
    found: dict[str, str] = {}
    for base in [each for each in reversed(kind.__mro__) if each.__module__.startswith("lr_sweep")]:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for field, below in zip(definition.body, definition.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(below, ast.Expr)
                and isinstance(field.target, ast.Name)
            ):
                found[field.target.id] = _first_sentence(ast.literal_eval(below.value))
    return found


def _first_sentence(text: str) -> str:
    """Return a docstring's first sentence, without sources in brackets; of further clauses, what null and such mean."""
    line = re.sub(r" \([^()]*\)", "", " ".join(text.split()))
    sentence = re.split(r"(?<=[a-z`)][.])\s", line)[0]
    sentence = re.sub(r"(?<![.])[.]$", "", sentence)
    clause, *more = sentence.split("; ")
    return "; ".join(
        [clause, *(each for each in more if re.match(r"(null|default|`[a-z-]+`|\d):", each))]
    )


def _values(hint: Any) -> Iterator[str]:
    """Yield the alternatives of a type, with their limits, such as `int ≥1 ≤10`; none for a flag."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        limits = [_limits(each) for each in arguments[1:] if isinstance(each, Interval)]
        yield from (" ".join([each, *limits]) for each in _values(arguments[0]))
    elif origin is Literal:
        yield from map(str, arguments)
    elif origin in (Union, types.UnionType):
        yield from (value for each in arguments for value in _values(each))
    elif origin is tuple:
        yield "list"
    elif hint is not bool:
        yield PLAIN.get(hint, "mapping")


def _limits(interval: Interval) -> str:
    """Return `≥1 ≤10` or `>0`; an upper limit that only keeps numbers computable is left out."""
    low = f">{interval.gt:g}" if interval.gt is not None else f"≥{interval.ge:g}"
    high = f"≤{interval.le:g}" if interval.le is not None else f"<{interval.lt:g}"
    largest = interval.le if interval.le is not None else interval.lt
    return low if largest >= LARGE else f"{low} {high}".replace("e+0", "e")


def _value(default: Any) -> str:
    if default is None or isinstance(default, bool):
        return "null" if default is None else str(default).lower()
    return str(default) if isinstance(default, int | float | str) else ""


if __name__ == "__main__":
    main()
