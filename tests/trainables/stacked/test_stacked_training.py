"""The fast engine against the plain one: a run's curve is the same, alone and in any cohort."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
import torch

from lr_sweep.datasets.task import DataError
from lr_sweep.tests.support.small_runs import (
    EACH_VARIANT,
    TASKS,
    assert_both_engines_agree,
    assert_close,
    assert_one_curve_in_float64,
    go_on,
    plain,
    real_valued_task,
    run_of,
    same_bits,
    stack_of,
    stacked,
    sweep_of,
    weights_for,
)
from lr_sweep.trainables.models.classifier import build_classifier


def test_a_batch_larger_than_the_training_split_is_refused() -> None:
    for train in (lambda run: stacked([run]), plain):
        with pytest.raises(DataError, match="batch_size is 41, and the training split has 40 examples: lower it"):
            train(run_of(batch_size=41))


@pytest.mark.parametrize("task", ["numbers", "symbols"])
@pytest.mark.parametrize("variant", ["frozen-pretrained", "unfrozen-random"])
def test_without_dropout_the_curves_are_those_of_the_plain_engine(variant: str, task: str) -> None:
    """With dropout: below; alone and together, runs have the same bits: `test_stacked_bits.py`."""
    assert_both_engines_agree(sweep_of(variant, dropout=0.0), TASKS[task])


@pytest.mark.parametrize("dropout", [pytest.param(0.0, marks=pytest.mark.slow), 0.1])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("variant", EACH_VARIANT)
def test_in_float64_the_curves_agree_to_nine_digits(
    variant: str, task: str, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_one_curve_in_float64(sweep_of(variant, dropout=dropout), TASKS[task], monkeypatch)


def noisy(tokens: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return tokens + torch.randn(tokens.shape, generator=generator)


@pytest.mark.parametrize(
    ("clip", "input_dropout", "augment"), [(None, 0.0, None), (0.05, 0.3, None), (1.0, 0.0, noisy)]
)
def test_other_protocols_and_augmented_batches_agree(clip: float | None, input_dropout: float, augment: Any) -> None:
    changes = {"gradient_clip_norm": clip, "input_dropout": input_dropout, "adam_beta1": 0.5}
    data = dataclasses.replace(real_valued_task(), augment=augment)
    assert_both_engines_agree(sweep_of("unfrozen-random", **changes), data)


def test_frozen_tensors_keep_every_bit() -> None:
    for variant in ("frozen-random", "frozen-pretrained"):
        runs = sweep_of(variant)
        _, slots = stacked(runs, 10)
        for run, slot in zip(runs, slots, strict=True):
            before = dict(build_classifier(run, TASKS["numbers"].shape, weights_for(run)).named_parameters())
            assert len(slot.start.body) == 8  # four layers in each of two blocks
            for name, layer in slot.start.body.items():
                assert torch.equal(layer.weight[0], before[f"{name}.weight"])
                assert torch.equal(layer.transposed[0].mT, before[f"{name}.weight"])
                assert torch.equal(layer.bias[0, 0], before[f"{name}.bias"])


def test_a_diverged_run_stops_and_is_reported_at_the_plain_engine_s_step() -> None:
    runs = sweep_of("unfrozen-random")
    stack, slots = stacked(runs, 10)
    sick, oracle = slots[2], plain(runs[2], 10)
    with torch.no_grad():
        stack._rows.parameters["output_layer.bias"][stack.slots.index(sick), 0] = math.inf
        oracle.model.output_layer.bias[0] = math.inf
    before = stack.state(sick)[0]
    assert [slot.run for slot, _ in stack.advance()] == [slot.run for slot in stack.slots if slot is not sick]
    assert oracle.advance() is None
    assert sick.progress.diverged_at_step == oracle.progress.diverged_at_step == 11
    assert same_bits(stack.state(sick)[0], before)
    assert stack.advance()  # before it is removed
    assert same_bits(stack.state(sick)[0], before)


def test_an_evaluation_that_is_not_finite_is_a_divergence() -> None:
    runs = sweep_of("unfrozen-random")[:2]
    runs[0] = dataclasses.replace(runs[0], learning_rate=1e38)
    stack, slots = stack_of(
        [dataclasses.replace(r, protocol=dataclasses.replace(r.protocol, evaluate_every=1)) for r in runs]
    )
    reached = stack.advance()
    assert [slot for slot, _ in reached] == [slots[1]]
    assert slots[0].progress.diverged_at_step == 1


def test_the_best_model_is_kept_by_run() -> None:
    runs = [run_of(learning_rate=rate) for rate in (0.3, 1e-2)]
    stack, slots = stacked(runs, 60)
    for run, slot in zip(runs, slots, strict=True):
        curve = slot.progress.curve
        best = max(curve, key=lambda evaluation: (evaluation.validation, -evaluation.step))
        assert slot.progress.best_step == best.step
        tensors, progress = stack.state(slot)
        again, (loaded,) = stack_of([run])
        model = {name: tensors[name.replace("model.", "best.")] for name in tensors if name.startswith("model.")}
        again.load_state(loaded, tensors | model, progress)
        assert again.scores([loaded])[0]["validation"] == best.validation


def test_without_the_test_split_where_it_selects_nothing_all_else_has_the_same_bits() -> None:
    """In a cohort whose runs improve at different steps, in either engine, and resumed from plain JSON."""
    full, less = (sweep_of("unfrozen-random", test_evaluated=when, evaluate_every=5) for when in ("always", "best"))
    _, of_full = stacked(full, 30)
    stack, of_less = stacked(less, 15)
    for slot in of_less:
        tensors, progress = stack.state(slot)
        stack.load_state(slot, tensors, json.loads(json.dumps(progress)))
    go_on(stack, 30)
    skipped = 0
    for run, slot, whole in zip(less, of_less, of_full, strict=True):
        best = -1.0
        for ours, theirs in zip(slot.progress.curve, whole.progress.curve, strict=True):
            selectable, best = ours.validation > best, max(best, ours.validation)
            skipped += not selectable
            assert math.isnan(ours.test) == math.isnan(ours.test_loss) == (not selectable)
            kept = {} if selectable else {"test": math.nan, "test_loss": math.nan}
            assert repr(ours) == repr(dataclasses.replace(theirs, **kept, elapsed_s=ours.elapsed_s))
        assert slot.progress.best_step == whole.progress.best_step
        alone = [evaluation.test for evaluation in plain(run, 30).progress.curve]
        assert alone == pytest.approx([each.test for each in slot.progress.curve], nan_ok=True)
    assert 0 < skipped < 4 * 6


@pytest.mark.parametrize("variant", ["frozen-pretrained", "unfrozen-random"])
def test_in_bf16_both_engines_round_products_alike(variant: str) -> None:
    runs = sweep_of(variant, precision="bf16")
    slots = stacked(runs, 10)[1]
    for run, slot in zip(runs[:2], slots[:2], strict=True):
        oracle, fp32 = plain(run, 10), plain(run_of(variant, learning_rate=run.learning_rate, seed=run.seed), 10)
        assert_close(slot.progress.curve, oracle.progress.curve, 2e-2)
        assert oracle.progress.curve != fp32.progress.curve
        assert all(p.dtype == torch.float32 for p in oracle.state()[0].values())


def test_tf32_is_refused_on_a_cpu() -> None:
    with pytest.raises(ValueError, match="precision tf32 needs a GPU"):
        plain(run_of(precision="tf32"))
    with pytest.raises(ValueError, match="precision tf32 needs a GPU"):
        stacked([run_of(precision="tf32")])
