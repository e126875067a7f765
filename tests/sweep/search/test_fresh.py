"""Studies with `decide`: fresh seeds at the chosen rates, trained by a script until each pair is decided."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lr_sweep.analysis.record.columns import RUNS
from lr_sweep.analysis.record.read import read_rows, read_wanted
from lr_sweep.analysis.statistics.comparisons.decision import Decision
from lr_sweep.analysis.study_summary import read_summary
from lr_sweep.common.errors import UserError
from lr_sweep.sweep.inspection.status import status_text
from lr_sweep.sweep.plan.plan import plan_on
from lr_sweep.sweep.results.directory import write_parquet
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.only import parse_only
from lr_sweep.sweep.tune import run_study
from lr_sweep.tests.support.own_study import write_own_study
from lr_sweep.tests.support.scripted_trials import (
    Bench,
    Killed,
    Landscape,
    grid_bench,
    new_bench,
    planned,
    proposed,
    searched,
)
from lr_sweep.tests.support.tiny_study import rows, succeeds, write_study

CLEAR, NEAR, ALIKE = "unfrozen-pretrained", "unfrozen-random", "frozen-pretrained"
NOISE = (0.01, -0.01, 0.02, -0.02, 0.0)
TESTS: dict[str, Callable[[int], float]] = {
    CLEAR: lambda seed: 0.9 + NOISE[seed % 5] / 10,
    NEAR: lambda seed: 0.500 + NOISE[seed % 5],
    ALIKE: lambda seed: 0.515 + NOISE[(seed + 2) % 5],
}
"""The first leads by forty deviations, which two seeds decide; the others differ by less than their noise."""
DECIDE = "{min_difference: 0.1, max_seeds: 4}"
WANTED: dict[str, Any] = {"rates": (1e-4, 1e-3), "seeds": 3, "variants": (CLEAR, NEAR, ALIKE), "decide": DECIDE}


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bench]:
    """A bench of three variants with rates 1e-4 and 1e-3, of which the second is the best, and seeds 0 to 2."""

    def made(folder: str = "study", **changes: Any) -> Bench:
        return grid_bench(tmp_path / folder, monkeypatch, **WANTED | changes)

    return made


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of such a study that has run to its end."""
    with pytest.MonkeyPatch.context() as patch:
        bench = grid_bench(tmp_path_factory.mktemp("trained"), patch, **WANTED)
        bench.run(Landscape(tests=TESTS))
    return bench.folder


@pytest.fixture
def ended(trained: Path, make: Callable[..., Bench], tmp_path: Path) -> Bench:
    """A copy of it."""
    shutil.copytree(trained, tmp_path / "study")
    return make()


def fresh_seeds(bench: Bench) -> dict[tuple[str, float], list[int]]:
    wanted = read_wanted(bench.results.root, bench.study.study)
    fresh = wanted[wanted["fresh"].astype(bool)]
    return fresh.groupby(["variant", "learning_rate"])["seed"].agg(list).to_dict()


def decided(bench: Bench) -> Decision:
    decision = read_summary(bench.results.root, bench.study.study).decision
    assert decision is not None
    return decision


def test_only_undecided_cells_get_further_rounds(make: Callable[..., Bench]) -> None:
    """Two seeds each decide the clear lead, so that the two others alone get further ones, one by one, to the most."""
    bench, script = make(), Landscape(tests=TESTS)
    outcome = bench.run(script, report=True)
    assert (outcome.trained, outcome.failed, outcome.stopped) == (3 * 2 * 3 + 3 * 2 + 2 + 2, 0, False)
    assert fresh_seeds(bench) == {(CLEAR, 1e-3): [3, 4], (NEAR, 1e-3): [3, 4, 5, 6], (ALIKE, 1e-3): [3, 4, 5, 6]}
    found = proposed(bench)
    assert set(found["sampler"]) == {"fresh"}
    assert found[found["variant"] == NEAR]["round"].tolist() == [1, 1, 2, 3]
    assert decided(bench).table()[["variant", "other", "outcome", "num_seeds"]].to_numpy().tolist() == [
        [CLEAR, NEAR, "ahead", 2],
        [CLEAR, ALIKE, "ahead", 2],
        [NEAR, ALIKE, "undecided", 4],
    ]
    assert bench.run(Landscape(tests=TESTS)).trained == 0
    assert "2 of 3 pairs decided, 1 undecided after all its seeds, 0 runs to go" in status_text(bench.results, "tiny")
    text, page = " ".join(outcome.report.text.split()), (outcome.report.folder / "report.md").read_text()
    assert f"On fresh seeds, which chose no learning rate: {CLEAR} beats {ALIKE} by 38.4 points (95% interval " in text
    assert f"{CLEAR} beats {NEAR} by 40.4 points" in text
    assert f"{ALIKE} leads {NEAR} by " in text
    assert "still undecided after 4 seeds" in text
    assert "The seeds that chose the learning rates say: After tuning, " in text
    assert "18 runs wanted: 18 complete" in text
    assert "10 runs with fresh seeds, which choose nothing: 10 complete" in text
    assert "**Decided with fresh seeds.**" in page
    assert "![Difference of each pair against fresh seeds](decided.png)" in page
    assert len(pd.read_csv(outcome.report.folder / "fresh.csv")) == 10


