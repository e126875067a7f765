"""Tables of random layouts with planted winners: right, or refused with the reason; never silently wrong.

With random faults in them, each gives a report, a question or a message, in the time and memory of a laptop.

A case is its number. What is right is worked out from what was planted, not from the table.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.analysis.judge.judge import judged, write_judged
from lr_sweep.analysis.judge.reading import QuestionError, Reading
from lr_sweep.analysis.study_summary import Study
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.fuzz import limited
from lr_sweep.tests.support.judged import judge

QUICK, MANY, PART = 16, 3000, 200
LEAST_ANSWERED = 0.5
RATES = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1]
RATE_NAMES = ["lr", "learning_rate", "LR", "params_lr", "params.lr", "config/lr", "hparams.lr", "adam_lr", "base_lr"]
RATE_NAMES += ["learningRate", "start_lr", "optimizer.learning_rate", "initial_lr"]
VARIANT_NAMES = ["variant", "method", "algo", "optimizer", "params.method", "config/algorithm"]
VARIANT_NAMES += ["architecture", "Method"]
SEED_NAMES = ["seed", "random_seed", "params_seed", "config/seed", "Seed", "random_state", "repeat"]
METRICS = {"acc": True, "accuracy": True, "f1": True, "loss": False, "ppl": False, "error": False, "reward": True}
SPLIT_NAMES = ["val_{}", "valid_{}", "validation_{}", "eval/{}", "metrics.val_{}", "dev {}", "best_val_{}", "{}_val"]
AXES = {"width": ["32", "64"], "weight_decay": ["0", "0.1", "0.01"], "params.gamma": ["0.9", "0.99"]}
AXES |= {"batch_size": ["16", "32"], "schedule": ["cosine", "linear"], "k": ["0", "1", "2"]}
STATES = ["finished", "COMPLETE", "TERMINATED", "success", "Completed"]


@dataclass
class Planted:
    """A table, and what is true of it."""

    text: str
    best: dict[str, float]
    """Rate by variant; without variants, or with settings as variants, see `axis`."""
    winner: str
    axis: str | None = None
    """A column of settings beside the variants: pooling its values is wrong."""
    higher: bool = True


def planted(case: int) -> Planted:
    """Make a table: for each variant a peak over the rates, far above the noise; rows, names and marks at random."""
    draw = random.Random(case)
    metric = draw.choice(list(METRICS))
    higher, scale = METRICS[metric], draw.choice([1, 1, 1, 100]) if metric in ("acc", "accuracy", "error") else 1
    rates = sorted(draw.sample(RATES, draw.randint(2, 6)))
    variants = draw.sample(["adam", "sgd", "lion", "north", "k-fac"], draw.randint(1, 4)) if draw.random() < 0.8 else []
    axis = draw.choice(list(AXES)) if draw.random() < 0.3 else None
    seeds = list(range(draw.choice([1, 2, 3, 5]))) if draw.random() < 0.8 else []
    steps = list(range(1, draw.choice([3, 5]))) if draw.random() < 0.3 else []
    peaks = {name: draw.choice(rates) for name in variants or ["all"]}
    levels = dict(zip(draw.sample(list(peaks), len(peaks)), [0.0, 0.1, 0.2, 0.3], strict=False))
    runs = product(variants or ["all"], AXES[axis] if axis else [None], rates, seeds or range(draw.choice([1, 2, 3])))
    rows = []
    for number, (name, value, rate, seed) in enumerate(runs):
        away = abs(rates.index(rate) - rates.index(peaks[name]))
        good = 0.5 + levels[name] - 0.02 * away + 0.001 * draw.random()
        if axis and value:
            good += 0.004 * AXES[axis].index(value)
        for step in steps or [None]:
            at = good - (0.01 * abs(step - steps[-2]) if step is not None and len(steps) > 1 else 0)
            shown = scale * (at if higher else 1 - at)
            cells = {"variant": name, "axis": value, "rate": rate, "seed": seed, "step": step, "run": f"r{number}"}
            rows.append(cells | {"value": shown, "last": step == (steps or [None])[-1]})
    best = max(levels, key=lambda name: levels[name])
    text = _written(draw, rows, metric, higher, bool(variants), axis, bool(seeds), bool(steps))
    return Planted(text, peaks, best, axis, higher)


def _written(draw: random.Random, rows: list[dict[str, Any]], metric: str, higher: bool, *has: object) -> str:
    with_variants, axis, with_seeds, with_steps = has
    mark = draw.choice(",,,,;\t|")
    comma = mark != "," and draw.random() < 0.5
    columns: dict[str, list[str]] = {}

    def number(value: float) -> str:
        text = f"{value:.7g}" if draw.random() < 0.9 else f"{value:.6e}"
        return text.replace(".", ",") if comma else text

    if with_variants:
        columns[draw.choice(VARIANT_NAMES)] = [row["variant"] for row in rows]
    if axis:
        columns[str(axis)] = [row["axis"].replace(".", ",") if comma else row["axis"] for row in rows]
    columns[draw.choice(RATE_NAMES)] = [number(row["rate"]) for row in rows]
    if with_seeds:
        prefix = draw.choice(["", "", "", "seed_", "s"])
        columns[draw.choice(SEED_NAMES)] = [f"{prefix}{row['seed']}" for row in rows]
    if with_steps:
        columns[draw.choice(["step", "epoch", "_step", "training_iteration"])] = [str(row["step"]) for row in rows]
        if draw.random() < 0.4:  # the schedule's rate beside the configured one
            columns["current_lr" if draw.random() < 0.5 else "lr_now"] = [
                number(row["rate"] / (1 + row["step"])) for row in rows
            ]
    if (with_steps and not with_seeds) or draw.random() < 0.3:
        columns[draw.choice(["run_id", "trial_id", "ID"])] = [row["run"] for row in rows]
    split = draw.choice(SPLIT_NAMES)
    if draw.random() < 0.1 and metric != "loss" and metric != "error":
        split = "{}"
    columns[split.format(metric)] = [number(row["value"]) for row in rows]
    if draw.random() < 0.4 and split != "{}" and higher:  # a loss that is best elsewhere
        columns[split.format("loss")] = [number(draw.random()) for _ in rows]
    if draw.random() < 0.3:
        columns["train_loss"] = [number(draw.random()) for _ in rows]
    if draw.random() < 0.3:
        columns[draw.choice(["time_s", "Runtime", "duration"])] = [number(1 + 99 * draw.random()) for _ in rows]
    if draw.random() < 0.3:
        columns[draw.choice(["notes", "host", "Name"])] = [draw.choice(["", "gpu1", "gpu2"]) for _ in rows]
    if draw.random() < 0.3:
        columns["depth"] = ["12" for _ in rows]
    if draw.random() < 0.3:
        columns[draw.choice(["status", "state", "State"])] = [draw.choice(STATES) for _ in rows]
    if with_seeds and not with_steps and draw.random() < 0.15:
        columns = _wide(columns, rows, split.format(metric), draw.choice(["{}_seed{}", "seed_{}_{}", "{} fold {}"]))
    elif higher and metric != "reward" and draw.random() < 0.1:  # percents; the metric's scale is 1 or 100
        name, most = split.format(metric), max(row["value"] for row in rows)
        columns[name] = [f"{text}%" for text in columns[name]] if most > 1 else columns[name]
    names = list(columns)
    draw.shuffle(names)
    lines = [[columns[name][i] for name in names] for i in range(len(columns[names[0]]))]
    if draw.random() < 0.5:
        draw.shuffle(lines)
    start = [f"sep={mark}"] if draw.random() < 0.1 else ["# made by a script"] if draw.random() < 0.1 else []
    return "\n".join([*start, mark.join(names), *(mark.join(line) for line in lines), ""])


def _wide(columns: dict[str, list[str]], rows: list[dict[str, Any]], value: str, named: str) -> dict[str, list[str]]:
    """Write the values of a run's seeds beside each other."""
    kept = [name for name in columns if name in {*VARIANT_NAMES, *AXES, *RATE_NAMES}]
    found: dict[tuple[Any, ...], list[int]] = {}
    for i, row in enumerate(rows):
        found.setdefault((row["variant"], row["axis"], row["rate"]), []).append(i)
    wide = {name: [columns[name][of_run[0]] for of_run in found.values()] for name in kept}
    for seed in range(len(next(iter(found.values())))):
        name = named.format(value, seed) if named.startswith("{}") else named.format(seed, value)
        wide[name] = [columns[value][of_run[seed]] for of_run in found.values()]
    return wide


