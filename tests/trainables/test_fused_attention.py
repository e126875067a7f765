"""Attention by torch's own kernels. Values that are rows of the identity show the masks that a kernel drew."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lr_sweep.tests.support.small_runs import CPU
from lr_sweep.tests.trainables.test_stacked_bits import alone_of, assert_same_in
from lr_sweep.tests.trainables.test_stacked_training import TASKS, assert_close, plain, stacked, sweep_of
from lr_sweep.trainables.blocked_attention import AttentionNoise
from lr_sweep.trainables.fused_attention import attend_fused
from lr_sweep.trainables.randomness import keyed_generator
from lr_sweep.trainables.run import ModelSize, Protocol, attention_for
from lr_sweep.trainables.stacked.engine import StackedTraining

DEVICES = [
    CPU,
    pytest.param(
        torch.device("cuda"),
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
    ),
]
NUM_TOKENS, WIDTH, HEADS, BATCH = 64, 32, 2, 2
PROBABILITY = 0.3


def noise_of(readers: tuple[tuple[int, ...], ...] = ((0, 2), (1,)), layer: int = 1) -> AttentionNoise:
    return AttentionNoise(keys=(11, 12)[: len(readers)], readers=readers, layer=layer, probability=PROBABILITY)


def drawn(name: str, device: torch.device, num_runs: int = 3) -> Tensor:
    generator = keyed_generator(0, name)
    x = torch.randn(num_runs * BATCH, HEADS, NUM_TOKENS, WIDTH, generator=generator)
    return x.to(device).requires_grad_()


def weights_of(q: Tensor, k: Tensor) -> Tensor:
    """Return the weights before dropout, (R B, H, T, T), written out."""
    future = torch.ones(NUM_TOKENS, NUM_TOKENS, dtype=torch.bool, device=q.device).triu(1)
    return (q @ k.mT / math.sqrt(WIDTH)).masked_fill(future, -torch.inf).softmax(-1)


def dropped_weights(q: Tensor, k: Tensor, noise: AttentionNoise) -> Tensor:
    """Return the weights after dropout: values that are rows of the identity show a part of the columns at a time."""
    whole = torch.eye(NUM_TOKENS, device=q.device)
    values = [columns.expand(*q.shape[:2], -1, -1) for columns in whole.split(WIDTH, 1)]  # (R B, H, T, W)
    return torch.cat([attend_fused(q, k, each, noise) for each in values], -1)


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_it_is_written_attention_with_the_masks_that_it_drew(device: torch.device) -> None:
    q, k, v = (drawn(name, device) for name in "qkv")
    noise = noise_of()
    with torch.no_grad():
        dropped = dropped_weights(q, k, noise)
    seen = torch.ones(NUM_TOKENS, NUM_TOKENS, device=device).tril()
    kept = (dropped != 0).float()  # (R B, H, T, T)
    assert (kept.sum() / (seen.sum() * kept[..., 0, 0].numel())).item() == pytest.approx(1 - PROBABILITY, abs=0.02)
    found = attend_fused(q, k, v, noise)
    wanted = (weights_of(q, k) * kept / (1 - PROBABILITY)) @ v
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    upstream = drawn("gradient", device).detach()
    gradients = (torch.autograd.grad((x * upstream).sum(), (q, k, v)) for x in (found, wanted))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_masks_follow_from_key_and_layer_alone(device: torch.device) -> None:
    q, k, v = (drawn(name, device).detach() for name in "qkv")
    rows = slice(2 * BATCH, 3 * BATCH)
    whole = attend_fused(q, k, v, noise_of())
    torch.rand(5, device=device)  # of the global generator
    alone = attend_fused(q[rows], k[rows], v[rows], noise_of(((0,),)))
    assert torch.equal(whole[rows], alone)
    assert not torch.equal(alone, attend_fused(q[rows], k[rows], v[rows], noise_of(((0,),), layer=0)))


def test_the_global_generator_is_left_as_it_was() -> None:
    before = torch.get_rng_state()
    attend_fused(drawn("q", CPU), drawn("k", CPU), drawn("v", CPU), noise_of())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("readout", ["final_position", "last_token"])
@pytest.mark.parametrize("task", TASKS)
def test_both_engines_have_one_curve(task: str, readout: str) -> None:
    runs = sweep_of("unfrozen-random", attention="fused", readout=readout)
    together = stacked(runs, data=TASKS[task])[1]
    for slot, run in zip(together[1:3], runs[1:3], strict=True):
        assert_close(slot.progress.curve, plain(run, data=TASKS[task]).progress.curve, 1e-4)


@pytest.mark.parametrize("variant", ["frozen-pretrained", "unfrozen-random"])
def test_other_runs_change_no_bit(variant: str) -> None:
    runs = sweep_of(variant, attention="fused", readout="last_token")
    alone = alone_of(runs, TASKS["symbols"])
    for group in (runs, runs[2:], [runs[3], runs[0]]):
        assert_same_in(group, TASKS["symbols"], alone)


def test_a_stack_with_it_is_not_compiled() -> None:
    stack = StackedTraining(TASKS["numbers"], None, CPU, compiled=True)
    stack.add(sweep_of("unfrozen-random", attention="fused"))
    assert not stack.compiled


def test_it_is_taken_where_a_study_asks_for_it_alone() -> None:
    size = ModelSize(layers=1, heads=1, width=4)
    assert attention_for(Protocol(attention="fused"), size, 16) == "fused"
    assert attention_for(Protocol(attention="fused", dropout=0.0), size, 16) is None
    assert attention_for(Protocol(), size, 2000) == "blocked"
