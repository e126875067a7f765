"""Optimizers by hand, in both engines, across engines, and resumed."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from lr_sweep.tests.support.small_runs import (
    assert_close,
    double_models,
    go_on,
    in_float64,
    plain,
    plain_of,
    real_valued_task,
    run_of,
    same_bits,
    stack_of,
    stacked,
)
from lr_sweep.trainables.models.classifier import build_classifier
from lr_sweep.trainables.plain.optimizers import hidden_matrices, moments_of, optimizers_of, step_row
from lr_sweep.trainables.run import Protocol, Run

DATA = real_valued_task()
OPTIONS: dict[str, dict[str, Any]] = {
    "adam": {"weight_decay": 0.5},
    "adamw": {"weight_decay": 0.5},
    "sgd": {"weight_decay": 0.5},
    "sgd-plain": {"optimizer": "sgd", "momentum": 0.0},
    "lion": {"weight_decay": 0.5},
    "adamw-mup": {"optimizer": "adamw", "weight_decay": 0.5, "parametrization": "mup"},
    "lion-mup": {"optimizer": "lion", "weight_decay": 0.5, "parametrization": "mup", "base_width": 8},
}
PROTOCOLS = {name: Protocol(**{"optimizer": name} | options) for name, options in OPTIONS.items()}
BY_HAND = {
    # Gradient 0.5 + 0.5 decay: both means corrected are 1. Then 0.46 + 0.45 - 0.04 - 0.46 = 0.41:
    # (0.09 + 0.041) / 0.19 over sqrt((0.000999 + 0.0001681) / 0.001999).
    "adam": (0.9, 0.9 - 0.1 * (0.131 / 0.19) / math.sqrt(0.0011671 / 0.001999)),
    # 1 x 0.95 - 0.1, as both means corrected are 0.5; then x 0.95, and the means of 0.5 and -0.04:
    # (0.045 - 0.004) / 0.19 over sqrt((0.00024975 + 0.0000016) / 0.001999).
    "adamw": (0.85, 0.8075 - 0.1 * (0.041 / 0.19) / math.sqrt(0.00025135 / 0.001999)),
    # Buffer 0.5 + 0.5 decay; then 0.9 x 1 - 0.04 + 0.45 = 1.31.
    "sgd": (0.9, 0.769),
    "sgd-plain": (0.95, 0.954),
    # 1 x 0.95 - 0.1; then the update is of sign(0.9 x 0.005 - 0.1 x 0.04) = +1, against the gradient's sign.
    "lion": (0.85, 0.7075),
}
"""A parameter of 1 after gradients of 0.5 and -0.04 at a learning rate of 0.1."""


@pytest.mark.parametrize("name", BY_HAND)
def test_two_steps_of_a_row_by_hand(name: str) -> None:
    """Both engines' curves are compared below."""
    protocol, row, steps = PROTOCOLS[name], torch.ones(3), torch.tensor(0.0)
    moments = [torch.zeros(3) for _ in moments_of(protocol)]
    for gradient, expected in zip((0.5, -0.04), BY_HAND[name], strict=True):
        steps += 1
        step_row(protocol, row, torch.full((3,), gradient), moments, steps, lr=0.1, skip=torch.tensor(0.0))
        assert row.tolist() == pytest.approx([expected] * 3, rel=1e-5)
    kept = [row.clone(), *(moment.clone() for moment in moments)]
    step_row(protocol, row, torch.full((3,), math.nan), moments, steps, lr=0.1, skip=torch.tensor(1.0))
    assert all(torch.equal(now, before) for now, before in zip((row, *moments), kept, strict=True))


