"""Verdicts, worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.analysis.statistics.comparisons.verdicts import fixed_rate, verdicts
from lr_sweep.tests.support.records import SyntheticRecord, summary_of

RATES = (1e-4, 1e-3, 1e-2)
SHIFTS = (-0.01, 0.0, 0.01)


def verdict(folder: Path, means: Mapping[str, Sequence[float]], rates: Sequence[float] = RATES) -> dict[Any, Any]:
    """Return the verdict on variants with these means at the rates; three seeds that differ alike in all variants."""
    made = SyntheticRecord(folder)
    for variant, values in means.items():
        for rate, mean in zip(rates, values, strict=True):
            for seed, shift in enumerate(SHIFTS):
                # Without any spread of the differences there would be no test.
                made.add(
                    rate, seed, [(300, mean, mean + shift * (1.1 if variant == "unfrozen" else 1))], variant=variant
                )
    summary = summary_of(made.write())
    (row,) = verdicts(summary).to_dict("records")
    return row


def test_a_flip_by_hand(tmp_path: Path) -> None:
    """At 1e-3 frozen leads by 5 points, as in Lu et al. 2021; tuned, unfrozen leads by 10."""
    row = verdict(tmp_path, {"frozen": (0.60, 0.80, 0.70), "unfrozen": (0.90, 0.75, 0.10)})
    (lead,) = row["leads"]
    assert (row["task"], row["model"], row["best"], lead.over) == ("mnist", "gpt2", ("unfrozen",), "frozen")
    assert lead.difference == pytest.approx(0.1)
    assert 0 < lead.low < 0.1 < lead.high
    assert (row["fixed_rate"], row["fixed_best"], row["flips"]) == (1e-3, "frozen", True)
    assert row["fixed_difference"] == pytest.approx(-0.05)
    assert lead.distinguishable is True


def test_no_flip_where_the_fixed_rate_names_one_of_the_best(tmp_path: Path) -> None:
    """The difference of 0.1 points is less than its noise: either may be the best, and the fixed rate is not wrong."""
    row = verdict(tmp_path, {"frozen": (0.60, 0.899, 0.70), "unfrozen": (0.90, 0.75, 0.10)})
    (lead,) = row["leads"]
    assert (row["best"], lead.distinguishable) == (("unfrozen", "frozen"), False)
    assert lead.low < 0 < lead.high
    assert (row["fixed_best"], row["flips"]) == ("frozen", False)


def test_one_variant_has_no_runner_up(tmp_path: Path) -> None:
    row = verdict(tmp_path, {"frozen": (0.60, 0.80, 0.70)})
    assert (row["best"], row["leads"], row["flips"]) == (("frozen",), (), False)
    assert math.isnan(row["fixed_difference"])
    assert row["fixed_best"] == "frozen"


def test_a_study_without_values_has_no_verdict(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    made.want(1e-3, 0, variant="frozen")
    made.want(1e-3, 0, variant="unfrozen")
    summary = summary_of(made.write())
    (row,) = verdicts(summary).to_dict("records")
    assert (row["best"], row["leads"], row["fixed_best"], row["flips"]) == ((), (), "", False)
    assert math.isnan(row["fixed_rate"])


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ((1e-4, 1e-3, 1e-2), 1e-3),
        ((1e-4, 2e-3, 1e-2), 2e-3),  # the nearest
        ((1e-2, 1e-1, 1.0), 1e-1),  # 1e-3 lies outside: the middle
        ((1e-2, 1e-1, 1.0, 10.0), 1e-1),  # of two the smaller
    ],
)
def test_the_fixed_rate_by_hand(rates: tuple[float, ...], expected: float) -> None:
    assert fixed_rate(dict.fromkeys(rates, 2)) == expected


def test_the_fixed_rate_is_one_where_most_variants_have_a_value() -> None:
    assert fixed_rate({1e-4: 2, 1e-3: 1, 1e-2: 1}) == 1e-4
