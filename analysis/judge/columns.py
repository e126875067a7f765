"""Which column of a table means what: as the user says, otherwise guessed by its name and its fields, and said."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lr_sweep.analysis.judge.content import Content
from lr_sweep.analysis.judge.names import (
    DIRECTIONS,
    DOWN,
    GIVEN_ROLES,
    METRIC_NAMES,
    ROLES,
    SEVERAL,
    SPLITS,
    UP,
    VALUES,
)
from lr_sweep.analysis.judge.reading import Choice, QuestionError, Reading, one_of
from lr_sweep.analysis.judge.table_file import MOST_NAME, TableFile
from lr_sweep.analysis.judge.words import (
    agree,
    has_unit,
    is_higher_better,
    is_metric,
    is_rate,
    is_setting,
    kinds,
    listed,
    measured,
    plain,
    split_of,
    words_of,
)
from lr_sweep.common.errors import UserError

JOIN = "+"
"""Between the names of columns that mean one thing together."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of a table that are read."""

    of: Mapping[str, str]
    """Column by what it means: a key of `ROLES` or `SPLITS`, or `nuisance`; several are joined by `+`."""
    metric: str
    """Name of the metric: that of the column that selects, or where there is none of the one that is shown; empty: the
    column's name does not say it."""
    unread: Sequence[str]
    """The other columns."""
    guessed: Mapping[str, str] = field(default_factory=dict)
    """Why a column was taken, by its meaning, where its name alone does not say so."""
    higher_is_better: bool | None = None
    """As a column of the table says; None: none does."""


def columns_of(table: TableFile, reading: Reading) -> Columns:
    """Find what each column of a table means.

    Raises:
        UserError: the table lacks a column.
        QuestionError: names and fields allow several answers.
    """
    names = list(table.columns)
    try:
        found = find_columns(table, reading.columns, reading.metric)
        if "learning_rate" not in found.of:
            raise UserError(_no_rate(table, names))
        if not {"validation", "test"} & found.of.keys():
            raise UserError(f"no column of validation or test in {listed(names)}: give --columns validation=NAME")
    except QuestionError as question:
        raise QuestionError(f"{table.path}: {question.text}", question.choices) from question
    except UserError as error:
        raise UserError(f"{table.path}: {error}") from error
    if len(name := reading.metric or found.metric) > MOST_NAME:
        raise UserError(
            f"got the name of a metric of {len(name):,} characters, want at most {MOST_NAME}: --metric NAME"
        )
    return found


def _no_rate(table: TableFile, names: list[str]) -> str:
    """Say why there is no column of learning rates."""
    if not (named := list(filter(is_rate, names))):
        return f"no column of learning rates in {listed(names)}: give --columns learning_rate=NAME"
    text = next((text for text in table.columns[named[0]] if text.strip()), "")
    return f"{named[0]} has no numbers: got {text[:MOST_NAME]!r}, want learning rates, such as 0.001 or 1e-3"


def parts_of(name: str, names: Mapping[str, object]) -> list[str]:
    """Return the columns that a text names: one, or several joined by `+`."""
    return [name] if name in names else name.split(JOIN)


def find_columns(table: TableFile, given: Mapping[str, str], metric: str | None) -> Columns:
    """Find what each column means.

    Args:
        table: of which names count first, then fields.
        given: column by what it means; an empty text: the table has no such column.
        metric: name of the metric; if there are columns of it, no others are read; None: not said.

    Raises:
        UserError: a given column is not there, or they contradict each other.
        QuestionError: several answers are equally good.
    """
    names, content = list(table.columns), Content(table)
    mistakes = [
        f"--columns {role}={name}: no such column: there are {listed(names)}"
        for role, name in given.items()
        if name and not set(parts_of(name, table.columns)) <= set(names)
    ]
    mistakes += [
        f"--columns {role}={name}: want one column: only {', '.join(sorted(SEVERAL))} may be several"
        for role, name in given.items()
        if name and name not in table.columns and role not in SEVERAL
    ]
    if mistakes:
        raise UserError("\n".join(mistakes))
    found, guessed = {role: name for role, name in given.items() if name}, dict[str, str]()
    taken = {part for name in found.values() for part in parts_of(name, table.columns)}
    free = [name for name in names if name not in taken]
    for role in [role for role in ROLES if role not in given]:
        if role == "learning_rate":
            continue
        if name := _by_name(role, free, content, found):
            found[role] = name
    if "learning_rate" not in given:
        _find_rate([name for name in free if name not in found.values()], content, found, guessed)
    of_metric = _find_metric([name for name in free if name not in found.values()], content, given, metric, found)
    if mistakes := _contradictions(found, metric or ""):
        raise UserError("\n".join(mistakes))
    read = {part for name in found.values() for part in parts_of(name, table.columns)} | set(of_metric.said_by)
    return Columns(
        of={role: found[role] for role in (*GIVEN_ROLES, *SPLITS) if role in found},
        metric=of_metric.name,
        unread=[name for name in names if name not in read],
        guessed=guessed | of_metric.guessed,
        higher_is_better=of_metric.higher_is_better,
    )


