"""Searched studies trained by a script, round by round."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from lr_sweep.analysis.record.read import read_wanted
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.search.samplers import next_points
from lr_sweep.sweep.search.state import read_stored
from lr_sweep.sweep.study.only import parse_only
from lr_sweep.tests.support.scripted_trials import (
    Bench,
    Killed,
    Landscape,
    planned,
    proposed,
    search_bench,
    with_search,
)
from lr_sweep.tests.support.tiny_study import in_process, rows, succeeds


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
    outcome = bench.run(Landscape(), only=parse_only("seed=0"), report=True)
    assert (outcome.trained, outcome.stopped, len(proposed(bench))) == (4, False, 4)
    assert outcome.report is not None
    messages = [finding.message for finding in outcome.report.findings if finding.check == "missing"]
    assert messages.count("the search has proposed 2 of 6 learning rates") == 2


def test_failed_runs_are_lost_to_the_search_and_may_be_retried(bench: Bench) -> None:
    assert bench.study.search is not None
    (first,) = next_points(bench.study.search, (), [], 1, maximise=True)
    outcome = bench.run(Landscape(fails_at=first.learning_rate))
    stored = proposed(bench)
    assert (outcome.failed, outcome.stopped, len(stored)) == (4, False, 12)
    assert bench.run(Landscape(), max_attempts=9).failed == 0
    pd.testing.assert_frame_equal(proposed(bench), stored)


def test_plan_status_and_merge_know_the_proposals(bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        bench.run(Landscape(events_left=25))
    assert len(planned(bench).wanted) == 24
    code, text = in_process("status", tmp_path / "tiny.yaml", "--results", bench.results.root)
    assert (code, "frozen-pretrained" in text) == (0, True)
    bench.run(Landscape())
    succeeds("verify", "--results", bench.results.root)
    succeeds("merge", bench.results.root, "--results", tmp_path / "copy")
    copied = read_stored(Results(tmp_path / "copy"), bench.study)
    assert copied == read_stored(bench.results, bench.study)
