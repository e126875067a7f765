"""Tables of random layouts with planted winners: right, or listed and right once their columns are named; never wrong.

Columns and rows are in any order, with marks, names and decoys at random. Some tables have names that say nothing, a
column of settings that is no variant, or lack a column. What is right is worked out from what was planted, not from the
table. With random faults in them, tables give a report or a message, in the time and memory of a laptop.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from lr_sweep.analysis.judge.judge import judged, write_judged
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.study_summary import Study
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.fuzz import limited
from lr_sweep.tests.support.judged import judge

QUICK, MANY, PART = 16, 3000, 200
RATES = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1]
NAMES = {
    "variant": ["variant", "method", "algo", "optimizer", "params.method", "config/algorithm", "Method"],
    "learning_rate": ["lr", "learning_rate", "LR", "params_lr", "config/lr", "hparams.lr", "base_lr", "learningRate"],
    "seed": ["seed", "random_seed", "params_seed", "config/seed", "Seed", "random_state", "repeat"],
    "step": ["step", "epoch", "training_iteration", "global_step"],
    "run": ["run_id", "trial_id", "Run ID"],
    "status": ["status", "state", "State"],
}
METRICS = {"acc": True, "accuracy": True, "f1": True, "loss": False, "ppl": False, "error": False, "reward": True}
DATA = ["val_{}", "valid_{}", "validation_{}", "eval/{}", "metrics.val_{}", "dev {}", "best_val_{}", "{}_val"]
SETTINGS = {"width": ["32", "64"], "weight_decay": ["0", "0.1", "0.01"], "params.gamma": ["0.9", "0.99"]}
SETTINGS |= {"batch_size": ["16", "32"], "schedule": ["cosine", "linear"], "k": ["0", "1", "2"], "zeta": ["u", "v"]}
STATES = ["finished", "COMPLETE", "TERMINATED", "success", "Completed"]


@dataclass(frozen=True)
class Planted:
    """A table, what its columns mean, and what is true of it."""

    frame: pd.DataFrame
    names: dict[str, str]
    """Columns by what they mean."""
    means: dict[tuple[str, float], float]
    """Means over seeds at their best step and setting, by variant and learning rate."""
    higher: bool
    mark: str = ","
    lacks: str = ""
    """The meaning of a column that is not written."""

    def text(self) -> str:
        return self.frame.to_csv(index=False, sep=self.mark)

    def reading(self) -> Reading:
        """Return the reading of a user who knows the table."""
        seeds = {} if {"seed", "run"} & self.names.keys() else {"seed": "rows"}
        ignored = "+".join({*self.frame} - {*self.names.values()})
        return Reading(columns={**self.names, **seeds, "ignored": ignored}, higher_is_better=self.higher)


def planted(case: int) -> Planted:
    """Make a table: for each variant a peak over the rates, far above the noise, and best with the last setting."""
    draw = random.Random(case)
    metric = draw.choice(list(METRICS))
    scale = draw.choice([1, 1, 1, 100]) if metric in ("acc", "accuracy", "error") else 1
    rates = sorted(draw.sample(RATES, draw.randint(2, 6)))
    variants = draw.sample(["adam", "sgd", "lion", "north", "k-fac"], draw.choice([1, 1, 2, 3, 4]))
    setting = draw.choice(list(SETTINGS)) if draw.random() < 0.3 else ""
    steps = list(range(1, draw.choice([3, 5]))) if draw.random() < 0.3 else [1]
    levels = {name: draw.sample([0.0, 0.1, 0.2, 0.3], 1)[0] for name in variants}
    peaks = {name: draw.choice(rates) for name in variants}
    grid = product(variants, SETTINGS.get(setting, [""]), rates, range(draw.choice([1, 2, 3, 5])))
    rows = []
    for number, (name, value, rate, seed) in enumerate(grid):
        away = abs(rates.index(rate) - rates.index(peaks[name]))
        good = 0.4 + levels[name] - 0.02 * away + 0.001 * draw.random()
        good += 0.05 * SETTINGS[setting].index(value) if setting else 0
        rows += [(name, value, rate, seed, step, f"r{number}", good - 0.01 * (step == steps[-1])) for step in steps]
    names = ["variant", "tuned", "learning_rate", "seed", "step", "run", "good"]
    frame = pd.DataFrame(rows, columns=names).assign(status=[draw.choice(STATES) for _ in rows])
    frame["validation"] = scale * (frame["good"] if METRICS[metric] else 1 - frame["good"])
    cell = ["variant", "learning_rate"]
    of_runs = frame.assign(good=frame["good"]).groupby([*cell, "tuned", "seed"])["good"].max()
    best = of_runs.groupby([*cell, "tuned"]).mean().groupby(cell).max()
    means = {key: value if METRICS[metric] else 1 - value for key, value in best.items()}
    has_seeds = frame["seed"].nunique() == 1 or draw.random() < 0.7
    kept = ["learning_rate", *["variant"] * (len(variants) > 1 or draw.random() < 0.5), *["seed"] * has_seeds]
    kept += [*["tuned"] * bool(setting), *["step"] * (len(steps) > 1), *["status"] * (draw.random() < 0.3)]
    kept += ["run"] * ((len(steps) > 1 and not has_seeds) or draw.random() < 0.3)
    return laid_out(draw, frame[[*kept, "validation"]], setting, metric, means)


def laid_out(draw: random.Random, frame: pd.DataFrame, setting: str, metric: str, means: dict) -> Planted:
    """Name the columns, add others, leave one out, and write them in any order."""
    data = draw.choice(DATA)
    names = {meaning: draw.choice(NAMES[meaning]) for meaning in frame if meaning in NAMES}
    names |= {"validation": data.format(metric)} | ({"tuned": setting} if setting else {})
    frame = frame.rename(columns=names)
    number, texts = lambda _: f"{draw.random():.6g}", lambda _: draw.choice(["", "gpu1", "gpu2"])
    others = {"train_loss": number, "Runtime": number, "lr_now": number, "notes": texts, "depth": lambda _: "12"}
    if metric != "loss":  # a loss that is best elsewhere
        others[data.format("loss")] = number
    for name, made in others.items():
        if draw.random() < 0.25:
            frame[name] = list(map(made, range(len(frame))))
    lacks = draw.choice(["", "", "", "", *(names.keys() - {"validation"})])
    if lacks:
        frame = frame.drop(columns=names.pop(lacks))
    elif draw.random() < 0.2:  # names that say nothing
        unknown = {name: f"x{place}" for place, name in enumerate(frame, 1)}
        frame = frame.rename(columns=unknown)
        names = {meaning: unknown[name] for meaning, name in names.items()}
    order = draw.sample(list(frame), len(frame.columns))
    frame = frame[order].sample(frac=1, random_state=draw.randrange(1000))
    return Planted(frame, names, means, METRICS[metric], draw.choice(",,,;\t|"), lacks)


def difference(study: Study, case: Planted) -> str:
    """Return how a study differs from what was planted; empty: not at all."""
    if study.info.metric.higher_is_better is not case.higher:
        return "the direction"
    rates = study.summary.learning_rates
    cells = {(row.variant, row.learning_rate): row.validation_mean for row in rates.itertuples()}
    wanted = {(name if "variant" in case.names else "all", rate): mean for (name, rate), mean in case.means.items()}
    for key, mean in wanted.items():
        found = cells.get(key, float("nan"))
        if not min(abs(found - mean), abs(found - 100 * mean)) < 1e-4 * max(1, found):
            return f"{key}: got {found}, want {mean}"
    return "" if cells.keys() == wanted.keys() else f"cells {sorted(cells)[:4]}"


def is_unseen(case: Planted) -> bool:
    """Return whether nothing in the table shows that a column lacks.

    Runs with ids, of which each is there once, look like repeats, whatever else was varied.
    """
    return case.lacks in ("variant", "tuned", "learning_rate") and "run" in case.names and "seed" not in case.names


def outcome(number: int, folder: Path) -> str:
    """Judge a case: `at once`, `named`, `refused` or `unseen`; raises AssertionError if it is wrong."""
    case = planted(number)
    (folder / "table.csv").write_text(case.text())
    if is_unseen(case):
        return "unseen"
    readings = {"at once": Reading()}
    is_mixed = "step" in case.names and not {"seed", "run"} & case.names.keys()  # rows of several curves
    if case.lacks in ("", "seed", "status", "run") and not is_mixed:  # otherwise no reading is right
        readings |= {"named": case.reading()}
    about = f"case {number}, lacks {case.lacks!r}, {case.names}:\n{case.text()[:800]}"
    said = ""
    for kind, reading in readings.items():
        try:
            study = judge([folder / "table.csv"], reading)
        except UserError as error:
            said = str(error)
            continue
        why = difference(study, case)
        assert not why, f"{kind}: {why}; {study.about_table[0]}; {about}"
        return kind
    assert "named" not in readings, f"{said}\n{about}"
    return "refused"


def outcomes(folder: Path, cases: range) -> Counter[str]:
    return Counter(outcome(case, folder) for case in cases)


def test_planted_winners_are_found_or_the_table_is_listed(tmp_path: Path) -> None:
    found = outcomes(tmp_path, range(QUICK))
    assert found["at once"] + found["named"] > QUICK / 2, found


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, MANY, PART))
def test_very_many_planted_winners(tmp_path: Path, first: int) -> None:
    found = outcomes(tmp_path, range(first, first + PART))
    assert found["at once"] > PART / 8, found
    assert found["at once"] + found["named"] > PART / 2, found


ODD = """１ nan inf -inf 1e400 1.7e308 -1.7e308 5e-324 - 5_0 -0 0,001 -1 1e-31 1e30 seed_1 9223372036854775807 odd
=1+1 @x $x$ <b> .. ｎ é CON " \\ %s{0}"""
FIELDS = ["", "\x00", "x" * 300, *ODD.split()]
NOT_PLAIN = [b"\xff\xfe", b"\x00", b"PAR1", b'"', b"sep=;\n", b"\xef\xbb\xbf", b"\r", b"\n\n\n"]


