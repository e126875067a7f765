"""Settings that the names of runs and folders hold."""

from __future__ import annotations

import pytest

from lr_sweep.analysis.judge.readers.from_rows import labels_of


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("adam-lr0.1-s1", {"lr": "0.1", "seed": "1", "variant": "adam"}),
        ("vit-s16-lr0.1", {"lr": "0.1", "variant": "vit s16"}),  # ViT-S/16
        ("Mixer_S32_lr0.1_s2", {"lr": "0.1", "seed": "2", "variant": "Mixer S32"}),
    ],
)
def test_settings_in_a_name(name: str, found: dict[str, str]) -> None:
    assert labels_of(name) == found
