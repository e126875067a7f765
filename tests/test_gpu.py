"""What must hold on a CUDA device; needs torch, pytest and this checkout alone."""

from __future__ import annotations

import pytest
import torch

from tests.small_runs import CPU, real_valued_task, run_of, symbol_task
from trainables.training import Training

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("data", [real_valued_task(), symbol_task()], ids=["numbers", "symbols"])
def test_losses_agree_with_the_cpu_s(data) -> None:  # type: ignore[no-untyped-def]
    run = run_of(dropout=0.0, input_dropout=0.0)  # masks are drawn on the device, by another generator than the CPU's
    curves = []
    for device in (CPU, torch.device("cuda")):
        one = Training(run, data.to(device), None, device)
        one.advance(10)
        curves.append(one.progress.curve[0])
    assert curves[1].train_loss == pytest.approx(curves[0].train_loss, rel=1e-3)
    assert curves[1].validation_loss == pytest.approx(curves[0].validation_loss, rel=1e-3)


def test_a_resumed_run_goes_on_from_its_state() -> None:
    device = torch.device("cuda")
    data = real_valued_task().to(device)
    whole = Training(run_of(), data, None, device)
    while whole.progress.step < 30:
        whole.advance(30)
    first = Training(run_of(), data, None, device)
    first.advance(30)
    second = Training(run_of(), data, None, device)
    second.load_state(*first.state())
    while second.progress.step < 30:
        second.advance(30)
    assert second.progress.curve[-1].train_loss == pytest.approx(whole.progress.curve[-1].train_loss, rel=1e-3)
