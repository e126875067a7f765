"""A grid that is refined once it has ended, trained by a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.analysis.record.read import read_wanted
from lr_sweep.sweep.plan.plan import plan_on
from lr_sweep.sweep.study.only import parse_only
from lr_sweep.tests.support.scripted_trials import Bench, Killed, Landscape, grid_bench, planned, proposed
from lr_sweep.tests.support.tiny_study import rows


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Two cells with 2 seeds, whose best rate is 1e-3."""
    return grid_bench(tmp_path, monkeypatch, rates=(1e-5, 1e-4, 1e-3, 1e-2), seeds=2, refine="4")


def test_the_best_rate_is_enclosed(bench: Bench) -> None:
    """Both neighbours of 1e-3 lose 0.1; then 3.16e-4 and 3.16e-3 are its neighbours."""
    script = Landscape()
    outcome = bench.run(script, report=True)
    assert (outcome.trained, outcome.failed, outcome.stopped) == (32, 0, False)
    assert script.rounds == [{1e-5, 1e-4, 1e-3, 1e-2}, {3.16e-4, 3.16e-3}, {5.62e-4, 1.78e-3}]
    found = proposed(bench)
    assert set(found["sampler"]) == {"refine"}
    assert found.groupby("variant")["round"].apply(list).tolist() == [[1, 1, 2, 2]] * 2
    assert set(read_wanted(bench.results.root, "tiny")["run_id"]) == set(rows(bench.results.root))
    assert not [each for each in outcome.report.findings if each.check in ("missing", "unequal")]
    assert bench.run(Landscape()).trained == 0


def test_an_edge_is_left_in_the_steps_of_the_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 3.16e-4 and 3.16e-3, with equal steps, the second is nearer to the peak: its side comes first."""
    bench = grid_bench(tmp_path, monkeypatch, rates=(1e-6, 1e-5, 1e-4), seeds=2, refine="5")
    script = Landscape()
    bench.run(script)
    assert script.rounds == [{1e-6, 1e-5, 1e-4}, {1e-3, 1e-2}, {3.16e-4, 3.16e-3}, {1.78e-3}]


def test_a_grid_that_is_recorded_is_refined_at_once(bench: Bench) -> None:
    refined = bench.study
    bench.study = refined.model_copy(update={"refine": None})
    assert bench.run(Landscape()).trained == 16
    assert not bench.results.proposals("tiny").exists()
    bench.study = refined
    assert bench.run(Landscape()).trained == 16


def test_a_cell_with_a_part_of_its_runs_waits(bench: Bench) -> None:
    outcome = bench.run(Landscape(), only=parse_only("seed=0"), report=True)
    assert outcome.trained == 8
    assert not bench.results.proposals("tiny").exists()
    messages = [each.message for each in outcome.report.findings if each.check == "missing"]
    assert messages.count("the refinement has added 0 of 4 learning rates") == 2


def test_the_plan_counts_what_is_not_proposed_yet(bench: Bench) -> None:
    with pytest.raises(Killed):
        bench.run(Landscape(events_left=70))
    plan = planned(bench)
    text = plan_on(plan, {"CPU": 2.0})
    assert len(plan.wanted) == 32
    assert "4 learning rates x 2 seeds = 16 runs" in text
    assert "refine     4 learning rates more a cell, after its grid; 4 of 8 proposed so far" in text
