"""A search, a refinement or a choice of winners that is killed at any moment proposes and trains the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from lr_sweep.analysis.record.read import read_wanted
from lr_sweep.sweep.tune import work
from lr_sweep.tests.support.scripted_trials import Bench, Killed, Landscape, grid_bench, proposed, search_bench
from lr_sweep.tests.support.tiny_study import rows

SPACE = "{batch_size: [4, 8], weight_decay: {low: 1e-4, high: 1e-1}, dropout: {low: 0, high: 0.3}}"
MAKE: dict[str, Callable[[Path, pytest.MonkeyPatch], Bench]] = {
    "search": lambda *to: search_bench(*to, "{sampler: tpe, low: 1e-5, high: 1e-1, rates: 6}", seeds=2),
    "space": lambda *to: search_bench(*to, f"{{sampler: tpe, low: 1e-5, high: 1e-1, rates: 6, space: {SPACE}}}"),
    "winners": lambda *to: search_bench(
        *to, "{sampler: quasi-random, low: 1e-5, high: 1e-1, rates: 6}", seeds=3, winners="2"
    ),
    "refine": lambda *to: grid_bench(*to, rates=(1e-5, 1e-4, 1e-3, 1e-2), seeds=2, refine="4"),
    "fresh": lambda *to: grid_bench(*to, rates=(1e-4, 1e-3), seeds=2, winners="1", fresh="{max: 6}\nequal_within: 0.1"),
    "fixed": lambda *to: grid_bench(*to, rates=(1e-4, 1e-3), seeds=2, fresh="3"),
}
LATE = pytest.mark.slow
TESTS = {
    "frozen-pretrained": lambda seed: 0.5 + 0.01 * (seed % 3),
    "unfrozen-random": lambda seed: 0.51 - 0.02 * (seed % 2),
}
"""By seed: the two variants differ by less than their noise, so that fresh seeds are added until the last round."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Bench]:
    """Returns the bench of a kind of study that was not killed."""

    @cache
    def trained(kind: str) -> Bench:
        with pytest.MonkeyPatch.context() as patch:
            bench = MAKE[kind](tmp_path_factory.mktemp(kind), patch)
            bench.run(Landscape(tests=TESTS))
        return bench

    return trained


@pytest.mark.parametrize(
    ("kind", "num_events"),
    [
        ("search", 27),
        *[pytest.param("search", number, marks=LATE) for number in (0, 7, 60)],
        *[pytest.param("space", number, marks=LATE) for number in (7, 30)],
        *[pytest.param("winners", number, marks=LATE) for number in (20, 36, 41)],
        *[pytest.param("refine", number, marks=LATE) for number in (0, 7, 50, 70, 85, 110)],
        *[pytest.param("fresh", number, marks=LATE) for number in (0, 18, 24, 30, 41, 57, 66)],
        pytest.param("fixed", 40, marks=LATE),
    ],
)
def test_killed_at_any_moment_it_proposes_and_trains_the_same(
    kind: str, num_events: int, undisturbed: Callable[[str], Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, killed = undisturbed(kind), MAKE[kind](tmp_path, monkeypatch)
    for events_left in (num_events, 5):
        with pytest.raises(Killed):
            killed.run(Landscape(events_left=events_left, tests=TESTS))
    killed.run(Landscape(tests=TESTS))
    pd.testing.assert_frame_equal(proposed(killed), proposed(whole))
    assert rows(killed.results.root).keys() == rows(whole.results.root).keys()
    assert set(read_wanted(killed.results.root, "tiny")["run_id"]) == set(rows(whole.results.root))


def test_a_death_between_storing_and_training_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*arguments: object) -> None:
        raise Killed

    bench = MAKE["search"](tmp_path, monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr(work, "write_wanted", die)
        with pytest.raises(Killed):
            bench.run(Landscape())
    stored = proposed(bench)
    assert len(stored) == 4
    bench.run(Landscape())
    assert proposed(bench)["learning_rate"].isin(stored["learning_rate"]).sum() == 4
