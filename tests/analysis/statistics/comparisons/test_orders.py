"""Conclusions over the learning rate, worked out by hand; orders are in `test_golden_report`, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lr_sweep.analysis.report.tables import order_texts
from lr_sweep.analysis.statistics.comparisons.orders import Order, flips, kind_of
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.analysis.study_report import write_report
from lr_sweep.tests.support.records import SyntheticRecord, orders_in, summary_of

pytestmark = pytest.mark.usefixtures("undrawn")

RATES = (1e-4, 1e-3, 1e-2)

TEST = {
    # At 1e-3 frozen is ahead, as in Lu et al. 2021; tuned it is behind: unfrozen's best is 0.9 at 1e-4.
    "frozen": (0.60, 0.80, 0.70),
    "unfrozen": (0.90, 0.75, 0.10),
    "equal": (0.60, 0.80, 0.70),
}


def flipped(tmp_path: Path, variants: tuple[str, ...] = ("frozen", "unfrozen", "equal")) -> StudySummary:
    made = SyntheticRecord(tmp_path)
    for variant in variants:
        for rate, accuracy in zip(RATES, TEST[variant], strict=True):
            for seed, shift in enumerate((-0.01, 0.01)):
                made.add(rate, seed, [(300, accuracy, accuracy + shift)], variant=variant)
    return summary_of(made.write())


def test_variants_without_a_value_are_named_and_do_not_count(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for rate, accuracy in ((1e-3, 0.8), (1e-2, 0.7)):
        made.add(rate, 0, [(300, accuracy, accuracy)], variant="a")
    made.add(1e-3, 0, [(300, 0.6, 0.6)], variant="b")
    made.add(1e-2, 0, [], "diverged", 9, 9, variant="b")
    summary = summary_of(made.write())
    found = orders_in(summary)
    lost = {"b": {"diverged": 1, "failed": 0, "stopped": 0, "missing": 0, "num_lacking": 0}}
    assert list(found["incomplete"]) == [lost, {}, lost]
    assert list(order_texts(found)["incomplete"]) == ["b: 1 diverged", "", "b: 1 diverged"]
    assert list(found["kind"]) == ["same", "same", "same"]


DIVERGED = {"diverged": 3, "failed": 0, "stopped": 0, "missing": 0}
MISSING = {"diverged": 2, "failed": 0, "stopped": 0, "missing": 1}


@pytest.mark.parametrize(
    ("here", "incomplete", "kind"),
    [
        ((("a",), ("b",)), {}, "same"),
        ((("a", "b"),), {}, "order"),  # a still leads, with b beside it
        ((("b",), ("a",)), {}, "winner"),
        ((("b",),), {"a": DIVERGED}, "winner"),  # who compares at this rate alone sees b win
        ((("b",),), {"a": MISSING}, "unknown"),  # a may lead yet
        ((("a",),), {"b": MISSING}, "same"),
        ((), {"a": DIVERGED, "b": DIVERGED}, "unknown"),
        ((("new",), ("a",), ("b",)), {}, "same"),  # a variant without a tuned value is not compared
    ],
)
def test_kinds(here: Order, incomplete: dict[str, Any], kind: str) -> None:
    assert kind_of(here, (("a",), ("b",)), incomplete) == kind
    assert kind_of(here, (), incomplete) == "unknown"


def test_one_variant_has_no_order(tmp_path: Path) -> None:
    flipped(tmp_path, ("frozen",))
    page = (write_report(tmp_path, "small").folder / "report.md").read_text()
    assert "Order of the variants" not in page


def test_orders_by_hand_in_files(tmp_path: Path) -> None:
    flipped(tmp_path)
    folder = write_report(tmp_path, "small").folder
    head, *rows = (folder / "orders.csv").read_text().splitlines()
    assert head == "task,model,learning_rate,order,incomplete,kind,sure,flipped"
    assert rows[2] == "mnist,gpt2,0.001,equal = frozen > unfrozen,,winner,False,"


SHIFTS = {"a": (-0.01, 0.0, 0.01), "b": (0.005, -0.01, 0.005)}


def flips_in(folder: Path, means: Mapping[str, Sequence[float]], seeds_at_last: int = 3) -> pd.DataFrame:
    """Three seeds at each rate, or fewer at the last one; `a` is tuned at 1e-4, `b` at 1e-3."""
    made = SyntheticRecord(folder)
    for variant, values in means.items():
        for rate, mean in zip(RATES, values, strict=True):
            for seed, shift in list(enumerate(SHIFTS[variant]))[: seeds_at_last if rate == RATES[-1] else 3]:
                made.add(rate, seed, [(300, mean, mean + shift)], variant=variant)
    return flips(summary_of(made.write())).set_index("learning_rate")


def test_a_flip_is_a_lead_that_is_distinguishable(tmp_path: Path) -> None:
    """Tuned, a leads by 20 points. At 1e-3 b leads by 10, at 1e-2 by 1, of standard errors of about 0.8."""
    found = flips_in(tmp_path, {"a": (0.9, 0.6, 0.49), "b": (0.3, 0.7, 0.50)})
    assert found["flips"].to_dict() == {1e-4: False, 1e-3: True, 1e-2: False}
    row = found.loc[1e-3]
    assert (row["better"], row["worse"], row["num_seeds"]) == ("a", "b", 3)
    assert row["difference"] == pytest.approx(0.1)
    assert row["low"] < 0.1 < row["high"]


def test_a_rate_with_one_seed_is_not_tested(tmp_path: Path) -> None:
    found = flips_in(tmp_path, {"a": (0.9, 0.6, 0.1), "b": (0.3, 0.7, 0.5)}, seeds_at_last=1)
    assert found["p"].isna().to_dict() == {1e-4: False, 1e-3: False, 1e-2: True}
    assert not found.loc[1e-2, "flips"]


def test_of_pairs_that_are_open_when_tuned_nothing_can_flip(tmp_path: Path) -> None:
    assert flips_in(tmp_path, {"a": (0.705, 0.2, 0.1), "b": (0.3, 0.7, 0.5)}).empty
