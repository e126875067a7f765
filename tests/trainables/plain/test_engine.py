"""The plain engine: its batches, evaluations and best model, and output layers trained on features computed once."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from lr_sweep.tests.support.small_runs import (
    TASKS,
    numbers,
    plain,
    plain_of,
    real_valued_task,
    run_of,
    same_bits,
    xor_task,
)
from lr_sweep.trainables.plain import evaluation
from lr_sweep.trainables.plain.evaluation import evaluate
from lr_sweep.trainables.run import Run, engine_of


def test_learns() -> None:
    """That it does on every kind of task: `test_bodies.py`."""
    trained = plain(run_of(learning_rate=3e-3, evaluate_every=50, dropout=0.0), 200)
    curve = trained.progress.curve
    assert [evaluation.step for evaluation in curve] == [50, 100, 150, 200]
    assert curve[-1].train_loss < 0.5 * curve[0].train_loss
    assert curve[-1].test >= 0.85


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
    best = max(curve, key=lambda evaluation: (evaluation.validation, -evaluation.step))
    assert trained.progress.best_step == best.step
    with torch.no_grad():
        for name, tensor in trained.best.items():
            trained.trained[name].copy_(tensor)
    loss, accuracy = evaluate(trained.model, trained.data, trained.data.validation)
    assert (loss, accuracy) == (best.validation_loss, best.validation)


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


OUTPUT_ONLY: dict[str, Any] = {"trained": ("output",), "dropout": 0.0, "input_dropout": 0.0}


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    evaluation._kept.clear()
    yield
    evaluation._kept.clear()


def output_only(**changes: Any) -> Run:
    return run_of("frozen-pretrained", **OUTPUT_ONLY | changes)


@pytest.mark.parametrize("task", ["numbers", "symbols", "pairs"])
def test_curves_are_those_without_a_cache(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """50 steps of 10 epochs, so the order of the batches matters, too."""
    data, run = TASKS[task], output_only(learning_rate=1e-2)
    cached = plain(run, 50, data)
    assert cached.data.shape.token_dim == 16  # it reads features
    monkeypatch.setattr("lr_sweep.trainables.plain.engine.can_cache", lambda run, data: False)
    without = plain(run, 50, data)
    assert without.data is data
    assert cached.progress.step == without.progress.step == 50
    for got, want in zip(cached.progress.curve, without.progress.curve, strict=True):
        values, expected = (dataclasses.astuple(evaluation)[:-2] for evaluation in (got, want))  # without times
        assert values == pytest.approx(expected, abs=1e-5)
    assert without.progress.curve[-1].train_loss < without.progress.curve[0].train_loss - 0.005
    assert cached.trained.keys() == without.trained.keys() == {"output_layer.weight", "output_layer.bias"}
    for name, parameter in cached.trained.items():
        torch.testing.assert_close(parameter, without.trained[name], rtol=0, atol=1e-5)


def test_a_run_resumes_to_the_same_bits() -> None:
    data, run = real_valued_task(), output_only()
    whole, begun = plain(run, 50, data), plain(run, 20, data)
    tensors = {name: tensor.clone() for name, tensor in begun.state()[0].items()}
    progress = begun.state()[1]
    evaluation._kept.clear()  # in another process
    resumed = plain_of(run, data)
    resumed.load_state(tensors, progress)
    for _ in range(3):
        resumed.advance()
    assert same_bits(resumed.state()[0], whole.state()[0])
    assert [each.test_loss for each in resumed.progress.curve] == [each.test_loss for each in whole.progress.curve]


def test_learning_rates_of_a_seed_share_features(monkeypatch: pytest.MonkeyPatch) -> None:
    data, computed = real_valued_task(), []
    compute = evaluation._computed
    monkeypatch.setattr(evaluation, "_computed", lambda *given: computed.append(1) or compute(*given))
    first = plain_of(output_only(learning_rate=1e-3), data)
    second = plain_of(output_only(learning_rate=1e-2), data)
    assert second.data is first.data
    assert not list(first.model.body.parameters())  # let go
    other = plain_of(output_only(seed=1), data)
    assert not torch.equal(other.data.train.inputs, first.data.train.inputs)  # of another input layer
    plain_of(output_only(seed=1), real_valued_task())
    assert len(computed) == 3
    assert len(evaluation._kept) == 1


def test_only_runs_whose_features_never_change_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    data = real_valued_task()
    assert evaluation.can_cache(output_only(), data)
    for changes in ({"dropout": 0.1}, {"input_dropout": 0.1}, {"trained": ("layer_norms", "output")}):
        assert not evaluation.can_cache(output_only(**changes), data)
    assert not evaluation.can_cache(output_only(), dataclasses.replace(data, augment=lambda tokens, generator: tokens))
    assert not evaluation.can_cache(output_only(), xor_task())  # endless
    monkeypatch.setattr(evaluation, "MAX_FEATURE_BYTES", 4 * 80 * 16)  # 40 + 20 + 20 examples of width 16
    assert evaluation.can_cache(output_only(), data)
    monkeypatch.setattr(evaluation, "MAX_FEATURE_BYTES", 4 * 80 * 16 - 1)
    assert not evaluation.can_cache(output_only(), data)
    assert plain(output_only(), 10, data).data is data


def test_the_plain_engine_trains_them() -> None:
    assert engine_of(output_only(), "stacked") == "plain"
    assert engine_of(output_only(dropout=0.1), "stacked") == "stacked"
    assert engine_of(run_of(), "stacked") == "stacked"
