"""Synthetic records of one sweep, and what its checks find."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.statistics.checks.finding import CheckFinding
from lr_sweep.analysis.statistics.checks.sweep import check_sweep
from lr_sweep.tests.support.records import SyntheticRecord, summary_of


def found_in(made: SyntheticRecord) -> list[CheckFinding]:
    """Write the record and check it."""
    results = made.write()
    return check_sweep(summary_of(results), record.read_curves(results))


def grid(
    made: SyntheticRecord, values: Mapping[float, float], seeds: int = 2, test_below: float = 0.0, **labels: str
) -> None:
    """Add runs whose every seed has the same validation accuracy at a rate, and a test accuracy below it."""
    for rate, accuracy in values.items():
        for seed in range(seeds):
            made.add(rate, seed, [(300, accuracy, accuracy - test_below)], **labels)


def all_diverged(made: SyntheticRecord, rates: Iterable[float]) -> None:
    """Add two runs at each rate that diverged before their first evaluation."""
    for rate in rates:
        for seed in (0, 1):
            made.add(rate, seed, [], "diverged", 9, 9)


def by_check(findings: list[CheckFinding]) -> dict[str, CheckFinding]:
    """Return findings by the name of their check."""
    assert len({each.check for each in findings}) == len(findings), "each check at most once here"
    return {each.check: each for each in findings}


def of_check(made: SyntheticRecord, check: str) -> dict[str, CheckFinding]:
    """Return what one check finds in the record, by variant."""
    return {each.variant: each for each in found_in(made) if each.check == check}