def damaged(case: int) -> bytes:
    """Make a planted table with other fields, rows that are there twice, a cut, or bytes that are no text."""
    draw, made = random.Random(case), planted(case)
    lines = made.text().splitlines()
    for _ in range(draw.choice([0, 1, 1, 2, 5])):
        at = draw.randrange(len(lines))
        fields = lines[at].split(made.mark)
        fields[draw.randrange(len(fields))] = draw.choice(FIELDS)
        lines[at] = made.mark.join(fields)
    lines += draw.choices(lines, k=draw.choice([0] * 9 + [1, 3]))
    content = "\n".join(lines).encode()
    if draw.random() < 0.15:
        content = content[: draw.randint(0, len(content))]
    if draw.random() < 0.1:
        at = draw.randint(0, len(content))
        content = content[:at] + draw.choice(NOT_PLAIN) + content[at:]
    return content


@pytest.mark.parametrize("cases", [range(16), pytest.param(range(16, 700), marks=pytest.mark.slow)], ids=len)
def test_damaged_tables_give_a_report_or_a_message(tmp_path: Path, undrawn: None, cases: range) -> None:
    found = Counter[str]()
    for case in cases:
        (tmp_path / "table.csv").write_bytes(damaged(case))
        for reading in (Reading(), planted(case).reading()):
            with limited(case):
                found[judged_or_not(tmp_path / "table.csv", reading)] += 1
    assert found.keys() == {"report", "message"}, found


def judged_or_not(path: Path, reading: Reading) -> str:
    try:
        write_judged(judged([str(path)], reading).study, path.with_name("out"))
    except UserError as error:
        return "message" if str(error) else "an empty message"
    return "report"
