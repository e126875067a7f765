"""Verdicts, orders and comparisons at single rates, worked out by hand; orders are in `test_golden_report`, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lr_sweep.analysis.report.tables import order_texts
from lr_sweep.analysis.statistics.comparisons.conditions import with_conditions
from lr_sweep.analysis.statistics.comparisons.orders import Order, comparisons_at_rates, kind_of, orders
from lr_sweep.analysis.statistics.comparisons.verdicts import OneRate, verdicts
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.analysis.study_report import write_report
from lr_sweep.tests.support.records import SyntheticRecord, summary_of

pytestmark = pytest.mark.usefixtures("undrawn")
RATES = (1e-4, 1e-3, 1e-2)
SHIFTS = {"unfrozen": (-0.011, 0.0, 0.011), "b": (0.005, -0.01, 0.005)}
"""How the seeds of these differ. Without any spread of the differences there would be no test."""


def swept(folder: Path, means: Mapping[str, Sequence[float]], seeds: int = 3, at_last: int = 3) -> StudySummary:
    """Variants with these means at the rates, of so many seeds, or fewer at the last rate."""
    made = SyntheticRecord(folder)
    for variant, values in means.items():
        for rate, mean in zip(RATES, values, strict=True):
            shifts = SHIFTS.get(variant, (-0.01, 0.0, 0.01))[: at_last if rate == RATES[-1] else seeds]
            for seed, shift in enumerate(shifts):
                made.add(rate, seed, [(300, mean, mean + shift)], variant=variant)
    return summary_of(made.write())


def verdict(folder: Path, means: Mapping[str, Sequence[float]]) -> dict[Any, Any]:
    (row,) = verdicts(swept(folder, means)).to_dict("records")
    return row


def test_one_rate_alone_would_have_named_another_winner(tmp_path: Path) -> None:
    """At 1e-3 frozen leads by 5 points, as in Lu et al. 2021; tuned, unfrozen leads by 10."""
    row = verdict(tmp_path, {"frozen": (0.60, 0.80, 0.70), "unfrozen": (0.90, 0.75, 0.10)})
    (lead,) = row["leads"]
    assert (row["task"], row["model"], row["best"], lead.over) == ("mnist", "gpt2", ("unfrozen",), "frozen")
    assert lead.difference == pytest.approx(0.1)
    assert 0 < lead.low < 0.1 < lead.high
    assert lead.distinguishable is True
    (misleading,) = row["one_rate"]
    assert misleading[:4] == ("frozen", "unfrozen", True, (1e-3, 1e-2))
    assert misleading.differences == pytest.approx((0.05, 0.60))


def test_a_winner_at_one_rate_that_tuning_does_not_establish_is_named(tmp_path: Path) -> None:
    """Tuned, the difference of 0.1 points is noise; at 1e-3 and 1e-2 frozen alone is far ahead."""
    row = verdict(tmp_path, {"frozen": (0.60, 0.899, 0.70), "unfrozen": (0.90, 0.75, 0.10)})
    (lead,) = row["leads"]
    assert (row["best"], lead.distinguishable) == (("unfrozen", "frozen"), False)
    assert lead.low < 0 < lead.high
    (misleading,) = row["one_rate"]
    assert misleading[:4] == ("frozen", "unfrozen", False, (1e-3, 1e-2))


def test_two_tied_winners_certainly_beat_two_tied_losers(tmp_path: Path) -> None:
    """The differences of 0.1 points are noise, those of 20 points are not."""
    means = {"c": (0.1, 0.7, 0.2), "a": (0.1, 0.9, 0.2), "d": (0.1, 0.699, 0.2), "b": (0.1, 0.899, 0.2)}
    certain = verdict(tmp_path, means)["certain"]
    assert (certain.winners, certain.losers) == (("a", "b"), ("c", "d"))
    assert certain.differences == pytest.approx((0.199, 0.201))


def test_the_leader_is_named_alone_where_it_certainly_beats_all_others(tmp_path: Path) -> None:
    certain = verdict(tmp_path, {"a": (0.1, 0.9, 0.2), "b": (0.1, 0.8, 0.2), "c": (0.1, 0.5, 0.2)})["certain"]
    assert (certain.winners, certain.losers) == (("a",), ("b", "c"))


def test_nothing_is_certain_of_a_worse_variant_that_may_yet_be_better(tmp_path: Path) -> None:
    """As where its best rate is the largest tried. The best variant's own rate is no obstacle, and c still loses."""
    summary = swept(tmp_path, {"a": (0.5, 0.6, 0.9), "b": (0.4, 0.5, 0.7), "c": (0.1, 0.4, 0.2)})
    conditions = {("mnist", "gpt2", variant): "as far as tried" for variant in "ab"}
    (row,) = verdicts(summary, conditions).to_dict("records")
    assert (row["certain"].winners, row["certain"].losers) == (("a", "b"), ("c",))
    assert [(lead.over, lead.condition, lead.certain) for lead in row["leads"]] == [
        ("b", "as far as tried", False),
        ("c", "", True),
    ]


