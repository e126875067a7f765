"""The line of a command that trains a run, with placeholders that are filled in for each run."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lr_sweep.common.files import Fields, ReadFields

FIXED = ("learning_rate", "seed", "task", "model", "variant", "num_steps", "folder", "checkpoint")
"""Placeholders beside the names of a run's options."""
PLACEHOLDER = re.compile(r"(?<!\$)\{([A-Za-z_][\w-]*)\}")
KEPT = "command"
"""Folder beside a run's checkpoints: that of a command which resumes, and what the command has printed."""
FILES = (".jsonl", ".json", ".csv")
"""Endings of files with evaluations."""


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """A command that trains a run, in place of a function, and where it leaves its evaluations."""

    words: tuple[str, ...]
    """With placeholders, such as `{seed}`."""
    metrics: Mapping[str, str]
    """`validation`, `test`, maybe `step`: regular expressions, or with a `file` the names of its columns."""

    @property
    def text(self) -> str:
        """The line as it is typed, with braces as they are."""
        return " ".join(
            word if re.fullmatch(r"[\w./=:,+%@{}-]+", word) else shlex.quote(word)
            for word in self.words
        )

    def content(self) -> Fields:
        """Return what the run's id has of it, as plain JSON values."""
        return {"command": list(self.words), "metrics": dict(self.metrics)}

    @property
    def resumes(self) -> bool:
        """Whether the command takes a folder from which it resumes."""
        return "checkpoint" in placeholders([*self.words, self.metrics.get("file", "")])


def placeholders(words: Iterable[str]) -> set[str]:
    """Return the names that a command wants, `seed` of `--seed={seed}`; `${NAME}` is left to a shell."""
    return {name for word in words for name in PLACEHOLDER.findall(word)}


def filled(words: Iterable[str], values: ReadFields) -> list[str]:
    """Return a command for one run; a word that is a list's placeholder alone becomes the list's words."""
    line: list[str] = []
    for word in words:
        alone = PLACEHOLDER.fullmatch(word)
        if alone and isinstance(values[alone[1]], list | tuple):
            line += map(_text, values[alone[1]])
        else:
            line.append(PLACEHOLDER.sub(lambda name: _text(values[name[1]]), word))
    return line


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
