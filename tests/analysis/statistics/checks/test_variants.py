"""Notes on significant differences whose test is known to be wrong too often."""

from __future__ import annotations

from pathlib import Path

from lr_sweep.analysis.statistics.checks.variants import check_claims
from lr_sweep.tests.support.records import SyntheticRecord, summary_of


def found_of(results: Path, by_variant: dict[str, list[float]]) -> list[tuple[str, str]]:
    made = SyntheticRecord(results)
    for variant, tests in by_variant.items():
        for seed, test in enumerate(tests):
            made.add(1e-3, seed, [(300, 0.5, test)], variant=variant)
    return [(each.check, each.variant) for each in check_claims(summary_of(made.write()))]


def test_two_seeds_are_noted_where_a_difference_is_significant(tmp_path: Path) -> None:
    found = found_of(tmp_path, {"a": [0.900, 0.901], "b": [0.5, 0.501]})
    assert found == [("two-seeds", "a"), ("two-seeds", "b")]
    assert found_of(tmp_path / "equal", {"a": [0.900, 0.901], "b": [0.899, 0.902]}) == []


def test_the_noisier_variant_of_a_significant_difference_is_noted(tmp_path: Path) -> None:
    """Standard deviations are 0.05, 0.01 and 0.02: only the first is more than three times another."""
    values = {"a": [0.85, 0.9, 0.95], "b": [0.29, 0.30, 0.31], "c": [0.08, 0.1, 0.12]}
    assert found_of(tmp_path, values) == [("unequal-noise", "a")]
    assert found_of(tmp_path / "exact", {"a": [0.85, 0.9, 0.95], "b": [0.3, 0.3, 0.3]}) == []


def test_chosen_rates_that_are_noisier_than_their_neighbours_are_noted(tmp_path: Path) -> None:
    """Deviations of 0.02 at 1e-3, and of 0.002 at 1e-2: F = 100 with 4 and 4 degrees of freedom."""

    def noted(name: str, deviations: list[float]) -> list[tuple[str, str]]:
        made = SyntheticRecord(tmp_path / name)
        for variant, top in (("a", 0.9), ("b", 0.4)):
            for rate, mean, deviation in zip((1e-3, 1e-2), (top, top - 0.2), deviations, strict=True):
                for seed, away in enumerate((-deviation, 0.0, deviation)):
                    made.add(rate, seed, [(300, mean, mean + away)], variant=variant)
        return [(each.check, each.variant) for each in check_claims(summary_of(made.write()))]

    assert noted("quieter", [0.02, 0.002]) == [("quiet-neighbours", "a")]
    assert noted("noisier", [0.002, 0.02]) == noted("alike", [0.02, 0.02]) == []
