"""Bodies of every family: masks and starts are keyed, training resumes; those of the library compute what it does."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F
from transformers import ViTModel

from lr_sweep.datasets.task import TaskData
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.tests.support.small_bodies import (
    LIBRARY,
    OTHER_SIZES,
    SIZES,
    embeddings_of,
    library_model,
    library_states,
    new_body,
    saved,
)
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
from lr_sweep.trainables.models.classifier import Classifier, build_classifier, put_weights
from lr_sweep.trainables.models.family import Body, Dropout
from lr_sweep.trainables.numerics import global_generator_keyed, keyed_generator
from lr_sweep.trainables.plain.engine import Training
from lr_sweep.trainables.pretraining.weights import load_weights
from lr_sweep.trainables.run import BodySize, Protocol
from lr_sweep.trainables.worker.messages import evaluations
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
        assert not torch.equal(model(tokens, keyed_generator(0, "dropout", 1)), before)
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


def test_a_run_that_was_stopped_resumes_with_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lr_sweep.sweep.study.validation.FIXED", frozenset())  # small sizes
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


def with_weights(size: BodySize, folder: Path, num_tokens: int) -> Body:
    body = new_body(size, num_tokens)
    with torch.no_grad():
        body.draw(Protocol(), torch.Generator().manual_seed(0))
    put_weights(body, load_weights(folder, size.family))
    return body


def with_the_positions_of(model: Any, body: Any) -> Body:
    """Put a ViT's position table in, which is new otherwise."""
    if isinstance(model, ViTModel):
        with torch.no_grad():
            body.position_embeddings.copy_(model.embeddings.position_embeddings[0])
    return body


def assert_equal_states(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=0)
    assert wanted.abs().max() > 0.1


@pytest.mark.parametrize("size", [*(SIZES[name] for name in LIBRARY), *OTHER_SIZES.values()], ids=str)
def test_hidden_states_equal_the_library_s(size: BodySize, tmp_path: Path) -> None:
    model = library_model(size)
    body = with_the_positions_of(model, with_weights(size, saved(model, tmp_path), 9))
    embeddings = embeddings_of(size)
    with torch.no_grad():
        assert_equal_states(body(embeddings), library_states(model, embeddings))


@pytest.mark.parametrize("num_tokens", [1, 3, 4, 5, 7, 8, 11])
def test_a_longformer_takes_any_number_of_tokens(num_tokens: int, tmp_path: Path) -> None:
    size = SIZES["longformer"]  # its window is 4
    model = library_model(size)
    body = with_weights(size, saved(model, tmp_path), num_tokens)
    embeddings = embeddings_of(size, num_tokens).requires_grad_()
    states = body(embeddings)
    assert_equal_states(states, library_states(model, embeddings))
    states.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in body.parameters())


def test_a_longformer_s_tokens_attend_to_their_window_alone() -> None:
    body = new_body(SIZES["longformer"])
    with torch.no_grad():
        body.draw(Protocol(), torch.Generator().manual_seed(0))
        embeddings = embeddings_of(SIZES["longformer"])
        changed = embeddings.clone()
        changed[:, 8] *= -1
        same = (body(changed) == body(embeddings)).all(-1).all(0)  # (T,)
    assert same.tolist() == [True] * 4 + [False] * 5  # two layers, two tokens to each side


@pytest.mark.parametrize("family", ["bert", "longformer"])
def test_positions_beyond_the_pretrained_ones(family: str, tmp_path: Path) -> None:
    """The longer table in the library's model gives the same states, so that rows are where they belong."""
    size: Any = SIZES[family]  # it has 12
    folder = saved(library_model(size), tmp_path / "short")
    body = with_weights(size, folder, 40)
    assert body.position_table is not None
    table = body.get_parameter(body.position_table)
    pretrained = load_weights(folder, family)[body.position_table]
    assert table.shape == (40, 16)
    assert torch.equal(table[:12], pretrained)
    assert table[12:].std().item() == pytest.approx(0.02, rel=0.2)
    longer: Any = library_model(replace(size, positions=40))
    own = {name: tensor for name, tensor in longer.state_dict().items() if name not in body.state_dict()}
    own["embeddings.token_type_embeddings.weight"] = longer.embeddings.token_type_embeddings.weight.clone()
    own["embeddings.token_type_embeddings.weight"][0] = body.state_dict()["embeddings.token_type_embeddings.weight"][0]
    own[body.position_table] = torch.cat([torch.zeros(longer.config.max_position_embeddings - 40, 16), table])
    longer.load_state_dict(body.state_dict() | own)
    embeddings = embeddings_of(size, 30)
    with torch.no_grad():
        assert_equal_states(body(embeddings), library_states(longer, embeddings))


@pytest.mark.parametrize("family", LIBRARY)
def test_dropout_is_the_library_s_at_the_protocol_s_probability(family: str, tmp_path: Path) -> None:
    """In every place: from the same state of torch's generator both models draw the same masks."""
    size = SIZES[family]
    model = library_model(size, 8, dropout=0.3)
    body = with_the_positions_of(model, with_weights(size, saved(model, tmp_path), 8))
    embeddings, generator = embeddings_of(size, 8), torch.Generator().manual_seed(5)  # 8: no padding
    with torch.no_grad():
        states = body(embeddings, Dropout(0.3, generator))
        with global_generator_keyed(5, "library modules", CPU):
            assert_equal_states(states, library_states(model.train(), embeddings))
        assert not torch.allclose(states, body(embeddings), atol=0.1)
        torch.testing.assert_close(body(embeddings, Dropout(0.0, generator)), body(embeddings))


def test_masks_of_a_body_are_not_those_before_it() -> None:
    generator = torch.Generator().manual_seed(5)
    before = Dropout(0.5, generator)(torch.ones(1000))
    with global_generator_keyed(5, "library modules", CPU):
        inside = F.dropout(torch.ones(1000), 0.5)
    assert 0.4 < (before == inside).float().mean() < 0.6


@pytest.mark.parametrize("family", LIBRARY)
def test_the_random_start_is_the_library_s(family: str) -> None:
    size: Any = replace(OTHER_SIZES[family], width=64)
    changes: dict[str, Any] = {"initializer_factor": 1.0} if family == "t5" else {"initializer_range": 0.02}
    theirs = dict(library_model(size, **changes).named_parameters())
    body = new_body(size, 60)
    with torch.no_grad():
        body.draw(Protocol(), torch.Generator().manual_seed(0))
    prefix = "encoder." if family == "t5" else ""
    for name, parameter in body.named_parameters():
        if name == "position_embeddings":  # a ViT's, new
            assert parameter.std().item() == pytest.approx(0.02, rel=0.05)
            continue
        wanted = theirs[prefix + name]
        if wanted.std() == 0:
            assert parameter.unique().tolist() == wanted.unique().tolist(), name
        else:
            few = 5 / parameter.numel() ** 0.5 + 5 / wanted.numel() ** 0.5
            assert parameter.std().item() == pytest.approx(wanted.std().item(), rel=few), name


@pytest.mark.parametrize("family", LIBRARY)
def test_products_may_be_bf16(family: str) -> None:
    body = new_body(SIZES[family])
    with torch.no_grad():
        body.draw(Protocol(), torch.Generator().manual_seed(0))
    embeddings = embeddings_of(SIZES[family])
    with torch.autocast("cpu", torch.bfloat16):
        states = body(embeddings, Dropout(0.1, torch.Generator().manual_seed(0)))
        states.square().sum().backward()
    assert states.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in body.parameters())
