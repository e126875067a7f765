"""Readings of `judge` in files whose content is known: right at once, right with a complete command, or refused.

`expected.json` of a folder has, by the name of each file or folder in it, a truth, or several that are equally good.
A truth has `means` (by variant and learning rate; a rate that is empty: the file has none), `seeds` (at every rate, if
they are equal), `best` (the rate by variant) and `winner`, or `refused`, a part of the message. The first truth may
have `command`, options that say what names leave open, and `source`, a pattern within the folder in place of the name.
The outcomes:

- at once: right without a command
- command: listed at first, and right with the command
- refused: no report, as the truth wants it, with its words
- useless: no report, and the command leads to none, or there is none
- wrong: a report that differs from the truth, at once or with the command
"""

from __future__ import annotations

import argparse
import math
import re
import shlex
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lr_sweep.analysis.judge.judge import judged
from lr_sweep.analysis.judge.reading import Reading, columns_in
from lr_sweep.analysis.study_summary import Study
from lr_sweep.common.errors import UserError

OUTCOMES = ("at once", "command", "refused", "useless", "wrong")
TOLERANCE = 2e-4
"""Relative difference up to which means are equal; percents are compared as fractions, too."""
_SETTING = re.compile(r"(?:^|(?<=, ))[A-Za-z]\w*=(?=[^\s,]*(?:,|$))")
"""Name of a setting in a label."""
Truth = Mapping[str, Any]


def outcome(path: Path, truth: Truth | Sequence[Truth]) -> tuple[str, str]:
    """Return one of `OUTCOMES`, and what was printed or is wrong."""
    truths = [truth] if isinstance(truth, Mapping) else truth
    source = str(path.parent / truths[0].get("source", path.name))
    try:
        why = _difference(judged([source], Reading()).study, truths)
        return ("wrong", why) if why else ("at once", "")
    except UserError as error:
        refusals = [each["refused"] for each in truths if "refused" in each]
        if any(refusal in str(error) for refusal in refusals):
            return "refused", ""
        first = str(error).partition("\n")[0]
    if "command" not in truths[0]:
        return "useless", first
    try:
        why = _difference(judged([source], reading_of(truths[0]["command"])).study, truths)
        return ("wrong", why) if why else ("command", "")
    except UserError as error:
        return "useless", str(error)


def reading_of(command: str) -> Reading:
    """Read options of the command `judge`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--columns", default="")
    parser.add_argument("--where", action="append", default=[])
    parser.add_argument("--higher-is-better", action="store_const", const=True, dest="higher")
    parser.add_argument("--lower-is-better", action="store_const", const=False, dest="higher")
    parser.add_argument("--select-on-test", action="store_true")
    given = parser.parse_args(shlex.split(command))
    return Reading(
        columns=columns_in([given.columns]),
        where=tuple(given.where),
        higher_is_better=given.higher,
        select_on_test=given.select_on_test,
    )


def _difference(study: Study, truths: Sequence[Truth]) -> str:
    """Return how a study differs from each of several truths; empty: it is one of them."""
    whys = [difference(study, truth) for truth in truths if "means" in truth]
    return "" if "" in whys else " | ".join(whys) or "a report, where a refusal is wanted"


def difference(study: Study, truth: Truth) -> str:
    """Return how a study differs from a truth; empty: not at all."""
    rates = study.summary.learning_rates.to_dict("records")
    cells = study.summary.cells.to_dict("records")
    rated = not study.info.metric.untuned
    several = [name for name in ("task", "model", "variant") if len({row[name] for row in rates}) > 1]
    found = {
        (_label(row, several), f"{row['learning_rate']:.5g}" if rated else ""): (
            row["test_mean"],
            row["num_wanted"],
        )
        for row in rates
    }
    wanted = {
        (_known(label, found), f"{float(rate):.5g}" if rate else ""): mean
        for label, means in truth["means"].items()
        for rate, mean in means.items()
    }
    if found.keys() != wanted.keys():
        lost, more = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
        return f"lacks {lost[:3]}, has {more[:3]}"
    for key, mean in wanted.items():
        if not _equal(found[key][0], mean):
            return f"{key}: got {found[key][0]}, want {mean}"
        if found[key][1] != truth.get("seeds", found[key][1]):
            return f"{key}: got {found[key][1]} seeds, want {truth['seeds']}"
    chosen = {_label(cell, several): cell for cell in cells}
    for label, rate in (truth.get("best") or {}).items():
        if not math.isclose(chosen[_known(label, found)]["learning_rate"], float(rate), rel_tol=1e-4):
            return f"{label}: chose {chosen[_known(label, found)]['learning_rate']}, want {rate}"
    if "winner" in truth:
        of = {label: study.info.metric.sign * cell["validation_mean"] for label, cell in chosen.items()}
        winner = max(of, key=lambda label: -math.inf if math.isnan(of[label]) else of[label])
        if winner != _known(truth["winner"], found):
            return f"winner {winner}, want {truth['winner']}"
    return ""


def _label(row: Mapping[Hashable, Any], names: Sequence[str]) -> str:
    return "/".join(_SETTING.sub("", row[name]) for name in names)


def _known(label: str, found: Mapping[tuple[str, str], object]) -> str:
    """Return which of several labels of one cell, separated by `|`, a study has."""
    labels = {name for name, _ in found}
    return next((each for each in label.split("|") if each in labels), label if len(labels) > 1 else "")


def _equal(found: float, wanted: float | None) -> bool:
    if wanted is None or math.isnan(wanted):
        return math.isnan(found)
    return any(math.isclose(found, each, rel_tol=TOLERANCE) for each in (wanted, wanted / 100))
