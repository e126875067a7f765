"""Studies whose runs are trained by a command, such as a script that cannot be edited."""

from __future__ import annotations

import re
import shlex
from functools import partial
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    Field,
    PlainValidator,
    ValidationInfo,
    field_validator,
    model_validator,
)

from lr_sweep.common.errors import unknown
from lr_sweep.common.limits import Steps
from lr_sweep.trainables.own.command_line import FILES, FIXED, CommandLine, filled, placeholders
from lr_sweep.trainables.own.run import OwnFiles

from .own import OwnProtocol, OwnStudy, code_files, folder_of
from .validation import Mistakes, Strict, matching, read_record, shown

WANTED = (
    "a command such as python train.py --lr {learning_rate} --seed {seed}, or the list of its words"
)
OF_SHELLS = {"|", "||", "&", "&&", ";", "<", ">", ">>", "2>&1", "2>"}
NEEDED = ("learning_rate", "seed")


def _words(value: Any) -> tuple[str, ...]:
    """Split a command as a shell does, or take a list of words."""
    words = shlex.split(value) if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not words:
        raise ValueError(f"got {shown(value)}, want {WANTED}")
    if wrong := [word for word in words if not isinstance(word, str)]:
        raise ValueError(f"got {shown(wrong[0])} as a word, want text; put quotes around it")
    if isinstance(value, str) and (signs := OF_SHELLS.intersection(words)):
        raise ValueError(
            f"no shell reads it, so {min(signs)} would be an argument; write a script, and `bash` before"
        )
    return tuple(words)


def _code_files(value: Any, info: ValidationInfo) -> OwnFiles:
    """Read the code files that a study names, by default those beside it that the command names."""
    words, metrics = info.data.get("command"), info.data.get("metrics")
    if words is None or metrics is None:  # they are mistakes themselves
        return OwnFiles(trainable="", code={}, folders=())
    scripts = [
        word
        for word in words
        if word.endswith((".py", ".sh")) and not PurePosixPath(word).is_absolute()
    ]
    if missing := [word for word in scripts if not (folder_of(info) / word).is_file()]:
        raise ValueError(f"no {missing[0]}, which the command names, in {folder_of(info)}")
    if value is None:
        value = tuple(_files_named(words, info))
        if not value:
            raise ValueError(
                "the command names no file beside the study; list what it runs here, [] for nothing"
            )
    code, folder = code_files(value, info)
    line = CommandLine(words=words, metrics=metrics.model_dump(exclude_none=True))
    return OwnFiles(trainable=line.text, code=code, folders=(folder,), command=line)


def _files_named(words: tuple[str, ...], info: ValidationInfo) -> list[str]:
    names = [PurePosixPath(word.rpartition("=")[2]) for word in words if word]
    inside = [str(name) for name in names if not name.is_absolute() and ".." not in name.parts]
    return [
        name
        for name in inside
        if (folder_of(info) / name).is_file() and name not in info.data.get("data", {})
    ]


def _pattern(text: str, info: ValidationInfo) -> str:
    """Check a regular expression with one group, unless the text names a column of a file."""
    if info.data.get("file", "a mistake itself") is not None:
        return text
    try:
        groups = re.compile(text).groups
    except re.error as error:
        raise ValueError(f"got {shown(text)}, which is no regular expression: {error}") from error
    if groups != 1:
        raise ValueError(f"got {shown(text)} with {groups} groups, want one, as in 'acc=([0-9.]+)'")
    return text


_ENDINGS = "|".join(map(re.escape, FILES))
_File = Annotated[str, matching(f".*({_ENDINGS})", f"a file that ends with {', '.join(FILES)}")]
_Pattern = Annotated[str, AfterValidator(_pattern)]


