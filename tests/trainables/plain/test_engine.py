from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from lr_sweep.datasets.task import TaskData
from lr_sweep.tests.support.small_runs import numbers, plain, plain_of, real_valued_task, run_of, symbol_task
from lr_sweep.trainables.plain.evaluation import evaluate


@pytest.mark.parametrize("data", [real_valued_task(), symbol_task()], ids=["numbers", "symbols"])
def test_learns(data: TaskData) -> None:
    trained = plain(run_of(learning_rate=3e-3, evaluate_every=50, dropout=0.0), 200, data)
    curve = trained.progress.curve
    assert [evaluation.step for evaluation in curve] == [50, 100, 150, 200]
    assert curve[-1].train_loss < 0.5 * curve[0].train_loss
    assert curve[-1].test_accuracy >= 0.85


def curve_and_weights() -> str:
    """A short run's numbers, exactly."""
    trained = plain(run_of("frozen-pretrained"), 30)
    weights = {name: p.detach().sum().item().hex() for name, p in trained.trained.items()}
    return json.dumps([numbers(trained.progress.curve), weights])


def test_another_process_gives_the_same_curve_bit_for_bit() -> None:
    script = "from lr_sweep.tests.trainables.plain.test_engine import *; print(curve_and_weights())"
    elsewhere = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    torch.rand(3)  # the global generator must not matter
    assert elsewhere.strip() == curve_and_weights()
    assert len(json.loads(elsewhere)[0]) == 3


def test_learning_rates_and_variants_of_a_seed_see_the_same_batches() -> None:
    orders = [
        [plain_of(run_of(variant, learning_rate=rate))._batch(step)[1].labels.tolist() for step in (1, 2, 7)]
        for variant, rate in (("unfrozen-random", 1e-2), ("frozen-pretrained", 1e-5))
    ]
    assert orders[0] == orders[1]
    assert orders[0] != [plain_of(run_of(seed=1))._batch(step)[1].labels.tolist() for step in (1, 2, 7)]


def test_an_epoch_shows_every_example_once() -> None:
    data = real_valued_task(num_examples=42)  # 5 batches of 8, 2 examples left out
    one = plain_of(run_of(), data)
    first = torch.cat([one._batch(step)[1].inputs.flatten(1) for step in range(1, 6)])  # (40, T D)
    second = torch.cat([one._batch(step)[1].inputs.flatten(1) for step in range(6, 11)])
    assert len(first.unique(dim=0)) == len(second.unique(dim=0)) == 40
    assert not torch.equal(first, second)


def test_the_best_validation_model_is_kept() -> None:
    trained = plain(run_of(learning_rate=0.3), 60)  # too large: accuracy goes up and down
    curve = trained.progress.curve
    best = max(curve, key=lambda evaluation: (evaluation.validation_accuracy, -evaluation.step))
    assert trained.progress.best_step == best.step
    with torch.no_grad():
        for name, tensor in trained.best.items():
            trained.trained[name].copy_(tensor)
    loss, accuracy = evaluate(trained.model, trained.data, trained.data.validation)
    assert (loss, accuracy) == (best.validation_loss, best.validation_accuracy)


def test_whole_splits_are_evaluated_in_evaluation_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    one = plain_of(run_of())
    whole = evaluate(one.model, one.data, one.data.test)
    tokens = one.data.tokens(one.data.test.inputs)
    with torch.no_grad():
        logits = one.model(tokens)  # (N, C)
    labels = one.data.test.labels
    assert whole[1] == (logits.argmax(-1) == labels).sum().item() / 20
    assert whole[0] == pytest.approx(torch.nn.functional.cross_entropy(logits, labels).item(), rel=1e-6)
    monkeypatch.setattr("lr_sweep.trainables.plain.evaluation.TOKENS_A_BATCH", 18)  # batches of 3, a last one of 2
    assert evaluate(one.model, one.data, one.data.test) == pytest.approx(whole, rel=1e-6)
