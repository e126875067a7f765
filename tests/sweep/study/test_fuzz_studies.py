"""Random and mutated study files are read and written out into runs, or end in a message; none takes long."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.backbones import find_backbones
from lr_sweep.sweep.study.file import load_study, study_to_yaml
from lr_sweep.sweep.study.runs import expected_runs
from lr_sweep.tests.support.fuzz import limited
from lr_sweep.trainables.backbones import FAMILIES
from lr_sweep.trainables.parts import PARTS, VARIANTS
from lr_sweep.trainables.run import Protocol

QUICK, LONG = 25, 500
NUMBERS = [0, 1, 2, 3, 10, 0.1, 0.5, 1e-3, 1.0, 5e-324, 1e-20, 1e308, -1, 10**9, 10**18, 2**63]
ODD = [None, True, "", "x", "1e-3", "ä", [], {}, [[]], {"low": 1}, float("inf"), float("nan"), "x" * 500]
OPTIONS = {
    "optimizer": ["adam", "adamw", "sgd", "lion", "muon"],
    "schedule": ["constant", "cosine", "warmup-stable-decay"],
    "batch_size": [1, 8, 32],
    "dropout": [0, 0.1, 0.5],
    "weight_decay": [0, 1e-4, 0.1],
    "warmup_steps": [0, 10],
    "parametrization": ["standard", "mup"],
}
SIZES = [4, 4, 4, 4, 3]


class Made:
    """Makes studies by one random generator."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def any(self) -> Any:
        """A value that may be anywhere, and is rarely right."""
        return self.random.choice(self.random.choice([NUMBERS, ODD]))

    def often(self, make: Callable[[], Any]) -> Any:
        """What is made, or, one time in forty, anything."""
        return self.any() if self.random.random() < 1 / 40 else make()

    def some(self, values: Any, most: int = 4) -> list[Any]:
        values = list(values)
        return self.random.sample(values, self.random.randint(1, min(most, len(values))))

    def option(self, name: str) -> Any:
        values = OPTIONS.get(name, [getattr(Protocol(), name)])
        return self.often(lambda: self.random.choice(values))

    def options(self) -> dict[str, Any]:
        return {name: self.option(name) for name in self.some([*OPTIONS, *vars(Protocol())], 2)}

    def axes(self) -> dict[str, Any]:
        if self.random.random() < 0.3:  # distinct values by number, so that only their product is too much
            names = self.some(("adam_beta1", "adam_beta2", "dropout", "input_dropout", "weight_decay", "adam_eps"), 6)
            return {name: [round(0.001 * n, 3) for n in range(1, self.random.randint(2, 40))] for name in names}
        names = self.some(OPTIONS) if self.coin() else self.some([*OPTIONS, *vars(Protocol())], 6)
        return {name: self.often(partial(self.values, name)) for name in names}

    def values(self, name: str) -> list[Any]:
        return self.some(OPTIONS[name]) if name in OPTIONS else [self.option(name), *self.some(NUMBERS)]

    def model(self) -> Any:
        family = self.random.choice(list(FAMILIES))
        size = {name: self.often(lambda: self.random.choice(SIZES)) for name in ("layers", "width")}
        if family != "lstm":
            size["heads"] = self.often(lambda: self.random.choice([1, 1, 2, 4]))
        if self.random.random() < 0.1:
            size[self.random.choice(["positions", "attention_window", "buckets", "max_distance", "layer_norm"])] = (
                self.any()
            )
        return {"family": family, "size": size}

    def variant(self) -> Any:
        entry: dict[str, Any] = {"initialisation": "random", "trained": self.some(PARTS)}
        return entry | ({"protocol": self.often(self.options)} if self.random.random() < 0.5 else {})

    def number(self) -> int:
        """How many models or variants: few, or one time in forty, too many with many others."""
        return self.random.choice([1, 1, 2, 3]) if self.random.random() < 39 / 40 else 1000

    def variants(self) -> Any:
        if self.random.random() < 0.5:
            return [name for name in self.some(VARIANTS) if "pretrained" not in name] or ["frozen-random"]
        number = self.number()
        few = [self.variant() for _ in range(min(number, 3))]
        return {f"v{index}": self.often(lambda: few[0]) if number < 4 else few[index % 3] for index in range(number)}

    def models(self) -> Any:
        number = self.number()
        few = [self.often(self.model) for _ in range(min(number, 3))]
        return {f"m{index}": few[index % len(few)] for index in range(number)}

    def rates(self) -> Any:
        grid = {"low": 1e-5, "high": 1e-1, "per_decade": self.random.choice([1, 2, 2, 25, 100, 0])}
        return self.random.choice(
            [[1e-3], [1e-3, 1e-2, 1e-1], [1e-3, 1.001e-3, 1e-1], grid, self.often(lambda: [1e-20, 10.0])]
        )

    def search(self) -> Any:
        search = {"sampler": self.random.choice(["tpe", "gp", "random", "quasi-random"]), "low": 1e-5, "high": 1e-1}
        names = self.some(OPTIONS)
        space: dict[str, Any] = {name: self.often(partial(self.some, OPTIONS[name])) for name in names}
        space |= {"dropout": {"low": 0, "high": 0.3, "scale": "linear"}} if self.random.random() < 0.5 else {}
        return search | {"rates": self.often(lambda: 8), "space": self.often(lambda: space)}

    def study(self) -> dict[str, Any]:
        tasks = {
            name: {"num_steps": self.often(lambda: 100)}
            for name in ["digits", self.random.choice(["digits", "bit-xor", "listops"])]
        }
        made: dict[str, Any] = {
            "study": "fuzz",
            "tasks": self.often(lambda: tasks),
            "models": self.often(self.models),
            "variants": self.often(self.variants),
            "learning_rates": self.often(self.rates),
            "seeds": self.often(lambda: self.random.choice([1, 1, 3, 3, [0, 7], 1000])),
            "protocol": self.often(lambda: {"evaluate_every": 50} | (self.options() if self.coin() else {})),
        }
        extras: dict[str, Callable[[], Any]] = {
            "axes": lambda: self.often(self.axes),
            "cells": lambda: [{"models": ["m0"]}, {"variants": ["v1"], "protocol": self.options()}],
            "refine": lambda: self.random.choice([1, 20, self.any()]),
            "winners": lambda: self.random.choice([1, 10**9, self.any()]),
            "stop_early": lambda: self.often(lambda: {"rule": self.random.choice(["halving", "median"])}),
            "selection": lambda: self.random.choice(["best", "final", self.any()]),
            "resources": lambda: {"runs_per_trial": self.any()},
        }
        made |= {"axes": extras["axes"]()} if self.coin() else {}
        made |= {name: extras[name]() for name in self.some(extras, 2)} if self.coin() else {}
        if self.random.random() < 0.2:
            made |= {"search": self.often(self.search), "learning_rates": None}
        return made

    def coin(self) -> bool:
        return self.random.random() < 0.5

    def text(self) -> str:
        """A study as JSON, which is YAML; one time in four with some letters changed."""
        text = json.dumps(self.study())
        if self.random.random() < 0.25:
            for _ in range(self.random.randint(1, 3)):
                at = self.random.randrange(len(text))
                text = (
                    text[:at]
                    + self.random.choice(["", "[", "]", "{", ":", ",", "*", "&a ", "\n", "0", "!!int "])
                    + (text[at + self.random.randint(0, 3) :])
                )
        return text


def expanded(path: Path) -> int:
    """Read a study as `plan` does and write out its runs; return how many there are, 0 if it is refused."""
    try:
        study = load_study(path)
        results = Results(path.parent / "none")
        found = find_backbones(study, results.pretrained, path.parent)
        number = len(expected_runs(study, found, path.parent, {}))
    except UserError:
        return 0
    path.write_text(study_to_yaml(study), encoding="utf-8")
    assert load_study(path).plain() == study.plain()
    return number


def many(folder: Path, seeds: range) -> list[int]:
    counts, path = [], folder / "fuzz.yaml"
    for seed in seeds:
        path.write_text(Made(seed).text(), encoding="utf-8")
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