def test_the_summary_that_selects_never_sees_fresh_runs(ended: Bench, make: Callable[..., Bench]) -> None:
    """The decision is the mean of seeds 3 and 4, by hand; the table has that of seeds 0 to 2, as without `decide`."""
    plain = make("plain", decide="null")
    plain.run(Landscape(tests=TESTS))
    found, without = (read_summary(each.results.root, "tiny") for each in (ended, plain))
    pd.testing.assert_frame_equal(found.summary.cells, without.summary.cells)
    assert found.decision is not None
    first = found.decision.table().iloc[0]
    assert first["difference"] == pytest.approx((0.9 + (-0.02 + 0.0) / 20) - (0.5 + (-0.02 + 0.0 + 0.01 - 0.01) / 4))
    assert set(rows(plain.results.root)) < set(rows(ended.results.root))


def test_named_pairs_alone_get_seeds_and_equal_is_a_decision(make: Callable[..., Bench]) -> None:
    """Within 30 points the two near ones are equal at the first look."""
    bench = make(decide=f"{{pairs: [[{NEAR}, {ALIKE}]], min_difference: 30}}")
    bench.run(Landscape(tests=TESTS))
    assert fresh_seeds(bench) == {(NEAR, 1e-3): [3, 4], (ALIKE, 1e-3): [3, 4]}
    assert decided(bench).table()["outcome"].tolist() == ["equal"]


def test_another_chosen_rate_gets_seeds_of_its_own(make: Callable[..., Bench]) -> None:
    """At first 1e-4 is chosen. With 1e-3 tried, too, fresh seeds start again there; former ones stay in the record."""
    bench = make(rates=(1e-5, 1e-4))
    bench.run(Landscape(tests=TESTS))
    before, trained = fresh_seeds(bench), set(rows(bench.results.root))
    assert before[NEAR, 1e-4] == [3, 4, 5, 6]
    bench.study = load_study(
        write_study(bench.folder, rates=(1e-5, 1e-4, 1e-3), seeds=3, variants=TESTS, decide=DECIDE)
    )
    bench.run(Landscape(tests=TESTS))
    assert fresh_seeds(bench) == {(variant, 1e-3): seeds for (variant, _), seeds in before.items()}
    assert trained < set(rows(bench.results.root))
    assert decided(bench).rates == (1e-3,) * 3
    bench.study = load_study(write_study(bench.folder, rates=(1e-5, 1e-4), seeds=3, variants=TESTS, decide=DECIDE))
    assert bench.run(Landscape(tests=TESTS)).trained == 0
    assert fresh_seeds(bench) == before


def test_further_seeds_of_the_study_are_fresh_no_more(ended: Bench) -> None:
    ended.study = load_study(write_study(ended.folder, rates=(1e-4, 1e-3), seeds=4, variants=TESTS, decide=DECIDE))
    ended.run(Landscape(tests=TESTS))
    assert fresh_seeds(ended)[NEAR, 1e-3] == [4, 5, 6, 7]
    summary = read_summary(ended.results.root, "tiny").summary
    assert sorted(summary.runs["seed"].unique()) == [0, 1, 2, 3]


