"""Searches and grids that train all seeds at the best rates alone."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from lr_sweep.analysis.record.read import read_wanted
from lr_sweep.sweep.study.only import parse_only
from lr_sweep.tests.support.scripted_trials import (
    VARIANTS,
    Bench,
    Killed,
    Landscape,
    grid_bench,
    planned,
    proposed,
    search_bench,
    with_search,
)

SEARCH = "{sampler: quasi-random, low: 1e-5, high: 1e-1, rates: 6}"
RATES = (1e-5, 1e-4, 1e-3, 1e-1)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return search_bench(tmp_path, monkeypatch, SEARCH, seeds=3, winners="2")


def seeds_by_rate(bench: Bench) -> pd.Series:
    wanted = read_wanted(bench.results.root, "tiny")
    return wanted.groupby(["variant", "learning_rate"])["seed"].agg(list)


def test_the_two_best_rates_of_the_first_seed_get_the_others_and_one_is_chosen(bench: Bench) -> None:
    outcome = bench.run(Landscape(), report=True)
    assert outcome.trained == 2 * (6 + 2 * 2)
    for variant in VARIANTS:
        seeds = seeds_by_rate(bench)[variant]
        nearest = sorted(seeds.index, key=lambda rate: abs(math.log10(rate / 1e-3)))
        assert [seeds[rate] for rate in nearest] == [[0, 1, 2]] * 2 + [[0]] * 4
    cells = pd.read_csv(bench.results.root / "studies/tiny/report/cells.csv")
    chosen = [seeds_by_rate(bench)[cell.variant][cell.learning_rate] for cell in cells.itertuples()]
    assert chosen == [[0, 1, 2]] * 2
    messages = [finding.message for finding in outcome.report.findings if finding.check == "winners"]
    assert messages == ["2 of 6 learning rates, the best of the first seed, have all seeds"] * 2
    text = " ".join(outcome.report.text.split())
    assert "All seeds at the best 2 learning rates of each cell by the first seed alone." in text
    assert bench.run(Landscape()).trained == 0


def test_more_rates_compare_on_the_first_seed_and_may_add_winners(bench: Bench) -> None:
    bench.run(Landscape())
    with_search(bench, rates=12)
    bench.run(Landscape())
    for variant in VARIANTS:
        seeds = seeds_by_rate(bench)[variant]
        nearest = sorted(seeds.index, key=lambda rate: abs(math.log10(rate / 1e-3)))
        assert len(nearest) == 12
        assert [seeds[rate] for rate in nearest[:2]] == [[0, 1, 2]] * 2
        numbers = proposed(bench).query("variant == @variant and sampler == 'winner'")["number"]
        assert numbers.tolist() == list(range(len(numbers)))


def test_without_winners_every_rate_gets_its_seeds(bench: Bench) -> None:
    bench.run(Landscape())
    bench.study = bench.study.model_copy(update={"winners": None})
    assert bench.run(Landscape()).trained == 2 * 4 * 2
    assert all(seeds == [0, 1, 2] for seeds in seeds_by_rate(bench))


def test_a_cell_that_diverged_everywhere_has_no_winner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    high = "{sampler: random, low: 5e-2, high: 1, rates: 3}"
    bench = search_bench(tmp_path, monkeypatch, high, winners="1", seeds=2)
    assert bench.run(Landscape()).trained == 2 * 3
    assert set(proposed(bench)["sampler"]) == {"random"}


def test_with_one_seed_asked_for_the_winners_wait_and_are_reported(bench: Bench) -> None:
    bench.run(Landscape(), only=parse_only("seed=0"))
    assert bench.run(Landscape()).trained == 2 * 2 * 2


def test_a_plan_counts_the_winners_before_they_are_known(bench: Bench) -> None:
    assert len(planned(bench).wanted) == 20
    for num_events in (25, 11):  # before and after the winners are chosen
        with pytest.raises(Killed):
            bench.run(Landscape(events_left=num_events))
        assert len({run.run_id for run in planned(bench).wanted}) == len(planned(bench).wanted) == 20


def test_a_grid_trains_all_seeds_at_its_best_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = grid_bench(tmp_path, monkeypatch, rates=RATES, seeds=3, winners="1")
    assert len(planned(bench).wanted) == 2 * (4 + 2)
    outcome = bench.run(Landscape())
    assert outcome.trained == 2 * (4 + 2)
    for variant in VARIANTS:
        assert seeds_by_rate(bench)[variant].to_dict() == {1e-5: [0], 1e-4: [0], 1e-3: [0, 1, 2], 1e-1: [0]}
    assert bench.run(Landscape()).trained == 0
    assert len(planned(bench).wanted) == 2 * (4 + 2)


def test_a_refined_grid_has_its_winners_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the grid 1e-3 is the best; two midpoints are added beside it; then the best of all gets seeds."""
    bench = grid_bench(tmp_path, monkeypatch, rates=RATES, seeds=3, winners="1", refine="2")
    assert bench.run(Landscape()).trained == 2 * (4 + 2 + 2)
    found = proposed(bench)
    assert found.groupby("sampler")["round"].agg(set).to_dict() == {"refine": {1}, "winner": {2}}
    assert set(found.loc[found["sampler"] == "winner", "learning_rate"]) == {1e-3}


def test_a_cell_that_cannot_be_refined_does_not_keep_winners_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All runs of the second cell fail, so that nothing is proposed for it."""
    bench = grid_bench(tmp_path, monkeypatch, rates=RATES[:3], seeds=2, winners="1", refine="2")
    assert bench.run(Landscape(failing_variant=VARIANTS[1])).failed == 3
    found = proposed(bench)
    assert found.groupby("variant")["sampler"].agg(list).to_dict() == {VARIANTS[0]: ["refine", "refine", "winner"]}
