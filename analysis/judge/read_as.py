"""Says how a table was read: what each column was taken for, what was guessed, what is not used."""

from __future__ import annotations

from collections.abc import Mapping

from lr_sweep.analysis.judge.columns import Columns
from lr_sweep.analysis.judge.names import GIVEN_ROLES, SPLITS
from lr_sweep.analysis.judge.table_file import TableFile, printable
from lr_sweep.analysis.metric import Metric

MOST_NAMED = 20
"""Columns that are not used; more are counted."""
MOST_NAME = 60
"""Characters of a name."""
WORDS = {"learning_rate": "learning rate", "num_steps": "step budget", "nuisance": "tuned as the rate", "run": "run id"}


def read_as(table: TableFile, columns: Columns, guessed: Mapping[str, str], metric: Metric) -> str:
    """Return one paragraph: `read as: variant = optimizer, learning rate = lr (guessed: ...), ...; not used: ...`."""
    read = [_role(role, columns, guessed) for role in (*GIVEN_ROLES, *SPLITS) if role in {**columns.of, **guessed}]
    unread = [name for name in columns.unread if name not in guessed.values()]
    counted = [f"{printable(name)[:MOST_NAME]} ({_values(table, name)})" for name in unread[:MOST_NAMED]]
    more = f" and {len(unread) - MOST_NAMED} more" if len(unread) > MOST_NAMED else ""
    rest = f"; not used: {', '.join(counted)}{more}" if counted else ""
    return f"read as: {', '.join(read)}; {metric.name}: {metric.better} is better{rest}"


def _role(role: str, columns: Columns, guessed: Mapping[str, str]) -> str:
    name = WORDS.get(role, role)
    if role not in columns.of:  # a setting that is compared
        return f"{name} = {printable(guessed[role])} (guessed: the one setting in which runs of a learning rate differ)"
    why = f" (guessed: {printable(guessed[role])})" if role in guessed else ""
    return f"{name} = {printable(columns.of[role])}{why}"


def _values(table: TableFile, name: str) -> str:
    values = {text.strip() for text in table.columns[name]} - {""}
    return f"{len(values):,} value{'' if len(values) == 1 else 's'}" if values else "empty"
