"""Questions about the columns of a table that have no clear meaning, and the answers that are offered."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import fmean

from lr_sweep.analysis.judge.fields import Column
from lr_sweep.analysis.judge.names import JOIN, has_rate_word, is_named, kinds, listed, measured
from lr_sweep.analysis.judge.reading import MOST_CHOICES, Choice, QuestionError, Reading, one_of
from lr_sweep.analysis.judge.table_file import MOST_NAME
from lr_sweep.common.errors import UserError


def ask_for_rate(columns: Mapping[str, Column], free: Sequence[Column]) -> None:
    """Ask whether a free column has the learning rates; raises UserError where one of such a name has no numbers."""
    text = f"no column of learning rates in {listed(list(columns))}"
    if len(next(iter(columns.values())).texts) == 1:
        raise UserError(f"{text}, and a single run: there is nothing to compare")
    alike = [each for each in free if each.says_nothing and each.is_like_rates]
    first = [each.name for each in alike if is_named(each.name, "rate symbol") or each.name.startswith("#")]
    if alike:
        names = [*first, *(each.name for each in alike if each.name not in first)][: MOST_CHOICES - 1]
        choices = one_of("learning_rate", names)
        choices.insert(len(first), Choice("no learning rate was tuned", Reading(columns={"learning_rate": ""})))
        raise QuestionError(f"{text}: which one is it?", choices)
    if named := next((each for each in columns.values() if has_rate_word(each.name)), None):
        got = f"{named.name} has {next(filter(str.strip, named.texts), '')[:MOST_NAME]!r}"
        raise UserError(f"{text}: {got}: give --columns learning_rate=NAME, or learning_rate= if none was tuned")


def ask_for_values(columns: Mapping[str, Column], free: Sequence[Column], of: Mapping[str, str]) -> None:
    """Ask which column has the values, among those of numbers whose names say nothing else; `of`: as of `Columns`."""
    alike = [each for each in free if each.says_nothing and each.differs]
    alike = [each for each in alike if not (each.is_setting or has_rate_word(each.name))]
    # Results have more digits than settings.
    choices = one_of("validation", [x.name for x in sorted(alike, key=lambda x: -fmean(map(len, x.values)))])
    rates = "" if "learning_rate" in of else "no column of learning rates, and "
    text = f"{rates}no column of validation or test in {listed(list(columns))}"
    if "train" in of:
        choices.append(Choice(f"{of['train']} is compared", Reading(columns={"validation": of["train"], "train": ""})))
    if choices:
        raise QuestionError(f"{text}: which one has the values?", choices)
    raise UserError(f"{text}: give --columns validation=NAME, or =#2 for the second column")


def question_of_split(split: str, names: Sequence[str], *, may_be_variants: bool) -> QuestionError:
    """Return the question which of several columns has the values of a split, or whether each is a variant."""
    numbered = len({re.sub(r"\d+", "", name) for name in names}) == 1
    hint = "; if they are seeds, name them seed_0, seed_1, ..." * numbered
    are_unlike = len(set(map(measured, names))) == len(names)
    are_of_one_metric = len({frozenset(kinds(name)) for name in names}) == 1
    choices = one_of(split, names)
    if may_be_variants and are_unlike and are_of_one_metric and not numbered:
        choices.insert(0, Choice("each column is a variant", Reading(columns={split: JOIN.join(names)})))
    return QuestionError(f"{len(names)} columns may be {split}: {listed(names)}: say which{hint}", choices)
