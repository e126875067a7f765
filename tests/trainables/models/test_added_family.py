"""To add a family of backbones takes one file and one line, as README says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lr_sweep.sweep.results.changes import code_of_tasks
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.file import load_study
from lr_sweep.tests.support.tiny_study import cohort_here, events_of, runs_of, write_study
from lr_sweep.trainables.models import FAMILIES, size_type
from lr_sweep.trainables.worker.messages import Finished

FILE = '''"""Adds to each token the mean of all, through a linear layer."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from lr_sweep.trainables.models.family import Body
from lr_sweep.trainables.run import BodySize


@dataclass(frozen=True, kw_only=True)
class Size(BodySize):
    family: ClassVar[str] = "mean"
    share: float = 0.5


class Mean(Body):
    def __init__(self, size, num_tokens):
        super().__init__()
        self.size = size
        self.mixers = nn.ModuleList(nn.Linear(size.width, size.width) for _ in range(size.layers))

    def forward(self, embeddings, dropout=None):
        x = embeddings  # (B, T, D)
        for mixer in self.mixers:
            mixed = self.size.share * mixer(x.mean(1, keepdim=True))  # (B, 1, D)
            x = x + (dropout(mixed) if dropout else mixed)
        return x

    def parts(self):
        return {"attention": list(self.mixers), "last_attention": [self.mixers[-1]]}

    def draw(self, protocol, generator):
        for parameter in self.parameters():
            parameter.normal_(0.0, 0.02, generator=generator)


build = Mean


def body_tensors(tensors):
    return dict(tensors)


def config_mistakes(config, size):
    yield "no weights are published for this"
'''


@pytest.fixture
def mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "mean_backbone.py").write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(FAMILIES, "mean", "mean_backbone")  # the line
    yield "{mine: {family: mean, size: {layers: 2, width: 8, share: 0.25}}}"
    sys.modules.pop("mean_backbone", None)


def study_of(folder: Path, models: str, variants: str) -> Path:
    path = write_study(folder, rates=(1e-2,), models=models, variants=("VARIANTS",))
    path.write_text(path.read_text().replace("[VARIANTS]", variants))
    return path


def test_a_study_trains_it(mean: str, tmp_path: Path) -> None:
    variants = "{frozen-random: {}, all: {initialisation: random, trained: [attention, output]}}"
    study = study_of(tmp_path, mean, variants)
    results = Results(tmp_path / "results")
    runs = runs_of(study, results.root)
    assert [run.run.model for run in runs] == [size_type("mean")(layers=2, width=8, share=0.25)] * 2  # type: ignore[call-arg]
    for run in runs:
        end = events_of(cohort_here([run], results))[-1]
        assert isinstance(end, Finished)
        assert (end.status, end.engine, end.step) == ("complete", "plain", 20)
    loaded = load_study(study)
    assert "mean_backbone.py" in code_of_tasks(loaded, {})["digits"]
