"""Models of a study: what it may say of other families than GPT-2, and the smallest that train a step."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.study.file import load_study, study_to_yaml
from lr_sweep.sweep.study.model import HubWeights
from lr_sweep.tests.support.small_bodies import SIZES
from lr_sweep.tests.support.small_runs import CPU, real_valued_task, run_of, symbol_task
from lr_sweep.tests.support.study_example import write
from lr_sweep.tests.support.tiny_study import in_process, succeeds, write_study
from lr_sweep.trainables.models import FAMILIES, size_type
from lr_sweep.trainables.models.published import MODELS
from lr_sweep.trainables.plain.engine import Training


def written(folder: Path, models: dict[str, Any], variants: str = "[frozen-random]") -> Path:
    path = write_study(folder, models=json.dumps(models), variants=("VARIANTS",))
    path.write_text(path.read_text().replace("[VARIANTS]", variants))
    return path


def test_a_study_of_every_family_round_trips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lr_sweep.sweep.study.validation.FIXED", frozenset())
    study = load_study(written(tmp_path, {f"my-{f}": {"family": f, "size": vars(size)} for f, size in SIZES.items()}))
    assert {name: model.size for name, model in study.models.items()} == {f"my-{f}": size for f, size in SIZES.items()}
    assert load_study(write(tmp_path, study_to_yaml(study), "tiny.yaml")) == study


@pytest.mark.parametrize("name", MODELS)
def test_known_models_have_their_family_size_and_weights(name: str, tmp_path: Path) -> None:
    known, models = MODELS[name], {name: {}, "all": {"base": name}, "three": {"base": name, "depth": 3}}
    study = load_study(written(tmp_path, models, "[frozen-pretrained]"))
    assert study.models[name].body_size == study.models["all"].body_size == known.size
    assert study.models["three"].body_size == replace(known.size, layers=3)
    for model in study.models.values():
        assert model.size == known.size
        assert model.pretrained == HubWeights(hub=known.hub, revision=known.revision, sha256=known.sha256)


def test_all_mistakes_are_reported_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = {
        "a": {"family": "bert", "size": {"layers": 1, "heads": 3, "width": 16}},
        "b": {"family": "longformer", "size": {"layers": 1, "heads": 2, "width": 16, "attention_window": 4}},
        "c": {"family": "vit", "size": {"layers": 1, "heads": 2, "width": 16, "layer_norm_eps": 0.0}},
        "d": {"family": "t5", "size": {"layers": 1, "heads": 2, "width": 16, "positions": 5}},
        "e": {"family": "t5", "size": {"layers": 1, "heads": 2, "width": 16}, "pretrained": {"pretrain": {}}},
    }
    assert in_process("plan", written(tmp_path, models)) == (2, "")
    error = capsys.readouterr().err
    for wanted in (
        "models.a.size.heads: 3 heads do not divide width = 16",
        "models.b.size.attention_window: got 4, but is always 512; leave it out",
        "models.c.size.layer_norm_eps: got 0.0, but is always 1e-12; leave it out",
        "models.d.size.positions: unknown key 'positions'",
        "models.e.pretrained.pretrain: family t5 cannot be pretrained here, only gpt2; want hub or folder",
    ):
        assert wanted in error


def test_plan_names_what_the_plain_engine_trains(tmp_path: Path) -> None:
    models = {f"my-{name}": {"family": name, "size": vars(SIZES[name])} for name in ("vit", "gpt2", "lstm")}
    text = succeeds("plan", written(tmp_path, models), "--results", tmp_path / "results")
    assert "\nengine     plain for my-vit, my-lstm: the stacked engine trains GPT-2, not with Muon, nor" in text
    del models["my-vit"], models["my-lstm"]
    assert "engine" not in in_process("plan", written(tmp_path, models), "--results", tmp_path / "results")[1]


ONE: dict[str, Any] = {"layers": 1, "heads": 1, "width": 1}
SMALLEST: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", ONE | {"positions": 1}),
    ("lstm", {"layers": 1, "width": 2}),
    ("lstm", {"layers": 1, "width": 1, "cell": "library"}),
    ("lstm", {"layers": 1, "width": 1, "layer_norm": False, "residual": True, "positions": True}),
    ("bert", ONE | {"positions": 1}),
    ("t5", ONE | {"buckets": 32, "max_distance": 9}),
    ("longformer", ONE | {"positions": 1, "attention_window": 4}),
    ("vit", ONE),
]
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("lstm", {"layers": 1, "width": 1}, "size.width: got 1, want at least 2"),
    ("t5", ONE | {"buckets": 3}, "size.buckets: got 3, want at least 4"),
    ("t5", ONE | {"buckets": 4, "max_distance": 1}, "size.max_distance: got 1, want more than 1: a quarter"),
    ("longformer", ONE | {"attention_window": 2}, "size.attention_window: got 2, want an even number from 4"),
]
TASKS = {"numbers": real_valued_task, "symbols": symbol_task}


def test_there_is_a_smallest_model_of_every_family() -> None:
    assert {family for family, _ in SMALLEST} == set(FAMILIES)


@pytest.mark.parametrize(("family", "size"), SMALLEST, ids=str)
def test_the_smallest_models_train(family: str, size: dict[str, Any]) -> None:
    smallest = size_type(family)(**size)
    for make_task in TASKS.values():
        evaluation = Training(run_of(size=smallest, evaluate_every=1), make_task(), None, CPU).advance()
        assert evaluation is not None
        assert math.isfinite(evaluation.train_loss)


@pytest.mark.parametrize(("family", "size", "message"), REFUSED, ids=str)
def test_what_cannot_train_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, size: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr("lr_sweep.sweep.study.validation.FIXED", frozenset())
    models = json.dumps({"mine": {"family": family, "size": size}})
    study = write_study(tmp_path, models=models, variants=("unfrozen-random",))
    with pytest.raises(UserError, match=re.escape(f"models.mine.{message}")):
        load_study(study)