def wrong(study: Study, case: Planted) -> str:
    """Return what is wrong with a study; empty: nothing is."""
    cells = study.summary.cells
    if study.info.metric.higher_is_better is not case.higher:
        return "the direction"
    found = dict(zip(cells["variant"], cells["learning_rate"], strict=True))
    means = dict(zip(cells["variant"], study.info.metric.sign * cells["validation_mean"], strict=True))
    if case.axis and set(found) == set(case.best):  # its values were taken for seeds, or lost
        return f"{case.axis} was pooled"
    of = {name: next((known for known in case.best if name.startswith(known)), "all") for name in found}
    if any(rate != case.best.get(of[name]) for name, rate in found.items()):
        return f"rates {found}, planted {case.best}"
    leader = of[max(means, key=lambda name: means[name])]
    return "" if leader in (case.winner, "all") else f"winner {leader}, planted {case.winner}"


def outcome(number: int, folder: Path) -> str:
    """Judge a case: `right`, or the first words of the refusal; raises AssertionError if it is wrong."""
    case = planted(number)
    (folder / "table.csv").write_text(case.text)
    try:
        study = judge([folder / "table.csv"], Reading())
    except QuestionError as question:
        return "asked" if len(question.choices) > 1 else "asked for nothing"
    except UserError as error:
        return f"refused: {str(error).rpartition('table.csv')[2][:50]}"
    except Exception as error:
        raise AssertionError(f"case {number}: {type(error).__name__}: {error}\n{case.text[:600]}") from error
    said = wrong(study, case)
    assert not said, f"case {number}: {said}; {study.about_table[0]}\n{case.text[:600]}"
    return "right"


