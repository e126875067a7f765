from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from lr_sweep.datasets.task import TaskShape
from lr_sweep.tests.support.small_bodies import library_gpt2
from lr_sweep.tests.support.small_runs import SIZE, random_weights, real_valued_task, run_of, same_bits
from lr_sweep.trainables.models.classifier import Classifier, build_classifier
from lr_sweep.trainables.models.family import Dropout, parameters_of
from lr_sweep.trainables.models.gpt2 import GPT2
from lr_sweep.trainables.parts import VARIANTS
from lr_sweep.trainables.pretraining.weights import load_weights
from lr_sweep.trainables.run import ModelSize, Protocol
from lr_sweep.trainables.stacked.model import StackedBatch, StackedDropout
from lr_sweep.trainables.worker.memory import part_sizes

CIFAR10 = TaskShape(num_tokens=64, num_classes=10, token_dim=48)


@pytest.mark.parametrize("size", [SIZE, ModelSize(layers=3, heads=4, width=32, positions=20)])
def test_hidden_states_equal_the_library_s(size: ModelSize, tmp_path: Path) -> None:
    library = library_gpt2(size)
    library.save_pretrained(tmp_path)
    ours = GPT2(size)
    ours.load_state_dict(load_weights(tmp_path))
    embeddings = torch.randn(3, 9, size.width, generator=torch.Generator().manual_seed(1))  # (B, T, D)
    with torch.no_grad():
        theirs = library(inputs_embeds=embeddings).last_hidden_state  # (B, T, D)
        torch.testing.assert_close(ours(embeddings), theirs, atol=1e-5, rtol=0)
        no_dropout = Dropout(1e-12, torch.Generator().manual_seed(0))  # takes the written-out attention
        torch.testing.assert_close(ours(embeddings, no_dropout), theirs, atol=1e-5, rtol=0)


small = st.integers(1, 8)


@settings(max_examples=30, deadline=None)
@given(small, small, small, small, small, small, st.booleans())
def test_sizes_of_parts_are_those_of_the_model(
    layers: int, width: int, positions: int, num_tokens: int, num_classes: int, kinds: int, real_valued: bool
) -> None:
    size = ModelSize(layers=layers, heads=1, width=width, positions=positions)
    tokens = {"token_dim": kinds} if real_valued else {"num_token_ids": kinds}
    task = TaskShape(num_tokens=num_tokens, num_classes=num_classes, **tokens)
    with torch.device("meta"):
        parts = Classifier(size, task, Protocol()).parts()
    counted = {name: sum(p.numel() for p in parameters_of(modules)) for name, modules in parts.items()}
    assert part_sizes(size, task) == counted


def test_statistics_alone_have_each_tensor_s_mean_and_deviation() -> None:
    size = ModelSize(layers=1, heads=2, width=64, positions=40)
    weights = {name: tensor + 3 for name, tensor in random_weights(size).items()}
    run = run_of("frozen-random", size=size, initialisation="statistics", weights_checksum="weights")
    drawn = build_classifier(run, CIFAR10, weights).body.state_dict()
    other = build_classifier(replace(run, seed=1), CIFAR10, weights).body.state_dict()
    for name, tensor in weights.items():
        got = drawn[name][: len(tensor)]
        assert not torch.equal(got, tensor)
        assert not torch.equal(got, other[name][: len(tensor)])
        assert got.mean().item() == pytest.approx(tensor.mean().item(), abs=5 * 0.2 / math.sqrt(tensor.numel()))
        assert got.std().item() == pytest.approx(tensor.std().item(), rel=5 / math.sqrt(2 * tensor.numel()))
    assert drawn["wpe.weight"][40:].std().item() == pytest.approx(0.02, rel=0.1)


