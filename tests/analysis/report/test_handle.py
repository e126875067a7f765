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

from lr_sweep.analysis.report.handle import conclusion_kind, handle_data
from lr_sweep.analysis.statistics.orders import Order, orders
from lr_sweep.tests.support.page_record import flip_record
from lr_sweep.tests.support.records import flips_in, summary_of

DIVERGED = {"diverged": 3, "failed": 0, "stopped": 0, "missing": 0}
MISSING = {"diverged": 2, "failed": 0, "stopped": 0, "missing": 1}


def row(order: Order, incomplete: Mapping[str, Any] | None = None, same: bool = False) -> dict[str, Any]:
    return {"learning_rate": 1e-3, "order": order, "incomplete": incomplete or {}, "same": same, "flipped": ()}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    summary = summary_of(flip_record(tmp_path_factory.mktemp("results")).write())
    return handle_data(orders(summary, flips_in(summary)), ["a", "b", "c"], None)


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
    assert handle_data(orders(summary, flips_in(summary)), ["a", "b", "c"], fixed_rate)["start"] == start


@pytest.mark.parametrize(
    ("here", "incomplete", "same", "kind"),
    [
        ((("a",), ("b",)), {}, True, "same"),
        ((("a", "b"),), {}, False, "order"),  # a still leads, with b beside it
        ((("b",), ("a",)), {}, False, "winner"),
        ((("b",),), {"a": DIVERGED}, True, "winner"),  # who compares at this rate alone sees b win
        ((("b",),), {"a": MISSING}, True, "unknown"),  # a may lead yet
        ((("a",),), {"b": MISSING}, True, "same"),
        ((), {"a": DIVERGED, "b": DIVERGED}, True, "unknown"),
        ((("new",), ("a",), ("b",)), {}, True, "same"),  # a variant without a tuned value is not compared
    ],
)
def test_kinds(here: Order, incomplete: dict[str, Any], same: bool, kind: str) -> None:
    assert conclusion_kind(row(here, incomplete, same), (("a",), ("b",))) == kind


def test_without_a_tuned_order_nothing_is_shaded() -> None:
    rows = pd.DataFrame([row((("a",), ("b",))), row(()) | {"learning_rate": math.nan}])
    found = handle_data(rows, ["a", "b"], None)
    assert (found["tuned"], found["flips"]) == ([], [])
    assert found["rates"][0]["kind"] == "unknown"


def test_variants_whose_runs_are_not_complete_are_named_with_the_reason() -> None:
    rows = pd.DataFrame(
        [row((("a",),), {"b": DIVERGED, "a": MISSING}), row((("a",), ("b",))) | {"learning_rate": math.nan}]
    )
    assert handle_data(rows, ["a", "b"], None)["rates"][0]["lost"] == "a: 1 missing, 2 diverged; b: 3 diverged"


@given(st.lists(st.permutations("abc"), min_size=1, max_size=12))
def test_shaded_ranges_cover_exactly_the_rates_with_another_conclusion(found_orders: list[list[str]]) -> None:
    tuned = tuple((name,) for name in "abc")
    rows = [
        row(order := tuple((name,) for name in names), same=order == tuned) | {"learning_rate": 10.0 ** (index - 12)}
        for index, names in enumerate(found_orders)
    ]
    data = handle_data(pd.DataFrame([*rows, row(tuned) | {"learning_rate": math.nan}]), list("abc"), None)
    covered = {index: flip["kind"] for flip in data["flips"] for index in range(flip["first"], flip["last"] + 1)}
    assert sum(flip["last"] - flip["first"] + 1 for flip in data["flips"]) == len(covered)  # none overlap
    kinds = ["same" if names == list("abc") else "order" if names[0] == "a" else "winner" for names in found_orders]
    assert [covered.get(index, "same") for index in range(len(rows))] == kinds
