"""Synthetic records: those of the page, of a store, and of the checks, with what the checks find."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.statistics.checks.finding import CheckFinding
from lr_sweep.analysis.statistics.checks.sweep import check_sweep
from lr_sweep.common.object_store import ObjectStore
from lr_sweep.sweep.store.results import StoredResults
from lr_sweep.sweep.store.writing import StoreLock
from lr_sweep.tests.support.records import SyntheticRecord, summary_of

HOSTILE = '</script><img src=x onerror="alert(1)"><script>alert(2)</script>'


def page_record(results: Path) -> SyntheticRecord:
    """Two tasks on gpt2, one of them on tiny as well; two seeds, 0.01 of accuracy apart from their mean on test."""
    made = SyntheticRecord(results)
    for seed in (0, 1):
        shift = 0.01 * (2 * seed - 1)
        for rate, accuracy in ((1e-4, 0.5), (1e-3, 0.6), (1e-2, 0.4)):
            made.add(rate, seed, [(300, accuracy, accuracy + shift)])
            made.add(rate, seed, [(300, accuracy + 0.1, accuracy + 0.1 + shift)], task="cifar10")
        made.add(1e-4, seed, [(300, 0.8, 0.8 + shift)], variant="unfrozen-pretrained")
        made.add(1e-2, seed, [], "diverged", 9, 9, variant="unfrozen-pretrained")
        made.add(1e-3, seed, [(300, 0.3, 0.3 + shift)], model="tiny")
    made.add(1e-3, 0, [(300, 0.7, 0.71)], variant="unfrozen-pretrained")
    made.add(1e-3, 1, [], "failed", 10, failure="node lost", variant="unfrozen-pretrained")
    for seed in (0, 1):
        made.want(1e-3, seed, variant="unfrozen-pretrained", task="cifar10")
    return made


def flip_record(results: Path) -> SyntheticRecord:
    """Three variants that another learning rate puts in another order; tuned: a 90, c 80, b 70, all at 1e-3.

    1e-5: a > b > c, the winner is that of the tuned order. 1e-4 and 1e-2: b wins.
    """
    made = SyntheticRecord(results)
    values = {"a": (0.3, 0.5, 0.9, 0.3), "b": (0.2, 0.6, 0.7, 0.4), "c": (0.1, 0.4, 0.8, 0.35)}
    for variant, accuracies in values.items():
        for rate, accuracy in zip((1e-5, 1e-4, 1e-3, 1e-2), accuracies, strict=True):
            for seed in (0, 1):
                made.add(rate, seed, [(300, accuracy, accuracy + 0.01 * (2 * seed - 1))], variant=variant)
    return made


def hostile_record(results: Path) -> SyntheticRecord:
    """Names that end the element they stand in, where text is put into a page unescaped."""
    made = SyntheticRecord(results)
    for variant in (HOSTILE, "a & b < c", "'\"><svg onload=alert(3)>"):
        made.add(1e-3, 0, [(300, 0.5, 0.5)], variant=variant, task=f"task {HOSTILE}", model='model "quoted" `code`')
    return made


def found_in(made: SyntheticRecord) -> list[CheckFinding]:
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
    for rate in rates:
        for seed in (0, 1):
            made.add(rate, seed, [], "diverged", 9, 9)


def by_check(findings: list[CheckFinding]) -> dict[str, CheckFinding]:
    assert len({each.check for each in findings}) == len(findings), "each check at most once here"
    return {each.check: each for each in findings}


def of_check(made: SyntheticRecord, check: str) -> dict[str, CheckFinding]:
    return {each.variant: each for each in found_in(made) if each.check == check}


URI = "s3://bucket/sweeps/one"


def add_runs(folder: Path, rates: tuple[float, ...] = (1e-3, 1e-2)) -> SyntheticRecord:
    record = SyntheticRecord(folder, "small")
    for rate in rates:
        record.add(rate, 0, [(100, 0.4, 0.3), (300, 0.5 + rate, 0.4)])
    record.write()
    return record


def filled() -> StoredResults:
    """Write a study into the store as `run` does: below the working copy, by code that knows of directories alone."""
    results = StoredResults(URI)
    results.prepare()
    with results.writing("small"):
        add_runs(results.root)
    return results


def lock_of(name: str, copy: str | None = None, stale_s: float = 180.0) -> StoreLock:
    return StoreLock(ObjectStore(URI), name, copy or f"{name}'s copy", stale_s=stale_s)