class CommandMetrics(Strict):
    """Where the evaluations of a command are."""

    file: _File | None = None
    """File that it writes, in JSON lines, JSON or CSV; null: the evaluations are in what it prints."""
    validation: _Pattern
    """Regular expression whose group begins at the value, or with a `file` a column."""
    test: _Pattern
    """The same for the test value."""
    step: _Pattern | None = None
    """The same for the gradient step of an evaluation; null: evaluations are counted."""


class CommandStudy(OwnStudy):
    """A study that starts a command for each run."""

    unused_resources: ClassVar = {**OwnStudy.unused_resources, "processes_per_run": (1,)}
    why_unused = "a command trains one run, and may start processes itself"

    protocol: Annotated[OwnProtocol, PlainValidator(partial(read_record, OwnProtocol))] = (
        OwnProtocol(evaluate_every=1)
    )
    """How each run is evaluated: `evaluate_every` alone; default: 1."""
    num_steps: Steps | None = Field(default=1, exclude=True)
    """Steps of each run; 1: its one evaluation is the last that the command prints."""
    trainable: Any = Field(default=None, exclude=True)
    """Refused: a study has a command or a function."""
    command: Annotated[tuple[str, ...], PlainValidator(_words)]
    """Command with `{learning_rate}`, `{seed}` and the names of options, or a list of its words."""
    metrics: CommandMetrics
    """Where its evaluations are."""
    code: Annotated[OwnFiles, PlainValidator(_code_files)] = Field(
        default=None, validate_default=True
    )
    """Files that the command runs, or patterns; default: those beside the study that it names."""

    @field_validator("trainable")
    @classmethod
    def _refuse_function(cls, trainable: Any) -> None:
        raise ValueError("the study has a `command`, which trains its runs; leave one of them out")

    @model_validator(mode="after")
    def _check_placeholders(self) -> CommandStudy:
        wanted = placeholders([*self.command, self.metrics.file or ""])
        space = self.search.space if self.search else {}
        known = {*FIXED, *space}
        options = [
            (axis, name, option)
            for axis, entries in self.options_by_name().items()
            for name, given in entries.items()
            for option in sorted(given)
        ]
        options += [("search", "space", option) for option in space]
        known |= {option for *_, option in options}
        with Mistakes() as mistakes:
            for *loc, option in options:
                if option not in wanted:
                    text = f"no {{{option}}} in the command; use it there, or leave it out: it changes nothing"
                    mistakes.add(text, *loc, option)
                if option in FIXED:
                    mistakes.add(
                        "means something else in a command; give it another name", *loc, option
                    )
            for name in wanted - known:
                mistakes.add(unknown("placeholder", name, known), "command")
            for name in set(NEEDED) - placeholders(self.command):
                mistakes.add(
                    f"it lacks {{{name}}}: its runs would differ in nothing else", "command"
                )
            has_curves = any(
                cell.num_steps > cell.protocol.evaluate_every for cell in self.cell_list()
            )
            if "checkpoint" in wanted and not self.metrics.step and has_curves:
                text = "with {checkpoint} it is needed: a resumed command does not print all evaluations again"
                mistakes.add(text, "metrics", "step")
        self._check_cells_differ(wanted)
        return self

    def _check_cells_differ(self, wanted: set[str]) -> None:
        """Raise mistakes of cells that lack an option of the command, or have the same command as another cell."""
        space, seen = self.search.space if self.search else {}, dict[tuple[str, ...], str]()
        with Mistakes() as mistakes:
            for cell in self.cell_list():
                names = {"task": cell.task, "model": cell.model, "variant": cell.variant}
                title = " ".join(names.values())
                values = dict.fromkeys([*FIXED, *space], "") | names | self.options_of(cell)
                if lacking := sorted(wanted - values.keys()):
                    mistakes.add(f"{title} has no option {', '.join(lacking)}", "command")
                    continue
                if (first := seen.setdefault(tuple(filled(self.command, values)), title)) != title:
                    text = "use {variant}, {model} or {task}, or give them options"
                    mistakes.add(f"it is the same for {first} and {title}; {text}", "command")