def test_dropout_of_bf16_scales_as_in_fp32() -> None:
    """131 / 128 / 0.9 is 1.1372, next to bf16's 1.140625; times bf16's 1.109375 it is 1.1354, next to 1.1328."""
    x = torch.full((1, 100, 1, 1), 131 / 128, dtype=torch.bfloat16)
    assert {value.item() for value in Dropout(0.1, torch.Generator().manual_seed(0))(x).flatten()} == {0.0, 1.140625}
    batch = StackedBatch(tokens=torch.zeros(1, 100, 1), num_runs=1)
    masks = torch.full((1, 100, 1, 1), 1 / 0.9)
    stacked = StackedDropout(batch=batch, masks=iter([masks, masks]))
    assert {value.item() for value in stacked(x).flatten()} == {1.140625}
    assert stacked.keep().dtype == torch.float32  # for the weights of attention, which are fp32


def test_dropout_keeps_the_mean_and_follows_its_generator() -> None:
    ones = torch.ones(200_000)

    def drop(seed: int) -> torch.Tensor:
        return Dropout(0.1, torch.Generator().manual_seed(seed))(ones)

    assert torch.equal(drop(0), drop(0))
    assert not torch.equal(drop(0), drop(1))
    assert drop(0).unique().tolist() == pytest.approx([0.0, 1 / 0.9])
    assert drop(0).mean().item() == pytest.approx(1.0, abs=0.003)  # 4 standard errors of 0.00075


def test_random_start_is_the_reference_s() -> None:
    size = ModelSize(layers=2, heads=2, width=128, positions=64)
    model = build_classifier(run_of(size=size), CIFAR10, None)
    block = model.body.h[0]
    for weight in (block.attn.c_attn.weight, block.attn.c_proj.weight, block.mlp.c_proj.weight, model.body.wpe.weight):
        assert weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert not block.mlp.c_fc.bias.any()
    assert torch.equal(block.ln_1.weight, torch.ones(128))
    gram = model.input_layer.weight.T @ model.input_layer.weight  # (48, 48): orthogonal columns, gain 1.41
    torch.testing.assert_close(gram, 1.41**2 * torch.eye(48), atol=1e-4, rtol=0)
    assert not model.input_layer.bias.any()
    assert model.output_layer.weight.abs().max().item() <= 128**-0.5


def test_library_start_scales_residual_projections() -> None:
    size = ModelSize(layers=8, heads=2, width=128, positions=64)
    block = build_classifier(run_of(size=size, random_init="library"), CIFAR10, None).body.h[3]
    assert block.mlp.c_proj.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)  # sqrt(2 x 8 layers) = 4
    assert block.mlp.c_fc.weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_variants_of_a_seed_share_input_and_output_layers() -> None:
    shape = real_valued_task().shape
    models = [build_classifier(run_of(name), shape, random_weights()) for name in VARIANTS]
    for model in models[1:]:
        assert torch.equal(model.input_layer.weight, models[0].input_layer.weight)
        assert torch.equal(model.output_layer.weight, models[0].output_layer.weight)
    other = build_classifier(run_of(seed=1), shape, None)
    assert not torch.equal(other.input_layer.weight, models[0].input_layer.weight)


def test_positions_beyond_the_pretrained_ones_start_random() -> None:
    task = TaskShape(num_tokens=3000, num_classes=10, num_token_ids=16)
    weights = random_weights()
    table = build_classifier(run_of("frozen-pretrained"), task, weights).body.wpe.weight
    assert table.shape == (3000, 16)
    assert torch.equal(table[:12], weights["wpe.weight"])
    assert table[12:].std().item() == pytest.approx(0.02, rel=0.05)


def test_weights_are_read_with_and_without_the_language_model_s_prefix(tmp_path: Path) -> None:
    weights = random_weights()
    save_file(
        {f"transformer.{name}": t for name, t in weights.items()} | {"lm_head.weight": torch.ones(2)},
        tmp_path / "model.safetensors",
    )
    assert same_bits(load_weights(tmp_path), weights)