def _by_name(role: str, names: Sequence[str], content: Content, found: Mapping[str, str]) -> str:
    """Return the first column with a name for a role: one with several values, else one with any; empty: none."""
    candidates = [name for alias in ROLES[role] for name in names if plain(name) == alias]
    held = [name for name in candidates if content.values(name) and name not in found.values()]
    if role == "run" and "step" in found:
        held = [name for name in held if not _numbers_rows(name, content, found)]
    several = [name for name in held if len(content.values(name)) > 1]
    return next(iter([*several, *held]), "")


def _numbers_rows(name: str, content: Content, found: Mapping[str, str]) -> bool:
    """Return whether a column numbers evaluations, not runs; raises QuestionError where it may be either."""
    values = content.values(name)
    if not (len(values) == len(content.table.lines) > 1 < len(content.values(found["step"]))):
        return False
    if not all(text.isascii() and text.isdigit() for text in values):
        return False
    if "seed" not in found:
        choices = [("each row is a run", name), ("rows are evaluations of runs", "")]
        raise QuestionError(
            f"{name} has another number in each row: are rows runs, or evaluations of runs?",
            [Choice(says, Reading(columns={"run": column})) for says, column in choices],
        )
    return True


def _find_rate(names: Sequence[str], content: Content, found: dict[str, str], guessed: dict[str, str]) -> None:
    """Find the column of configured learning rates."""
    plainly = [name for name in names if not has_unit(name)]
    named = [name for alias in ROLES["learning_rate"] for name in plainly if plain(name) == alias]
    candidates = [name for name in dict.fromkeys([*named, *filter(is_rate, names)]) if content.has_numbers(name)]
    if not candidates:
        return
    rates = [name for name in candidates if content.values(name)] or candidates
    rates = [name for name in rates if len(content.values(name)) > 1] or rates[:1]
    if "step" in found:
        rates = [name for name in rates if not _is_schedule(name, rates, content, found)] or rates
    rates = _different(rates, content)
    if len(rates) > 1 and len(configured := [name for name in rates if is_setting(name)]) == 1:
        rates = configured
    if len(rates) > 1:
        raise QuestionError(
            f"{len(rates)} columns may be learning_rate: {listed(rates)}: say which",
            one_of("learning_rate", rates, "nuisance"),
        )
    found["learning_rate"] = rates[0]
    others = [name for name in candidates if name != rates[0]]
    if others or rates[0] not in named:
        guessed["learning_rate"] = f"rather than {listed(others)}" if others else "by its name"


def _is_schedule(name: str, rates: Sequence[str], content: Content, found: Mapping[str, str]) -> bool:
    """Return whether a rate changes within runs that another one names."""
    roles = ("task", "model", "variant", "seed", "run")
    labels = [part for role in roles if role in found for part in parts_of(found[role], content.table.columns)]
    step = found["step"]
    return any(content.is_scheduled(name, [*labels, other], step) for other in rates if other != name)


def _different(rates: Sequence[str], content: Content) -> list[str]:
    """Leave out columns of numbers that equal an earlier one."""
    kept: list[str] = []
    for name in rates:
        if not any(content.is_numbers(name) and content.is_numbers(one) and content.same(one, name) for one in kept):
            kept.append(name)
    return kept


@dataclass(kw_only=True)
class _OfMetric:
    """What was found of the metric, beside its columns."""

    name: str
    guessed: dict[str, str] = field(default_factory=dict)
    higher_is_better: bool | None = None
    said_by: tuple[str, ...] = ()
    """Columns that say which metric it is, and which way it is better."""


def _find_metric(
    names: Sequence[str], content: Content, given: Mapping[str, str], metric: str | None, found: dict[str, str]
) -> _OfMetric:
    """Find the columns of validation, test and training values of one metric."""
    held = [name for name in names if is_metric(name) and content.has_numbers(name)]
    by_split = {split: [name for name in held if split_of(name) == split] for split in (*SPLITS, "")}
    result = _OfMetric(name="")
    if not {"validation", "test"} & (found.keys() | {split for split in ("validation", "test") if by_split[split]}):
        result = _find_unlabelled(names, by_split[""], content, given, metric, found)
    there = {measured(name) for name in held if split_of(name)} & {measured(metric or "")}
    wanted = result.name or _metric_of(found) or next(iter(there), "")
    for split in [split for split in SPLITS if split not in {**given, **found}]:
        candidates = _values_of(_filled(by_split[split], content), wanted)
        if name := _one_of(split, candidates, result, metric, is_long="step" in found):
            found[split] = name
        wanted = wanted or _metric_of(found)
    result.name = result.name or _metric_of(found) or wanted
    result.higher_is_better, result.said_by = _direction(names, content, result)
    return result