def outcomes(folder: Path, cases: range) -> Counter[str]:
    return Counter(outcome(case, folder) for case in cases)


def test_planted_winners_are_found_or_the_table_is_refused(tmp_path: Path) -> None:
    found = outcomes(tmp_path, range(QUICK))
    assert found["right"] > LEAST_ANSWERED * QUICK, found


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, MANY, PART))
def test_very_many_planted_winners(tmp_path: Path, first: int) -> None:
    found = outcomes(tmp_path, range(first, first + PART))
    assert found["right"] > LEAST_ANSWERED * PART, found


FIELDS = ["", "x" * 300, "１", "nan", "inf", "-inf", "1e400", "1.7e308", "-1.7e308", "5e-324", "-", "5_0", "-0"]
FIELDS += [
    "0,001",
    "-1",
    "1e-31",
    "1e30",
    "seed_1",
    "9223372036854775807",
    "PRUNED",
    "odd",
    "\x00",
    "=1+1",
    "@x",
    "$x$",
]
FIELDS += ["$x$", "<b>", "..", "ｎ", "é", "CON", '"', "\\", "%s{0}"]
NOT_PLAIN = [b"\xff\xfe", b"\x00", b"PAR1", b'"', b"sep=;\n", b"\xef\xbb\xbf", b"\r", b"\n\n\n"]


def damaged(case: int) -> bytes:
    """Make a planted table with other fields, rows that are there twice, a cut, or bytes that are no text."""
    draw, lines = random.Random(case), planted(case).text.splitlines()
    mark = next((each for each in ";\t|," if each in lines[-1]), ",")
    for _ in range(draw.choice([0, 1, 1, 2, 5])):
        at = draw.randrange(len(lines))
        fields = lines[at].split(mark)
        fields[draw.randrange(len(fields))] = draw.choice(FIELDS)
        lines[at] = mark.join(fields)
    lines += draw.choices(lines, k=draw.choice([0] * 9 + [1, 3]))
    content = "\n".join(lines).encode()
    if draw.random() < 0.15:
        content = content[: draw.randint(0, len(content))]
    if draw.random() < 0.1:
        at = draw.randint(0, len(content))
        content = content[:at] + draw.choice(NOT_PLAIN) + content[at:]
    return content


def read(path: Path, reading: Reading) -> str:
    """Read a table, and write the report beside it; tries what a question offers."""
    try:
        write_judged(judged([str(path)], reading).study, path.with_name("out"))
    except QuestionError as question:
        offered = [read(path, reading.but(choice.reading)) for choice in question.choices]
        return "question" if offered and "message" not in offered else f"an offer of {question} fails"
    except UserError as error:
        return "message" if str(error) else "an empty message"
    return "report"


@pytest.mark.parametrize("cases", [range(16), pytest.param(range(16, 700), marks=pytest.mark.slow)], ids=len)
def test_damaged_tables_give_a_report_or_a_message(tmp_path: Path, undrawn: None, cases: range) -> None:
    found = Counter[str]()
    for case in cases:
        (tmp_path / "table.csv").write_bytes(damaged(case))
        with limited(case):
            found[read(tmp_path / "table.csv", Reading())] += 1
    assert found.keys() <= {"report", "question", "message"}, found
    assert 0 < found["report"] < len(cases)  # else nothing was tried
