"""Which column of a table means what: as the user says, otherwise guessed by its name and its fields, and said."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from lr_sweep.analysis.judge.fields import Column, columns_in, is_nothing, state_in
from lr_sweep.analysis.judge.names import (
    NAMES,
    ROLES,
    SEVERAL,
    SPLITS,
    WORDS,
    agree,
    has_rate_word,
    has_word,
    is_named,
    kinds,
    listed,
    measured,
    plain,
    split_of,
)
from lr_sweep.analysis.judge.readers.labels import labels_of
from lr_sweep.analysis.judge.reading import JOIN, MOST_CHOICES, Choice, QuestionError, Reading, one_of
from lr_sweep.analysis.judge.table_file import MOST_NAME, TableFile, raise_mistakes
from lr_sweep.common.errors import UserError

PATH = re.compile(r".*[/\\].*\.\w{1,5}")
"""Path of a file, which is no name of what was tried."""
POWERS = ("10^", "e^")
"""How the columns of rates begin that are made of logarithms."""


def columns_of(table: TableFile, reading: Reading) -> Columns:
    """Find what each column of a table means.

    Raises:
        UserError: the table lacks a column, or what the user says of columns is wrong.
        QuestionError: names and fields allow several answers.
    """
    found = Columns(table, reading)
    try:
        found.find()
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


class Columns:
    """The columns of a table and what they mean: one thing each, at first what the user says."""

    def __init__(self, table: TableFile, reading: Reading) -> None:
        self.all = columns_in(table)
        self.given, self.metric_given = reading.columns, reading.metric or ""
        self.of = {role: name for role, name in self.given.items() if name}
        """Column by what it means: a key of `ROLES` or `SPLITS`, or `nuisance`; several are joined by `+`."""
        self.guessed: dict[str, str] = {}
        """Why a column was taken, by its meaning, where its name alone does not say so."""
        self.metric = ""
        """Name of the metric; empty: no column says it."""
        self.higher_is_better: bool | None = None
        """Whether higher is better, as a column of the table says; None: no column says so."""
        self.said_by: list[Column] = []
        """Columns that say which metric it is, and which way it is better."""

    @property
    def unread(self) -> list[Column]:
        """The other columns."""
        return [column for column in self.free() if column not in self.said_by]

    def find(self) -> None:
        """Find meaning by meaning; raises as `columns_of`."""
        raise_mistakes(list(self.wrong_names()))
        for role in [role for role in ROLES if role not in self.given and role != "learning_rate"]:
            self.find_named(role)
        if "learning_rate" not in self.given:
            self.find_rate()
        self.find_repeats()
        self.find_crossed()
        self.find_metric()
        raise_mistakes(list(self.contradictions()))
        if "learning_rate" not in {**self.of, **self.given}:
            self.ask_for_rate()
        if not {"validation", "test"} & self.of.keys():
            self.ask_for_values()
        rate = self.all.get(self.of.get("learning_rate", ""))
        # Without repeats a single rate is tuned no more than none.
        if rate is None or (len(rate.values) == 1 and not {"seed", "run", "step"} & self.of.keys()):
            self.find_candidates()

    def wrong_names(self) -> Iterator[str]:
        """Find names that the user gives and the table lacks."""
        for role, name in self.of.items():
            if not set(parts_of(name, self.all)) <= self.all.keys():
                yield f"--columns {role}={name}: no such column: there are {listed(list(self.all))}"
            elif name not in self.all and role not in SEVERAL:
                yield f"--columns {role}={name}: want one column: only {', '.join(sorted(SEVERAL))} may be several"

    def take(self, role: str, name: str, why: str) -> None:
        """Give a meaning to a column, and the reason."""
        self.of[role], self.guessed[role] = name, why

    def labels(self, *roles: str) -> list[str]:
        """Return the columns of some meanings."""
        return [part for role in roles if role in self.of for part in parts_of(self.of[role], self.all)]

    def free(self) -> list[Column]:
        """Return the columns without a meaning."""
        taken = set(self.labels(*self.of))
        return [column for name, column in self.all.items() if name not in taken]

    def named(self, role: str) -> list[Column]:
        """Return the free columns with one of the names of a meaning, in the order of these."""
        columns = [column for column in self.free() if is_named(column.name, role)]
        return sorted(columns, key=lambda column: NAMES[role].index(plain(column.name)))

    def likeliest(self, evidence: str, columns: Iterable[Column]) -> list[Column]:
        """Return the columns for which most speaks: several are equally likely."""
        scores = {each: sum(weight * speaks(self, each) for weight, speaks in EVIDENCE[evidence]) for each in columns}
        return [column for column, score in scores.items() if score == max(scores.values())]

    def find_named(self, role: str) -> None:
        """Find the column of a meaning by its name: one with several values, if any has."""
        columns = [column for column in self.named(role) if column.values]
        if role == "variant":
            columns = [each for each in columns if not (each.is_unique and all(map(labels_of, each.values)))]
        elif role == "status":
            columns = [each for each in columns if sum(map(bool, map(state_in, each.texts))) >= len(each.texts) / 2]
        elif role == "run" and "step" in self.of:
            columns = [each for each in columns if not self.numbers_rows(each)]
        for column in self.likeliest("name", columns)[:1]:
            self.of[role] = column.name

    def numbers_rows(self, column: Column) -> bool:
        """Return whether a column numbers evaluations, not runs; raises QuestionError where it may be either."""
        if not (column.is_unique and column.is_whole and len(self.all[self.of["step"]].values) > 1):
            return False
        if "seed" not in self.of:
            ways = [("each row is a run", column.name), ("rows are evaluations of runs", "")]
            choices = [Choice(says, Reading(columns={"run": name})) for says, name in ways]
            text = f"{column.name} has another number in each row: are rows runs, or evaluations of runs?"
            raise QuestionError(text, choices)
        return True

    def find_repeats(self) -> None:
        """Take a column `run` whose values have several rates each for seeds, if they are numbers, or for variants."""
        name, said = self.of.get("run", ""), {**self.of, **self.given}
        if not name or "run" in self.given or "learning_rate" not in self.of:
            return
        if self.all[name].is_whole:
            if "seed" not in said and self.has_several_rates("task", "model", "variant", "step"):
                self.take("seed", self.of.pop("run"), "its numbers are those of several learning rates")
        elif plain(name) == "run" and "step" not in self.of and self.has_several_rates():
            del self.of["run"]
            if not {"variant", "model"} & said.keys():
                self.take("variant", name, "each has several learning rates")

    def find_crossed(self) -> None:
        """Take the column that makes a variant with its task and model for it, where each variant is in one of them."""
        names, of = self.labels("variant"), self.labels("task", "model")
        if len(names) != 1 or "variant" in self.given or len({*zip(*(self.all[x].texts for x in of), strict=True)}) < 2:
            return
        variants = self.all[names[0]].texts
        texts = [each for each in self.free() if each.is_text and len(each.values) > 1 and not each.is_about_run]
        for column in texts:
            cells = [*zip(*(self.all[name].texts for name in of), column.texts, strict=True)]
            if len({*cells}) == len({*variants}) == len({*zip(variants, cells, strict=True)}) > len(column.values):
                self.take("variant", column.name, f"with {JOIN.join(of)} it is {names[0]}")
                return

    def has_several_rates(self, *roles: str) -> bool:
        """Return whether rows of one run that are alike in some meanings have different learning rates."""
        labels = [self.all[name].texts for name in self.labels("learning_rate", "run", *roles)]
        pairs = {row for row in zip(*labels, strict=True) if row[0]}
        return len(pairs) > len({row[1:] for row in pairs})

    def find_rate(self) -> None:
        """Find the column of learning rates by its name; raises QuestionError where several are equally likely."""
        if powers := [column.name for column in self.free() if column.name.startswith(POWERS)]:
            raise QuestionError(f"{powers[0][3:]} has logarithms: of which base?", one_of("learning_rate", powers))
        named = [column for column in self.named("learning_rate") if not column.has_unit]
        known = [*named, *(each for each in self.free() if each not in named and each.is_rate)]
        candidates = [each for each in known if each.has_numbers and not each.is_below_0]
        likely = self.likeliest("learning_rate", candidates)
        first = {tuple(each.texts): each for each in reversed(likely)}  # of equal columns
        names = [each.name for each in likely if each in first.values()]
        if len(names) > 1 and len(likely[0].values) > 1:
            text = f"{len(names)} columns may be learning_rate: {listed(names)}: say which"
            raise QuestionError(text, one_of("learning_rate", names))
        for name in names[:1]:
            self.of["learning_rate"] = name
            if others := [each.name for each in candidates if each.name != name]:
                self.guessed["learning_rate"] = f"rather than {listed(others)}"
            elif likely[0] not in named:
                self.guessed["learning_rate"] = "by its name"

    def ask_for_rate(self) -> None:
        """Ask where a column without such a name has values like rates; raise UserError where a named one has none."""
        names = listed(list(self.all))
        alike = [each for each in self.free() if not (each.is_metric or each.is_result or each.has_unit)]
        alike = [each for each in alike if not (each.is_about_run or has_word(each.name, "setting"))]
        alike = [each for each in alike if each.likeness_to_rates > each.differs][: MOST_CHOICES - 1]
        if alike:
            choices = one_of("learning_rate", [x.name for x in sorted(alike, key=lambda x: -x.likeness_to_rates)])
            none = Choice("no learning rate was tuned", Reading(columns={"learning_rate": ""}))
            choices.insert([each.likeness_to_rates for each in alike].count(2), none)
            raise QuestionError(f"no column of learning rates in {names}: which one is it?", choices)
        if named := next((each for each in self.all.values() if each.is_rate), None):
            got = next(filter(str.strip, named.texts), "")[:MOST_NAME]
            raise UserError(f"{named.name} has no numbers: got {got!r}, want learning rates, such as 0.001 or 1e-3")
        if any(map(has_rate_word, self.all)):
            advice = "give --columns learning_rate=NAME, or learning_rate= if none was tuned"
            raise UserError(f"no column of learning rates in {names}: {advice}")

    def ask_for_values(self) -> None:
        """Ask which column has the values, among those of numbers whose names say nothing else."""
        alike = [x for x in self.free() if not (x.is_setting or x.is_result or has_rate_word(x.name))]
        choices = one_of("validation", [each.name for each in alike if each.differs])
        rates = "" if "learning_rate" in self.of else "no column of learning rates, and "
        text = f"{rates}no column of validation or test in {listed(list(self.all))}"
        if "train" in self.of:
            trained = Reading(columns={"validation": self.of["train"], "train": ""})
            choices.append(Choice(f"{self.of['train']} is compared", trained))
        if choices:
            raise QuestionError(f"{text}: which one has the values?", choices)
        raise UserError(f"{text}: give --columns validation=NAME, or =#2 for the second column")

    def find_candidates(self) -> None:
        """Take a column that names each row, in a table without rates and variants, for the variants."""
        named = [self.all[name] for name in self.labels("variant") if "variant" not in self.given]
        if "run" in self.of and any(is_nothing(text) for each in named for text in each.texts):  # all have a run id
            del self.of["variant"]
        if {"variant", "model"} & {**self.of, **self.given}.keys():
            return
        if "step" not in self.of and "run" not in self.given and "run" in self.of:
            self.take("variant", self.of.pop("run"), "each run is one")
            return
        texts = [each for each in self.free() if len(each.values) > 1 and not (each.has_numbers or each.is_result)]
        texts = [each for each in texts if not all(map(PATH.fullmatch, each.values))]
        texts = [each for each in texts if has_word(each.name, "candidate") or not has_word(each.name, "about")]
        for column in self.likeliest("candidate", texts)[:1]:
            self.take("variant", column.name, "it names what was tried")

    def find_metric(self) -> None:
        """Find the columns of validation, test and training values of one metric, its name and its direction."""
        held = [column for column in self.free() if column.is_metric and column.has_numbers and not column.is_empty]
        of_split = {split: [each for each in held if each.split == split] for split in (*SPLITS, "")}
        whys = dict.fromkeys(SPLITS, "")
        if not any(split in self.of or of_split[split] for split in ("validation", "test")):
            columns, split, why = self.unlabelled(of_split[""])
            of_split[split], whys[split] = columns, why
        there = {each.measure for split in SPLITS for each in of_split[split]} & {measured(self.metric_given)}
        for split in [split for split in SPLITS if split not in {**self.given, **self.of}]:
            self.find_split(split, of_split[split], self.wanted or "".join(there), whys[split])
        self.metric = self.wanted or "".join(there)
        for column in self.named("direction"):
            said = {text.lower().rpartition(".")[2] for text in column.values}
            if self.higher_is_better is None and len(said) == 1 and said <= WORDS["up"] | WORDS["down"]:
                self.higher_is_better = said <= WORDS["up"]
                self.said_by.append(column)

    @property
    def wanted(self) -> str:
        """The metric of the column that selects or, where there is none, of the one that is shown."""
        return self.metric or measured(self.of.get("validation", "")) or measured(self.of.get("test", ""))

    def unlabelled(self, metrics: list[Column]) -> tuple[list[Column], str, str]:
        """Return columns whose names do not say on which data they were measured, on which they were, and why."""
        values = [each for each in self.named("value") if each.has_numbers]
        if metrics or not values:
            return metrics, "validation", "its name does not say on which data"
        said = next((each for each in self.named("metric") if each.values), None)
        if said is None:
            return values[:1], "validation", "what was optimised"
        metric, *others = sorted(said.values)
        if others:
            several = f"{values[0].name} has the values of several metrics, by {said.name}: {listed([metric, *others])}"
            raise UserError(f"{several}: keep the rows of one")
        self.metric = measured(metric)
        self.said_by.append(said)
        return values[:1], split_of(metric) or "validation", f"{said.name} says {metric}"

    def contradictions(self) -> Iterator[str]:
        """Find columns that measure something else than the one that selects, or that is shown, or than `--metric`."""
        named = {f"{split}={self.of[split]}": measured(self.of[split]) for split in SPLITS if split in self.of}
        named |= {f"--metric {self.metric_given}": self.metric_given} if self.metric_given else {}
        (first, says), *others = [(text, name) for text, name in named.items() if kinds(name)] or [("", "")]
        for text, other in others:
            if not agree(says, other):
                advice = "give columns of one metric, or leave one out, as in --columns train="
                yield f"{first} measures {says}, {text} {other}: {advice}"

    def find_split(self, split: str, columns: Sequence[Column], metric: str, why: str) -> None:
        """Find the column of a split, of a metric if one is wanted; `why` it is of the split, if no name says so."""
        if metric and any(each.is_metric for each in columns):
            alike = [each for each in columns if kinds(each.name) & kinds(metric) and agree(metric, each.name)]
            columns = [each for each in columns if each.measure == metric] or alike
        else:
            columns = [each for each in columns if each.is_higher_better is not None] or columns
        names = [each.name for each in self.likeliest("metric", columns)]
        if len(names) > 1 and split != "train":
            numbered = len({re.sub(r"\d+", "", name) for name in names}) == 1
            hint = "; if they are seeds, name them seed_0, seed_1, ..." * numbered
            text = f"{len(names)} columns may be {split}: {listed(names)}: say which{hint}"
            raise QuestionError(text, one_of(split, names))
        if len(names) == 1:
            self.of[split] = names[0]
            others = [each.name for each in columns if each.name != names[0]] if not self.metric_given else []
            whys = [why] * bool(why) + [f"rather than {listed(others)}"] * bool(others)
            self.guessed |= {split: "; ".join(whys)} if whys else {}


EVIDENCE: dict[str, list[tuple[float, Callable[[Columns, Column], float]]]] = {
    "name": [(1, lambda _, column: len(column.values) > 1)],
    "learning_rate": [
        (4, lambda _, column: len(column.values) > 1),
        (2, lambda _, column: column.is_setting),
        # A schedule has more values than the rates that runs start with.
        (1, lambda search, column: "step" in search.of and not column.is_setting and 1 / max(1, len(column.values))),
    ],
    "metric": [
        (8, lambda _, column: bool(column.values)),
        (4, lambda _, column: column.is_higher_better or False),
        (4, lambda _, column: not has_word(column.name, "before")),
        (2, lambda _, column: column.measure == "loss"),
        (1, lambda search, column: "step" in search.of and not has_word(column.name, "so far")),
    ],
    "candidate": [(1, lambda _, column: has_word(column.name, "candidate"))],
}
"""Evidence for a column among those that may have a meaning, with weights: for one with a name of a meaning; for a
rate; for the metric that is judged; for what was tried."""
