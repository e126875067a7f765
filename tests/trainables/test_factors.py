"""Factors by hand: schedules, and muP at the base, on pretrained bodies, and in both engines."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch

from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.runs import wanted_runs
from lr_sweep.tests.support.small_runs import (
    SIZE,
    assert_one_curve_in_float64,
    plain,
    plain_of,
    real_valued_task,
    run_of,
    same_bits,
)
from lr_sweep.trainables.factors import depends_on_budget, learning_rate_at, query_factor, rate_factor
from lr_sweep.trainables.models.classifier import build_classifier
from lr_sweep.trainables.models.gpt2 import _causal_weights
from lr_sweep.trainables.parts import VARIANTS
from lr_sweep.trainables.plain.optimizers import optimizers_of
from lr_sweep.trainables.run import ModelSize, Protocol, Run


def factors(num_steps: int | None, steps: range, **options: object) -> list[float]:
    protocol = Protocol(**options)  # type: ignore[arg-type]
    return [rate_factor(protocol, step, num_steps) for step in steps]


def test_constant_is_one_after_the_warm_up() -> None:
    assert factors(None, range(1, 4)) == [1.0, 1.0, 1.0]
    assert factors(None, range(1, 7), warmup_steps=4) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_cosine_falls_from_one_by_half_a_period() -> None:
    # Four steps at 0, 45, 90 and 135 degrees: (1 + cos) / 2.
    cosine = [1.0, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5]
    assert factors(4, range(1, 5), schedule="cosine") == pytest.approx(cosine, abs=1e-12)
    warm = factors(6, range(1, 7), schedule="cosine", warmup_steps=2)
    assert warm == pytest.approx([0.5, 1.0, *cosine], abs=1e-12)


def test_warmup_stable_decay_falls_linearly_at_the_end() -> None:
    found = factors(10, range(1, 11), schedule="warmup-stable-decay", warmup_steps=2, decay_fraction=0.4)
    assert found == [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25]
    default = factors(10, range(1, 11), schedule="warmup-stable-decay")
    assert default == [1.0] * 9 + [0.5]


@pytest.mark.parametrize("schedule", ["cosine", "warmup-stable-decay"])
def test_beyond_the_budget_the_factor_is_zero(schedule: str) -> None:
    """A measurement of a step's duration may take more steps than a short budget has."""
    assert factors(10, range(11, 40, 14), schedule=schedule) == [0.0] * 3


def test_the_learning_rate_is_the_run_s_times_the_factor() -> None:
    run = run_of(learning_rate=0.1, schedule="cosine", schedule_steps=4)
    assert learning_rate_at(run, 3) == pytest.approx(0.05)
    assert learning_rate_at(run_of(learning_rate=0.1), 10**9) == 0.1


def test_which_schedules_depend_on_the_budget() -> None:
    assert depends_on_budget(Protocol(schedule="cosine"))
    assert depends_on_budget(Protocol(schedule="warmup-stable-decay"))
    assert not depends_on_budget(Protocol(warmup_steps=100))


WIDE = ModelSize(layers=1, heads=4, width=256, positions=8)
"""Four times the base's 64: heads of 64, the base's of 16."""
SHAPE = real_valued_task().shape
RESULTS = Path(__file__).parents[2] / "docs" / "results"


def mup_run(variant: str = "unfrozen-random", **changes: Any) -> Run:
    return run_of(variant, parametrization="mup", optimizer="adamw", **changes)


def test_the_starts_of_a_model_four_times_as_wide_as_the_base_by_hand() -> None:
    standard, model = (build_classifier(run, SHAPE, None) for run in (run_of(size=WIDE), mup_run(size=WIDE)))
    ratios = {
        "body.h.0.attn.c_attn.weight": 1 / 2,  # 0.02 / sqrt(4)
        "body.h.0.attn.c_proj.weight": 1 / 2,
        "body.h.0.mlp.c_fc.weight": 1 / 2,
        "body.h.0.mlp.c_proj.weight": 1 / 2,
        "input_layer.weight": 2.0,  # 256 rows of 4 orthogonal columns are sqrt(64 / 256) as large as 64 rows
        "output_layer.weight": 2.0,  # within 1 / sqrt(64), not 1 / sqrt(256)
        "output_layer.bias": 2.0,
    }
    for name, parameter in standard.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], ratios.get(name, 1.0) * parameter)


