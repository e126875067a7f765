"""The log of a stream of candidates: which were compared, with what level, and the level of the next one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lr_sweep.analysis.statistics.comparisons.sequential import CANDIDATE, next_level
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import read_plain
from lr_sweep.common.text import counted

MOST_BYTES = 100_000_000
KEYS = ("number", "level", "candidate", "decision", "seeds", "values", "evidence", "baseline")
"""Keys of a line."""
OPEN = CANDIDATE + 0.01
"""Evidence of a candidate that is not decided: it counts against the next ones, whatever becomes of it."""


class Turn(NamedTuple):
    """A candidate's place in the stream."""

    number: int
    """Number of the candidate, from 1."""
    level: float
    """One-sided error rate of its test, fixed when it first came."""


class Stream:
    """A log of JSON lines, one for each answer; the last line of a candidate counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last: dict[int, Mapping[str, Any]] = {}
        try:
            lines = read_plain(path, MOST_BYTES).decode().splitlines() if path.exists() else []
            for line in map(json.loads, filter(str.strip, lines)):
                self.last[int(line["number"])] = {name: line[name] for name in KEYS}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"--stream {path}: no log of the gate ({reason(error)}): name another file") from error

    def turn(self, name: str, values: Sequence[float]) -> Turn:
        """Return the place of a candidate: its earlier one, if the log has its name and its first values."""
        for number, line in reversed(self.last.items()):
            if line["candidate"] == name:
                known = line["values"]
                if list(values[: len(known)]) == known and (line["decision"] == "run" or len(values) == len(known)):
                    return Turn(number, line["level"])
                break
        ended = [each["decision"] != "run" for each in self.last.values()]
        evidence = [each["evidence"] if done else OPEN for each, done in zip(self.last.values(), ended, strict=True)]
        accepted = [each["decision"] == "accept" for each in self.last.values()]
        return Turn(len(self.last) + 1, next_level(evidence, accepted))

    def add(self, turn: Turn, line: Mapping[str, Any]) -> None:
        """Append an answer, unless the log ends with it for this candidate."""
        content = {"number": turn.number, "level": turn.level, **line}
        if self.last.get(turn.number) != content:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(content) + "\n")
            self.last[turn.number] = content

    @property
    def accepted(self) -> Mapping[str, Any] | None:
        """The line of the candidate that was accepted last."""
        found = [line for line in self.last.values() if line["decision"] == "accept"]
        return found[-1] if found else None

    def text(self, baseline: Sequence[int]) -> str:
        """Say how many candidates came, and what became of them; `baseline`: its seeds."""
        decisions = [line["decision"] for line in self.last.values()]
        here = sum(line["baseline"] == list(baseline) for line in self.last.values())
        num_seeds = sum(len(line["values"]) for line in self.last.values())
        counts = ", ".join(f"{decisions.count(each)} {word}" for each, word in WORDS.items())
        candidates = counted(len(decisions), "candidate")
        return f"stream: {candidates} ({counts}), {num_seeds} seeds; {here} against this baseline"


WORDS = {"accept": "accepted", "reject": "rejected", "run": "open"}
"""Ends of candidates, by the decision."""
