"""How the user wants a table read: the meanings of its columns, its rows, and the file that keeps both."""

from __future__ import annotations

import io
import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, TypeVar

from annotated_types import Gt, Lt
from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from lr_sweep.common.errors import UserError, reason, translated, unknown
from lr_sweep.common.files import Fields, load_yaml, write_bytes

from .names import ROLES, SPLITS
from .table_file import raise_mistakes

MEANINGS = (*ROLES, *SPLITS, "tuned", "ignored")
"""Meanings of a column; `tuned`: chosen as the learning rate is; `ignored`: no setting."""
OPEN = "..."
"""Part of a suggested command that the user is to fill in."""
KEPT = (".yaml", ".yml")
"""Endings of the name of a file that keeps a reading."""
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How the user wants a table read."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns by what they mean, several joined by `+`; empty: the table has no such column."""
    higher_is_better: bool | None = None
    select_on_test: bool = False
    where: Sequence[str] = ()
    """Rows that are read, as `COLUMN=VALUE` or `COLUMN!=VALUE`."""
    equal_within: Annotated[float, Gt(0), Lt(math.inf)] | None = None
    """Points of percent, or the metric's unit, within which variants are equal."""
    target: float | None = None
    """Value of the metric, in percent or its unit, to which steps are counted."""

    def __post_init__(self) -> None:
        """Raise UserError for meanings that are not there."""
        unknowns = [meaning for meaning in self.columns if meaning not in MEANINGS]
        raise_mistakes([f"columns: {unknown('meaning', name, MEANINGS)}" for name in unknowns])

    @property
    def given(self) -> Fields:
        """The fields that are not as by default."""
        default = vars(Reading())
        return {name: value for name, value in vars(self).items() if value != default[name]}

    def but(self, other: Reading) -> Reading:
        """Return this reading with what another one says in its place."""
        both = {"columns": {**self.columns, **other.columns}, "where": (*self.where, *other.where)}
        return replace(self, **other.given | both)


def options_text(reading: Reading, columns: Sequence[str] = ()) -> str:
    """Write a reading as options of the command; `columns`: further pairs for `--columns`."""
    pairs = ",".join([*map("=".join, reading.columns.items()), *columns])
    options = ["--columns", pairs] if pairs else []
    if reading.higher_is_better is not None:
        options.append(f"--{'higher' if reading.higher_is_better else 'lower'}-is-better")
    options += ["--select-on-test"] * reading.select_on_test
    for text in reading.where:
        options += ["--where", text]
    for name in ("equal_within", "target"):
        if (value := getattr(reading, name)) is not None:
            options += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(options)


def columns_in(texts: Sequence[str]) -> dict[str, str]:
    """Read `learning_rate=lr,validation=val_acc`; names may have commas. Raises UserError with every mistake."""
    columns: dict[str, str] = {}
    mistakes = []
    pairs = [pair for text in texts if text for pair in re.split(r",(?=\s*[\w.]+\s*=)", text)]
    for pair in pairs:
        meaning, equals, name = (part.strip() for part in pair.partition("="))
        if not equals:
            mistakes.append(
                f"--columns: got {pair!r}, want MEANING=NAME, as in learning_rate=lr, or a .yaml file"
            )
        elif OPEN in (meaning, name):
            mistakes.append(f"--columns: write a name or a meaning in place of the dots in {pair}")
        elif meaning not in MEANINGS:
            mistakes.append(f"--columns: {unknown('meaning', meaning, MEANINGS)}")
        elif meaning in columns:
            mistakes.append(
                f"--columns: {meaning} is given twice, as {columns[meaning]!r} and {name!r}"
            )
        columns[meaning] = name
    raise_mistakes(mistakes)
    return columns


def save_reading(path: Path, reading: Reading) -> None:
    """Write a reading as YAML for `--columns FILE`; raises UserError."""
    text = io.StringIO()
    yaml = YAML(typ="safe")
    yaml.default_flow_style = False  # a line for each meaning
    yaml.dump({**reading.given, "where": list(reading.where)}, text)
    advice = "name another file"
    with translated(
        (OSError, ValueError),
        lambda error: UserError(f"--save {path}: {reason(error)}: {advice}"),
    ):
        write_bytes(path, text.getvalue().encode())


def saved_reading(path: Path) -> Reading:
    """Read what `save_reading` wrote, or a user by hand; raises UserError with what is wrong."""
    try:
        return validated(Reading, json.dumps(load_yaml(path), default=str))
    except (OSError, ValueError, RecursionError, YAMLError) as error:
        wanted = f"want a mapping with {', '.join(vars(Reading()))}, as --save writes it"
        raise UserError(f"--columns {path}: cannot be read ({reason(error)}): {wanted}") from error


def validated(kind: type[T], content: str | bytes) -> T:
    """Read JSON as a dataclass with the types of its fields; raises ValueError with what is wrong with them."""
    try:
        return TypeAdapter(kind).validate_json(content, strict=True, extra="forbid")
    except ValidationError as error:
        (first, *_) = error.errors()
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: got {first['input']!r:.100}: {first['msg']}") from error
