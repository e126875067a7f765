"""Searches, refinements and winners, trained by a script, round by round."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pandas as pd
import pytest

from lr_sweep.analysis.record.read import read_wanted
from lr_sweep.sweep.plan.plan import plan_on
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.search.samplers import next_points
from lr_sweep.sweep.search.state import read_stored
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
from lr_sweep.tests.support.tiny_study import in_process, rows, succeeds

SEARCH = "{sampler: quasi-random, low: 1e-5, high: 1e-1, rates: 6}"
RATES = (1e-5, 1e-4, 1e-3, 1e-1)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return search_bench(tmp_path, monkeypatch, "{sampler: tpe, low: 1e-5, high: 1e-1, rates: 6}", seeds=2)


def test_a_search_trains_round_by_round(bench: Bench) -> None:
    script = Landscape()
    outcome = bench.run(script)
    assert (outcome.trained, outcome.failed, outcome.stopped) == (24, 0, False)
    found = proposed(bench)
    assert found.groupby("variant")["number"].apply(list).tolist() == [[0, 1, 2, 3, 4, 5]] * 2
    assert found.groupby("variant")["round"].apply(list).tolist() == [[1, 1, 2, 2, 3, 3]] * 2
    assert script.rounds == [set(found.loc[found["round"] == number, "learning_rate"]) for number in (1, 2, 3)]
    assert set(read_wanted(bench.results.root, "tiny")["run_id"]) == set(rows(bench.results.root))
    assert bench.run(Landscape()).trained == 0
    assert bench.said[-1] == "nothing to train: the record holds everything the study wants"


def test_more_rates_go_on_from_the_stored_ones_and_fewer_want_fewer(bench: Bench) -> None:
    bench.run(Landscape())
    before = proposed(bench)
    with_search(bench, rates=8)
    assert bench.run(Landscape()).trained == 8
    after = proposed(bench)
    pd.testing.assert_frame_equal(after[after["number"] < 6].reset_index(drop=True), before)
    with_search(bench, rates=5)
    assert bench.run(Landscape()).trained == 0
    assert len(read_wanted(bench.results.root, "tiny")) == 2 * 5 * 2
    pd.testing.assert_frame_equal(proposed(bench), after)


def test_only_a_part_is_searched(bench: Bench) -> None:
    """The other cell has its first round, so that reports name what is missing."""
    bench.run(Landscape(), only=parse_only("variant=unfrozen-random"))
    assert proposed(bench)["variant"].value_counts().to_dict() == {"unfrozen-random": 6, "frozen-pretrained": 2}
    outcome = bench.run(Landscape())
    assert (outcome.trained, len(proposed(bench))) == (12, 12)


def test_a_cell_with_a_part_of_its_seeds_waits(bench: Bench) -> None:
    outcome = bench.run(Landscape(), only=parse_only("seed=0"))
    assert (outcome.trained, outcome.stopped, len(proposed(bench))) == (4, False, 4)


def test_failed_runs_are_lost_to_the_search_and_may_be_retried(bench: Bench) -> None:
    assert bench.study.search is not None
    (first,) = next_points(bench.study.search, (), [], 1, maximise=True)
    outcome = bench.run(Landscape(fails_at=first.learning_rate))
    stored = proposed(bench)
    assert (outcome.failed, outcome.stopped, len(stored)) == (4, False, 12)
    assert bench.run(Landscape(), retry_failed=True).failed == 0
    pd.testing.assert_frame_equal(proposed(bench), stored)


def test_plan_status_and_a_copy_know_the_proposals(bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        bench.run(Landscape(events_left=25))
    assert len(planned(bench).wanted) == 24
    code, text = in_process("status", tmp_path / "tiny.yaml", "--results", bench.results.root)
    assert (code, "frozen-pretrained" in text) == (0, True)
    bench.run(Landscape())
    succeeds("verify", "--results", bench.results.root)
    copied = read_stored(Results(Path(shutil.copytree(bench.results.root, tmp_path / "copy"))), bench.study)
    assert copied == read_stored(bench.results, bench.study)


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Two cells with 2 seeds, whose best rate is 1e-3."""
    return grid_bench(tmp_path, monkeypatch, rates=(1e-5, 1e-4, 1e-3, 1e-2), seeds=2, refine="4")


