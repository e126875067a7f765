"""The study docs/examples/lora-books.yaml: each method starts where the body is, learns, and resumes exactly."""

from __future__ import annotations

import lzma
import shutil
from dataclasses import replace

import pytest
import torch
from transformers import GPT2LMHeadModel

from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.tests.support.own_study import to_end
from lr_sweep.tests.support.tiny_study import ROOT, runs_of
from lr_sweep.trainables.own.engine import OwnTraining
from lr_sweep.trainables.own.probe import probe
from lr_sweep.trainables.own.run import OwnRun, own_run
from lr_sweep.trainables.pretraining.weights import SHIPPED

pytest.importorskip("peft", reason="peft is not installed: pip install 'lr-sweep[hf]'")
EXAMPLES = ROOT / "docs" / "examples"
HELD_OUT = 8
"""Sequences of a split, in place of 128: evaluations would take most of the time."""
OTHERS = ("full", "lora", "rslora", "dora", "pissa")
METHODS = (*OTHERS, "lora-plus")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[WantedRun]:
    """The example's runs, with few held-out sequences."""
    folder = tmp_path_factory.mktemp("lora-books")
    for name in ("lora-books.yaml", "lora-books-text.xz"):
        shutil.copy(EXAMPLES / name, folder)
    function = (EXAMPLES / "lora_books.py").read_text()
    assert function.count("\nHELD_OUT = 128\n") == 1
    (folder / "lora_books.py").write_text(function.replace("\nHELD_OUT = 128\n", f"\nHELD_OUT = {HELD_OUT}\n"))
    return runs_of(folder / "lora-books.yaml", folder / "results")


def of_variant(runs: list[WantedRun], variant: str, rate: float) -> OwnRun:
    found = (each for each in runs if each.variant == variant and "8" in each.cell[1])
    return replace(own_run(next(found).run), evaluate_every=1).sibling(rate, 0)


def losses(run: OwnRun, num_steps: int) -> list[float]:
    """Validation losses after each of the first steps."""
    return to_end(OwnTraining(run, num_steps, "cpu"), num_steps)


def test_full_has_one_rank_and_the_others_three(runs: list[WantedRun]) -> None:
    cells = {each.cell[1:] for each in runs}
    assert len(cells) == 16
    assert [model for model, variant in cells if variant == "full"] == ["rank-8"]


@pytest.fixture(scope="module")
def loss_before() -> float:
    """The validation loss of the shipped body, without adapters."""
    text = lzma.decompress((EXAMPLES / "lora-books-text.xz").read_bytes())
    tokens = torch.tensor(list(text[: HELD_OUT * 128])).view(HELD_OUT, 128)
    with torch.no_grad():
        return GPT2LMHeadModel.from_pretrained(SHIPPED / "books-2x128")(tokens, labels=tokens).loss.item()


@pytest.mark.parametrize("method", METHODS)
def test_two_steps(method: str, runs: list[WantedRun], loss_before: float) -> None:
    """A step at a rate of nearly 0 leaves the body's loss; two at a larger one lower it."""
    assert losses(of_variant(runs, method, 1e-12), 1) == [pytest.approx(loss_before, abs=1e-4)]
    assert losses(of_variant(runs, method, 1e-2), 2)[-1] < loss_before


@pytest.mark.parametrize("method", ["lora-plus", *[pytest.param(each, marks=pytest.mark.slow) for each in OTHERS]])
def test_it_resumes_bit_for_bit(method: str, runs: list[WantedRun]) -> None:
    assert probe(of_variant(runs, method, 1e-2), "cpu").resumed == "exactly"
