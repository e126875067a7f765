"""`figure deviations`: of weights whose deviations are known."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lr_sweep.tests.support.tiny_study import refused, said, succeeds, write_config, write_study, write_weights
from lr_sweep.trainables.run import ModelSize

SIZE = ModelSize(layers=11, heads=1, width=2, positions=3)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Random weights but for h.10.mlp.c_proj, whose weight is -0.5 and +0.5 and whose bias is 3."""
    folder = write_weights(tmp_path / "body", SIZE)
    tensors = load_file(folder / "model.safetensors")
    tensors["h.10.mlp.c_proj.weight"] = torch.tensor([0.5, -0.5]).repeat(8, 1)
    tensors["h.10.mlp.c_proj.bias"] = torch.full((2,), 3.0)
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_a_folder(weights: Path, tmp_path: Path) -> None:
    stem = tmp_path / "deviations-body"
    assert said("figure", "deviations", weights, "--out", tmp_path)[1].split() == [
        f"{stem}{ending}" for ending in (".csv", ".png", ".svg")
    ]
    with Path(f"{stem}.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 11 * 4 * 2
    assert [row["layer"] for row in rows[::8]] == [str(layer) for layer in range(11)]
    of = {(row["layer"], row["tensor"], row["kind"]): row for row in rows}
    assert float(of["10", "mlp.c_proj", "weight"]["standard_deviation"]) == 0.5
    assert float(of["10", "mlp.c_proj", "bias"]["standard_deviation"]) == 0.0
    assert {row["default"] for row in rows if row["kind"] == "weight"} == {"0.02"}
    assert {row["default"] for row in rows if row["kind"] == "bias"} == {"0.0"}
    svg = Path(f"{stem}.svg").read_text()
    assert "Pretrained weights of body" in svg
    assert "attn.c_attn" in svg


def test_a_model_of_a_study(tmp_path: Path) -> None:
    at = ["--results", str(tmp_path / "results"), "--out", str(tmp_path)]
    study = str(write_study(tmp_path))
    succeeds("figure", "deviations", study, *at)
    assert (tmp_path / "deviations-tiny.csv").is_file()
    assert "--model: unknown model 'tny'; did you mean 'tiny'?" in refused(
        "figure", "deviations", study, *at, "--model", "tny"
    )
    assert "unknown study 'nowhere'" in refused("figure", "deviations", "nowhere", *at)


def test_what_is_no_gpt2_is_refused(weights: Path) -> None:
    write_config(weights, SIZE, model_type="bert")
    line = ("figure", "deviations", weights, "--out", weights)
    assert "model_type: got \"bert\", want 'gpt2'" in refused(*line)
    write_config(weights, SIZE)
    save_file({"other": torch.zeros(1)}, weights / "model.safetensors")
    assert "no attention or feedforward of a GPT-2 among its weights" in refused(*line)