def test_the_learning_rates_of_a_model_four_times_as_wide_as_the_base_by_hand() -> None:
    """Decay 0.5, gradient 1: a first step of AdamW is 1 - rate x decay - rate. The product with decay stays."""
    run = mup_run(size=WIDE, weight_decay=0.5)
    model = build_classifier(run, SHAPE, None)
    (optimizer,) = optimizers_of(run.protocol, 0.1, model)
    for group in optimizer.param_groups:
        group["lr"] = 0.1 * group["rate_factor"]  # as `Training` does
    for parameter in model.parameters():
        parameter.data.fill_(1.0)
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        matrix = name.startswith("body.h.0.") and name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))
        assert parameter.flatten()[0].item() == pytest.approx(1 - 0.05 - (0.025 if matrix else 0.1)), name


def test_attention_and_output_of_a_model_four_times_as_wide_as_the_base_by_hand() -> None:
    model = build_classifier(mup_run(size=WIDE), SHAPE, None)
    x = torch.randn(2, 6, 256, generator=torch.Generator().manual_seed(1))  # (B, T, D)
    attention: Any = model.body.h[0].attn  # type: ignore[union-attr, index]
    q, k, _ = attention.c_attn(x).view(2, 6, 3, 4, 64).permute(2, 0, 3, 1, 4)
    scores = q @ k.mT / 16  # sqrt(16) / 64
    expected = scores.masked_fill(torch.ones(6, 6).triu(1).bool(), -torch.inf).softmax(-1)
    queries, keys, _ = attention._heads(x)
    torch.testing.assert_close(_causal_weights(queries, keys), expected)
    tokens = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(2))
    states = model.features(tokens)  # (B, D)
    torch.testing.assert_close(model(tokens), states @ model.output_layer.weight.mT / 4 + model.output_layer.bias)


def test_the_factor_of_queries_by_hand() -> None:
    assert query_factor(mup_run(size=WIDE)) == 1 / 2  # sqrt(16 / 64), the widths of heads


def test_at_the_base_both_parametrizations_have_the_same_bits() -> None:
    standard, mup = (plain(run).state()[0] for run in (run_of(optimizer="adamw"), mup_run(base_width=SIZE.width)))
    assert same_bits(standard, mup)


def test_a_pretrained_body_is_computed_as_it_was_trained() -> None:
    standard, mup = (plain_of(run).model.body for run in (run_of("frozen-pretrained"), mup_run("frozen-pretrained")))
    embeddings = torch.randn(2, 6, SIZE.width, generator=torch.Generator().manual_seed(1))
    assert torch.equal(standard(embeddings), mup(embeddings))


CASES: list[tuple[str, dict[str, Any]]] = [
    *((variant, {}) for variant in VARIANTS),
    *(("unfrozen-random", options) for options in ({"dropout": 0.0}, {"attention": "blocked"})),
]


@pytest.mark.parametrize(("variant", "options"), CASES, ids=str)
def test_both_engines_have_one_curve_in_float64(
    variant: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [mup_run(variant, learning_rate=rate, **options) for rate in (1e-3, 3e-3)]
    assert_one_curve_in_float64(runs, real_valued_task(), monkeypatch)


def test_the_runs_of_results_that_are_shipped_keep_their_ids(tmp_path: Path) -> None:
    for name in ("law-width", "optimizers-digits"):
        with (RESULTS / name / "runs.csv").open() as file:
            recorded = {row["run_id"] for row in csv.DictReader(file)}
        assert {run.run_id for run in wanted_runs(load_study(name), {}, tmp_path)} == recorded
