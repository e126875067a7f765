"""Reads what a run is made of from its content."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

NOT_MADE_OF = frozenset({"learning_rate", "seed", "protocol_version", "weights_checksum", "task", "schedule_steps"})
"""What differs within a cell, follows from the rest, or is a name."""


def settings(content: str) -> dict[str, Any]:
    """Return numbers and texts by name, without the names of what they are part of; lists as JSON."""
    return dict(_leaves(json.loads(content)))


def _leaves(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from _leaves(value)
        elif name not in NOT_MADE_OF:
            yield name, json.dumps(value) if isinstance(value, (list, bool, type(None))) else value