def test_muon_trains_the_body_s_matrices_and_adamw_the_rest() -> None:
    run = run_of(optimizer="muon", weight_decay=0.5)
    model = build_classifier(run, DATA.shape, None)
    names = {id(p): name for name, p in model.named_parameters()}
    expected = {f"body.h.{n}.{layer}.weight" for n in (0, 1) for layer in LAYERS}
    assert hidden_matrices(model).keys() == expected
    muon, adamw = optimizers_of(run.protocol, 0.1, model)
    assert (type(muon), type(adamw)) == (torch.optim.Muon, torch.optim.AdamW)
    grouped = [p for optimizer in (muon, adamw) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(map(id, grouped)) == sorted(names)


LAYERS = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")


def test_a_step_of_muon_by_hand() -> None:
    """A gradient of equal singular values stays of that form; each is moved by five Newton-Schulz iterations."""
    run = run_of(optimizer="muon", weight_decay=0.5)
    model = build_classifier(run, DATA.shape, None)
    muon, _ = optimizers_of(run.protocol, 0.1, model)
    matrix = model.body.h[0].attn.c_proj.weight  # (16, 16)
    matrix.data = torch.ones(16, 16)
    matrix.grad = 3 * torch.eye(16)
    muon.step()
    value = 1 / math.sqrt(16)  # over the Frobenius norm
    for _ in range(5):
        value = 3.4445 * value - 4.775 * value**3 + 2.0315 * value**5
    update = 0.1 * 0.2 * math.sqrt(16) * value  # as large as AdamW's
    assert matrix.data.diagonal().tolist() == pytest.approx([0.95 - update] * 16, abs=2e-2 * update)  # bfloat16
    assert matrix.data[0, 1:].tolist() == pytest.approx([0.95] * 15)


def test_muon_without_a_matrix_is_refused() -> None:
    with pytest.raises(ValueError, match="muon trains matrices of attention and feedforward"):
        plain(run_of("frozen-random", optimizer="muon"))


NUM_STEPS = 20
SCHEDULES: dict[str, dict[str, Any]] = {
    "constant": {"warmup_steps": 7},
    "cosine": {"schedule": "cosine", "warmup_steps": 7, "schedule_steps": NUM_STEPS},
    "warmup-stable-decay": {"schedule": "warmup-stable-decay", "decay_fraction": 0.5, "schedule_steps": NUM_STEPS},
}
CASES = [
    ("adam", "cosine"),
    ("adamw", "warmup-stable-decay"),
    ("sgd", "cosine"),
    ("sgd-plain", "constant"),
    ("lion", "warmup-stable-decay"),
    ("lion-mup", "constant"),  # AdamW's: `test_factors.py`
]


def case(name: str, schedule: str, **changes: Any) -> Run:
    rate = {"sgd": 1e-2, "sgd-plain": 1e-1, "lion": 3e-4, "lion-mup": 3e-4}.get(name, 1e-3)
    options = {"optimizer": name, "learning_rate": rate} | OPTIONS.get(name, {}) | SCHEDULES[schedule]
    return run_of(**options | changes)


@pytest.mark.parametrize(("name", "schedule"), CASES)
def test_both_engines_have_one_curve_in_float64(name: str, schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    double_models(monkeypatch)
    data = in_float64(DATA)
    runs = [case(name, schedule, seed=seed) for seed in (0, 1)]
    stack, slots = stacked(runs[:1], 10, data)  # then the second, at other steps of the schedule
    slots += stack.add(runs[1:])
    go_on(stack, NUM_STEPS)
    for run, slot in zip(runs, slots, strict=True):
        oracle = plain(run, NUM_STEPS, data)
        assert_close(slot.progress.curve[:2], oracle.progress.curve, 1e-9)


def test_another_optimizer_or_schedule_trains_another_model() -> None:
    trained = []
    cases = [*((name, "constant") for name in (*OPTIONS, "muon")), ("adam", "cosine"), ("adam", "warmup-stable-decay")]
    for name, schedule in cases:
        training = plain_of(case(name, schedule, learning_rate=1e-3))
        training.train_chunk(12)
        trained.append(tuple(training.model.output_layer.weight.flatten().tolist()))
    assert len(set(trained)) == len(trained)


@pytest.mark.parametrize(("name", "schedule"), [*CASES, ("muon", "cosine")])
def test_a_resumed_run_has_the_same_bits(name: str, schedule: str) -> None:
    run = case(name, schedule)
    whole = plain_of(run)
    whole.train_chunk(13)
    tensors, progress = whole.state()
    resumed = plain_of(run)
    resumed.load_state({key: tensor.clone() for key, tensor in tensors.items()}, progress)
    for training in (whole, resumed):
        training.train_chunk(7)
    assert same_bits(resumed.state()[0], whole.state()[0])


MOVES = [*(("unfrozen-random", *names) for names in CASES), ("frozen-pretrained", "adam", "constant")]


@pytest.mark.parametrize(("variant", "name", "schedule"), MOVES)
def test_a_stack_resumes_with_the_same_bits_and_either_engine_reads_the_other_s_state(
    variant: str, name: str, schedule: str
) -> None:
    run = case(name, schedule, variant=variant)
    (whole, (slot,)), (again, (other,)) = stacked([run], 10), stack_of([run])
    saved, progress = whole.state(slot)
    again.load_state(other, saved, progress)
    moved = plain_of(run)
    moved.load_state(saved, progress)
    assert same_bits(again.state(other)[0], saved)
    assert same_bits(moved.state()[0], saved)
    go_on(whole, NUM_STEPS)
    go_on(again, NUM_STEPS)
    assert same_bits(again.state(other)[0], whole.state(slot)[0])
    moved.train_chunk(NUM_STEPS - 10)
    theirs = moved.state()[0]
    again.load_state(other, *moved.state())
    ours = again.state(other)[0]
    assert ours.keys() == theirs.keys()
    used = {key: DATA.shape.num_tokens if "wpe" in key else None for key, tensor in theirs.items() if tensor.ndim}
    assert all(torch.equal(ours[key][:rows], theirs[key][:rows]) for key, rows in used.items())


@pytest.mark.parametrize("clip", [0.125, None])
def test_a_step_s_gradient_is_clipped_for_every_optimizer(clip: float | None) -> None:
    """Plain SGD moves by the rate times the clipped norm: an eighth, where the clip is 1/8."""
    training = plain_of(run_of(optimizer="sgd", momentum=0.0, learning_rate=1.0, gradient_clip_norm=clip))
    before = [p.detach().clone() for p in training.trained.values()]
    training.train_chunk(1)
    moved = [p.detach() - old for p, old in zip(training.trained.values(), before, strict=True)]
    norm = torch.cat([each.flatten() for each in moved]).norm().item()
    assert norm == pytest.approx(clip, rel=1e-4) if clip else norm > 0.2
