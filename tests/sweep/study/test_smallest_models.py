"""The smallest models that a study may have train a step, and smaller ones are refused by `plan`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.datasets.task import TaskData
from lr_sweep.sweep.study.file import load_study
from lr_sweep.tests.support.small_runs import CPU, real_valued_task, run_of, symbol_task
from lr_sweep.tests.support.tiny_study import in_process, write_study
from lr_sweep.trainables.models import FAMILIES
from lr_sweep.trainables.plain.engine import Training
from lr_sweep.trainables.stacked.engine import StackedTraining

ONE: dict[str, Any] = {"layers": 1, "heads": 1, "width": 1}
SMALLEST: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", ONE | {"positions": 1}),
    ("lstm", {"layers": 1, "width": 2}),
    ("lstm", {"layers": 1, "width": 1, "cell": "library"}),
    ("lstm", {"layers": 1, "width": 1, "layer_norm": False, "residual": True, "positions": True}),
    ("bert", ONE | {"positions": 1}),
    ("t5", ONE | {"buckets": 4, "max_distance": 2}),
    ("t5", ONE | {"buckets": 7, "max_distance": 2}),
    ("t5", ONE | {"buckets": 8, "max_distance": 3}),
    ("t5", ONE | {"buckets": 32, "max_distance": 9}),
    ("longformer", ONE | {"positions": 1, "attention_window": 4}),
    ("longformer", ONE | {"positions": 1, "attention_window": 6}),
    ("vit", ONE),
    ("vit", ONE | {"layer_norm_eps": 1e-30}),
]
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("gpt2", ONE | {"positions": 0}, "size.positions: got 0, want greater than or equal to 1"),
    ("lstm", {"layers": 0, "width": 1}, "size.layers: got 0, want greater than or equal to 1"),
    ("lstm", {"layers": 1, "width": 1}, "size.width: got 1, want at least 2"),
    ("t5", ONE | {"buckets": 3}, "size.buckets: got 3, want at least 4"),
    ("t5", ONE | {"buckets": 4, "max_distance": 1}, "size.max_distance: got 1, want more than 1: a quarter"),
    ("t5", ONE | {"buckets": 33, "max_distance": 8}, "size.max_distance: got 8, want more than 8: a quarter"),
    ("longformer", ONE | {"attention_window": 2}, "size.attention_window: got 2, want an even number from 4"),
]
TASKS = {"numbers": real_valued_task, "symbols": symbol_task}


def of_one_model(folder: Path, family: str, size: dict[str, Any]) -> Path:
    models = json.dumps({"mine": {"family": family, "size": size}})
    return write_study(folder, models=models, variants=("unfrozen-random",))


def test_there_is_a_smallest_model_of_every_family() -> None:
    assert {family for family, _ in SMALLEST} == set(FAMILIES)


@pytest.mark.parametrize(("family", "size"), SMALLEST, ids=str)
def test_the_smallest_models_train(tmp_path: Path, family: str, size: dict[str, Any]) -> None:
    model = load_study(of_one_model(tmp_path, family, size)).models["mine"]
    for make_task in TASKS.values():
        evaluation = Training(run_of(size=model.size, evaluate_every=1), make_task(), None, CPU).advance()
        assert evaluation is not None
        assert math.isfinite(evaluation.train_loss)


@pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))
def test_the_smallest_gpt2_trains_in_a_stack(tmp_path: Path, task: Any) -> None:
    model = load_study(of_one_model(tmp_path, *SMALLEST[0])).models["mine"]
    data: TaskData = task()
    stack = StackedTraining(data, None, CPU)
    stack.add([run_of(size=model.size, evaluate_every=1, seed=seed) for seed in (0, 1)])
    assert [math.isfinite(evaluation.train_loss) for _, evaluation in stack.advance()] == [True, True]


@pytest.mark.parametrize(("family", "size", "message"), REFUSED, ids=str)
def test_what_cannot_train_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], family: str, size: dict[str, Any], message: str
) -> None:
    assert in_process("plan", of_one_model(tmp_path, family, size)) == (2, "")
    assert f"models.mine.{message}" in capsys.readouterr().err
