"""Output layers trained on cached features: the curves of the path without, and which runs take it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from lr_sweep.tests.support.small_runs import (
    CPU,
    TASKS,
    plain,
    plain_of,
    random_weights,
    real_valued_task,
    run_of,
    same_bits,
    xor_task,
)
from lr_sweep.trainables.plain import features
from lr_sweep.trainables.run import Run, engine_of
from lr_sweep.trainables.worker import timing
from lr_sweep.trainables.worker.timing import time_engine

OUTPUT_ONLY: dict[str, Any] = {"trained": ("output",), "dropout": 0.0, "input_dropout": 0.0}


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    features._kept.clear()
    yield
    features._kept.clear()


def output_only(**changes: Any) -> Run:
    return run_of("frozen-pretrained", **OUTPUT_ONLY | changes)


@pytest.mark.parametrize("readout", ["final_position", "last_token"])
@pytest.mark.parametrize("task", ["numbers", "symbols", "pairs"])
def test_curves_are_those_without_a_cache(task: str, readout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """50 steps of 10 epochs, so the order of the batches matters, too."""
    data, run = TASKS[task], output_only(readout=readout, learning_rate=1e-2)
    cached = plain(run, 50, data)
    assert cached.data.shape.token_dim == 16  # it reads features
    monkeypatch.setattr("lr_sweep.trainables.plain.engine.can_cache", lambda run, data: False)
    without = plain(run, 50, data)
    assert without.data is data
    assert cached.progress.step == without.progress.step == 50
    for got, want in zip(cached.progress.curve, without.progress.curve, strict=True):
        assert dataclasses.astuple(got)[:-1] == pytest.approx(dataclasses.astuple(want)[:-1], abs=1e-5)
    assert without.progress.curve[-1].train_loss < without.progress.curve[0].train_loss - 0.005
    assert cached.trained.keys() == without.trained.keys() == {"output_layer.weight", "output_layer.bias"}
    for name, parameter in cached.trained.items():
        torch.testing.assert_close(parameter, without.trained[name], rtol=0, atol=1e-5)


def test_a_run_resumes_to_the_same_bits() -> None:
    data, run = real_valued_task(), output_only()
    whole, begun = plain(run, 50, data), plain(run, 20, data)
    tensors = {name: tensor.clone() for name, tensor in begun.state()[0].items()}
    progress = begun.state()[1]
    features._kept.clear()  # in another process
    resumed = plain_of(run, data)
    resumed.load_state(tensors, progress)
    for _ in range(3):
        resumed.advance()
    assert same_bits(resumed.state()[0], whole.state()[0])
    assert [each.test_loss for each in resumed.progress.curve] == [each.test_loss for each in whole.progress.curve]


def test_learning_rates_of_a_seed_share_features(monkeypatch: pytest.MonkeyPatch) -> None:
    data, computed = real_valued_task(), []
    compute = features._computed
    monkeypatch.setattr(features, "_computed", lambda *given: computed.append(1) or compute(*given))
    first = plain_of(output_only(learning_rate=1e-3), data)
    second = plain_of(output_only(learning_rate=1e-2), data)
    assert second.data is first.data
    assert not list(first.model.body.parameters())  # let go
    other = plain_of(output_only(seed=1), data)
    assert not torch.equal(other.data.train.inputs, first.data.train.inputs)  # of another input layer
    plain_of(output_only(seed=1), real_valued_task())
    assert len(computed) == 3
    assert len(features._kept) == 1


def test_only_runs_whose_features_never_change_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    data = real_valued_task()
    assert features.can_cache(output_only(), data)
    for changes in ({"dropout": 0.1}, {"input_dropout": 0.1}, {"trained": ("layer_norms", "output")}):
        assert not features.can_cache(output_only(**changes), data)
    assert not features.can_cache(output_only(), dataclasses.replace(data, augment=lambda tokens, generator: tokens))
    assert not features.can_cache(output_only(), xor_task())  # endless
    monkeypatch.setattr(features, "MAX_BYTES", 4 * 80 * 16)  # 40 + 20 + 20 examples of width 16
    assert features.can_cache(output_only(), data)
    monkeypatch.setattr(features, "MAX_BYTES", 4 * 80 * 16 - 1)
    assert not features.can_cache(output_only(), data)
    assert plain(output_only(), 10, data).data is data


def test_they_are_timed_as_they_train(monkeypatch: pytest.MonkeyPatch) -> None:
    """`plan --measure` cuts splits for an evaluation: those of features, which the model reads."""
    monkeypatch.setattr(timing, "REPEAT_S", 0.01)
    data = real_valued_task()
    step_s, evaluation_s = time_engine([output_only()], data, random_weights(), CPU, plain=True)
    assert min(step_s + evaluation_s) > 0


def test_the_plain_engine_trains_them() -> None:
    assert engine_of(output_only(), "stacked") == "plain"
    assert engine_of(output_only(dropout=0.1), "stacked") == "stacked"
    assert engine_of(run_of(), "stacked") == "stacked"
