"""Which column of a table means what: as the user says, otherwise guessed by its name and its fields, said or asked."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Container, Iterator, Sequence
from statistics import fmean

from lr_sweep.analysis.judge import names
from lr_sweep.analysis.judge.fields import LETTER, Column, columns_in, is_nothing, state_in
from lr_sweep.analysis.judge.names import (
    JOIN,
    SEVERAL,
    SPLITS,
    has_rate_word,
    has_word,
    is_named,
    listed,
    measured,
)
from lr_sweep.analysis.judge.readers.labels import labels_of
from lr_sweep.analysis.judge.reading import MOST_CHOICES, Choice, QuestionError, Reading, one_of
from lr_sweep.analysis.judge.table_file import MOST_NAME, TableFile, raise_mistakes
from lr_sweep.common.errors import UserError

PATH = re.compile(r".*[/\\].*\.\w{1,5}")  # of a file, which is no name of what was tried


def columns_of(table: TableFile, reading: Reading) -> Columns:
    """Find what each column means; raises UserError, and QuestionError where names and fields allow several answers."""
    found = Columns(table, reading)
    try:
        found.find()
    except QuestionError as question:
        raise QuestionError(f"{table.path}: {question.text}", question.choices) from question
    except UserError as error:
        raise UserError(f"{table.path}: {error}") from error
    if (number := len(reading.metric or found.metric)) > MOST_NAME:
        raise UserError(
            f"got a metric's name of {number:,} characters, want at most {MOST_NAME}: --metric NAME"
        )
    found.guessed |= table.said
    return found


def parts_of(name: str, known: Container[str]) -> list[str]:
    """Return the columns that a text names: one, or several joined by `+`."""
    return [name] if name in known else name.split(JOIN)


def likeliest(
    columns: Sequence[Column], evidence: Callable[[Column], tuple[float, ...]]
) -> list[Column]:
    """Return the columns for which most speaks, of evidence that begins with the strongest; several are equal."""
    most = max(map(evidence, columns), default=())
    return [column for column in columns if evidence(column) == most]


class Columns:
    """The columns of a table and what they mean: one thing each, at first what the user says."""

    def __init__(self, table: TableFile, reading: Reading) -> None:
        self.all = columns_in(table)
        self.given, self._metric_given = reading.columns, reading.metric or ""
        self.of = {role: name for role, name in self.given.items() if name}
        """Column by what it means: a key of `ROLES` or `SPLITS`, or `nuisance`; several are joined by `+`."""
        self._known = ChainMap(
            self.of, dict(self.given)
        ).keys()  # also of meanings that the user says no column has
        self.guessed: dict[
            str, str
        ] = {}  # why a column was taken, by its meaning, if not by its name alone
        self.metric = ""  # its name, if a column says it
        self.higher_is_better: bool | None = None  # if a column of the table says so
        self.said_by: list[
            Column
        ] = []  # columns that say which metric it is, and which way it is better

    def find(self) -> None:
        """Find meaning by meaning; raises as `columns_of`."""
        raise_mistakes(list(self._wrong_names()))
        for role in [
            role for role in names.ROLES if role not in self.given and role != "learning_rate"
        ]:
            self._find_named(role)
        if "learning_rate" not in self.given:
            self._find_rate()
        self._find_repeats()
        self._find_crossed()
        self._find_metric()
        self._find_direction()
        self._refuse_contradictions()
        if "learning_rate" not in self._known:
            self._ask_for_rate()
        if not {"validation", "test"} & self.of.keys():
            self._ask_for_values()
        rate = self.all.get(self.of.get("learning_rate", ""))
        # Without repeats a single rate is tuned no more than none.
        if rate is None or (len(rate.values) == 1 and not {"seed", "run", "step"} & self.of.keys()):
            self._find_candidates()

    def _wrong_names(self) -> Iterator[str]:
        for role, name in self.of.items():
            if not set(parts_of(name, self.all)) <= self.all.keys():
                yield f"--columns {role}={name}: no such column: there are {listed(list(self.all))}"
            elif name not in self.all and role not in SEVERAL:
                yield f"--columns {role}={name}: want one column: only {', '.join(sorted(SEVERAL))} may be several"

    def take(self, role: str, name: str, *whys: str) -> None:
        """Give a meaning to a column, and the reasons where its name alone does not say so."""
        self.of[role] = name
        self.guessed |= {role: "; ".join(filter(None, whys))} if any(whys) else {}

    @property
    def unread(self) -> list[Column]:
        """The columns without a meaning."""
        taken = set(self._labels(*self.of))
        return [
            column
            for name, column in self.all.items()
            if name not in taken and column not in self.said_by
        ]

    def _labels(self, *roles: str) -> list[str]:
        """Return the columns of some meanings."""
        return [
            part for role in roles if role in self.of for part in parts_of(self.of[role], self.all)
        ]

    def _named(self, role: str) -> list[Column]:
        """Return the unread columns with one of the names of a meaning, in the order of these."""
        columns = [column for column in self.unread if is_named(column.name, role)]
        return sorted(columns, key=lambda column: names.NAMES[role].index(names.plain(column.name)))

    def _find_named(self, role: str) -> None:
        """Find the column of a meaning by its name: one with several values, if any has; raises QuestionError."""
        columns = [column for column in self._named(role) if column.values]
        unique = [each for each in columns if len(each.values) == len(each.texts) > 1]
        if role == "variant":
            columns = [
                each
                for each in columns
                if not (each in unique and all(map(labels_of, each.values)))
            ]
        elif role == "status":
            columns = [
                each
                for each in columns
                if 2 * len(list(filter(state_in, each.texts))) >= len(each.texts)
            ]
        elif role == "step":
            columns = [
                each for each in columns if "round" not in names.words_of(each.name) or each.climbs
            ]
        elif role == "run" and "step" in self.of and len(self.all[self.of["step"]].values) > 1:
            numbers = [each for each in unique if each.is_whole]  # of evaluations, not of runs
            if numbers and "seed" not in self.of:
                choices = [Choice("each row is a run", Reading(columns={"run": numbers[0].name}))]
                choices.append(Choice("rows are evaluations of runs", Reading(columns={"run": ""})))
                raise QuestionError(
                    f"{numbers[0].name} has another number in each row: what are these?", choices
                )
            columns = [each for each in columns if each not in numbers]
        for column in sorted(columns, key=lambda each: len(each.values) < 2)[:1]:
            self.of[role] = column.name

    def _find_rate(self) -> None:
        named = self._named("learning_rate")
        known = [*named, *(each for each in self.unread if each not in named and each.is_rate)]
        known = [each for each in known if each.has_numbers and not each.has_unit]
        candidates = [
            each for each in known if max(each.numbers, default=0) >= 0
        ]  # others are logarithms
        likely = likeliest(candidates, self._speaks_for_rate)
        texts = [each.texts for each in likely]
        alike = [each.name for place, each in enumerate(likely) if each.texts not in texts[:place]]
        if len(alike) > 1 and len(likely[0].values) > 1:
            text = f"{len(alike)} columns may be learning_rate: {listed(alike)}: say which"
            raise QuestionError(text, one_of("learning_rate", alike))
        for column in likely[:1]:
            others = listed([each.name for each in candidates if each is not column])
            why = f"rather than {others}" if others else "" if column in named else "by its name"
            self.take("learning_rate", column.name, why)

    def _speaks_for_rate(self, column: Column) -> tuple[float, ...]:
        number = len(column.values)  # a schedule has more than the rates that runs start with
        return (
            number > 1,
            column.is_setting,
            -number if "step" in self.of and not column.is_setting else 0,
        )

    def _find_repeats(self) -> None:
        """Take a column `run` whose values have several rates each for seeds, if they are numbers, or for variants."""
        name = self.of.get("run", "")
        if not name or "run" in self.given or "learning_rate" not in self.of:
            return
        if self.all[name].is_whole:
            if "seed" not in self._known and self._has_several_rates(
                "task", "model", "variant", "step"
            ):
                self.take(
                    "seed", self.of.pop("run"), "its numbers are those of several learning rates"
                )
        elif names.plain(name) == "run" and "step" not in self.of and self._has_several_rates():
            del self.of["run"]
            if not {"variant", "model"} & self._known:
                self.take("variant", name, "each has several learning rates")

    def _has_several_rates(self, *roles: str) -> bool:
        """Return whether rows of one run that are alike in some meanings have different learning rates."""
        labels = (self.all[name].texts for name in self._labels("learning_rate", "run", *roles))
        pairs = {row for row in zip(*labels, strict=True) if row[0]}
        return len(pairs) > len({row[1:] for row in pairs})

    def _find_crossed(self) -> None:
        """Take the column that makes a variant with its task and model for it, where each variant is in one of them."""
        variant, of = self.all.get(self.of.get("variant", "")), self._labels("task", "model")
        if variant is None or "variant" in self.given or not of:
            return
        for column in [
            x for x in self.unread if x.is_text and len(x.values) > 1 and not x.is_about_run
        ]:
            cells = [*zip(*(self.all[name].texts for name in of), column.texts, strict=True)]
            together = {*zip(variant.texts, cells, strict=True)}
            if len({*variant.texts}) == len({*cells}) == len(together) > len({*column.texts}):
                self.take("variant", column.name, f"with {JOIN.join(of)} it is {variant.name}")
                return

    def _find_metric(self) -> None:
        """Find the columns of validation, test and training values of one metric, and its name."""
        # Only steps of training have gradients.
        split_of_loss = "train" if any(has_word(name, "gradient") for name in self.all) else ""
        of_split: dict[str, list[Column]] = {split: [] for split in (*SPLITS, "")}
        for each in [each for each in self.unread if each.is_metric and each.has_numbers]:
            of_split[each.split or (split_of_loss if each.measure == "loss" else "")].append(each)
        self.metric = measured(self.of.get("validation", "")) or measured(self.of.get("test", ""))
        if not any(split in self.of or of_split[split] for split in ("validation", "test")):
            columns, split, why = self._unlabelled(of_split[""])
            of_split[split], self.guessed[split] = columns, why
        wanted = measured(self._metric_given)
        if any(each.measure == wanted for split in SPLITS for each in of_split[split]):
            self.metric = self.metric or wanted
        for split in [split for split in SPLITS if split not in self._known]:
            self._find_split(split, of_split[split])

    def _unlabelled(self, metrics: list[Column]) -> tuple[list[Column], str, str]:
        """Return columns whose names do not say on which data they were measured, on which they were, and why."""
        values = [each for each in self._named("value") if each.has_numbers][:1]
        if metrics or not values:
            return metrics, "validation", "its name does not say on which data"
        said = next((each for each in self._named("metric") if each.values), None)
        if said is None:
            return values, "validation", "what was optimised"
        if len(said.values) > 1:
            metrics_said = sorted(said.values)
            several = f"{values[0].name} has the values of several metrics, by {said.name}: {listed(metrics_said)}"
            choices = [
                Choice(f"the rows of {each}", Reading(where=[f"{said.name}={each}"]))
                for each in metrics_said
            ]
            raise QuestionError(f"{several}: keep the rows of one", choices)
        (metric,) = said.values
        self.metric = measured(metric)
        self.said_by.append(said)
        return values, names.split_of(metric) or "validation", f"{said.name} says {metric}"

    def _find_split(self, split: str, columns: Sequence[Column]) -> None:
        """Find the column of a split, of the metric if it is known."""
        if self.metric and any(each.is_metric for each in columns):
            alike = [each for each in columns if names.kinds(each.name) & names.kinds(self.metric)]
            alike = [each for each in alike if names.agree(self.metric, each.name)]
            columns = [each for each in columns if each.measure == self.metric] or alike
        else:
            columns = [each for each in columns if names.is_known(each.measure)] or columns
        likely = [each.name for each in likeliest(columns, self._speaks_for_metric)]
        if len(likely) > 1 and split != "train":
            self._ask_for_split(split, likely)
        if len(likely) == 1:
            others = listed(
                [each.name for each in columns if each.name != likely[0] and not self._metric_given]
            )
            self.take(
                split,
                likely[0],
                self.guessed.get(split, ""),
                f"rather than {others}" if others else "",
            )
            self.metric = self.metric or (measured(likely[0]) if split != "train" else "")

    def _speaks_for_metric(self, column: Column) -> tuple[float, ...]:
        is_judged = has_word(column.measure, "higher", "either") + (
            not has_word(column.name, "before")
        )
        is_usual = column.measure == "loss" or "top1" in column.measure
        is_of_step = "step" in self.of and not has_word(column.name, "so far")
        return bool(column.values), is_judged, is_usual, is_of_step

    def _ask_for_split(self, split: str, likely: Sequence[str]) -> None:
        """Ask which of several columns has the values of a split, or whether each is a variant."""
        numbered = len({re.sub(r"\d+", "", name) for name in likely}) == 1
        hint = "; if they are seeds, name them seed_0, seed_1, ..." * numbered
        are_unlike = len(set(map(measured, likely))) == len(likely)
        are_of_one_metric = len({frozenset(names.kinds(name)) for name in likely}) == 1
        beside = [each for each in self.unread if each.has_numbers and each.name not in likely]
        choices = one_of(split, likely)
        if (
            are_unlike
            and are_of_one_metric
            and not (numbered or beside or {"variant", "model"} & self._known)
        ):
            choices.insert(
                0, Choice("each column is a variant", Reading(columns={split: JOIN.join(likely)}))
            )
        raise QuestionError(
            f"{len(likely)} columns may be {split}: {listed(likely)}: say which{hint}", choices
        )

    def _find_direction(self) -> None:
        """Find which way the metric is better, by a column that says so, or by the top 5 beside its top 1."""
        for column in self._named("direction"):
            said = {text.lower().rpartition(".")[2] for text in column.values}
            if (
                self.higher_is_better is None
                and len(said) == 1
                and said <= names.WORDS["up"] | names.WORDS["down"]
            ):
                self.higher_is_better = said <= names.WORDS["up"]
                self.said_by.append(column)
        split = "validation" if "validation" in self.of else "test"
        top1 = self.all.get(self.of.get(split, ""))
        top5 = (
            self.all.get(re.sub("top1", "top5", top1.name, flags=re.IGNORECASE)) if top1 else None
        )
        # An accuracy of the top 5 is the higher one.
        is_open = names.is_higher_better(self.metric) is None
        if is_open and top1 and top5 and top5 is not top1 and top1.numbers and top5.numbers:
            self.higher_is_better = fmean(top5.numbers) > fmean(top1.numbers)
            self.said_by.append(top5)
            why = (
                f"{'more' if self.higher_is_better else 'less'} is better, as its {top5.name} shows"
            )
            self.take(split, top1.name, self.guessed.get(split, ""), why)

    def _refuse_contradictions(self) -> None:
        """Make sure that all columns measure what the one that selects, or that is shown, does, and `--metric`."""
        named = {
            f"{split}={self.of[split]}": measured(self.of[split])
            for split in SPLITS
            if split in self.of
        }
        named |= (
            {f"--metric {self._metric_given}": self._metric_given} if self._metric_given else {}
        )
        (first, says), *others = [
            (text, name) for text, name in named.items() if names.kinds(name)
        ] or [("", "")]
        advice = "give columns of one metric, or leave one out, as in --columns train="
        wrong = [f"{text} {other}" for text, other in others if not names.agree(says, other)]
        raise_mistakes([f"{first} measures {says}, {each}: {advice}" for each in wrong])

    def _ask_for_rate(self) -> None:
        """Ask whether an unread column has the rates; raises UserError where one is named so and has no numbers."""
        text = f"no column of learning rates in {listed(list(self.all))}"
        if len(next(iter(self.all.values())).texts) == 1:
            raise UserError(f"{text}, and a single run: there is nothing to compare")
        alike = [each.name for each in self.unread if each.says_nothing and each.is_like_rates]
        first = [name for name in alike if is_named(name, "rate symbol") or name.startswith("#")]
        if alike:
            choices = one_of(
                "learning_rate", list(dict.fromkeys([*first, *alike]))[: MOST_CHOICES - 1]
            )
            choices.insert(
                len(first),
                Choice("no learning rate was tuned", Reading(columns={"learning_rate": ""})),
            )
            raise QuestionError(f"{text}: which one is it?", choices)
        for column in filter(lambda each: has_rate_word(each.name), self.all.values()):
            got = f"{column.name} has {next(filter(str.strip, column.texts), '')[:MOST_NAME]!r}"
            raise UserError(
                f"{text}: {got}: give --columns learning_rate=NAME, or learning_rate= if none was tuned"
            )

    def _ask_for_values(self) -> None:
        """Ask which column has the values, among those of numbers whose names say nothing else."""
        alike = [each for each in self.unread if each.says_nothing and each.differs]
        alike = [each for each in alike if not (each.is_setting or has_rate_word(each.name))]
        # Results have more digits than settings.
        alike.sort(key=lambda each: -fmean(map(len, each.values)))
        choices = one_of("validation", [each.name for each in alike])
        rates = "" if "learning_rate" in self.of else "no column of learning rates, and "
        text = f"{rates}no column of validation or test in {listed(list(self.all))}"
        if train := self.of.get("train"):
            choices.append(
                Choice(f"{train} is compared", Reading(columns={"validation": train, "train": ""}))
            )
        if choices:
            raise QuestionError(f"{text}: which one has the values?", choices)
        raise UserError(f"{text}: give --columns validation=NAME, or =#2 for the second column")

    def _find_candidates(self) -> None:
        """Take a column that names each row, in a table without rates and variants, for the variants."""
        named = [self.all[name] for name in self._labels("variant") if "variant" not in self.given]
        if "run" in self.of and any(
            is_nothing(text) for each in named for text in each.texts
        ):  # all have a run id
            del self.of["variant"]
        if {"variant", "model"} & self._known:
            return
        texts = [
            each
            for each in self.unread
            if len(each.values) > 1 and not (each.numbers or each.is_result)
        ]
        texts = [
            each
            for each in texts
            if 2 * len(list(filter(LETTER.search, each.values))) >= len(each.values)
        ]
        texts = [each for each in texts if not all(map(PATH.fullmatch, each.values))]
        texts = [
            each
            for each in texts
            if has_word(each.name, "candidate") or not has_word(each.name, "about")
        ]
        runs = self.all.get(self.of.get("run", ""))
        if (
            "step" in self.of
        ):  # what differs between the runs of curves comes first, whatever its name
            differ = bool(texts) or any(
                each.may_be_setting and not each.is_about_run for each in self.unread
            )
        else:
            tried = {*zip(*(each.texts for each in self.unread if each.is_setting), strict=True)}
            differ = runs is not None and 1 < len(tried) < len(runs.values)
        if runs and "run" not in self.given and not differ:
            self.take("variant", self.of.pop("run"), "each run is one")
        else:
            for column in sorted(texts, key=lambda each: not has_word(each.name, "candidate"))[:1]:
                self.take("variant", column.name, "it names what was tried")
