"""What must hold on a CUDA device; needs torch, pytest and this checkout alone."""

from __future__ import annotations

import pytest
import torch

from lr_sweep.tests.support.small_bodies import SIZES, embeddings_of
from lr_sweep.tests.support.small_runs import CPU, real_valued_task, run_of, symbol_task
from lr_sweep.trainables.models.family import Dropout
from lr_sweep.trainables.numerics import keyed_generator
from lr_sweep.trainables.plain.engine import Training

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("data", [real_valued_task(), symbol_task()], ids=["numbers", "symbols"])
def test_losses_agree_with_the_cpu_s(data) -> None:  # type: ignore[no-untyped-def]
    run = run_of(dropout=0.0, input_dropout=0.0)  # masks are drawn on the device, by another generator than the CPU's
    curves = []
    for device in (CPU, torch.device("cuda")):
        one = Training(run, data.to(device), None, device)
        one.advance()
        curves.append(one.progress.curve[0])
    assert curves[1].train_loss == pytest.approx(curves[0].train_loss, rel=1e-3)
    assert curves[1].validation_loss == pytest.approx(curves[0].validation_loss, rel=1e-3)


@pytest.mark.parametrize("family", [family for family in SIZES if family != "gpt2"])
def test_other_families_train_there_with_masks_by_seed_and_step(family: str) -> None:
    device = torch.device("cuda")
    data, run = real_valued_task().to(device), run_of(size=SIZES[family])
    losses = []
    for _ in range(2):
        one = Training(run, data, None, device)
        states = torch.get_rng_state(), torch.cuda.get_rng_state()  # torch's layers drew numbers that are not used
        one.advance()
        losses.append(one.progress.curve[0].train_loss)
        assert torch.equal(torch.get_rng_state(), states[0])
        assert torch.equal(torch.cuda.get_rng_state(), states[1])
        torch.rand(3, device=device)  # from the global generator
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    body, embeddings = one.model.body, embeddings_of(SIZES[family], 6).to(device)
    masked = [body(embeddings, Dropout(0.2, keyed_generator(0, "dropout", n, device=device))) for n in (1, 1, 2)]
    assert torch.equal(masked[0], masked[1])
    assert not torch.equal(masked[0], masked[2])


def test_a_resumed_run_continues_from_its_state() -> None:
    device = torch.device("cuda")
    data = real_valued_task().to(device)
    whole = Training(run_of(), data, None, device)
    while whole.progress.step < 30:
        whole.advance()
    first = Training(run_of(), data, None, device)
    first.advance()
    second = Training(run_of(), data, None, device)
    second.load_state(*first.state())
    while second.progress.step < 30:
        second.advance()
    assert second.progress.curve[-1].train_loss == pytest.approx(whole.progress.curve[-1].train_loss, rel=1e-3)