def test_a_fresh_run_without_a_value_is_left_out(make: Callable[..., Bench]) -> None:
    """Fresh runs of one variant fail: its pair stays undecided, no cell gets more than the most, and it ends."""
    bench = make(variants=(NEAR, ALIKE))
    bench.run(Landscape(tests=TESTS, failing_variant=ALIKE, failing_from=3))
    assert fresh_seeds(bench) == {(NEAR, 1e-3): [3, 4], (ALIKE, 1e-3): [3, 4, 5, 6]}
    assert decided(bench).table()[["outcome", "num_lost"]].to_numpy().tolist() == [["undecided", 4]]


def test_a_fresh_run_that_the_user_stopped_is_no_reason_for_more_than_the_most(ended: Bench) -> None:
    before, recorded = fresh_seeds(ended), rows(ended.results.root)
    (last,) = (run_id for run_id, row in recorded.items() if (row["variant"], row["seed"]) == (NEAR, 6))
    (row,) = read_rows(ended.results.run(last), RUNS) or ()
    write_parquet(ended.results.run(last), [row | {"status": "stopped", "num_steps": 10}], RUNS)
    assert ended.run(Landscape(tests=TESTS)).trained == 0
    assert fresh_seeds(ended) == before


def test_a_function_whose_loss_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less is better: the first variant's loss is 0.4 lower, which two seeds decide."""
    monkeypatch.setattr(run_study, "tried", lambda *_: None)  # which starts a process
    bench, path = new_bench(tmp_path, monkeypatch), write_own_study(tmp_path / "own", rates="1e-3, 1e-2", seeds=2)
    path.write_text(path.read_text() + "decide: {min_difference: 0.05}\n")
    bench.study = load_study(path)
    losses = {"adamw": lambda seed: 0.1 + NOISE[seed] / 10, "sgd": lambda seed: 0.5 + NOISE[seed] / 10}
    outcome = bench.run(Landscape(tests=losses), report=True)
    assert fresh_seeds(bench) == {("adamw", 1e-2): [2, 3], ("sgd", 1e-2): [2, 3]}
    (row,) = decided(bench).table().to_dict("records")
    assert (row["variant"], row["outcome"], row["difference"]) == ("adamw", "ahead", pytest.approx(-0.4))
    assert row["low"] < -0.4 < row["high"]
    assert "adamw beats sgd by 0.400" in " ".join(outcome.report.text.split())


def test_it_waits_for_all_that_chooses(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.run(Landscape(tests=TESTS), only=parse_only(f"variant={NEAR}"))
    assert not bench.results.proposals("tiny").exists()
    assert "; the runs that choose the rates have not all ended" in status_text(bench.results, "tiny")


def test_the_plan_counts_the_most(make: Callable[..., Bench]) -> None:
    bench = make()
    plan = planned(bench)
    text = plan_on(plan, {"CPU": 2.0})
    assert len(plan.wanted) == 3 * 2 * 3 + 3 * 4
    assert "decide     3 pairs of variants, to 0.1 (points), with 2 to 4 fresh seeds in each of 3 cells" in text
    assert "at most 12 runs" in text
    with pytest.raises(Killed):
        bench.run(Landscape(events_left=4 * (18 + 6 + 1), tests=TESTS))
    plan = planned(bench)
    assert len(plan.wanted) == 18 + 2 + 4 + 4
    text = plan_on(plan, {"CPU": 2.0})
    assert "2 of 3 pairs decided, 3 runs to go at most" in text
    assert "2 of 3 pairs decided, 3 runs to go at most" in status_text(bench.results, "tiny")
    bench.run(Landscape(tests=TESTS))
    plan = planned(bench)
    assert (len(plan.wanted), len(plan.reconciled.to_train)) == (28, 0)
    succeeds("verify", "--results", bench.results.root)


def test_defaults_of_decide(tmp_path: Path) -> None:
    study = load_study(write_study(tmp_path, seeds=2, decide=f"{{pairs: [[{ALIKE}, {NEAR}]], min_difference: 1}}"))
    assert study.decide is not None
    assert (study.decide.max_seeds, study.decide.error) == (20, 0.05)


def test_a_search_fits_and_its_space_does_not(tmp_path: Path) -> None:
    search = "{low: 1e-5, high: 1e-1, rates: 6}"
    assert load_study(searched(tmp_path, search, seeds=2, decide=DECIDE)).decide
    with pytest.raises(UserError, match=r"decide: does not go with `search\.space`"):
        load_study(searched(tmp_path, search[:-1] + ", space: {batch_size: [4, 8]}}", seeds=2, decide=DECIDE))
