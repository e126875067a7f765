"""Which fresh seeds come next, worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from lr_sweep.analysis.statistics.comparisons.fresh import most_left, next_seeds, progress
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.tests.support.records import SyntheticRecord, add_fresh, summary_of

NOISE = (-0.01, 0.0, 0.01, 0.02, -0.02, 0.0, 0.01)
UNTIL_DECIDED = {"max": 6, "until_decided": True}


def study(
    folder: Path, fresh: dict[str, object], variants: dict[str, Sequence[float | None]], **facts: object
) -> StudySummary:
    """Variants that chose 1e-3, with fresh runs there of these test values."""
    made = SyntheticRecord(folder)
    for variant, tests in variants.items():
        for rate, validation in ((1e-3, 0.9), (1e-2, 0.1)):
            for seed in (0, 1):
                made.add(rate, seed, [(300, validation, 0.5)], variant=variant)
        add_fresh(made, 1e-3, variant, tests)
    return summary_of(made.write(fresh=fresh, **facts))


def seeds_around(mean: float, number: int) -> list[float]:
    return [mean + noise for noise in NOISE[:number]]


@pytest.mark.parametrize(
    ("fresh", "a", "b", "expected"),
    [
        ({"max": 5}, 0, 0, {"a": 5, "b": 5}),
        ({"max": 5}, 5, 3, {"b": 2}),
        ({"max": 5}, 5, 5, {}),
        (UNTIL_DECIDED, 0, 0, {"a": 4, "b": 4}),  # the first test has four seeds
        (UNTIL_DECIDED, 4, 2, {"b": 2}),
        (UNTIL_DECIDED, 4, 4, {"a": 1, "b": 1}),
        (UNTIL_DECIDED, 5, 4, {"b": 1}),
        (UNTIL_DECIDED, 6, 6, {}),  # as many as there may be
    ],
)
def test_next_seeds_of_two_variants_alike(
    tmp_path: Path, fresh: dict[str, object], a: int, b: int, expected: dict[str, int]
) -> None:
    summary = study(tmp_path, fresh, {"a": seeds_around(0.70, a), "b": seeds_around(0.705, b)})
    assert {cell[2]: number for cell, number in next_seeds(summary).items()} == expected


def test_only_variants_of_open_pairs_get_more_seeds(tmp_path: Path) -> None:
    """a is far ahead of both others, which are alike."""
    means = {"a": 0.9, "b": 0.60, "c": 0.605}
    summary = study(tmp_path, UNTIL_DECIDED, {name: seeds_around(mean, 4) for name, mean in means.items()})
    assert {cell[2]: number for cell, number in next_seeds(summary).items()} == {"b": 1, "c": 1}
    assert {cell[2]: number for cell, number in most_left(summary).items()} == {"a": 0, "b": 2, "c": 2}
    assert progress(summary) == "2 of 3 pairs decided on fresh seeds, at most 4 runs to go"


def test_a_pair_that_is_certainly_equal_is_decided(tmp_path: Path) -> None:
    """4 seeds each, standard deviation 0.013: the difference is within 10 points."""
    runs = {"a": seeds_around(0.70, 4), "b": seeds_around(0.70, 4)}
    assert next_seeds(study(tmp_path, UNTIL_DECIDED | {"equal_within": 10.0}, runs)) == {}


def test_a_variant_alone_gets_the_first_seeds_alone(tmp_path: Path) -> None:
    summary = study(tmp_path, UNTIL_DECIDED, {"a": []})
    assert list(next_seeds(summary).values()) == [4]


def test_runs_without_a_value_use_up_seeds(tmp_path: Path) -> None:
    """a lost two of its six runs, so that b cannot get a fifth partner: both stay at four."""
    made = SyntheticRecord(tmp_path)
    for variant in "ab":
        for rate, validation in ((1e-3, 0.9), (1e-2, 0.1)):
            for seed in (0, 1):
                made.add(rate, seed, [(300, validation, 0.5)], variant=variant)
    add_fresh(made, 1e-3, "a", seeds_around(0.70, 4))
    add_fresh(made, 1e-3, "b", seeds_around(0.705, 4))
    for seed in (20, 21):
        made.add(1e-3, seed, [], "failed", 10, failure="lost", variant="a")
        made.wanted[-1]["fresh"] = True
    assert next_seeds(summary_of(made.write(fresh=UNTIL_DECIDED))) == {}
