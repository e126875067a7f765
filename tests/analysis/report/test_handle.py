"""What the handle says at a learning rate, beside the tuned conclusion. In a browser: `test_handle_browser`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lr_sweep.analysis.report.chart import handle_data
from lr_sweep.analysis.statistics.comparisons.orders import Order
from lr_sweep.tests.support.records import orders_in, summary_of
from lr_sweep.tests.support.synthetic import flip_record

DIVERGED = {"diverged": 3, "failed": 0, "stopped": 0, "missing": 0}
MISSING = {"diverged": 2, "failed": 0, "stopped": 0, "missing": 1}


def row(order: Order, incomplete: Mapping[str, Any] | None = None, kind: str = "same") -> dict[str, Any]:
    return {"learning_rate": 1e-3, "order": order, "incomplete": incomplete or {}, "kind": kind, "sure": True}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    summary = summary_of(flip_record(tmp_path_factory.mktemp("results")).write())
    return handle_data(orders_in(summary), ["a", "b", "c"], None)


def test_every_learning_rate_has_its_order_and_what_it_means(found: dict[str, Any]) -> None:
    assert found["tuned"] == [[0], [2], [1]]
    assert [(rate["text"], rate["order"], rate["kind"]) for rate in found["rates"]] == [
        *(("1e-5", [[0], [1], [2]], "order"), ("1e-4", [[1], [0], [2]], "winner")),
        *(("1e-3", [[0], [2], [1]], "same"), ("1e-2", [[1], [2], [0]], "winner")),
    ]


@pytest.mark.parametrize(("fixed_rate", "start"), [(None, 1), (1e-3, 2), (2e-5, 0), (10.0, 3)])
def test_the_handle_starts_at_the_fixed_rate_or_where_the_winner_changes(
    tmp_path: Path, fixed_rate: float | None, start: int
) -> None:
    summary = summary_of(flip_record(tmp_path).write())
    assert handle_data(orders_in(summary), ["a", "b", "c"], fixed_rate)["start"] == start


def test_variants_whose_runs_are_not_complete_are_named_with_the_reason() -> None:
    rows = pd.DataFrame(
        [row((("a",),), {"a": MISSING, "b": DIVERGED}), row((("a",), ("b",))) | {"learning_rate": math.nan}]
    )
    assert handle_data(rows, ["a", "b"], None)["rates"][0]["lost"] == "a: 1 missing, 2 diverged; b: 3 diverged"


@given(st.lists(st.sampled_from(["same", "order", "winner", "unknown"]), min_size=1, max_size=12))
def test_shaded_ranges_cover_exactly_the_rates_with_another_conclusion(kinds: list[str]) -> None:
    tuned = tuple((name,) for name in "abc")
    rows = [row(tuned, kind=kind) | {"learning_rate": 10.0 ** (index - 12)} for index, kind in enumerate(kinds)]
    data = handle_data(pd.DataFrame([row(tuned) | {"learning_rate": math.nan}, *rows]), list("abc"), None)
    covered = {index: flip["kind"] for flip in data["flips"] for index in range(flip["first"], flip["last"] + 1)}
    assert sum(flip["last"] - flip["first"] + 1 for flip in data["flips"]) == len(covered)  # none overlap
    assert covered == {index: kind for index, kind in enumerate(kinds) if kind in ("order", "winner")}
