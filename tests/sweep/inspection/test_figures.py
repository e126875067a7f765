"""`figure`: numbers by hand, drawn of recorded runs, of weights and of studies."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from lr_sweep.datasets import TASKS
from lr_sweep.datasets.loaded import load_checked
from lr_sweep.sweep.inspection.figures import rebuild, recorded_run
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.tests.support.small_runs import random_weights
from lr_sweep.tests.support.tiny_study import (
    curves,
    refused,
    said,
    succeeds,
    train,
    write_config,
    write_study,
    write_weights,
)
from lr_sweep.trainables.checkpoint import checkpoints
from lr_sweep.trainables.models.gpt2 import GPT2
from lr_sweep.trainables.plain.evaluation import evaluate
from lr_sweep.trainables.run import ModelSize


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, list[WantedRun]]:
    """A pretrained run whose weights are in a folder, and a random one; 4 tokens, 2 heads."""
    folder = tmp_path_factory.mktemp("attention")
    results = Results(folder / "results")
    return results, train(write_study(folder, rates=[1e-2]), results)


def test_a_later_layer_reads_what_the_first_one_gives() -> None:
    size = ModelSize(layers=2, heads=2, width=16, positions=12)
    body = GPT2(size)
    body.load_state_dict(random_weights(size))
    x = torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        weights = body.attention_weights(x, 1)
        block = body.h[1]
        normed = block.ln_1(body.h[0](x + body.wpe.weight[:5], None))
        values = block.attn.c_attn(normed)[..., 32:].view(3, 5, 2, 8).transpose(1, 2)
        mixed = (weights @ values).transpose(1, 2).reshape(3, 5, 16)
        out = block.attn.c_proj(mixed)
        torch.testing.assert_close(out, block.attn(normed, None))
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, 5))
    assert not weights.triu(1).any()


def test_the_array_is_of_the_trained_model(trained: tuple[Results, list[WantedRun]], tmp_path: Path) -> None:
    """Once more in numpy, from the tensors of the checkpoint, its weights' file and the task's examples."""
    results, (pretrained, _) = trained
    at = ("--results", results.root, "--out", tmp_path / "new")
    printed = succeeds("figure", "attention", pretrained.run_id[:6], *at, "--examples", "3")
    stem = tmp_path / "new" / f"attention-{pretrained.run_id}-layer0"
    assert printed.split() == [f"{stem}{ending}" for ending in (".npz", ".png", ".svg")]
    found = np.load(f"{stem}.npz", allow_pickle=False)
    assert sorted(found) == ["attention", "inputs", "labels"]
    attention = found["attention"]
    assert (attention.shape, attention.dtype) == ((3, 2, 4, 4), np.float32)
    np.testing.assert_allclose(attention.sum(-1), 1.0, atol=1e-6)
    assert not np.triu(attention, 1).any()
    from safetensors.numpy import load_file

    (path,) = checkpoints(results.checkpoints(pretrained.run_id))
    best = {name[5:]: each for name, each in load_file(path).items() if name.startswith("best.")}
    frozen = {
        f"body.{name}": each.numpy() for name, each in random_weights(ModelSize(**vars(pretrained.run.model))).items()
    }
    weights = frozen | best
    data = load_checked("digits", TASKS["digits"], TASKS["digits"].Options(), Path())
    x = data.tokens(data.test.inputs[:3]).numpy() @ best["input_layer.weight"].T + best["input_layer.bias"]
    x = x + weights["body.wpe.weight"][:4]
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    x = x * weights["body.h.0.ln_1.weight"] + weights["body.h.0.ln_1.bias"]
    qkv = x @ weights["body.h.0.attn.c_attn.weight"] + weights["body.h.0.attn.c_attn.bias"]
    q, k = (qkv[..., 16 * i : 16 * (i + 1)].reshape(3, 4, 2, 8).transpose(0, 2, 1, 3) for i in range(2))
    expected = np.exp(q @ k.transpose(0, 1, 3, 2) / np.sqrt(8)) * np.tri(4)
    np.testing.assert_allclose(attention, expected / expected.sum(-1, keepdims=True), atol=1e-5)
    np.testing.assert_array_equal(found["inputs"], data.test.inputs[:3])
    svg = Path(f"{stem}.svg").read_text()
    for text in ("digits tiny frozen-pretrained 1e-2 seed 0", f"Run {pretrained.run_id}", "mean over heads", "head 1"):
        assert text in svg


def test_a_rebuilt_model_is_as_accurate_as_recorded(trained: tuple[Results, list[WantedRun]]) -> None:
    results, runs = trained
    for wanted in runs:
        rebuilt = rebuild(results, *recorded_run(results, wanted.run_id), Path())
        assert evaluate(rebuilt.model, rebuilt.data, rebuilt.data.test)[1] == rebuilt.test_accuracy
        points = {each["step"]: each for each in curves(results.root)[wanted.run_id]}
        assert points[rebuilt.step]["test_accuracy"] == rebuilt.test_accuracy
        assert points[rebuilt.step]["validation_accuracy"] == max(
            each["validation_accuracy"] for each in points.values()
        )


def test_errors_say_what_is_missing(trained: tuple[Results, list[WantedRun]], tmp_path: Path) -> None:
    results, (pretrained, _) = trained
    at = ("--results", results.root, "--out", tmp_path)
    assert "no run 'ffffffff'; `ls` lists all 2 runs" in refused("figure", "attention", "ffffffff", *at)
    assert "--layer: got 1, want 0 to 0" in refused("figure", "attention", pretrained.run_id, *at, "--layer", "1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lr_sweep.sweep.inspection.figures.MOST_BYTES", 4 * 2 * 4 * 4 * 5 + 1)  # 5 examples of 2 heads
        message = refused("figure", "attention", pretrained.run_id, *at, "--examples", "6")
        assert "--examples: got 6, want at most 5" in message
    (path,) = checkpoints(results.checkpoints(pretrained.run_id))
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"\x55")
    assert "has no intact checkpoint in" in refused("figure", "attention", pretrained.run_id, *at)
    assert path.exists()  # looking renames nothing
    path.write_bytes(content)
    model = results.root.parent / "weights" / "model.safetensors"
    away = model.rename(tmp_path / "away")
    assert "no model.safetensors in" in refused("figure", "attention", pretrained.run_id, *at)
    away.rename(model)
    assert [each.name for each in tmp_path.iterdir()] == []


def test_a_family_without_attention_is_refused(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    models = "{tiny: {family: lstm, size: {layers: 1, width: 8}}}"
    study = write_study(tmp_path, models=models, variants=["frozen-random"], rates=[1e-2], num_steps=10)
    (run,) = train(study, results)
    message = refused("figure", "attention", run.run_id, "--results", results.root, "--out", tmp_path)
    assert f"run {run.run_id} is of the family lstm; attention is drawn of gpt2 alone" in message


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
