"""What the name of a column says: on which data it was measured, which metric it is, which way that is better."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lr_sweep.analysis.judge.names import (
    HIGHER,
    LOWER,
    MEANS,
    NEGATED,
    NO_RATE,
    OF_MEANS,
    PASSED_OVER,
    PREFIXES,
    RATE_WORDS,
    SETTING_WORDS,
    SETTINGS,
    SPLITS,
    SPREADS,
    TIMES,
    WORDS,
)

_UNIT = re.compile(r"%|percent|10\^|10\*\*|\de[+-]?\d", re.IGNORECASE)
MOST_LISTED = 60
"""Names, and characters of each, in a message."""


def plain(name: str) -> str:
    """Return a name in small letters, without a tool's prefix, with `_` between words."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", "_", name.strip()).lower()
    text = next((text.removeprefix(prefix) for prefix in PREFIXES if text.startswith(prefix)), text)
    return re.sub(r"\W+", "_", text).rstrip("_") or text


def words_of(name: str) -> list[str]:
    """Return the words of a name."""
    return [word for word in plain(name).split("_") if word]


def is_setting(name: str) -> bool:
    """Return whether a tool says of a column that runs were started with its values."""
    return name.strip().lower().startswith(SETTINGS)


def is_rate(name: str) -> bool:
    """Return whether a learning rate is in a name, and nothing that makes it another number."""
    text = f"_{plain(name)}_"
    known = any(f"_{word}_" in text for word in RATE_WORDS) and not NO_RATE & set(words_of(name))
    return known and not has_unit(name)


def has_unit(name: str) -> bool:
    """Return whether the values of a column are not to be taken as they are: those of `lr (x1e-3)`."""
    return bool(_UNIT.search(name))


def is_result(name: str) -> bool:
    """Return whether a column's name is that of a metric or of a time; one that weighs a loss is a setting."""
    known = is_higher_better(measured(name)) is not None and not SETTING_WORDS & set(words_of(name))
    return known or has_word(name, TIMES)


def is_metric(name: str) -> bool:
    """Return whether a column may be a metric's, and not how it spreads, or a time."""
    known = bool(split_of(name)) or is_higher_better(measured(name)) is not None
    return known and not (SPREADS | TIMES | SETTING_WORDS) & set(words_of(name)) and not is_setting(name)


def split_of(name: str) -> str:
    """Return which data a column was measured on, by its name; empty: the name does not say."""
    words = words_of(name)
    return next((split for split, meaning in SPLITS.items() if meaning & set(words)), "")


def measured(name: str) -> str:
    """Return the metric in a column's name: `accuracy` of `best_val_acc`; empty: there is none."""
    words = words_of(name)
    known = set().union(PASSED_OVER, *SPLITS.values(), set() if OF_MEANS & set(words) else MEANS)
    return " ".join(WORDS.get(word, word) for word in words if word not in known)


def is_higher_better(metric: str) -> bool | None:
    """Return which way a metric is better, by the words of its name; None: they do not say."""
    if has_word(metric, NEGATED):
        return None
    if has_word(metric, LOWER):
        return False
    return True if has_word(metric, HIGHER) else None


def has_word(metric: str, words: set[str]) -> bool:
    """Return whether one of some words is in the name of a metric."""
    return bool({WORDS.get(word, word) for word in words_of(metric)} & words)


def agree(one: str, other: str) -> bool:
    """Return whether two names of metrics may be of one; `loss` is any that is better when lower."""
    if is_higher_better(one) is not is_higher_better(other):
        return False
    return bool(kinds(one) & kinds(other)) or {"loss"} in (kinds(one), kinds(other))


def kinds(metric: str) -> set[str]:
    """Return the words of a metric's name that are known."""
    return {WORDS.get(word, word) for word in words_of(metric)} & (HIGHER | LOWER)


def listed(names: Sequence[str]) -> str:
    """List names of columns, for messages; of very many, and of very long ones, a part."""
    shown = [name if len(name) <= MOST_LISTED else f"{name[:MOST_LISTED]}..." for name in names[:MOST_LISTED]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
