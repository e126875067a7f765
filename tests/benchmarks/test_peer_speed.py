"""The plain script trains what a study's runs train."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lr_sweep.benchmarks import plain_ray_tune
from lr_sweep.datasets import digits
from lr_sweep.trainables.models.classifier import Classifier
from lr_sweep.trainables.parts import VARIANTS
from lr_sweep.trainables.run import ModelSize, Protocol

SIZE = ModelSize(layers=2, heads=4, width=64, positions=256)  # as in peer_speed.STUDY


@pytest.mark.parametrize("variant", ["frozen-random", "unfrozen-random"])
def test_it_trains_as_many_parameters(variant: str) -> None:
    plain = plain_ray_tune.make_model(variant, "")
    ours = Classifier(SIZE, digits.shape(digits.Options()), Protocol())
    ours.freeze_all_but(VARIANTS[variant].trained)
    counts = {name: parameter.numel() for name, parameter in plain.named_parameters() if parameter.requires_grad}
    # It counts the token embeddings, which no token here uses and which never get a gradient.
    embeddings = counts.pop("body.wte.weight", 0)
    assert embeddings == (0 if variant.startswith("frozen") else 256 * 64)
    assert sum(counts.values()) == sum(parameter.numel() for _, parameter in ours.trained_parameters())


def test_it_reads_the_same_images() -> None:
    data = digits.load(digits.Options(), data_dir=Path())
    wanted = torch.cat([split.inputs for split in (data.train, data.validation, data.test)]).float() / 16
    found = torch.cat([tokens for tokens, _ in plain_ray_tune.load_splits()])
    assert found.shape == (1797, 4, 16)
    assert torch.equal(found.flatten(1).sort(0).values, wanted.flatten(1).sort(0).values)
    assert {len(tokens) for tokens, _ in plain_ray_tune.load_splits()} == {1197, 300}
