"""Variants: the names they may give, and adding one with a line, as README says."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch

from lr_sweep.tests.support.small_runs import CPU, assert_close, random_weights, real_valued_task, run_of, stacked
from lr_sweep.trainables.models.initialise import build_classifier
from lr_sweep.trainables.parts import EVERYTHING, VARIANTS, Variant
from lr_sweep.trainables.plain.engine import Training

NORMS = Variant(initialisation="pretrained", trained=("output", "layer_norms"))
WANT = "want some of attention, feedforward, input, last_attention, layer_norms, output, positions"


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(VARIANTS, "frozen-norms", NORMS)
    return "frozen-norms"


def test_parts_are_sorted_however_a_variant_names_them() -> None:
    one, other = (Variant(initialisation="random", trained=t) for t in (("output", "input"), ("input", "output")))
    assert one.trained == ("input", "output")
    assert one == other


@pytest.mark.parametrize(
    ("trained", "problem"),
    [
        (("output", "layer_norm"), f"trained: got unknown part 'layer_norm'; {WANT}"),
        (("body", "Input"), f"trained: got unknown part 'Input', unknown part 'body'; {WANT}"),
        (("input", "output", "input"), f"trained: got 'input' more than once; {WANT}"),
        ((), f"trained: got no part; {WANT}"),
        ("output", "trained: got the text 'output', want a tuple of parts: ('output',)"),
        (
            ("last_attention", "output", "attention"),
            f"trained: got attention and last_attention, which is a part of it; {WANT}",
        ),
    ],
)
def test_parts_that_are_none(trained: Any, problem: str) -> None:
    model = build_classifier(run_of(), real_valued_task().shape, None)
    for make in (
        lambda: Variant(initialisation="random", trained=trained),
        lambda: replace(run_of(), trained=trained),
        lambda: model.freeze_all_but(trained),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
            make()
    assert all(p.requires_grad for p in model.parameters())


def test_an_added_variant_trains_its_parts_alone_in_both_engines(added: str) -> None:
    run, data, weights = run_of(added, learning_rate=1e-3), real_valued_task(), random_weights()
    training = Training(run, data, weights, CPU, wall_clock=lambda: 1000.0)
    before = {name: p.detach().clone() for name, p in training.model.named_parameters()}
    while training.progress.step < 20:
        training.advance()
    changed = {name for name, p in training.model.named_parameters() if not torch.equal(p, before[name])}
    assert changed == {name for name in before if "ln_" in name or name.startswith("output_layer")}
    assert_close(stacked([run], 20)[1][0].progress.curve, training.progress.curve, 1e-4)


def test_every_part_has_a_variant_that_trains_it() -> None:
    assert {part for variant in VARIANTS.values() for part in variant.trained} == set(EVERYTHING)