def test_at_one_rate_the_best_variant_there_is_named(tmp_path: Path) -> None:
    """At 1e-4 both b and c are ahead of a, which beats both when tuned; b leads c there."""
    means = {"a": (0.3, 0.9, 0.2), "b": (0.8, 0.82, 0.1), "c": (0.6, 0.7, 0.1)}
    (misleading,) = verdict(tmp_path, means)["one_rate"]
    assert misleading == OneRate("b", "a", True, (1e-4,), pytest.approx((0.5, 0.5)))


def test_two_variants_are_equal_only_if_both_are_tuned(tmp_path: Path) -> None:
    """Means 90.0 and 89.9: certainly within 10 points."""
    summary = swept(tmp_path, {"a": (0.1, 0.9, 0.2), "b": (0.1, 0.899, 0.2)})
    summary = replace(summary, equal_within=0.1)
    for variant in "ab":
        conditions = {("mnist", "gpt2", variant): "as far as tried"}
        (row,) = with_conditions(summary, conditions).to_dict("records")
        assert (row["equal"], row["condition"]) == (False, "as far as tried")
    (row,) = with_conditions(summary).to_dict("records")
    assert (row["equal"], row["condition"]) == (True, "")


def test_one_variant_has_no_runner_up(tmp_path: Path) -> None:
    row = verdict(tmp_path, {"frozen": (0.60, 0.80, 0.70)})
    assert (row["best"], row["leads"], row["one_rate"]) == (("frozen",), (), [])


def test_a_study_without_values_has_no_verdict(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    made.want(1e-3, 0, variant="frozen")
    made.want(1e-3, 0, variant="unfrozen")
    summary = summary_of(made.write())
    (row,) = verdicts(summary).to_dict("records")
    assert (row["best"], row["leads"], row["one_rate"]) == ((), (), [])


def test_variants_without_a_value_are_named_and_do_not_count(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for rate, accuracy in ((1e-3, 0.8), (1e-2, 0.7)):
        made.add(rate, 0, [(300, accuracy, accuracy)], variant="a")
    made.add(1e-3, 0, [(300, 0.6, 0.6)], variant="b")
    made.add(1e-2, 0, [], "diverged", 9, 9, variant="b")
    summary = summary_of(made.write())
    found = orders(summary)
    lost = {"b": {"diverged": 1, "failed": 0, "stopped": 0, "short": 0, "missing": 0, "num_lacking": 0}}
    assert list(found["incomplete"]) == [lost, {}, lost]
    assert list(order_texts(found)["incomplete"]) == ["b: 1 diverged", "", "b: 1 diverged"]
    assert list(found["kind"]) == ["same", "same", "same"]


DIVERGED = {"diverged": 3, "failed": 0, "stopped": 0, "short": 0, "missing": 0}
MISSING = {"diverged": 2, "failed": 0, "stopped": 0, "short": 0, "missing": 1}


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
    swept(tmp_path, {"frozen": (0.60, 0.80, 0.70)})
    page = (write_report(tmp_path, "small").folder / "report.md").read_text()
    assert "Order of the variants" not in page


def test_orders_by_hand_in_files(tmp_path: Path) -> None:
    """At 1e-3 frozen is ahead; tuned it is behind: unfrozen's best is at 1e-4."""
    frozen = (0.60, 0.80, 0.70)
    swept(tmp_path, {"frozen": frozen, "unfrozen": (0.90, 0.75, 0.10), "equal": frozen}, seeds=1, at_last=1)
    folder = write_report(tmp_path, "small").folder
    head, *rows = (folder / "orders.csv").read_text().splitlines()
    assert head == "task,model,learning_rate,order,kind,incomplete,sure,leads"
    assert rows[2] == "mnist,gpt2,0.001,equal = frozen > unfrozen,winner,,False,"


def at_rates(folder: Path, means: Mapping[str, Sequence[float]], at_last: int = 3) -> pd.DataFrame:
    return comparisons_at_rates(swept(folder, means, at_last=at_last)).set_index("learning_rate")


def test_every_pair_is_tested_at_every_rate(tmp_path: Path) -> None:
    """Tuned, a and b are alike. At 1e-3 b leads by 10 points, at 1e-2 by 1, of standard errors of about 0.8."""
    found = at_rates(tmp_path, {"a": (0.701, 0.6, 0.49), "b": (0.3, 0.7, 0.50)})
    assert found["distinguishable"].to_dict() == {1e-4: True, 1e-3: True, 1e-2: False}
    row = found.loc[1e-3]
    assert (row["variant"], row["other"], row["num_seeds"]) == ("a", "b", 3)
    assert row["difference"] == pytest.approx(-0.1)
    assert row["low"] < -0.1 < row["high"] < 0
    assert row["corrected_p"] == pytest.approx(2 * row["p"])  # of three p values the second smallest


def test_a_rate_with_two_seeds_is_not_tested(tmp_path: Path) -> None:
    found = at_rates(tmp_path, {"a": (0.9, 0.6, 0.1), "b": (0.3, 0.7, 0.5)}, at_last=2)
    assert found["p"].isna().to_dict() == {1e-4: False, 1e-3: False, 1e-2: True}
    assert not found.loc[1e-2, "distinguishable"]
