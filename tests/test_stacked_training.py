"""The fast engine against the plain one: a run's curve is the same, alone and in any company."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from datasets.task import DataError, TaskData
from tests.small_runs import CPU, random_weights, real_valued_task, run_of, symbol_task
from trainables.initialise import build_classifier
from trainables.parts import VARIANTS
from trainables.run import Run
from trainables.stacked_training import Member, StackedTraining
from trainables.training import Evaluation, Training

NUM_STEPS = 50
LOSSES = ("train_loss", "validation_loss", "test_loss")
TASKS = {"numbers": real_valued_task(), "symbols": symbol_task()}


def plain(run: Run, num_steps: int = NUM_STEPS, data: TaskData | None = None) -> Training:
    weights = random_weights() if run.initialisation == "pretrained" else None
    training = Training(run, data or TASKS["numbers"], weights, CPU, wall_clock=lambda: 1000.0)
    while not training.diverged and training.progress.step < num_steps:
        training.advance(num_steps)
    return training


def stack_of(runs: Sequence[Run], data: TaskData | None = None) -> tuple[StackedTraining, list[Member]]:
    weights = random_weights() if runs[0].initialisation == "pretrained" else None
    stack = StackedTraining(data or TASKS["numbers"], weights, CPU, wall_clock=lambda: 1000.0)
    stack.add(runs)
    by_id = {member.run.run_id: member for member in stack.members}
    return stack, [by_id[run.run_id] for run in runs]


def stacked(
    runs: Sequence[Run], num_steps: int = NUM_STEPS, data: TaskData | None = None
) -> tuple[StackedTraining, list[Member]]:
    stack, members = stack_of(runs, data)
    go_on(stack, num_steps)
    return stack, members


def go_on(stack: StackedTraining, num_steps: int) -> None:
    while any(not member.diverged and member.progress.step < num_steps for member in stack.members):
        stack.advance()


def sweep_of(variant: str, **changes: Any) -> list[Run]:
    return [run_of(variant, learning_rate=rate, seed=seed, **changes) for seed in (0, 1) for rate in (1e-3, 3e-3)]


def assert_close(ours: Sequence[Evaluation], theirs: Sequence[Evaluation], relative: float) -> None:
    assert [evaluation.step for evaluation in ours] == [evaluation.step for evaluation in theirs]
    for one, other in zip(ours, theirs, strict=True):
        for loss in LOSSES:
            assert getattr(one, loss) == pytest.approx(getattr(other, loss), rel=relative, abs=relative), (
                one.step,
                loss,
            )


def same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_batch_larger_than_the_training_split_is_refused() -> None:
    with pytest.raises(DataError, match="batch_size is 41, and the training split has 40 examples: lower it"):
        stacked([run_of(batch_size=41)])


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize(
    ("task", "readout"), [("numbers", "final_position"), ("symbols", "final_position"), ("symbols", "last_token")]
)
@pytest.mark.parametrize("variant", VARIANTS)
def test_alone_and_in_company_a_run_has_the_plain_engine_s_curve(
    variant: str, task: str, readout: str, dropout: float
) -> None:
    runs = sweep_of(variant, readout=readout, dropout=dropout)
    together = stacked(runs, data=TASKS[task])[1]
    oracles = [plain(run, data=TASKS[task]) for run in runs[1:3]]
    for member, oracle in zip(together[1:3], oracles, strict=True):
        assert_close(member.progress.curve, oracle.progress.curve, 1e-4)
    (alone,) = stacked(runs[1:2], data=TASKS[task])[1]
    assert_close(alone.progress.curve, oracles[0].progress.curve, 1e-4)


@pytest.fixture
def in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("trainables.training", "trainables.stacked_weights"):
        monkeypatch.setattr(f"{module}.build_classifier", lambda *arguments: build_classifier(*arguments).double())


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_in_float64_the_curves_agree_to_nine_digits(variant: str, task: str, dropout: float) -> None:
    data = TASKS[task]
    if data.scale is not None and data.shift is not None:
        data = dataclasses.replace(data, scale=data.scale.double(), shift=data.shift.double())
    runs = sweep_of(variant, readout="last_token", dropout=dropout)
    for run, member in list(zip(runs, stacked(runs, data=data)[1], strict=True))[1:3]:
        oracle = plain(run, data=data)
        assert_close(member.progress.curve, oracle.progress.curve, 1e-9)
        scores = [evaluation.validation_accuracy for evaluation in oracle.progress.curve]
        assert [evaluation.validation_accuracy for evaluation in member.progress.curve] == scores


@pytest.mark.parametrize(("clip", "input_dropout"), [(None, 0.0), (0.05, 0.3)])
def test_other_protocols_agree_too(clip: float | None, input_dropout: float) -> None:
    runs = sweep_of("unfrozen-random", gradient_clip_norm=clip, input_dropout=input_dropout, adam_beta1=0.5)
    for run, member in zip(runs[:2], stacked(runs)[1], strict=False):
        assert_close(member.progress.curve, plain(run).progress.curve, 1e-4)


def test_augmented_batches_are_the_plain_engine_s() -> None:
    def noisy(tokens: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return tokens + torch.randn(tokens.shape, generator=generator)

    data = dataclasses.replace(real_valued_task(), augment=noisy)
    runs = sweep_of("frozen-random")
    for run, member in zip(runs[:2], stacked(runs, data=data)[1], strict=False):
        assert_close(member.progress.curve, plain(run, data=data).progress.curve, 1e-4)


def test_frozen_tensors_keep_every_bit() -> None:
    for variant in ("frozen-random", "frozen-pretrained"):
        runs = sweep_of(variant)
        _, members = stacked(runs)
        for run, member in zip(runs, members, strict=True):
            weights = random_weights() if run.initialisation == "pretrained" else None
            before = dict(build_classifier(run, TASKS["numbers"].shape, weights).named_parameters())
            assert len(member.start.body) == 8  # four layers in each of two blocks
            for name, layer in member.start.body.items():
                assert torch.equal(layer.weight[0], before[f"{name}.weight"])
                assert torch.equal(layer.transposed[0].mT, before[f"{name}.weight"])
                assert torch.equal(layer.bias[0, 0], before[f"{name}.bias"])


def test_every_trained_tensor_moves_and_has_the_plain_engine_s_shape() -> None:
    for variant in VARIANTS:
        run = run_of(variant)
        stack, (member,) = stacked([run], 10)
        (ours, progress), (theirs, _) = stack.state(member), plain(run, 10).state()
        assert {name: t.shape for name, t in ours.items()} == {name: t.shape for name, t in theirs.items()}
        before = stack_of([run])[0]
        start = before.state(before.members[0])[0]
        assert not any(torch.equal(start[name], ours[name]) for name in start)
        assert progress["best_step"] == 10


@pytest.mark.parametrize("variant", VARIANTS)
def test_moving_between_engines_changes_nothing(variant: str) -> None:
    runs = sweep_of(variant)[1:3]
    whole = [plain(run) for run in runs]
    stack, members = stacked(runs, 20)
    go_on(stack, 30)
    other, others = stack_of(runs)
    for run, member, moved, oracle in zip(runs, members, others, whole, strict=True):
        from_stack = Training(run, stack.data, stack.weights, CPU, wall_clock=lambda: 1000.0)
        from_stack.load_state(*stack.state(member))
        assert same_bits(from_stack.state()[0], stack.state(member)[0])
        while from_stack.progress.step < NUM_STEPS:
            from_stack.advance(NUM_STEPS)
        assert_close(from_stack.progress.curve, oracle.progress.curve, 1e-4)
        half = plain(run, 30)
        other.load_state(moved, *half.state())
        assert same_bits(other.state(moved)[0], half.state()[0])
    go_on(other, NUM_STEPS)
    for moved, oracle in zip(others, whole, strict=True):
        assert_close(moved.progress.curve, oracle.progress.curve, 1e-4)


def test_a_diverged_run_stands_still_and_is_told_at_the_plain_engine_s_step() -> None:
    runs = sweep_of("unfrozen-random")
    stack, members = stacked(runs, 30)
    sick, oracle = members[2], plain(runs[2], 30)
    with torch.no_grad():
        stack._rows.parameters["output_layer.bias"][stack.members.index(sick), 0] = math.inf
        oracle.model.output_layer.bias[0] = math.inf
    before = stack.state(sick)[0]
    assert [member.run for member, _ in stack.advance()] == [m.run for m in stack.members if m is not sick]
    oracle.advance(NUM_STEPS)
    assert sick.progress.diverged_at_step == oracle.progress.diverged_at_step == 31
    assert same_bits(stack.state(sick)[0], before)
    assert stack.advance()  # before it is removed
    assert same_bits(stack.state(sick)[0], before)


def test_an_evaluation_that_is_not_finite_is_a_divergence() -> None:
    runs = sweep_of("unfrozen-random")[:2]
    runs[0] = dataclasses.replace(runs[0], learning_rate=1e38)
    stack, members = stack_of(
        [dataclasses.replace(r, protocol=dataclasses.replace(r.protocol, evaluate_every=1)) for r in runs]
    )
    reached = stack.advance()
    assert [member for member, _ in reached] == [members[1]]
    assert members[0].progress.diverged_at_step == 1


def test_the_best_model_is_kept_by_run() -> None:
    runs = [run_of(learning_rate=rate) for rate in (0.3, 1e-2)]
    stack, members = stacked(runs, 60)
    for run, member in zip(runs, members, strict=True):
        curve = member.progress.curve
        best = max(curve, key=lambda evaluation: (evaluation.validation_accuracy, -evaluation.step))
        assert member.progress.best_step == best.step
        tensors, progress = stack.state(member)
        again, (loaded,) = stack_of([run])
        model = {name: tensors[name.replace("model.", "best.")] for name in tensors if name.startswith("model.")}
        again.load_state(loaded, tensors | model, progress)
        assert again._scores([loaded])[0]["validation_accuracy"] == best.validation_accuracy


def test_time_is_shared_out() -> None:
    _, members = stacked(sweep_of("frozen-random"), 20)
    times = [member.progress.elapsed_s for member in members]
    assert times == pytest.approx([times[0]] * len(times))
    assert times[0] > 0


@pytest.mark.parametrize("variant", ["frozen-pretrained", "unfrozen-random"])
def test_in_bf16_both_engines_round_products_alike(variant: str) -> None:
    runs = sweep_of(variant, precision="bf16")
    members = stacked(runs, 20)[1]
    for run, member in zip(runs[:2], members[:2], strict=True):
        oracle, fp32 = plain(run, 20), plain(run_of(variant, learning_rate=run.learning_rate, seed=run.seed), 20)
        assert_close(member.progress.curve, oracle.progress.curve, 2e-2)
        assert oracle.progress.curve != fp32.progress.curve
        assert all(p.dtype == torch.float32 for p in oracle.state()[0].values())


def test_tf32_is_refused_on_a_cpu() -> None:
    with pytest.raises(ValueError, match="precision tf32 needs a GPU"):
        plain(run_of(precision="tf32"))
    with pytest.raises(ValueError, match="precision tf32 needs a GPU"):
        stacked([run_of(precision="tf32")])
