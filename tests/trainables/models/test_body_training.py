"""Training of every family: masks are keyed by seed and step, and a run that was stopped resumes with the same bits."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from lr_sweep.datasets.task import TaskData
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.tests.support.small_bodies import LIBRARY, SIZES, embeddings_of
from lr_sweep.tests.support.small_runs import (
    CPU,
    pairs_task,
    real_valued_task,
    run_of,
    same_bits,
    symbol_task,
    xor_task,
)
from lr_sweep.tests.support.tiny_study import cohort_here, runs_of, timeless, write_study
from lr_sweep.trainables.checkpoint import checkpoints
from lr_sweep.trainables.models import FAMILIES
from lr_sweep.trainables.models.classifier import Classifier
from lr_sweep.trainables.models.family import Dropout
from lr_sweep.trainables.models.initialise import build_classifier
from lr_sweep.trainables.plain.engine import Training
from lr_sweep.trainables.randomness import keyed_generator
from lr_sweep.trainables.worker.events import evaluations
from lr_sweep.trainables.worker.session import Session

OTHERS = [family for family in FAMILIES if family != "gpt2"]
NUM_STEPS = 20


def classifier(family: str) -> Classifier:
    return build_classifier(run_of(size=SIZES[family]), real_valued_task().shape, None)


@pytest.mark.parametrize("family", OTHERS)
def test_masks_are_a_function_of_seed_and_step(family: str) -> None:
    body, embeddings = classifier(family).body, embeddings_of(SIZES[family], 6)

    def states(seed: int, step: int, drawn_before: int = 0) -> Tensor:
        generator = keyed_generator(seed, "dropout", step)
        if family in LIBRARY:  # whatever was drawn from it since
            torch.rand(drawn_before, generator=generator)
        with torch.no_grad():
            return body(embeddings, Dropout(0.2, generator))

    first = states(0, 1)
    torch.rand(7)  # from the global generator
    assert torch.equal(states(0, 1, drawn_before=3), first)
    assert not torch.equal(states(0, 2), first)
    assert not torch.equal(states(1, 1), first)


@pytest.mark.parametrize("family", OTHERS)
def test_an_evaluation_has_no_masks(family: str) -> None:
    model, data = classifier(family), real_valued_task()
    tokens = data.tokens(data.validation.inputs)
    with torch.no_grad():
        before = model(tokens)
        assert not torch.equal(model(tokens, None, keyed_generator(0, "dropout", 1)), before)
        assert torch.equal(model(tokens), before)


@pytest.mark.parametrize("family", OTHERS)
def test_the_start_is_a_function_of_the_seed(family: str) -> None:
    shape = real_valued_task().shape
    one, same, other = (build_classifier(run_of(size=SIZES[family], seed=seed), shape, None) for seed in (0, 0, 1))
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, same.state_dict()[name]), name
    drawn = [name for name, p in one.named_parameters() if p.unique().numel() > 1]
    assert len(drawn) > 5
    assert not any(torch.equal(one.get_parameter(name), other.get_parameter(name)) for name in drawn)


@pytest.mark.parametrize("task", [real_valued_task, symbol_task, pairs_task, xor_task], ids=lambda task: task.__name__)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_trains_on_every_kind_of_task(family: str, task: Callable[[], TaskData]) -> None:
    """Numbers or symbols in, one answer or several, at the end or at several positions, examples drawn or kept."""
    training = Training(run_of(size=SIZES[family], evaluate_every=5, batch_size=4), task(), None, CPU)
    before = torch.get_rng_state()
    first, second = (training.advance() for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert first is not None
    assert second is not None
    assert (first.step, second.step) == (5, 10)
    assert second.train_loss < first.train_loss


def study_of_all(folder: Path) -> Path:
    models = {family: {"family": family, "size": vars(SIZES[family])} for family in OTHERS}
    return write_study(
        folder, rates=(1e-2,), variants=("unfrozen-random",), num_steps=NUM_STEPS, models=json.dumps(models)
    )


def end_of(run: WantedRun, results: Path, *, most_events: int | None = None) -> tuple[Any, dict[str, Tensor]]:
    """Train a run to its end, or until so many reports; return its curve and the tensors of its newest checkpoint."""
    session = Session(cohort_here([run], Results(results), engine="plain", every_s=0.0))
    events = itertools.chain.from_iterable(session.events(1000.0 if most_events is None else 0.001))
    points = [timeless(run.run_id, e) for event in itertools.islice(events, most_events) for e in evaluations(event)]
    return points, load_file(checkpoints(Results(results).checkpoints(run.run_id))[0])


def test_a_run_that_was_stopped_resumes_with_the_same_bits(tmp_path: Path) -> None:
    study = study_of_all(tmp_path)
    runs = runs_of(study, tmp_path / "results")
    assert [run.model for run in runs] == OTHERS
    for run in runs:
        end_of(run, tmp_path / "stopped", most_events=2)  # it started, and it reached an evaluation
        (newest,) = checkpoints(Results(tmp_path / "stopped").checkpoints(run.run_id))
        assert int(newest.name.split("-")[1]) == 10
    for run in runs:
        curve, tensors = end_of(run, tmp_path / "undisturbed")
        assert [point["step"] for point in curve] == [10, 20]
        again, resumed = end_of(run, tmp_path / "stopped")
        assert again == curve
        assert same_bits(resumed, tensors), run.model
