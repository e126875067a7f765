"""Parts of every family and the variants made of them: what is trained moves, and nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch

from lr_sweep.datasets.task import TaskShape
from lr_sweep.tests.support.small_bodies import SIZES, new_body
from lr_sweep.tests.support.small_runs import CPU, real_valued_task, run_of
from lr_sweep.trainables.models import FAMILIES
from lr_sweep.trainables.models.classifier import Classifier, build_classifier
from lr_sweep.trainables.models.family import parameters_of
from lr_sweep.trainables.models.published import MODELS
from lr_sweep.trainables.parts import EVERYTHING, FROZEN_BODY, PARTS, Variant
from lr_sweep.trainables.plain.engine import Training
from lr_sweep.trainables.run import Protocol
from lr_sweep.trainables.worker.memory import part_sizes

SHAPE = TaskShape(num_tokens=6, num_classes=3, token_dim=4)
"""Of `real_valued_task`."""
SETS = [*((part,) for part in PARTS), FROZEN_BODY]
LINEAR = 16 * 16 + 16
WIDER, NARROWER = 16 * 64 + 64, 64 * 16 + 16
NORM = 2 * 16
COUNTS: dict[str, dict[str, int]] = {
    "gpt2": {
        "positions": 12 * 16,
        "layer_norms": 5 * NORM,
        "attention": 2 * 4 * LINEAR,
        "feedforward": 2 * (WIDER + NARROWER),
        "last_attention": 4 * LINEAR,
    },
    "lstm": {
        "positions": 6 * 16,  # as many as the task has tokens
        "layer_norms": 2 * (2 * 64 + 2 * 64 + NORM),
        "attention": 2 * WIDER,
        "feedforward": 2 * WIDER,
        "last_attention": WIDER,
    },
    "bert": {
        "positions": 12 * 16 + 16,  # and the token type
        "layer_norms": 5 * NORM,
        "attention": 2 * 4 * LINEAR,
        "feedforward": 2 * (WIDER + NARROWER),
        "last_attention": 4 * LINEAR,
    },
    "t5": {
        "positions": 8 * 2,  # buckets x heads
        "layer_norms": 5 * 16,  # no biases from here on
        "attention": 2 * 4 * 16 * 16,
        "feedforward": 2 * 2 * 16 * 64,
        "last_attention": 4 * 16 * 16,
    },
}
COUNTS["longformer"] = COUNTS["bert"]
COUNTS["vit"] = COUNTS["bert"] | {"positions": 6 * 16}


@pytest.mark.parametrize("family", FAMILIES)
def test_parts_have_as_many_numbers_as_by_hand(family: str) -> None:
    new = {"input": 4 * 16 + 16, "output": 16 * 3 + 3}
    assert part_sizes(SIZES[family], SHAPE) == COUNTS[family] | new


@pytest.mark.parametrize("family", FAMILIES)
def test_every_parameter_is_in_exactly_one_part(family: str) -> None:
    model = Classifier(SIZES[family], SHAPE, Protocol())
    parts = model.parts()
    assert parts.keys() <= PARTS.keys() == {*EVERYTHING, "last_attention"}
    found = [id(p) for part in EVERYTHING for p in parameters_of(parts[part])]
    assert sorted(found) == sorted(id(p) for p in model.parameters())
    last = {id(p) for p in parameters_of(parts["last_attention"])}
    assert last < {id(p) for p in parameters_of(parts["attention"])}


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        # published totals, less what is not here: word table, pooler, second token type, class token, patches, decoder
        ("gpt2", 124_439_808 - 50_257 * 768),
        ("bert-base-uncased", 109_482_240 - 30_522 * 768 - 590_592 - 768),
        ("t5-base", 109_628_544 - 32_128 * 768),
        ("longformer-base-4096", 148_659_456 - 50_265 * 768 - 590_592 - 36 * 590_592 - 2 * 768),
        ("vit-base-patch16-224-in21k", 85_798_656 - 768 - 197 * 768 - 590_592),
    ],
)
def test_known_models_have_as_many_numbers_as_published(name: str, numbers: int) -> None:
    with torch.device("meta"):
        body = new_body(MODELS[name].size, num_tokens=0)
    assert sum(p.numel() for p in body.parameters()) == numbers


@pytest.mark.parametrize("trained", SETS, ids="+".join)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_trained_parts_move_and_no_other_bit(family: str, trained: tuple[str, ...]) -> None:
    run = run_of(size=SIZES[family], trained=trained, learning_rate=1e-2)
    training = Training(run, real_valued_task(), None, CPU)
    before = {name: p.detach().clone() for name, p in training.model.named_parameters()}
    parts = training.model.parts()
    wanted = {id(p) for part in trained for p in parameters_of(parts[part])}
    for step in range(1, 4):
        training._step(step)
    moved = {name for name, p in training.model.named_parameters() if not torch.equal(p, before[name])}
    named = {name for name, p in training.model.named_parameters() if id(p) in wanted}
    assert moved <= named
    # a bias of all keys changes no weight of attention, so that its gradient is rounding
    assert named - moved <= {name for name in named if name.endswith(("key.bias", "k_proj.bias"))}


def test_positions_are_only_as_many_as_a_family_has() -> None:
    task = TaskShape(num_tokens=40, num_classes=3, token_dim=4)
    rows = {family: part_sizes(size, task)["positions"] / 16 for family, size in SIZES.items()}
    assert rows == {"gpt2": 40, "lstm": 40, "bert": 41, "t5": 1, "longformer": 41, "vit": 40}


WANT = "want some of attention, feedforward, input, last_attention, layer_norms, output, positions"


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
