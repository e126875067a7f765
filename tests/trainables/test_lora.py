"""LoRA's adapters by hand, and in both engines."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lr_sweep.tests.support.engine_runs import (
    TASKS,
    alone_of,
    assert_one_curve_in_float64,
    assert_same_in,
    go_on,
    plain_of,
    same_bits,
    stack_of,
    stacked,
)
from lr_sweep.tests.support.small_bodies import library_gpt2
from lr_sweep.tests.support.small_runs import SIZE, random_weights, real_valued_task, run_of
from lr_sweep.trainables.backbones.family import parameters_of
from lr_sweep.trainables.backbones.gpt2 import GPT2, Adapter, Conv1D, body_tensors
from lr_sweep.trainables.initialise import build_classifier
from lr_sweep.trainables.memory import trained_parameters
from lr_sweep.trainables.parts import EVERYTHING, FROZEN_BODY
from lr_sweep.trainables.run import Protocol, Run

LORA = (*FROZEN_BODY, "lora")


def lora_run(variant: str = "frozen-pretrained", **changes: Any) -> Run:
    return run_of(variant, **{"trained": LORA, **changes})


def test_at_step_0_the_model_is_the_frozen_one_to_the_last_bit() -> None:
    data = real_valued_task()
    tokens = data.tokens(data.test.inputs)
    frozen, adapted = (plain_of(run, data) for run in (run_of("frozen-pretrained"), lora_run()))
    assert torch.equal(adapted.model(tokens), frozen.model(tokens))
    assert adapted.scores() == frozen.scores()
    state, other = adapted.state()[0], frozen.state()[0]
    assert same_bits({name: state[name] for name in other}, other)


@pytest.mark.parametrize("rank", [1, 4])
def test_as_many_numbers_are_trained_as_by_hand(rank: int) -> None:
    """Of each of two blocks, 16 wide: 16 -> 48, 16 -> 16, 16 -> 64, 64 -> 16."""
    run, data = lora_run(lora_rank=rank), real_valued_task()
    adapters = 2 * rank * ((16 + 48) + (16 + 16) + (16 + 64) + (64 + 16))
    assert adapters == rank * 16 * SIZE.width * SIZE.layers
    added = trained_parameters(run, data.shape) - trained_parameters(run_of("frozen-pretrained"), data.shape)
    assert added == adapters
    assert sum(p.numel() for p in plain_of(run).trained.values()) == trained_parameters(run, data.shape)


def test_one_gradient_step_by_hand() -> None:
    """W = (1, 1)^T, A = (2, 4)^T, B = (0), x = (1, 1), alpha 3, rank 1; the loss is the output.

    x A = 6, so that the gradient of B is 3 x 6 = 18; that of A is 3 x x^T B = 0. A step of 0.01: B = -0.18, and the
    output 2 + 3 x 6 x -0.18 = -1.24.
    """
    layer = Conv1D(2, 1)
    layer.lora = Adapter(2, 1, Protocol(lora_rank=1, lora_alpha=3.0), torch.Generator())
    with torch.no_grad():
        layer.weight.fill_(1.0)
        layer.lora.a.copy_(torch.tensor([[2.0], [4.0]]))
    x = torch.ones(1, 2)
    out = layer(x)
    assert out.item() == 2.0
    out.sum().backward()
    assert layer.lora.a.grad.flatten().tolist() == [0.0, 0.0]  # type: ignore[union-attr]
    assert layer.lora.b.grad.item() == 18.0  # type: ignore[union-attr]
    torch.optim.SGD(layer.lora.parameters(), lr=0.01).step()
    assert layer(x).item() == pytest.approx(-1.24)


@pytest.mark.parametrize("rank", [1, 4])
def test_outputs_and_gradients_are_those_of_peft(rank: int) -> None:
    """Beside transformers' GPT-2 with the same weights, in float64; B is not 0, so that A has gradients."""
    peft = pytest.importorskip("peft", reason="peft is not installed: pip install 'lr-sweep[hf]'")
    ours, library = GPT2(SIZE), library_gpt2(SIZE)
    ours.load_state_dict(body_tensors(library.state_dict()))
    ours.adapt(Protocol(lora_rank=rank, lora_alpha=6.0), torch.Generator().manual_seed(0))
    layers = ["c_attn", "c_proj", "c_fc"]
    config = peft.LoraConfig(r=rank, lora_alpha=6, target_modules=layers, fan_in_fan_out=True)
    theirs = peft.get_peft_model(library.double(), config).eval()
    pairs = [
        (own, theirs.get_parameter(f"base_model.model.{name.removesuffix('.lora')}.lora_{kind}.default.weight"))
        for name, adapter in ours.double().named_modules()
        if isinstance(adapter, Adapter)
        for kind, own in (("A", adapter.a), ("B", adapter.b))
    ]
    assert {id(other) for _, other in pairs} == {id(p) for p in theirs.parameters() if p.requires_grad}
    with torch.no_grad():
        for own, other in pairs:
            other.copy_(own.normal_(0.0, 0.1, generator=torch.Generator().manual_seed(1)).T)
    embeddings = torch.randn(3, 9, SIZE.width, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    outputs = ours(embeddings), theirs(inputs_embeds=embeddings).last_hidden_state
    torch.testing.assert_close(*outputs, rtol=1e-10, atol=1e-10)
    for output in outputs:
        output[..., ::2].square().sum().backward()
    for own, other in pairs:
        assert own.grad is not None
        assert own.grad.abs().max() > 1e-2
        torch.testing.assert_close(own.grad.T, other.grad, rtol=1e-8, atol=1e-10)


def test_a_starts_as_in_the_authors_code() -> None:
    a, b = Adapter(400, 3, Protocol(lora_rank=50), torch.Generator().manual_seed(0)).parameters()
    assert a.shape == (400, 50)
    assert 0.0499 < a.abs().max() <= 0.05  # 1 / sqrt(400)
    assert a.std().item() == pytest.approx(0.05 / 3**0.5, rel=0.02)
    assert torch.equal(b, torch.zeros(50, 3))


def test_adapters_move_and_frozen_weights_do_not() -> None:
    training = plain_of(lora_run())
    before = {name: p.detach().clone() for name, p in training.model.named_parameters()}
    training.advance()
    moved = {name for name, p in training.model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == training.trained.keys()
    assert {name for name in before if ".lora." in name} < moved
    assert not {name for name in moved if name.endswith(("attn.weight", "proj.weight", "fc.weight"))}


CASES: list[tuple[str, dict[str, Any]]] = [
    *((task, {"dropout": dropout}) for task in TASKS for dropout in (0.1, 0.0)),
    *(("symbols", {"attention": kind}) for kind in ("blocked", "fused")),  # on all tasks without LoRA: test_attention
]


@pytest.mark.parametrize(("task", "options"), CASES, ids=str)
def test_both_engines_have_one_curve_in_float64(
    task: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for more in ({}, {"lora_rank": 1, "readout": "last_token"}, {"trained": (*EVERYTHING, "lora"), "lora_alpha": 2.0}):
        runs = [lora_run(learning_rate=rate, **options, **more) for rate in (1e-3, 3e-3)]
        assert_one_curve_in_float64(runs, TASKS[task], monkeypatch)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("rank", [1, 3, 8])
@pytest.mark.parametrize("variant", ["frozen-random", "frozen-pretrained"])
def test_other_runs_of_a_stack_change_no_bit(variant: str, rank: int, dropout: float) -> None:
    runs = [
        lora_run(variant, learning_rate=rate, seed=seed, lora_rank=rank, dropout=dropout)
        for seed in (0, 1)
        for rate in (1e-3, 3e-3)
    ]
    alone = alone_of(runs)
    for group in (runs, runs[1:3], runs[::-1][:3]):
        assert_same_in(group, alone)


def test_both_engines_resume_to_the_last_bit() -> None:
    run = lora_run()
    undisturbed, resumed = plain_of(run), plain_of(run)
    undisturbed.advance()
    tensors, progress = undisturbed.state()
    assert {name.split(".lora.")[1] for name in tensors if ".lora." in name} == {"a", "b"}
    resumed.load_state({name: tensor.clone() for name, tensor in tensors.items()}, progress)
    for training in (undisturbed, resumed):
        training.advance()
    assert same_bits(resumed.state()[0], undisturbed.state()[0])
    whole, (slot,) = stacked([run], 20)
    half, (first,) = stacked([run], 10)
    again, (second,) = stack_of([run])
    again.load_state(second, *half.state(first))
    go_on(again, 20)
    assert same_bits(again.state(second)[0], whole.state(slot)[0])


def test_every_parameter_is_in_one_part() -> None:
    model = build_classifier(lora_run(), real_valued_task().shape, random_weights())
    parts = model.parts()
    found = [id(p) for part in (*EVERYTHING, "lora") for p in parameters_of(parts[part])]
    assert sorted(found) == sorted(id(p) for p in model.parameters())
