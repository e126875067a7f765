"""Attention in blocks of queries: what written-out attention with the same masks computes, in less memory."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lr_sweep.benchmarks.long_sequences import in_a_process
from lr_sweep.datasets.task import TaskShape
from lr_sweep.tests.support.small_bodies import SIZES
from lr_sweep.tests.support.small_runs import CPU, run_of
from lr_sweep.tests.trainables.test_stacked_bits import alone_of, assert_same_in
from lr_sweep.tests.trainables.test_stacked_training import TASKS, assert_close, plain, stacked, sweep_of
from lr_sweep.trainables import blocked_attention
from lr_sweep.trainables.blocked_attention import AttentionNoise, attend_in_blocks
from lr_sweep.trainables.memory import stack_bytes
from lr_sweep.trainables.randomness import keyed_generator
from lr_sweep.trainables.run import Attention, ModelSize, Protocol, attention_for
from lr_sweep.trainables.stacked.engine import StackedTraining

KEYS = (11, 12)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked_attention, "QUERY_BLOCK", 4)


def noise_of(probability: float = 0.3) -> AttentionNoise:
    return AttentionNoise(keys=KEYS, readers=((0, 2), (1,)), layer=1, probability=probability)


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=keyed_generator(0, str(shape)), dtype=dtype).requires_grad_()


def whole_masks(noise: AttentionNoise, key: int, like: Tensor, num_tokens: int) -> Tensor:
    """Return the masks of all blocks as one (B, H, T, T), 0 where there are none."""
    masks = like.new_zeros(*like.shape[:2], num_tokens, num_tokens)
    for start in range(0, num_tokens, blocked_attention.QUERY_BLOCK):
        mask = noise.mask(key, start, like, num_tokens)
        masks[:, :, start : start + mask.shape[2], : mask.shape[3]] = mask
    return masks


def written(q: Tensor, k: Tensor, v: Tensor, masks: Tensor) -> Tensor:
    future = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
    scores = (q @ k.mT) / math.sqrt(q.shape[3])
    return (scores.masked_fill(future, -torch.inf).softmax(-1) * masks) @ v


@pytest.mark.parametrize("num_tokens", [3, 4, 9, 16])
def test_values_and_gradients_are_those_of_written_attention_with_the_same_masks(num_tokens: int) -> None:
    q, k, v = (drawn(3 * 2, 2, num_tokens, width, dtype=torch.float64) for width in (5, 5, 5))
    noise, weight = noise_of(), drawn(6, 2, num_tokens, 5, dtype=torch.float64).detach().cos()
    of_key = [whole_masks(noise, key, q[:2], num_tokens) for key in KEYS]
    masks = torch.cat([of_key[0], of_key[1], of_key[0]])  # runs 0 and 2 share the first key
    ours, theirs = attend_in_blocks(q, k, v, noise), written(q, k, v, masks)
    assert torch.allclose(ours, theirs, atol=1e-12)
    for one, other in zip(
        torch.autograd.grad((ours * weight).sum(), (q, k, v)),
        torch.autograd.grad((theirs * weight).sum(), (q, k, v)),
        strict=True,
    ):
        assert torch.allclose(one, other, atol=1e-12)


def test_masks_follow_from_key_layer_and_block_alone() -> None:
    like, noise = torch.empty(2, 2, 1, 1), noise_of()
    first = noise.mask(11, 4, like, 16)
    assert first.shape == (2, 2, 4, 8)
    assert torch.equal(first, noise.mask(11, 4, like, 9))
    others = (noise.mask(12, 4, like, 16), AttentionNoise(**{**vars(noise), "layer": 0}).mask(11, 4, like, 16))
    assert not any(torch.equal(first, other) for other in others)
    assert first.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert not torch.equal(first[..., :4], noise.mask(11, 0, like, 16))


def test_rows_are_those_of_the_masks() -> None:
    like, noise = torch.empty(2, 2, 1, 1), noise_of()
    positions = torch.tensor([[[0, 8], [3, 4]], [[7, 7], [5, 2]]])  # (K, B, M)
    rows = noise.rows(positions, like, 9)
    for key, its, found in zip(KEYS, positions, rows, strict=True):
        masks = whole_masks(noise, key, like, 9)
        for example in range(2):
            assert torch.equal(found[example], masks[example][:, its[example]])


@pytest.mark.parametrize("readout", ["final_position", "last_token"])
@pytest.mark.parametrize("task", TASKS)
def test_both_engines_have_one_curve(task: str, readout: str) -> None:
    runs = sweep_of("unfrozen-random", attention="blocked", readout=readout)
    together = stacked(runs, data=TASKS[task])[1]
    for slot, run in zip(together[1:3], runs[1:3], strict=True):
        assert_close(slot.progress.curve, plain(run, data=TASKS[task]).progress.curve, 1e-4)


@pytest.mark.parametrize("variant", ["frozen-pretrained", "unfrozen-random"])
def test_other_runs_change_no_bit(variant: str) -> None:
    runs = sweep_of(variant, attention="blocked", readout="last_token")
    alone = alone_of(runs, TASKS["symbols"])
    for group in (runs, runs[2:], [runs[3], runs[0]]):
        assert_same_in(group, TASKS["symbols"], alone)


def test_losses_are_those_of_written_attention_with_the_same_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = sweep_of("unfrozen-random", attention="blocked")[:1]
    ours = plain(run).progress.curve

    def written_out(q: Tensor, k: Tensor, v: Tensor, noise: AttentionNoise) -> Tensor:
        return written(q, k, v, whole_masks(noise, noise.keys[0], q, q.shape[2]))

    monkeypatch.setattr("lr_sweep.trainables.backbones.gpt2.attend_in_blocks", written_out)
    assert_close(ours, plain(run).progress.curve, 1e-5)


def test_bf16_products_are_close_to_those_of_fp32() -> None:
    q, k, v = (drawn(3, 1, 9, width)[..., :4] for width in (4, 5, 6))
    exact = attend_in_blocks(q, k, v, noise_of())
    with torch.autocast("cpu", torch.bfloat16):
        rounded = attend_in_blocks(q, k, v, noise_of())
    assert rounded.dtype == torch.bfloat16
    assert torch.allclose(exact, rounded.float(), atol=0.05)
    gradients = torch.autograd.grad(rounded.float().square().sum(), (q, k, v))
    for one, other in zip(gradients, torch.autograd.grad(exact.square().sum(), (q, k, v)), strict=True):
        assert torch.allclose(one, other, atol=0.2)


def test_a_stack_with_it_is_not_compiled() -> None:
    stack = StackedTraining(TASKS["numbers"], None, CPU, compiled=True)
    stack.add(sweep_of("unfrozen-random", attention="blocked"))
    assert not stack.compiled


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


def test_other_families_have_no_blocks() -> None:
    assert attention_for(Protocol(attention="blocked"), SIZES["bert"], 2000) is None


def test_predicted_memory_is_linear_in_the_tokens() -> None:
    size = ModelSize(layers=3, heads=4, width=16)
    for attention, least, most in (("blocked", 1.9, 2.05), ("written", 3.3, 4.0)):
        run = run_of(size=size, attention=attention)
        shapes = [TaskShape(num_tokens=tokens, num_classes=2, num_token_ids=6) for tokens in (2000, 4000)]
        short, long = (stack_bytes(run, shape, 1, 1, on_cpu=False) for shape in shapes)
        assert least < long / short < most


@pytest.mark.slow
def test_measured_memory_is_linear_in_the_tokens() -> None:
    short, long, written = (
        (in_a_process(attention, tokens) or {})["measured_bytes"]
        for attention, tokens in (("blocked", 1000), ("blocked", 2000), ("written", 2000))
    )
    assert 1.5 < long / short < 2.6
    assert written > 4 * long
