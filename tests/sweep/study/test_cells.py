"""Studies that are no full grid: some cells, with learning rates of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.sweep.study.backbones import find_backbones, hub_sources, is_unknown
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.runs import wanted_runs
from lr_sweep.sweep.study.study import Study
from lr_sweep.tests.support.study_example import STUDY, mistakes, write
from lr_sweep.trainables.run import Protocol

# `cells` begins in line 10, its entries in lines 11 to 13.
RAGGED = """\
study: example
tasks:
  digits: {num_steps: 2000}
  bit-xor: {num_steps: 4000, evaluate_every: 500}
models:
  gpt2: {}
  recurrent: {family: lstm, size: {layers: 3, width: 64}}
  three: {base: gpt2, depth: 3}
variants: [frozen-pretrained, unfrozen-random]
cells:
- {models: [gpt2], variants: [frozen-pretrained]}
- {models: [recurrent], variants: [unfrozen-random], learning_rates: [3e-4, 1e-4]}
- {tasks: [bit-xor], models: [three], variants: [unfrozen-random]}
learning_rates: [1e-3]
seeds: 2
protocol: {evaluate_every: 1000}
"""


def load(folder: Path, old: str = "", new: str = "") -> Study:
    assert old in RAGGED
    return load_study(write(folder, RAGGED.replace(old, new, 1)))


def test_a_study_has_the_cells_it_names_with_what_is_their_own(tmp_path: Path) -> None:
    every_500, every_1000 = Protocol(evaluate_every=500), Protocol(evaluate_every=1000)
    cells = list(load(tmp_path).cell_list())
    assert cells == [
        ("digits", "gpt2", "frozen-pretrained", (1e-3,), every_1000, 2000),
        ("digits", "recurrent", "unfrozen-random", (1e-4, 3e-4), every_1000, 2000),
        ("bit-xor", "gpt2", "frozen-pretrained", (1e-3,), every_500, 4000),
        ("bit-xor", "recurrent", "unfrozen-random", (1e-4, 3e-4), every_500, 4000),
        ("bit-xor", "three", "unfrozen-random", (1e-3,), every_500, 4000),
    ]


def test_a_task_s_own_evaluation_interval_makes_the_runs_of_a_study_with_this_interval(tmp_path: Path) -> None:
    models = "{three: {base: gpt2, depth: 3}}"
    text = STUDY[: STUDY.index("models")].replace("digits: {num_steps: 2000}", "bit-xor: {num_steps: 4000}")
    text += f"models: {models}\nvariants: [unfrozen-random]\nlearning_rates: [1e-3]\nseeds: 2\n"
    full = load_study(write(tmp_path, f"{text}protocol: {{evaluate_every: 500}}\n"))
    ids = {run.run_id for run in wanted_runs(full, find_backbones(full, tmp_path), tmp_path)}
    ragged = load(tmp_path)
    wanted = wanted_runs(ragged, find_backbones(ragged, tmp_path), tmp_path)
    assert {run.run_id for run in wanted if run.model == "three"} == ids
    assert {run.run.learning_rate for run in wanted if run.model == "recurrent"} == {1e-4, 3e-4}


def test_weights_are_for_the_models_with_a_cell_that_starts_from_them(tmp_path: Path) -> None:
    study = load(tmp_path)  # `recurrent` has none, and is not asked for any
    assert list(hub_sources(study)) == ["gpt2"]
    found = find_backbones(study, tmp_path)
    assert list(found) == ["gpt2"]
    assert not is_unknown(found["gpt2"].checksum)


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("models: [gpt2]", "models: [gpt]", "11: cells[0].models[0]: unknown model 'gpt'; did you mean 'gpt2'?"),
        ("[bit-xor]", "[bit-xor, mnist]", "13: cells[2].tasks[1]: unknown task 'mnist'"),
        ("[three]", "[three, recurrent]", "13: cells[2]: bit-xor, recurrent, unfrozen-random: is in cells[1], too"),
        ("models: [gpt2], ", "", "7: models.recurrent: variant 'frozen-pretrained' needs `pretrained`"),
        ("_every: 500", "_every: 0", "4: tasks.bit-xor.evaluate_every: got 0, want greater than or equal to 1"),
        ("_every: 500", "_every: 3000", "4: tasks.bit-xor.num_steps: 4000 is not a multiple of evaluate_every = 3000"),
        ("[3e-4, 1e-4]", "[]", "12: cells[1].learning_rates: want at least one entry"),
        ("[three], ", "[gpt2], ", "8: models.three: is in none of the `cells`"),
        ("cells:", "cells: []\nrest:", "10: cells: got [], want at least one entry"),
    ],
)
def test_mistakes_in_cells_are_reported_with_their_lines(tmp_path: Path, old: str, new: str, wanted: str) -> None:
    assert old in RAGGED
    assert any(line.startswith(wanted) for line in mistakes(tmp_path, RAGGED.replace(old, new, 1)))