def test_the_best_rate_is_enclosed(grid: Bench) -> None:
    """Both neighbours of 1e-3 lose 0.1; then 3.16e-4 and 3.16e-3 are its neighbours."""
    script = Landscape()
    outcome = grid.run(script, report=True)
    assert (outcome.trained, outcome.failed, outcome.stopped) == (32, 0, False)
    assert script.rounds == [{1e-5, 1e-4, 1e-3, 1e-2}, {3.16e-4, 3.16e-3}, {5.62e-4, 1.78e-3}]
    found = proposed(grid)
    assert set(found["sampler"]) == {"refine"}
    assert found.groupby("variant")["round"].apply(list).tolist() == [[1, 1, 2, 2]] * 2
    assert set(read_wanted(grid.results.root, "tiny")["run_id"]) == set(rows(grid.results.root))
    assert not [each for each in outcome.report.findings if each.check in ("missing", "unequal")]
    assert grid.run(Landscape()).trained == 0


def test_an_edge_is_left_in_the_steps_of_the_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 3.16e-4 and 3.16e-3, with equal steps, the second is nearer to the peak: its side comes first."""
    grid = grid_bench(tmp_path, monkeypatch, rates=(1e-6, 1e-5, 1e-4), seeds=2, refine="5")
    script = Landscape()
    grid.run(script)
    assert script.rounds == [{1e-6, 1e-5, 1e-4}, {1e-3, 1e-2}, {3.16e-4, 3.16e-3}, {1.78e-3}]


def test_a_grid_that_is_recorded_is_refined_at_once(grid: Bench) -> None:
    refined = grid.study
    grid.study = refined.model_copy(update={"refine": None})
    assert grid.run(Landscape()).trained == 16
    assert not grid.results.proposals("tiny").exists()
    grid.study = refined
    assert grid.run(Landscape()).trained == 16


def test_a_cell_with_a_part_of_its_runs_waits(grid: Bench) -> None:
    outcome = grid.run(Landscape(), only=parse_only("seed=0"), report=True)
    assert outcome.trained == 8
    assert not grid.results.proposals("tiny").exists()
    messages = [each.message for each in outcome.report.findings if each.check == "missing"]
    assert messages.count("the refinement has added 0 of 4 learning rates") == 2


def test_the_plan_counts_what_is_not_proposed_yet(grid: Bench) -> None:
    with pytest.raises(Killed):
        grid.run(Landscape(events_left=70))
    plan = planned(grid)
    text = plan_on(plan, {"CPU": 2.0})
    assert len(plan.wanted) == 32
    assert "4 learning rates x 2 seeds = 16 runs" in text
    assert "refine     4 learning rates more a cell, after its grid; 4 of 8 proposed so far" in text


@pytest.fixture
def two_winners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return search_bench(tmp_path, monkeypatch, SEARCH, seeds=3, winners="2")


def seeds_by_rate(two_winners: Bench) -> pd.Series:
    wanted = read_wanted(two_winners.results.root, "tiny")
    return wanted.groupby(["variant", "learning_rate"])["seed"].agg(list)


def test_the_two_best_rates_of_the_first_seed_get_the_others_and_one_is_chosen(two_winners: Bench) -> None:
    outcome = two_winners.run(Landscape(), report=True)
    assert outcome.trained == 2 * (6 + 2 * 2)
    for variant in VARIANTS:
        seeds = seeds_by_rate(two_winners)[variant]
        nearest = sorted(seeds.index, key=lambda rate: abs(math.log10(rate / 1e-3)))
        assert [seeds[rate] for rate in nearest] == [[0, 1, 2]] * 2 + [[0]] * 4
    cells = pd.read_csv(two_winners.results.root / "studies/tiny/report/cells.csv")
    chosen = [seeds_by_rate(two_winners)[cell.variant][cell.learning_rate] for cell in cells.itertuples()]
    assert chosen == [[0, 1, 2]] * 2
    text = (outcome.report.folder / "report.md").read_text()
    assert "The first seed chose the best 2 learning rates of each cell; only these have all seeds." in text
    assert two_winners.run(Landscape()).trained == 0


def test_more_rates_compare_on_the_first_seed_and_may_add_winners(two_winners: Bench) -> None:
    two_winners.run(Landscape())
    with_search(two_winners, rates=12)
    two_winners.run(Landscape())
    for variant in VARIANTS:
        seeds = seeds_by_rate(two_winners)[variant]
        nearest = sorted(seeds.index, key=lambda rate: abs(math.log10(rate / 1e-3)))
        assert len(nearest) == 12
        assert [seeds[rate] for rate in nearest[:2]] == [[0, 1, 2]] * 2
        numbers = proposed(two_winners).query("variant == @variant and sampler == 'winner'")["number"]
        assert numbers.tolist() == list(range(len(numbers)))


def test_without_winners_every_rate_gets_its_seeds(two_winners: Bench) -> None:
    two_winners.run(Landscape())
    two_winners.study = two_winners.study.model_copy(update={"winners": None})
    assert two_winners.run(Landscape()).trained == 2 * 4 * 2
    assert all(seeds == [0, 1, 2] for seeds in seeds_by_rate(two_winners))


def test_a_cell_that_diverged_everywhere_has_no_winner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    high = "{sampler: random, low: 5e-2, high: 1, rates: 3}"
    two_winners = search_bench(tmp_path, monkeypatch, high, winners="1", seeds=2)
    assert two_winners.run(Landscape()).trained == 2 * 3
    assert set(proposed(two_winners)["sampler"]) == {"random"}


def test_with_one_seed_asked_for_the_winners_wait_and_are_reported(two_winners: Bench) -> None:
    two_winners.run(Landscape(), only=parse_only("seed=0"))
    assert two_winners.run(Landscape()).trained == 2 * 2 * 2


def test_a_plan_counts_the_winners_before_they_are_known(two_winners: Bench) -> None:
    assert len(planned(two_winners).wanted) == 20
    for num_events in (25, 11):  # before and after the winners are chosen
        with pytest.raises(Killed):
            two_winners.run(Landscape(events_left=num_events))
        assert len({run.run_id for run in planned(two_winners).wanted}) == len(planned(two_winners).wanted) == 20


def test_a_refined_grid_has_its_winners_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the grid 1e-3 is the best; two midpoints are added beside it; then the best of all gets seeds."""
    two_winners = grid_bench(tmp_path, monkeypatch, rates=RATES, seeds=3, winners="1", refine="2")
    assert len(planned(two_winners).wanted) == two_winners.run(Landscape()).trained == 2 * (4 + 2 + 2)
    found = proposed(two_winners)
    assert found.groupby("sampler")["round"].agg(set).to_dict() == {"refine": {1}, "winner": {2}}
    assert set(found.loc[found["sampler"] == "winner", "learning_rate"]) == {1e-3}


def test_a_cell_that_cannot_be_refined_does_not_keep_winners_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All runs of the second cell fail, so that nothing is proposed for it."""
    two_winners = grid_bench(tmp_path, monkeypatch, rates=RATES[:3], seeds=2, winners="1", refine="2")
    assert two_winners.run(Landscape(failing_variant=VARIANTS[1])).failed == 3
    found = proposed(two_winners)
    assert found.groupby("variant")["sampler"].agg(list).to_dict() == {VARIANTS[0]: ["refine", "refine", "winner"]}