def _filled(names: Sequence[str], content: Content) -> list[str]:
    return [name for name in names if content.values(name)] or list(names)


def _find_unlabelled(
    names: Sequence[str],
    known: Sequence[str],
    content: Content,
    given: Mapping[str, str],
    metric: str | None,
    found: dict[str, str],
) -> _OfMetric:
    """Find a metric whose name does not say on which data it was measured: it is taken for validation's."""
    result = _OfMetric(name="")
    if "validation" in given and "test" in given:
        return result
    candidates = _values_of(_filled(known, content), measured(metric or ""))
    values = [name for alias in VALUES for name in names if plain(name) == alias and content.has_numbers(name)]
    name = _one_of("validation", candidates, result, metric, is_long="step" in found) if candidates else ""
    if not name and not values:
        return result
    split, says = "validation", "its name does not say on which data"
    if not name:
        name = values[0]
        says, split, result.name, result.said_by = _named_beside(names, content, name)
    if split in given:
        return result
    found[split] = name
    result.guessed[split] = "; ".join(filter(None, [says, result.guessed.get(split, "")]))
    result.name = result.name or measured(name)
    return result


def _named_beside(names: Sequence[str], content: Content, value: str) -> tuple[str, str, str, tuple[str, ...]]:
    """Return why a column of values is read, its data and its metric, as another column says, and that column."""
    for name in [name for alias in METRIC_NAMES for name in names if plain(name) == alias]:
        metrics = content.values(name)
        if len(metrics) > 1:
            raise UserError(
                f"{value} has the values of several metrics, by {name}: {listed(sorted(metrics))}: keep the rows of one"
            )
        if metrics:
            said = next(iter(metrics))
            return f"{name} says {said}", split_of(said) or "validation", measured(said), (name,)
    return "what was optimised", "validation", "", ()


def _direction(names: Sequence[str], content: Content, result: _OfMetric) -> tuple[bool | None, tuple[str, ...]]:
    """Return which way the metric is better, as a column says, and the columns that say something of it."""
    for name in [name for alias in DIRECTIONS for name in names if plain(name) == alias]:
        said = {text.lower().rpartition(".")[2] for text in content.values(name)}
        if len(said) == 1 and said <= UP | DOWN:
            return bool(said & UP), (*result.said_by, name)
    return None, result.said_by


def _metric_of(found: Mapping[str, str]) -> str:
    """Return the metric of the column that selects or, where there is none, of the one that is shown."""
    return measured(found.get("validation", "")) or measured(found.get("test", ""))


def _contradictions(found: Mapping[str, str], metric: str) -> list[str]:
    """Find columns that measure something else than the one that selects, or that is shown, or than `--metric` says."""
    named = {f"{split}={found[split]}": measured(found[split]) for split in SPLITS if split in found}
    named |= {f"--metric {metric}": metric} if metric else {}
    (first, says), *others = [(text, name) for text, name in named.items() if kinds(name)] or [("", "")]
    return [
        f"{first} measures {says}, {text} {other}: give columns of one metric, or leave one out, as in --columns train="
        for text, other in others
        if not agree(says, other)
    ]


def _values_of(names: list[str], metric: str) -> list[str]:
    """Return the columns of a metric; without its name those of metrics that are known, if there are any."""
    if metric:
        alike = [name for name in names if measured(name) == metric]
        return alike or [name for name in names if kinds(measured(name)) & kinds(metric) and agree(metric, name)]
    known = [name for name in names if is_higher_better(measured(name)) is not None]
    return known or names


def _one_of(split: str, candidates: Sequence[str], result: _OfMetric, metric: str | None, *, is_long: bool) -> str:
    """Return the column of a split: accuracy before loss, and the value itself before the best or last one so far."""
    by_metric: dict[str, list[str]] = {}
    for name in candidates:
        by_metric.setdefault(measured(name), []).append(name)
    up = [each for each in by_metric if is_higher_better(each)]
    preferred = up if len(up) == 1 else [] if up else [each for each in by_metric if each == "loss"]
    left = [name for each in preferred or by_metric for name in by_metric[each]]
    if len(left) > 1 and is_long:
        left = [name for name in left if not {"best", "final", "last"} & set(words_of(name))] or left
    if len(left) > 1:
        if split == "train":
            return ""
        numbered = len({re.sub(r"\d+", "", name) for name in left}) == 1
        hint = "; if they are seeds, name them seed_0, seed_1, ..." if numbered else ""
        raise QuestionError(f"{len(left)} columns may be {split}: {listed(left)}: say which{hint}", one_of(split, left))
    others = [name for name in candidates if name not in left]
    if others and not metric:
        result.guessed[split] = f"rather than {listed(others)}"
    return next(iter(left), "")
