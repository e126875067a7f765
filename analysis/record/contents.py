"""Reads what a run is made of from its `content`, and which code trained it from its `code`.

A version of a file is a hash that the writer of the record gives; here they are only compared. Imports no pandas, for
`plan`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

NOT_MADE_OF = frozenset({"learning_rate", "seed", "protocol_version", "weights_checksum", "task", "schedule_steps"})
"""What differs within a cell, follows from the rest, or is a name."""
ENGINE = "trainables/"
"""Code below it may change without changing numbers; where it changes them, `protocol_version` is raised. Other files,
those of the data, have no such promise."""
MAX_FILES = 3
"""Files named in a message; the rest are counted."""

Now = Callable[[str], str | None]
"""Returns the version that a file has now; None: not known."""


def settings(content: str) -> dict[str, Any]:
    """Return numbers and texts by name, without the names of what they are part of; lists as JSON."""
    return dict(_leaves(json.loads(content)))


def _leaves(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from _leaves(value)
        elif name not in NOT_MADE_OF:
            yield name, json.dumps(value) if isinstance(value, (list, bool, type(None))) else value


def other_versions(code: str, now: Now) -> set[str]:
    """Return the files of which a run was trained, at any step, by another version than the present one."""
    return {file for file, found in versions_of(code).items() if now(file) is not None and found != {now(file)}}


def versions_of(code: str, trained_steps: int | None = None) -> dict[str, set[str]]:
    """Return the versions of each file that a run's `code` names; more than one: it changed while the run was trained.

    Versions from step `trained_steps` on trained nothing; None: all count.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for version in json.loads(code):
        if trained_steps is None or version["from_step"] < trained_steps or version["from_step"] == 0:
            for file, text in (version["files"] or {}).items():
                found[file].add(text)
    return found


def files_text(files: Iterable[str]) -> str:
    """Name some files, those of the data first."""
    names = sorted(files, key=lambda file: (file.startswith(ENGINE), file))
    if len(names) > MAX_FILES:
        names = [*names[: MAX_FILES - 1], f"{len(names) - MAX_FILES + 1} more files"]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
