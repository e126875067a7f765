"""The log of a stream of candidates: which were compared, with what level, and the level of the next one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from annotated_types import Interval
from filelock import FileLock

from lr_sweep.analysis.statistics.comparisons.sequential import NUM_SEEDS, next_level
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.limits import Count

from .reading import validated
from .sides import Side, Value, check_pairs
from .table_file import read_bounded

Level = Annotated[float, Interval(gt=0, le=0.5)]


@dataclass(frozen=True)
class Turn:
    """A candidate of the stream, and the answer that it last got: a line of the log."""

    number: Count
    """Number of the candidate, from 1."""
    level: Level
    """One-sided error rate of its test, fixed when it first came."""
    candidate: str
    seeds: Sequence[int]
    values: Sequence[Value]
    decision: Literal["run", "accept", "reject"] = "run"

    def __post_init__(self) -> None:
        """Raise ValueError if seeds and values are not as many."""
        check_pairs(self.seeds, self.values)


def lock_of(log: Path) -> FileLock:
    """Return the lock of a log, held while it is read and written: two gates at once must not get one number."""
    return FileLock(log.with_name(f".{log.name}.lock"))


def read_turns(log: Path) -> Sequence[Turn]:
    """Read the last turn of each candidate; raises UserError."""
    try:
        lines = read_bounded(log).decode().splitlines() if log.exists() else []
        return list({turn.number: turn for turn in map(_turn, lines)}.values())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"--stream {log}: no log of the gate ({reason(error)}): name another file"
        ) from error


def _turn(line: str) -> Turn:
    """Read a line of the log; lines of earlier versions have a p value, `evidence`, which decides nothing now."""
    content = json.loads(line)
    if isinstance(content, dict):
        content.pop("evidence", None)
    return validated(Turn, json.dumps(content))


def turn_of(turns: Sequence[Turn], name: str, side: Side) -> Turn:
    """Return a candidate with its runs: at its earlier turn, if that has its name and its first values."""
    for turn in [turn for turn in turns if turn.candidate == name][-1:]:
        number = len(turn.values) if turn.decision == "run" else len(side.values)
        if list(turn.values) == list(side.values)[:number]:
            return replace(turn, seeds=side.seeds, values=side.values)
    is_accepted = np.array([turn.decision == "accept" for turn in turns])
    level = float(next_level(len(turns), is_accepted.sum()))
    return Turn(len(turns) + 1, level, name, side.seeds, side.values)


def append_turn(log: Path, turn: Turn) -> None:
    """Append a line."""
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(turn)) + "\n")


def refuse_accepted(log: Path | None, side: Side) -> None:
    """Raise UserError if a side has runs by which the last candidate was accepted: they look better than they are."""
    turns = read_turns(log) if log else ()
    accepted = [turn for turn in turns if turn.decision == "accept"]
    runs = set(zip(side.seeds, side.values, strict=True))
    for turn in accepted[-1:]:
        if not runs.isdisjoint(zip(turn.seeds, turn.values, strict=True)):
            why = f"these runs made the gate accept {turn.candidate}, so they look better than they are"
            advice = f"store {NUM_SEEDS} further seeds, from {max(turn.seeds) + 1} on"
            raise UserError(f"{why}: {advice}")
