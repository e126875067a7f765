"""Which column of a table means what: as the user says, otherwise guessed by its name and its fields, and said."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lr_sweep.analysis.judge.fields import Content, as_number
from lr_sweep.analysis.judge.names import (
    ABOUT_RUNS,
    CANDIDATES,
    DOWN,
    GIVEN_ROLES,
    NAMES,
    ROLES,
    SEVERAL,
    SPLITS,
    UP,
    agree,
    has_rate_word,
    has_unit,
    is_higher_better,
    is_metric,
    is_named,
    is_rate,
    is_result,
    is_setting,
    kinds,
    listed,
    measured,
    plain,
    split_of,
    words_of,
)
from lr_sweep.analysis.judge.reading import JOIN, MOST_CHOICES, Choice, QuestionError, Reading, one_of
from lr_sweep.analysis.judge.table_file import MOST_NAME, TableFile, raise_mistakes
from lr_sweep.common.errors import UserError

POWERS = ("10^", "e^")
"""How the columns of rates begin that are made of logarithms."""


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
    """Whether higher is better, as a column of the table says; None: no column says so."""


def columns_of(table: TableFile, reading: Reading) -> Columns:
    """Find what each column of a table means.

    Raises:
        UserError: the table lacks a column, or what the user says of columns is wrong.
        QuestionError: names and fields allow several answers.
    """
    try:
        found = _Search(table, reading).columns()
    except QuestionError as question:
        raise QuestionError(f"{table.path}: {question.text}", question.choices) from question
    except UserError as error:
        raise UserError(f"{table.path}: {error}") from error
    if (number := len(reading.metric or found.metric)) > MOST_NAME:
        raise UserError(f"got a metric's name of {number:,} characters, want at most {MOST_NAME}: --metric NAME")
    return found


def parts_of(name: str, names: Container[str]) -> list[str]:
    """Return the columns that a text names: one, or several joined by `+`."""
    return [name] if name in names else name.split(JOIN)


class _Search:
    """Finds columns meaning by meaning: a column has one meaning, and those that the user gives come first."""

    def __init__(self, table: TableFile, reading: Reading) -> None:
        self.table, self.content = table, Content(table)
        self.given, self.metric_given = reading.columns, reading.metric or ""
        self.of = {role: name for role, name in self.given.items() if name}
        self.guessed: dict[str, str] = {}
        self.metric = ""
        self.higher_is_better: bool | None = None
        self.said_by: list[str] = []
        """Columns that say which metric it is, and which way it is better."""

    def columns(self) -> Columns:
        raise_mistakes(list(self.wrong_names()))
        for role in [role for role in ROLES if role not in self.given and role != "learning_rate"]:
            self.find_named(role)
        if "learning_rate" not in self.given:
            self.find_rate()
        self.find_repeats()
        self.find_metric()
        raise_mistakes(list(self.contradictions()))
        if "learning_rate" not in {**self.of, **self.given}:
            self.ask_for_rate()
        if not {"validation", "test"} & self.of.keys():
            self.ask_for_values()
        if "learning_rate" not in self.of:
            self.find_candidates()
        return Columns(
            of={role: self.of[role] for role in (*GIVEN_ROLES, *SPLITS) if role in self.of},
            metric=self.metric,
            unread=[name for name in self.free() if name not in self.said_by],
            guessed=self.guessed,
            higher_is_better=self.higher_is_better,
        )

    def wrong_names(self) -> Iterator[str]:
        names = self.table.columns
        for role, name in self.of.items():
            if not set(parts_of(name, names)) <= names.keys():
                yield f"--columns {role}={name}: no such column: there are {listed(list(names))}"
            elif name not in names and role not in SEVERAL:
                yield f"--columns {role}={name}: want one column: only {', '.join(sorted(SEVERAL))} may be several"

    def take(self, role: str, name: str, why: str) -> None:
        self.of[role], self.guessed[role] = name, why

    def free(self) -> list[str]:
        """Return the columns without a meaning."""
        taken = set(self.labels(*self.of))
        return [name for name in self.table.columns if name not in taken]

    def named(self, role: str) -> list[str]:
        """Return the free columns with one of the names of a meaning, in the order of these."""
        names = [name for name in self.free() if is_named(name, role)]
        return sorted(names, key=lambda name: NAMES[role].index(plain(name)))

    def varied(self, names: Sequence[str]) -> list[str]:
        """Return the columns with several values, or else the first one with any."""
        several = [name for name in names if len(self.content.values(name)) > 1]
        return several or list(filter(self.content.has_values, names))[:1] or list(names[:1])

    def labels(self, *roles: str) -> list[str]:
        """Return the columns of some meanings."""
        return [part for role in roles if role in self.of for part in parts_of(self.of[role], self.table.columns)]

    def find_named(self, role: str) -> None:
        names = list(filter(self.content.has_values, self.named(role)))
        if role == "variant":
            names = [name for name in names if not self.content.names_runs(name)]
        elif role == "run" and "step" in self.of:
            names = [name for name in names if not self.numbers_rows(name)]
        if names:
            self.of[role] = self.varied(names)[0]

    def numbers_rows(self, name: str) -> bool:
        """Return whether a column numbers evaluations, not runs; raises QuestionError where it may be either."""
        is_unique = len(self.content.values(name)) == len(self.table.lines)
        if not (is_unique and self.content.is_whole(name) and len(self.content.values(self.of["step"])) > 1):
            return False
        if "seed" not in self.of:
            ways = [("each row is a run", name), ("rows are evaluations of runs", "")]
            choices = [Choice(says, Reading(columns={"run": column})) for says, column in ways]
            text = f"{name} has another number in each row: are rows runs, or evaluations of runs?"
            raise QuestionError(text, choices)
        return True

    def find_repeats(self) -> None:
        """Take a column `run` whose values have several rates each for seeds, if they are numbers, or for variants."""
        name, said = self.of.get("run", ""), {**self.of, **self.given}
        if not name or "run" in self.given or "learning_rate" not in self.of:
            return
        if self.content.is_whole(name):
            if "seed" not in said and self.has_several_rates("task", "model", "variant", "step"):
                self.take("seed", self.of.pop("run"), "its numbers are those of several learning rates")
        elif plain(name) == "run" and "step" not in self.of and self.has_several_rates():
            del self.of["run"]
            if not {"variant", "model"} & said.keys():
                self.take("variant", name, "each has several learning rates")

    def has_several_rates(self, *roles: str) -> bool:
        """Return whether rows of one run that are alike in some meanings have different learning rates."""
        rate: dict[tuple[str, ...], str] = {}
        rows = zip(*(self.table.columns[name] for name in self.labels("run", *roles)), strict=True)
        rates = self.table.columns[self.of["learning_rate"]]
        return any(rate.setdefault(row, text) != text for row, text in zip(rows, rates, strict=True) if text)

    def find_rate(self) -> None:
        if powers := [name for name in self.free() if name.startswith(POWERS)]:
            raise QuestionError(f"{powers[0][3:]} has logarithms: of which base?", one_of("learning_rate", powers))
        named = [name for name in self.named("learning_rate") if not has_unit(name)]
        known = dict.fromkeys([*named, *filter(is_rate, self.free())])
        candidates = [name for name in known if self.content.has_numbers(name) and not self.content.is_below_0(name)]
        rates = self.varied(candidates)
        if "step" in self.of:
            rates = [name for name in rates if not self.is_schedule(name, {*rates} - {name})] or rates
        if len(rates) > 1:  # of equal columns the first
            first = {tuple(map(as_number, self.table.columns[name])): name for name in reversed(rates)}
            rates = [name for name in rates if name in first.values()]
        if len(configured := [name for name in rates if is_setting(name)]) == 1:
            rates = configured
        if len(rates) > 1:
            text = f"{len(rates)} columns may be learning_rate: {listed(rates)}: say which"
            raise QuestionError(text, one_of("learning_rate", rates, "" if "step" in self.of else "nuisance"))
        for rate in rates:
            self.of["learning_rate"] = rate
            if others := [name for name in candidates if name != rate]:
                self.guessed["learning_rate"] = f"rather than {listed(others)}"
            elif rate not in named:
                self.guessed["learning_rate"] = "by its name"

    def is_schedule(self, name: str, others: Iterable[str]) -> bool:
        """Return whether a rate changes within runs that another one names."""
        labels, step = self.labels("task", "model", "variant", "seed", "run"), self.of["step"]
        return any(self.content.is_scheduled(name, [*labels, other], step) for other in others)

    def ask_for_rate(self) -> None:
        """Ask where a column without such a name has values like rates; raise UserError where a named one has none."""
        names = listed(list(self.table.columns))
        alike = [name for name in self.free() if self.content.is_like_rates(name)]
        alike = [name for name in alike if not (is_metric(name) or is_result(name) or is_rate(name) or has_unit(name))]
        alike = [name for name in alike if self.content.spans_a_decade(name) or not self.content.differs(name)]
        named = list(filter(is_rate, self.table.columns))
        if alike:
            likely = sorted(alike[: MOST_CHOICES - 1], key=self.content.spans_a_decade, reverse=True)
            choices = one_of("learning_rate", likely)
            none = Choice("no learning rate was tuned", Reading(columns={"learning_rate": ""}))
            choices.insert(sum(map(self.content.spans_a_decade, likely)), none)
            raise QuestionError(f"no column of learning rates in {names}: which one is it?", choices)
        if named:
            got = next((text for text in self.table.columns[named[0]] if text.strip()), "")[:MOST_NAME]
            raise UserError(f"{named[0]} has no numbers: got {got!r}, want learning rates, such as 0.001 or 1e-3")
        if any(map(has_rate_word, self.table.columns)):
            advice = "give --columns learning_rate=NAME, or learning_rate= if none was tuned"
            raise UserError(f"no column of learning rates in {names}: {advice}")

    def ask_for_values(self) -> None:
        """Ask which column has the values, among those of numbers whose names say nothing else."""
        alike = [name for name in self.free() if self.content.differs(name) and not is_setting(name)]
        choices = one_of("validation", [name for name in alike if not (is_result(name) or is_rate(name))])
        rates = "" if "learning_rate" in self.of else "no column of learning rates, and "
        text = f"{rates}no column of validation or test in {listed(list(self.table.columns))}"
        if choices:
            raise QuestionError(f"{text}: which one has the values?", choices)
        raise UserError(f"{text}: give --columns validation=NAME, or =#2 for the second column")

    def find_candidates(self) -> None:
        """Take a column that names each row, in a table without rates and variants, for the variants."""
        if {"variant", "model"} & {**self.of, **self.given}.keys():
            return
        if "step" not in self.of and "run" not in self.given and "run" in self.of:
            self.take("variant", self.of.pop("run"), "each run is one")
        free = [name for name in self.free() if len(self.content.values(name)) > 1]
        texts = [name for name in free if not self.content.has_numbers(name) and not is_result(name)]
        places = {name: [place for place, word in enumerate(CANDIDATES) if word in words_of(name)] for name in texts}
        texts = [name for name in texts if places[name] or not ABOUT_RUNS & set(words_of(name))]
        if "variant" not in self.of and texts:
            best = min(texts, key=lambda name: min(places[name], default=len(CANDIDATES)))
            self.take("variant", best, "it names what was tried")

    def find_metric(self) -> None:
        """Find the columns of validation, test and training values of one metric, its name and its direction."""
        held = [name for name in self.free() if is_metric(name) and self.content.has_numbers(name)]
        by_split = {split: [name for name in held if split_of(name) == split] for split in (*SPLITS, "")}
        if not any(split in self.of or by_split[split] for split in ("validation", "test")):
            self.find_unlabelled(by_split[""])
        there = {measured(name) for name in held if split_of(name)} & {measured(self.metric_given)}
        wanted = self.metric or self.metric_of_columns() or next(iter(there), "")
        for split in [split for split in SPLITS if split not in {**self.given, **self.of}]:
            if name := self.one_of(split, by_split[split], wanted):
                self.of[split] = name
            wanted = wanted or self.metric_of_columns()
        self.metric = self.metric or self.metric_of_columns() or wanted
        for name in self.named("direction"):
            said = {text.lower().rpartition(".")[2] for text in self.content.values(name)}
            if len(said) == 1 and said <= UP | DOWN:
                self.higher_is_better = bool(said & UP)
                self.said_by.append(name)
                return

    def metric_of_columns(self) -> str:
        """Return the metric of the column that selects or, where there is none, of the one that is shown."""
        return measured(self.of.get("validation", "")) or measured(self.of.get("test", ""))

    def find_unlabelled(self, known: Sequence[str]) -> None:
        """Find a metric whose name does not say on which data it was measured: it is taken for validation's."""
        if "validation" in self.given and "test" in self.given:
            return
        split, why = "validation", "its name does not say on which data"
        name = self.one_of(split, known, measured(self.metric_given))
        values = [each for each in self.named("value") if self.content.has_numbers(each)]
        if not name and values:
            name = values[0]
            split, why = self.said_beside(name)
        if name and split not in self.given:
            self.take(split, name, "; ".join(filter(None, [why, self.guessed.get(split, "")])))
            self.metric = self.metric or measured(name)

    def said_beside(self, value: str) -> tuple[str, str]:
        """Return the data of a column of values, as another column says, and why it is read."""
        named = [(name, metric) for name in self.named("metric") for metric in sorted(self.content.values(name))]
        for name, metric in named[:1]:
            if len(metrics := [each for other, each in named if other == name]) > 1:
                several = f"{value} has the values of several metrics, by {name}: {listed(metrics)}"
                raise UserError(f"{several}: keep the rows of one")
            self.metric = measured(metric)
            self.said_by.append(name)
            return split_of(metric) or "validation", f"{name} says {metric}"
        return "validation", "what was optimised"

    def contradictions(self) -> Iterator[str]:
        """Find columns that measure something else than the one that selects, or that is shown, or than `--metric`."""
        named = {f"{split}={self.of[split]}": measured(self.of[split]) for split in SPLITS if split in self.of}
        named |= {f"--metric {self.metric_given}": self.metric_given} if self.metric_given else {}
        (first, says), *others = [(text, name) for text, name in named.items() if kinds(name)] or [("", "")]
        for text, other in others:
            if not agree(says, other):
                advice = "give columns of one metric, or leave one out, as in --columns train="
                yield f"{first} measures {says}, {text} {other}: {advice}"

    def one_of(self, split: str, names: Sequence[str], metric: str) -> str:
        """Return the column of a split and metric: accuracy before loss, and the value itself before the best so far.

        Empty: there is none.
        """
        names = list(filter(self.content.has_values, names)) or list(names)
        if metric:
            alike = [name for name in names if kinds(measured(name)) & kinds(metric) and agree(metric, name)]
            candidates = [name for name in names if measured(name) == metric] or alike
        else:
            candidates = [name for name in names if is_higher_better(measured(name)) is not None] or names
        up = {name for name in candidates if is_higher_better(measured(name))}
        loss = {name for name in candidates if measured(name) == "loss"}
        preferred = up if len(set(map(measured, up))) == 1 else set() if up else loss
        left = [name for name in candidates if not preferred or name in preferred]
        if len(left) > 1 and "step" in self.of:
            left = [name for name in left if not {"best", "final", "last"} & set(words_of(name))] or left
        if len(left) > 1:
            if split == "train":
                return ""
            numbered = len({re.sub(r"\d+", "", name) for name in left}) == 1
            hint = "; if they are seeds, name them seed_0, seed_1, ..." * numbered
            text = f"{len(left)} columns may be {split}: {listed(left)}: say which{hint}"
            raise QuestionError(text, one_of(split, left))
        if (others := [name for name in candidates if name not in left]) and not self.metric_given:
            self.guessed[split] = f"rather than {listed(others)}"
        return next(iter(left), "")
