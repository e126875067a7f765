"""Studies that are changed at random are read and written out into runs, or end in a message; none takes long."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.backbones import find_backbones
from lr_sweep.sweep.study.file import load_study, study_to_yaml
from lr_sweep.sweep.study.runs import stand_in_runs, wanted_runs
from lr_sweep.tests.support.fuzz import limited
from lr_sweep.trainables.models import FAMILIES

QUICK, LONG = 25, 500
NUMBERS = [0, 1, 2, 3, 10, 0.1, 0.5, 1e-3, 1.0, 5e-324, 1e-20, 1e308, -1, 10**9, 10**18, 2**63]
ODD = [None, True, "", "x", "1e-3", "ä", [], {}, [[]], {"low": 1}, float("inf"), float("nan"), "x" * 500]
LETTERS = ["", "[", "]", "{", ":", ",", "*", "&a ", "\n", "0", "!!int "]
MINE = {"initialisation": "random", "trained": ["output", "attention"], "protocol": {"warmup_steps": 10}}
SPACE = {"batch_size": [4, 8], "dropout": {"low": 0, "high": 0.3, "scale": "linear"}}
DECAYING = {"schedule": ["cosine", "warmup-stable-decay"], "optimizer": ["adam", "muon"], "weight_decay": [0, 0.1]}
SIZE = {"layers": 1, "heads": 2, "width": 4}
BODIES = {"lstm": {"layers": 1, "width": 4}} | {family: SIZE for family in FAMILIES if family != "lstm"}
RATES = {"low": 1e-5, "high": 1e-1, "per_decade": 2}
RIGHT: dict[str, Any] = {
    "study": "fuzz",
    "tasks": {"digits": {"num_steps": 100}, "bit-xor": {"num_steps": 100}},
    "models": {"m": {"size": SIZE}, "n": {"size": SIZE | {"layers": 2}}},
    "variants": ["frozen-random", "unfrozen-random"],
    "learning_rates": [1e-3, 1e-2, 1e-1],
    "seeds": 3,
    "protocol": {"evaluate_every": 50, "dropout": 0, "parametrization": "standard"},
}
STUDIES: list[dict[str, Any]] = [
    RIGHT | more
    for more in (
        {"models": {family: {"family": family, "size": size} for family, size in BODIES.items()}},
        {"variants": {"frozen-random": {}, "mine": MINE}, "learning_rates": RATES},
        {"axes": DECAYING, "variants": ["unfrozen-random"]},
        {"cells": [{"models": ["m"]}, {"models": ["n"], "learning_rates": [1e-3], "protocol": {"dropout": 0.1}}]},
        {"learning_rates": None, "search": {"low": 1e-5, "high": 1e-1, "rates": 8, "space": SPACE}},
        {"refine": 3, "winners": 1, "stop_early": {"rule": "median"}, "resources": {"runs_per_trial": 2}},
        {"decide": {"min_difference": 1}, "selection": "final", "seeds": [0, 7]},
    )
]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place in nested mappings and lists: what holds it, and its key."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def change(study: dict[str, Any], dice: random.Random) -> None:
    """Change a place: remove what is there, or put something odd, much more, or what another study has by this name."""
    holder, key = dice.choice(list(places(study)))
    kind = dice.choice(["none", "odd", "more", "other's"])
    if kind == "none":
        del holder[key]
    elif kind == "odd":
        holder[key] = dice.choice(dice.choice([NUMBERS, ODD]))
    elif kind == "more":
        holder[key] = more_of(holder[key], dice.choice([2, 3, 40, 1000]))
    else:
        others = [other[name] for other, name in places(STUDIES) if name == key]
        holder[key] = copy.deepcopy(dice.choice(others or ODD))


def more_of(value: Any, number: int) -> Any:
    """A mapping or a list with so many entries more, which are alike; else a list of them."""
    if isinstance(value, dict) and value:
        name, first = next(iter(value.items()))
        return value | {f"{name}{index}": first for index in range(number)}
    if isinstance(value, list):
        return [*value, *(round(0.001 * index, 3) for index in range(1, number))]
    return [value] * number


def text_of(study: dict[str, Any], dice: random.Random) -> str:
    """A study as JSON, which is YAML; one time in four with some letters changed."""
    text = json.dumps(study)
    for _ in range(dice.choice([0, 0, 0, dice.randint(1, 3)])):
        at = dice.randrange(len(text))
        text = text[:at] + dice.choice(LETTERS) + text[at + dice.randint(0, 3) :]
    return text


def expanded(path: Path) -> int:
    """Read a study as `plan` does and write out its runs; return how many there are, 0 if it is refused."""
    try:
        study = load_study(path)
        results = Results(path.parent / "none")
        found = find_backbones(study, results.pretrained, path.parent)
        wanted = wanted_runs(study, found, path.parent)
        number = len([*wanted, *stand_in_runs(study, found, path.parent, wanted)])
    except UserError:
        return 0
    path.write_text(study_to_yaml(study), encoding="utf-8")
    assert load_study(path).plain() == study.plain()
    return number


def many(folder: Path, seeds: range) -> list[int]:
    counts, path = [], folder / "fuzz.yaml"
    for seed in seeds:
        dice, study = random.Random(seed), copy.deepcopy(STUDIES[seed % len(STUDIES)])
        for _ in range(dice.choice([0, 1, 1, 2, 3])):
            change(study, dice)
        path.write_text(text_of(study, dice), encoding="utf-8")
        with limited(f"seed {seed}"):
            counts.append(expanded(path))
    return counts


def test_random_studies_are_written_out_or_refused(tmp_path: Path) -> None:
    counts = many(tmp_path, range(QUICK))
    assert any(counts)
    assert not all(counts)


@pytest.mark.slow
def test_many_random_studies_are_written_out_or_refused(tmp_path: Path) -> None:
    counts = many(tmp_path, range(QUICK, QUICK + LONG))
    assert sum(number > 0 for number in counts) > LONG / 20  # else it is all about mistakes
