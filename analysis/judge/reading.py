"""How a table is to be read: what the user says, what is asked, and the file that keeps it."""

from __future__ import annotations

import io
import json
import math
import re
import shlex
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from annotated_types import Gt, Lt
from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from lr_sweep.analysis.judge.names import JOIN, ROLES, SPLITS
from lr_sweep.analysis.judge.table_file import raise_mistakes
from lr_sweep.common.errors import UserError, reason, translated, unknown
from lr_sweep.common.files import load_yaml, write_bytes

KEPT = (".yaml", ".yml")  # endings of the name of a file that keeps a reading
MOST_CHOICES = 3  # readings that are offered; the best one is the first
MOST_TRIED = 12  # choices of a question that are tried
MOST_QUESTIONS = 4  # in a row that are answered to see whether an answer leads to a report
T = TypeVar("T")
MEANINGS = (
    *ROLES,
    "nuisance",
    "ignored",
    *SPLITS,
)  # of a column; nuisance: tuned as the rate; ignored: no setting


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How the user wants a table read."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """Column by what it means, several joined by `+`; empty: the table has no such column; the rest is guessed."""
    metric: str | None = None  # if there are columns of this name, no others are read
    higher_is_better: bool | None = None
    is_fraction: bool | None = None  # whether values are from 0 to 1, written in percent
    select_on_test: bool = False
    where: Sequence[str] = ()  # the rows that are read, as `COLUMN=VALUE` or `COLUMN!=VALUE`
    equal_within: Annotated[float, Gt(0), Lt(math.inf)] | None = None
    """Points of percent, or the metric's unit, within which variants are equal."""
    target: float | None = (
        None  # value of the metric, in percent or its unit, to which steps are counted
    )
    by: str = (
        ""  # column, or a word of its name, that is counted in place of steps and grows with them
    )

    def but(self, other: Reading) -> Reading:
        """Return this reading with what another one says in its place."""
        both = {"columns": {**self.columns, **other.columns}, "where": (*self.where, *other.where)}
        return replace(self, **other.said() | both)

    def at_positions(self, names: Sequence[str]) -> Reading:
        """Return this reading with the names of the columns that it gives by their positions, as `#2`."""
        places = {f"#{place}": name for place, name in enumerate(names, 1)}
        given = {
            role: [places.get(part, part) for part in text.split(JOIN)]
            for role, text in self.columns.items()
        }
        return replace(self, columns={role: JOIN.join(parts) for role, parts in given.items()})

    def said(self) -> dict[str, Any]:
        """Return the fields in which the user said something."""
        usual = vars(Reading())
        return {name: value for name, value in vars(self).items() if value != usual[name]}


class Choice(NamedTuple):
    """One of several readings that are equally good."""

    says: str  # what it would mean, as a clause
    reading: Reading  # what the user would have to say for it, beside what was said


class QuestionError(UserError):
    """Two readings of a table are equally good."""

    def __init__(self, text: str, choices: Sequence[Choice]) -> None:
        super().__init__(
            "\n".join([text, *(f"  {each.says}: {options_text(each.reading)}" for each in choices)])
        )
        self.text, self.choices = text, tuple(choices)


def one_of(role: str, names: Sequence[str]) -> list[Choice]:
    """Offer each of several columns for a meaning."""
    return [Choice(f"{role} is {name}", Reading(columns={role: name})) for name in names]


def options_text(reading: Reading) -> str:
    """Write a reading as options of the command."""
    pairs = ",".join(map("=".join, reading.columns.items()))
    columns = f"--columns {shlex.quote(pairs)}" if pairs else ""
    higher = {True: "--higher-is-better", False: "--lower-is-better", None: ""}[
        reading.higher_is_better
    ]
    flags = ["--select-on-test"] * reading.select_on_test
    numbers = {"equal-within": reading.equal_within, "target": reading.target}
    texts = [
        ("metric", reading.metric),
        ("by", reading.by),
        *(("where", text) for text in reading.where),
    ]
    options = [f"--{name} {number:g}" for name, number in numbers.items() if number is not None]
    options += [f"--{name} {shlex.quote(text)}" for name, text in texts if text]
    return " ".join(filter(None, [columns, higher, *flags, *options]))


