"""Which column of a table means what: as the user says, otherwise by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lr_sweep.analysis.judge.table_file import MOST_NAME, TableFile
from lr_sweep.common.errors import UserError

ROLES: dict[str, tuple[str, ...]] = {
    "task": ("task", "dataset", "data_set", "benchmark"),
    "model": ("model", "model_name", "architecture", "arch", "backbone"),
    "variant": ("variant", "method", "algorithm", "treatment"),
    "learning_rate": ("learning_rate", "lr", "learningrate", "base_lr", "init_lr", "initial_lr", "peak_lr", "max_lr"),
    "seed": ("seed", "random_seed", "random_state"),
    "step": ("step", "_step", "global_step", "training_iteration", "iteration", "epoch"),
    "num_steps": ("num_steps", "max_steps", "total_steps", "num_epochs", "max_epochs"),
    "run": ("run_id", "trial_id", "run", "id"),
    "status": ("status", "state"),
}
"""What a column may mean, with the names that mean it, in small letters and without a tool's prefix."""
SPLITS = {
    "validation": {"validation", "val", "valid", "dev", "eval"},
    "test": {"test"},
    "train": {"train", "training"},
}
"""What else a column may mean, with the words in its name that mean it; the rest of the name is the metric."""
FIRST_IS_TAKEN = {"step", "num_steps", "run", "status"}
"""If several columns have names for one of these, the first in the list is read. For others the user says which."""
SETTINGS = ("params.", "params_", "hparams.", "hparams/", "config/", "config.")
"""Before the names of what a run was started with, of MLflow, Optuna, Lightning, Ray Tune and W&B."""
PREFIXES = (*SETTINGS, "metrics.", "summary/", "summary.")
PASSED_OVER = {"best", "final", "last", "epoch", "step", "at"}
"""Words in the name of a metric's column that are no part of the metric's name."""
MOST_LISTED = 60
"""Names, and characters of each, in a message."""
WORDS = {"acc": "accuracy", "ppl": "perplexity", "err": "error"}
HIGHER = {"accuracy", "f1", "auc", "auroc", "precision", "recall", "bleu", "iou", "miou", "dice", "r2", "mcc", "ndcg"}
HIGHER |= {"reward", "return", "top1", "top5", "rouge", "map"}
LOWER = {"loss", "error", "perplexity", "nll", "bpc", "bpb", "mse", "rmse", "mae", "wer", "cer", "fid", "entropy"}
FRACTIONS = HIGHER - {"reward", "return"} | {"error", "wer", "cer"}
"""Metrics whose values are fractions, shown in percent, if all are from 0 to 1."""
NEGATED = {"neg", "negative", "minus"}
"""With one of these a metric's name does not say which way it is better: `neg_mean_squared_error`."""
PERCENTS = {"accuracy", "error"}
"""Metrics whose values are percents if they reach up to 100."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How the user wants a table read."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """Column by what it means, empty: the table has no such column; the rest is found by name."""
    metric: str | None = None
    """Name of the metric; if there are columns of it, no others are read."""
    higher_is_better: bool | None = None
    select_on_test: bool = False
    paired: bool = False
    """Compare variants by seed."""
    equal_within: float | None = None
    """Points of percent, or the metric's unit, within which variants are equal."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of a table that are read."""

    of: Mapping[str, str]
    """Column by what it means: a key of `ROLES` or `SPLITS`."""
    metric: str
    """Name of the metric: that of the column that selects, or where there is none of the one that is shown; empty: the
    column's name does not say it."""
    unread: Sequence[str]
    """The other columns."""


def columns_of(table: TableFile, reading: Reading) -> Columns:
    """Find what each column of a table means; raises UserError if it lacks one, or names allow several answers."""
    names = list(table.columns)
    try:
        found = find_columns(names, reading.columns, reading.metric)
        if "learning_rate" not in found.of:
            raise UserError(f"no column of learning rates in {listed(names)}: give --columns learning_rate=NAME")
        if not {"validation", "test"} & found.of.keys():
            raise UserError(f"no column of validation or test in {listed(names)}: give --columns validation=NAME")
    except UserError as error:
        raise UserError(f"{table.path}: {error}") from error
    if len(name := reading.metric or found.metric) > MOST_NAME:
        raise UserError(
            f"got the name of a metric of {len(name):,} characters, want at most {MOST_NAME}: --metric NAME"
        )
    return found


