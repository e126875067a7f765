"""How a table is to be read: what the user says, what is asked, and the file that keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lr_sweep.common.errors import UserError

MOST_BYTES = 1_000_000
"""Of a file that keeps a reading."""
FIELDS = {"columns": dict, "metric": str, "higher_is_better": bool, "select_on_test": bool}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How the user wants a table read."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """Column by what it means, several joined by `+`; empty: the table has no such column; the rest is guessed."""
    metric: str | None = None
    """Name of the metric; if there are columns of it, no others are read."""
    higher_is_better: bool | None = None
    select_on_test: bool = False

    def but(self, other: Reading) -> Reading:
        """Return this reading with what another one says in its place."""
        return Reading(
            columns={**self.columns, **other.columns},
            metric=other.metric or self.metric,
            higher_is_better=self.higher_is_better if other.higher_is_better is None else other.higher_is_better,
            select_on_test=other.select_on_test or self.select_on_test,
        )


class Choice(NamedTuple):
    """One of several readings that are equally good."""

    says: str
    """What it would mean, as a clause."""
    reading: Reading
    """What the user would have to say for it, beside what was said."""


class QuestionError(UserError):
    """Two readings of a table are equally good."""

    def __init__(self, text: str, choices: Sequence[Choice]) -> None:
        super().__init__("\n".join([text, *(f"  {each.says}: {options_text(each.reading)}" for each in choices)]))
        self.text, self.choices = text, tuple(choices)


def options_text(reading: Reading) -> str:
    """Write a reading as options of the command."""
    columns = ",".join(f"{role}={name}" for role, name in reading.columns.items())
    higher = {True: "--higher-is-better", False: "--lower-is-better", None: ""}[reading.higher_is_better]
    parts = [f"--columns {quoted(columns)}" if columns else "", f"--metric {quoted(reading.metric or '')}"]
    parts = [part for part in parts if part and not part.endswith("''")]
    return " ".join(filter(None, [*parts, higher, "--select-on-test" if reading.select_on_test else ""]))


def quoted(text: str) -> str:
    """Return a text as a shell reads it as one word."""
    import shlex

    return shlex.quote(text)
