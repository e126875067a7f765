"""A right study file for tests to change. In its lines, counted from 1, `digits` is in 4 and `size` in 7."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.study.file import load_study

STUDY = """\
study: example
title: An example
tasks:
  digits: {num_steps: 2000}
models:
  tiny:
    size: {layers: 2, heads: 4, width: 64}
    pretrained: {pretrain: {}}
variants: [frozen-random, frozen-pretrained]
learning_rates: {low: 1e-4, high: 1e-2, per_decade: 1}
seeds: 3
protocol: {evaluate_every: 1000}
resources: {retries: 1}
"""
SIZE = "    size: {layers: 2, heads: 4, width: 64}"
PRETRAINED = "    pretrained: {pretrain: {}}"
GRID = "learning_rates: {low: 1e-4, high: 1e-2, per_decade: 1}"


def write(folder: Path, text: str, name: str = "example.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def mistakes(folder: Path, text: str) -> list[str]:
    return mistakes_in(write(folder, text))


def mistakes_in(path: Path) -> list[str]:
    """Return the lines of the error of loading a study, without the file's path: `LINE: message`."""
    with pytest.raises(UserError) as caught:
        load_study(path)
    lines = str(caught.value).splitlines()
    assert all(line.startswith(f"{path}:") for line in lines)
    return [line.removeprefix(f"{path}:") for line in lines]
