"""Attention in blocks of queries: what written-out attention with the same masks computes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lr_sweep.benchmarks.engine_memory import measured
from lr_sweep.datasets.task import TaskShape
from lr_sweep.tests.support.small_bodies import SIZES
from lr_sweep.tests.support.small_runs import (
    TASKS,
    alone_of,
    assert_both_engines_agree,
    assert_same_in,
    run_of,
    sweep_of,
)
from lr_sweep.trainables.models import gpt2
from lr_sweep.trainables.models.gpt2 import AttentionNoise, attend_in_blocks
from lr_sweep.trainables.numerics import keyed_generator
from lr_sweep.trainables.run import Attention, ModelSize, Protocol, attention_for
from lr_sweep.trainables.worker.memory import stack_bytes

KEYS = (11, 12)
PROBABILITY = 0.3


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpt2, "QUERY_BLOCK", 4)


def noise_of(readers: tuple[tuple[int, ...], ...] = ((0, 2), (1,)), layer: int = 1) -> AttentionNoise:
    return AttentionNoise(keys=KEYS[: len(readers)], readers=readers, layer=layer, probability=PROBABILITY)


def drawn(name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=keyed_generator(0, f"{name}{shape}"), dtype=dtype).requires_grad_()


def whole_masks(noise: AttentionNoise, key: int, like: Tensor, num_tokens: int) -> Tensor:
    """Return the masks of all blocks as one (B, H, T, T), 0 where there are none."""
    masks = like.new_zeros(*like.shape[:2], num_tokens, num_tokens)
    for start in range(0, num_tokens, gpt2.QUERY_BLOCK):
        mask = noise.mask(key, start, like, num_tokens)
        masks[:, :, start : start + mask.shape[2], : mask.shape[3]] = mask
    return masks


def written(q: Tensor, k: Tensor, v: Tensor, masks: Tensor) -> Tensor:
    future = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).triu(1)
    scores = (q @ k.mT) / math.sqrt(q.shape[3])
    return (scores.masked_fill(future, -torch.inf).softmax(-1) * masks) @ v


def gradients(mixed: Tensor, upstream: Tensor, operands: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return torch.autograd.grad((mixed * upstream).sum(), operands)


@pytest.mark.parametrize("num_tokens", [3, 4, 9, 16])
def test_blocks_have_values_and_gradients_of_written_attention_with_the_same_masks(num_tokens: int) -> None:
    q, k, v, upstream = (drawn(name, 3 * 2, 2, num_tokens, 5, dtype=torch.float64) for name in "qkvu")
    noise = noise_of()
    of_key = [whole_masks(noise, key, q[:2], num_tokens) for key in KEYS]
    masks = torch.cat([of_key[0], of_key[1], of_key[0]])  # runs 0 and 2 share the first key
    ours, theirs = attend_in_blocks(q, k, v, noise), written(q, k, v, masks)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    for pair in zip(*(gradients(x, upstream.detach(), (q, k, v)) for x in (ours, theirs)), strict=True):
        torch.testing.assert_close(*pair, rtol=0, atol=1e-12)


def test_masks_of_blocks_follow_from_key_layer_and_block_alone() -> None:
    like, noise = torch.empty(2, 2, 1, 1), noise_of()
    first = noise.mask(11, 4, like, 16)
    assert first.shape == (2, 2, 4, 8)
    assert torch.equal(first, noise.mask(11, 4, like, 9))
    assert not any(
        torch.equal(first, other) for other in (noise.mask(12, 4, like, 16), noise_of(layer=0).mask(11, 4, like, 16))
    )
    assert first.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert not torch.equal(first[..., :4], noise.mask(11, 0, like, 16))


@pytest.mark.parametrize("number", [1, 3, 9])
def test_last_rows_are_those_of_the_masks(number: int) -> None:
    like, noise = torch.empty(2, 2, 1, 1), noise_of()
    for key, found in zip(KEYS, noise.last_rows(number, like, 9), strict=True):
        assert torch.equal(found, whole_masks(noise, key, like, 9)[:, :, -number:])


@pytest.mark.parametrize("task", ["numbers", "pairs"])
def test_both_engines_have_one_curve(task: str) -> None:
    assert_both_engines_agree(sweep_of("unfrozen-random", attention="blocked"), TASKS[task])


@pytest.mark.parametrize("variant", ["frozen-pretrained", "unfrozen-random"])
def test_other_runs_change_no_bit(variant: str) -> None:
    runs = sweep_of(variant, attention="blocked")
    alone = alone_of(runs, TASKS["symbols"])
    for group in (runs[1:], [runs[3], runs[0]]):
        assert_same_in(group, alone, TASKS["symbols"])


def test_bf16_products_are_close_to_those_of_fp32() -> None:
    q, k, v = (drawn(name, 3, 1, 9, 4) for name in "qkv")
    exact = attend_in_blocks(q, k, v, noise_of())
    with torch.autocast("cpu", torch.bfloat16):
        rounded = attend_in_blocks(q, k, v, noise_of())
    assert rounded.dtype == torch.bfloat16
    torch.testing.assert_close(exact, rounded.float(), rtol=0, atol=0.05)
    pairs = (torch.autograd.grad(x.float().square().sum(), (q, k, v)) for x in (rounded, exact))
    for one, other in zip(*pairs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0.2)


@pytest.mark.parametrize(
    ("asked", "dropout", "num_tokens", "wanted"),
    [
        (None, 0.1, 511, None),
        (None, 0.1, 512, "blocked"),
        (None, 0.0, 512, None),
        ("written", 0.1, 512, None),
        ("blocked", 0.1, 16, "blocked"),
    ],
)
def test_the_rule_of_length(asked: Attention | None, dropout: float, num_tokens: int, wanted: str | None) -> None:
    protocol = Protocol(attention=asked, dropout=dropout)
    assert attention_for(protocol, ModelSize(layers=1, heads=1, width=4), num_tokens) == wanted
    assert attention_for(protocol, SIZES["bert"], num_tokens) is None


def test_predicted_memory_is_linear_in_the_tokens() -> None:
    size = ModelSize(layers=3, heads=4, width=16)
    for kind, least, most in (("blocked", 1.9, 2.05), ("written", 3.3, 4.0)):
        run = run_of(size=size, attention=kind)
        shapes = [TaskShape(num_tokens=tokens, num_classes=2, num_token_ids=6) for tokens in (2000, 4000)]
        short, long = (stack_bytes(run, shape, 1, 1, on_cpu=False) for shape in shapes)
        assert least < long / short < most


@pytest.mark.slow
def test_measured_memory_is_linear_in_the_tokens() -> None:
    short, long, written_out = (
        measured(kind, tokens)["measured_bytes"]
        for kind, tokens in (("blocked", 2000), ("blocked", 4000), ("written", 2000))
    )
    assert 1.5 < long / short < 2.6
    assert written_out > 4 * short