def find_columns(names: Sequence[str], given: Mapping[str, str], metric: str | None) -> Columns:
    """Find what each column means.

    Args:
        names: of the table's columns.
        given: column by what it means; an empty text: the table has no such column.
        metric: name of the metric; if there are columns of it, no others are read; None: not said.

    Raises:
        UserError: a given column is not there, or names allow several answers.
    """
    mistakes = [
        f"--columns {role}={name}: no such column: there are {listed(names)}"
        for role, name in given.items()
        if name and name not in names
    ]
    found = {role: name for role, name in given.items() if name}
    for role in [role for role in ROLES if role not in given]:
        candidates = [name for alias in ROLES[role] for name in names if _plain(name) == alias]
        mistakes += _add(found, role, candidates, role in FIRST_IS_TAKEN)
    there = {measured(name) for name in names if split_of(name)} & {measured(metric or "")}
    wanted = _metric_of(found) or next(iter(there), "")
    for split in [split for split in SPLITS if split not in given]:
        candidates = _values_of([name for name in names if split_of(name) == split], wanted)
        mistakes += _add(found, split, candidates, False)
        wanted = wanted or _metric_of(found)
    if mistakes := mistakes or _contradictions(found, metric or ""):
        raise UserError("\n".join(mistakes))
    unread = [name for name in names if name not in found.values()]
    of = {role: found[role] for role in (*ROLES, *SPLITS) if role in found}
    return Columns(of=of, metric=_metric_of(found) or wanted, unread=unread)


def _metric_of(found: Mapping[str, str]) -> str:
    """Return the metric of the column that selects or, where there is none, of the one that is shown."""
    return measured(found.get("validation", "")) or measured(found.get("test", ""))


def _contradictions(found: Mapping[str, str], metric: str) -> list[str]:
    """Find columns that measure something else than the one that selects, or that is shown, or than `--metric` says."""
    named = {f"{split}={found[split]}": measured(found[split]) for split in SPLITS if split in found}
    named |= {f"--metric {metric}": metric} if metric else {}
    (first, says), *others = [(text, name) for text, name in named.items() if _kinds(name)] or [("", "")]
    return [
        f"{first} measures {says}, {text} {other}: give columns of one metric, or leave one out, as in --columns train="
        for text, other in others
        if not _agree(says, other)
    ]


def _agree(one: str, other: str) -> bool:
    """Return whether two names of metrics may be of one; `loss` is any that is better when lower."""
    if is_higher_better(one) is not is_higher_better(other):
        return False
    return bool(_kinds(one) & _kinds(other)) or {"loss"} in (_kinds(one), _kinds(other))


def _kinds(metric: str) -> set[str]:
    """Return the words of a metric's name that are known."""
    return {WORDS.get(word, word) for word in _words(metric)} & (HIGHER | LOWER)


def is_setting(name: str) -> bool:
    """Return whether a tool says of a column that runs were started with its values."""
    return name.strip().lower().startswith(SETTINGS)


def is_result(name: str) -> bool:
    """Return whether a column's name is that of a metric or of a time."""
    timed = {"time", "seconds", "duration", "runtime", "timestamp", "created", "date", "s", "sec"}
    return bool(split_of(name)) or is_higher_better(measured(name)) is not None or has_word(name, timed)


def listed(names: Sequence[str]) -> str:
    """List names of columns, for messages; of very many, and of very long ones, a part."""
    shown = [name if len(name) <= MOST_LISTED else f"{name[:MOST_LISTED]}..." for name in names[:MOST_LISTED]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def split_of(name: str) -> str:
    """Return which data a column was measured on, by its name; empty: no name of a metric."""
    words = _words(name)
    return next((split for split, meaning in SPLITS.items() if meaning & set(words)), "")


def measured(name: str) -> str:
    """Return the metric in a column's name: `accuracy` of `best_val_acc`; empty: there is none."""
    known = set().union(*SPLITS.values()) | PASSED_OVER
    return " ".join(WORDS.get(word, word) for word in _words(name) if word not in known)


def is_higher_better(metric: str) -> bool | None:
    """Return which way a metric is better, by the words of its name; None: they do not say."""
    if has_word(metric, NEGATED):
        return None
    if has_word(metric, LOWER):
        return False
    return True if has_word(metric, HIGHER) else None


def has_word(metric: str, words: set[str]) -> bool:
    """Return whether one of some words is in the name of a metric."""
    return bool({WORDS.get(word, word) for word in _words(metric)} & words)


def _values_of(names: list[str], metric: str) -> list[str]:
    """Return the columns of a metric; without its name those of metrics that are known, if there are any."""
    if metric:
        alike = [name for name in names if measured(name) == metric]
        return alike or [name for name in names if _kinds(measured(name)) & _kinds(metric) and _agree(metric, name)]
    known = [name for name in names if is_higher_better(measured(name)) is not None]
    return known or names


def _add(found: dict[str, str], role: str, candidates: Sequence[str], first_is_taken: bool) -> list[str]:
    """Take the only candidate, or the first; return what is wrong."""
    if len(candidates) > 1 and not first_is_taken:
        return [
            f"{len(candidates)} columns may be {role}: {listed(candidates)}: say which, as in "
            f"--columns {role}={candidates[0]}"
        ]
    if candidates and candidates[0] not in found.values():
        found[role] = candidates[0]
    return []


def _plain(name: str) -> str:
    """Return a name in small letters, without a tool's prefix, with `_` between words."""
    text = name.strip().lower()
    text = next((text.removeprefix(prefix) for prefix in PREFIXES if text.startswith(prefix)), text)
    return re.sub(r"[\s./-]+", "_", text)


def _words(name: str) -> list[str]:
    return [word for word in _plain(name).split("_") if word]
