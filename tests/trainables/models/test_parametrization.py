"""muP's factors by hand, at the base, on pretrained bodies, and in both engines."""

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
from lr_sweep.trainables.models.initialise import build_classifier
from lr_sweep.trainables.models.parametrization import query_factor
from lr_sweep.trainables.parts import VARIANTS
from lr_sweep.trainables.plain.optimizers import optimizers_of
from lr_sweep.trainables.run import ModelSize, Run

WIDE = ModelSize(layers=1, heads=4, width=256, positions=8)
"""Four times the base's 64: heads of 64, the base's of 16."""
SHAPE = real_valued_task().shape
RESULTS = Path(__file__).parents[3] / "docs" / "results"


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
    torch.testing.assert_close(attention.weights(x), expected)
    tokens = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(2))
    states = model.features(tokens)  # (B, D)
    torch.testing.assert_close(model(tokens), states @ model.output_layer.weight.mT / 4 + model.output_layer.bias)


@pytest.mark.parametrize(
    ("heads", "base_heads", "expected"),
    [(4, None, 1 / 2), (4, 1, 1.0), (16, 4, 1.0), (16, None, 1 / 2)],  # sqrt(base's width of a head / width of a head)
)
def test_the_factor_of_queries_by_hand(heads: int, base_heads: int | None, expected: float) -> None:
    size = ModelSize(layers=1, heads=heads, width=256, positions=8)
    assert query_factor(mup_run(size=size, base_heads=base_heads)) == expected


def test_at_the_base_both_parametrizations_have_the_same_bits() -> None:
    standard, mup = (plain(run).state()[0] for run in (run_of(optimizer="adamw"), mup_run(base_width=SIZE.width)))
    assert same_bits(standard, mup)


def test_a_pretrained_body_is_computed_as_it_was_trained() -> None:
    standard, mup = (plain_of(run).model.body for run in (run_of("frozen-pretrained"), mup_run("frozen-pretrained")))
    embeddings = torch.randn(2, 6, SIZE.width, generator=torch.Generator().manual_seed(1))
    assert torch.equal(standard(embeddings), mup(embeddings))


CASES: list[tuple[str, dict[str, Any]]] = [
    *((variant, {}) for variant in VARIANTS),
    *(("unfrozen-random", options) for options in ({"dropout": 0.0}, {"attention": "blocked"}, {"attention": "fused"})),
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