def asking(
    read: Callable[[Reading], T], reading: Reading, wanted: int = MOST_CHOICES, answers: int = 0
) -> T:
    """Read, and leave out of a question the choices that do not work; `answers`: those that were tried before.

    Raises UserError as `read`, or if no choice works, and QuestionError with up to `wanted` choices that work, each
    with answers to the questions that follow.
    """
    try:
        return read(reading)
    except QuestionError as question:
        if answers == MOST_QUESTIONS:
            raise UserError(
                f"{question.text}: still open after {MOST_QUESTIONS} answers"
            ) from question
        working: dict[str, Choice] = {}
        lines = [question.text]
        for choice in question.choices[:MOST_TRIED]:
            if len(working) == wanted:
                break
            try:
                if (
                    columns_in([*map("=".join, choice.reading.columns.items())])
                    != choice.reading.columns
                ):
                    raise UserError("a name has a character that --columns cannot hold")
                asking(read, reading.but(choice.reading), wanted - len(working), answers + 1)
                working[options_text(choice.reading)] = choice
            except QuestionError as further:
                both = [
                    Choice(f"{choice.says}, and {x.says}", choice.reading.but(x.reading))
                    for x in further.choices
                ]
                working |= {options_text(each.reading): each for each in both}
            except UserError as error:
                lines.append(f"  not {options_text(choice.reading)}: {reason(error)}")
        if working:
            raise QuestionError(question.text, list(working.values())) from question
        raise UserError("\n".join(lines[: MOST_CHOICES + 1])) from question


def columns_in(texts: Sequence[str]) -> dict[str, str]:
    """Read `learning_rate=lr,validation=val_acc`, where names may have commas; raises UserError with every mistake."""
    found: dict[str, str] = {}
    mistakes = []
    for pair in (pair for text in texts if text for pair in re.split(r",(?=\s*\w+\s*=)", text)):
        role, equals, name = (part.strip() for part in pair.partition("="))
        if not equals:
            mistakes.append(
                f"--columns: got {pair!r}, want MEANING=NAME, as in learning_rate=lr, or a .yaml file"
            )
        elif role not in MEANINGS:
            mistakes.append(f"--columns: {unknown('meaning', role, MEANINGS)}")
        elif role in found:
            mistakes.append(f"--columns: {role} is given twice, as {found[role]!r} and {name!r}")
        found[role] = name
    raise_mistakes(mistakes)
    return found


def save_reading(path: Path, reading: Reading, reasons: Sequence[str] = ()) -> None:
    """Write a reading, and why it was read so, as YAML for `--columns FILE`; raises UserError if it cannot be."""
    text = io.StringIO()
    text.writelines(
        f"# {line}\n"
        for each in reasons
        for line in textwrap.wrap(each, 100, break_on_hyphens=False)
    )
    yaml = YAML(typ="safe")
    yaml.default_flow_style = False  # a line for each meaning
    yaml.dump(reading.said(), text)
    with translated(
        (OSError, ValueError),
        lambda error: UserError(f"--save {path}: {reason(error)}: name another file"),
    ):
        write_bytes(path, text.getvalue().encode())


def validated(kind: type[T], content: str | bytes) -> T:
    """Read JSON as a dataclass with the types of its fields; raises ValueError with what is wrong with them."""
    try:
        return TypeAdapter(kind).validate_json(content, strict=True, extra="forbid")
    except ValidationError as error:
        wrong = [
            f"{'.'.join(map(str, x['loc']))}: got {x['input']!r:.100}: {x['msg']}"
            for x in error.errors()
        ]
        raise ValueError("; ".join(wrong)) from error


def saved_reading(path: Path) -> Reading:
    """Read what `save_reading` wrote, or a user by hand; raises UserError with what is wrong."""
    wanted = f"want a mapping with {', '.join(vars(Reading()))}, as --save writes it"
    try:
        content = load_yaml(path)
        if isinstance(content, dict):
            content.pop("paired", None)  # of an earlier version
        found = validated(Reading, json.dumps(content, default=str))
    except (OSError, ValueError, RecursionError, YAMLError) as error:
        raise UserError(f"--columns {path}: cannot be read ({reason(error)}): {wanted}") from error
    raise_mistakes(
        [
            f"--columns {path}: {unknown('meaning', x, MEANINGS)}"
            for x in found.columns
            if x not in MEANINGS
        ]
    )
    return found
