"""What `judge` reads in files whose content is known: right at once, after a command that it offers, or not at all.

    python -m benchmarks.judge_readings FOLDER [FOLDER...] [--truths FILE]

A folder has `expected.json`, or FILE has its content: by the name of each file or folder in it a truth, or several that
are equally good. A truth has `means` (by variant and learning rate; a rate that is empty: the file has none), `seeds`
(at every rate, if they are equal), `best` (the rate by variant) and `winner`, or `refused`, a part of the message.
`columns` are those that the user gives at first. Commands that a question offers are run; the table counts:

- first: right without a question
- offer: right after the first command that is offered
- other: right after another one that is offered
- refused: no report, as the truth wants it, with its words
- useless: no report, and no offered command leads to a right one
- wrong: a report that differs from the truth
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lr_sweep.analysis.judge.judge import judged
from lr_sweep.analysis.judge.reading import QuestionError, Reading, columns_in
from lr_sweep.analysis.study_summary import Study
from lr_sweep.common.errors import UserError

OUTCOMES = ("first", "offer", "other", "refused", "useless", "wrong")
TOLERANCE = 2e-4
"""Relative difference up to which means are equal; percents are compared as fractions, too."""
_SETTING = re.compile(r"(?:^|(?<=, ))[A-Za-z]\w*=(?=[^\s,]*(?:,|$))")
"""Name of a setting in a label."""
Truth = Mapping[str, Any]


def main() -> None:
    """Print what became of each file, and the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--truths", type=Path)
    given = parser.parse_args()
    print(f"{'folder':<24}{'files':>6}{''.join(f'{name:>9}' for name in OUTCOMES)}")
    lines = []
    for folder in given.folders:
        truths = json.loads((given.truths or folder / "expected.json").read_text())
        found = {name: outcome(folder / name, truth) for name, truth in truths.items()}
        counts = Counter(each for each, _ in found.values())
        print(
            f"{folder.name:<24}{len(found):>6}{''.join(f'{counts[name]:>9}' for name in OUTCOMES)}",
            flush=True,
        )
        lines += [
            f"{each}: {folder.name}/{name}: {why}"
            for name, (each, why) in found.items()
            if each != "first"
        ]
    print("\n".join(sorted(lines)))


def outcome(path: Path, truth: Truth | Sequence[Truth]) -> tuple[str, str]:
    """Return one of `OUTCOMES`, and what was said or is wrong."""
    truths = [truth] if isinstance(truth, Mapping) else truth
    reading = Reading(columns=columns_in([truths[0].get("columns", "")]))
    refusal = next((each["refused"] for each in truths if "refused" in each), None)
    wanted = [each for each in truths if "refused" not in each]
    try:
        why = _difference(judged([path], reading).study, wanted)
        return ("wrong", why) if why else ("first", "")
    except QuestionError as question:
        whys = [_answer(path, reading.but(choice.reading), wanted) for choice in question.choices]
        said = question.text.partition("\n")[0]
        right = [number for number, why in enumerate(whys) if not why]
        if right:
            return ("other" if right[0] else "offer"), said
        return _refused(refusal, str(question)) or ("useless", f"{said}: {whys}")
    except UserError as error:
        return _refused(refusal, str(error)) or ("useless", str(error).partition("\n")[0])


def _refused(wanted: str | None, text: str) -> tuple[str, str] | None:
    return ("refused", text.partition("\n")[0]) if wanted is not None and wanted in text else None


def _answer(path: Path, reading: Reading, wanted: Sequence[Truth]) -> str:
    try:
        return _difference(judged([path], reading).study, wanted)
    except UserError as error:
        return str(error).partition("\n")[0]


def _difference(study: Study, wanted: Sequence[Truth]) -> str:
    """Return how a study differs from each of several truths; empty: it is one of them."""
    whys = [difference(study, truth) for truth in wanted]
    return "" if "" in whys else " | ".join(whys) or "a report, where a refusal is wanted"


def difference(study: Study, truth: Truth) -> str:
    """Return how a study differs from a truth; empty: not at all."""
    rates = study.summary.learning_rates.to_dict("records")
    cells = study.summary.cells.to_dict("records")
    rated = not study.info.metric.untuned
    several = [
        name for name in ("task", "model", "variant") if len({row[name] for row in rates}) > 1
    ]
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
        if not math.isclose(
            chosen[_known(label, found)]["learning_rate"], float(rate), rel_tol=1e-4
        ):
            return f"{label}: chose {chosen[_known(label, found)]['learning_rate']}, want {rate}"
    if "winner" in truth:
        of = {
            label: study.info.metric.sign * cell["validation_mean"]
            for label, cell in chosen.items()
        }
        winner = max(of, key=lambda label: -math.inf if math.isnan(of[label]) else of[label])
        if winner != _known(truth["winner"], found):
            return f"winner {winner}, want {truth['winner']}"
    return ""


def _label(row: Mapping[Hashable, Any], names: Sequence[str]) -> str:
    return "/".join(_SETTING.sub("", row[name]) for name in names)


def _known(label: str, found: Mapping[tuple[str, str], object]) -> str:
    """Return which of several labels of one cell, separated by `|`, a study has."""
    labels = {name for name, _ in found}
    return next(
        (each for each in label.split("|") if each in labels), label if len(labels) > 1 else ""
    )


def _equal(found: float, wanted: float | None) -> bool:
    if wanted is None or math.isnan(wanted):
        return math.isnan(found)
    return any(math.isclose(found, each, rel_tol=TOLERANCE) for each in (wanted, wanted / 100))


if __name__ == "__main__":
    main()
