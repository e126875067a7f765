"""Studies with `fresh`: new seeds at the chosen rates, trained by a script."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lr_sweep.analysis.record.read import read_wanted
from lr_sweep.analysis.record.study import Fresh
from lr_sweep.analysis.study_summary import read_summary
from lr_sweep.sweep.inspection.status import status_text
from lr_sweep.sweep.plan.plan import plan_on
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.only import parse_only
from lr_sweep.tests.support.scripted_trials import (
    Bench,
    Landscape,
    grid_bench,
    planned,
    proposed,
    search_bench,
)
from lr_sweep.tests.support.tiny_study import rows, succeeds, write_study

CLEAR, NEAR, ALIKE = "unfrozen-pretrained", "unfrozen-random", "frozen-pretrained"
NOISE = (0.01, -0.01, 0.02, -0.02, 0.0)
TESTS: dict[str, Callable[[int], float]] = {
    CLEAR: lambda seed: 0.9 + NOISE[seed % 5] / 10,
    NEAR: lambda seed: 0.500 + NOISE[seed % 5],
    ALIKE: lambda seed: 0.515 + NOISE[(seed + 2) % 5],
}
"""The first leads by forty deviations; the others differ by less than their noise."""
WANTED: dict[str, Any] = {"rates": (1e-4, 1e-3), "seeds": 3, "variants": (CLEAR, NEAR, ALIKE), "fresh": "2"}
UNTIL_DECIDED = "{max: 6}\nequal_within: 0.1"


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


def load(bench: Bench, **changes: Any) -> None:
    """Replace the bench's study."""
    bench.study = load_study(write_study(bench.folder, **WANTED | changes))


def test_each_cell_gets_its_fresh_seeds_once_the_rates_are_chosen(ended: Bench) -> None:
    assert fresh_seeds(ended) == {(variant, 1e-3): [3, 4] for variant in TESTS}
    found = proposed(ended)
    assert (set(found["sampler"]), set(found["round"]), len(found)) == ({"fresh"}, {1}, 6)
    assert ended.run(Landscape(tests=TESTS)).trained == 0
    load(ended, fresh="4")
    assert ended.run(Landscape(tests=TESTS)).trained == 6
    assert fresh_seeds(ended) == {(variant, 1e-3): [3, 4, 5, 6] for variant in TESTS}
    load(ended, fresh="2")
    assert ended.run(Landscape(tests=TESTS)).trained == 0
    assert fresh_seeds(ended) == {(variant, 1e-3): [3, 4] for variant in TESTS}
    load(ended, fresh="null")
    assert ended.run(Landscape(tests=TESTS)).trained == 0
    assert fresh_seeds(ended) == {}


def test_as_many_as_it_takes_ends_for_each_pair(make: Callable[..., Bench]) -> None:
    """Four seeds each decide the clear lead, so that the two others alone get further ones, one by one, to the most."""
    bench = make(fresh=UNTIL_DECIDED)
    outcome = bench.run(Landscape(tests=TESTS))
    assert (outcome.trained, outcome.failed) == (3 * 2 * 3 + 4 + 6 + 6, 0)
    seeds = {CLEAR: [3, 4, 5, 6], NEAR: [3, 4, 5, 6, 7, 8], ALIKE: [3, 4, 5, 6, 7, 8]}
    assert fresh_seeds(bench) == {(variant, 1e-3): seeds[variant] for variant in TESTS}
    found = proposed(bench)
    assert found[found["variant"] == NEAR]["round"].tolist() == [1, 1, 1, 1, 2, 3]
    assert bench.run(Landscape(tests=TESTS)).trained == 0
    assert "2 of 3 pairs decided on fresh seeds, no runs to go" in status_text(bench.results, "tiny")


def test_equal_variants_get_no_more(make: Callable[..., Bench]) -> None:
    """Within 30 points the two near ones are equal at the first look."""
    bench = make(variants=(NEAR, ALIKE), fresh="{max: 20}\nequal_within: 30")
    bench.run(Landscape(tests=TESTS))
    assert fresh_seeds(bench) == {(variant, 1e-3): [3, 4, 5, 6] for variant in (NEAR, ALIKE)}


def test_a_single_variant_gets_fresh_seeds(make: Callable[..., Bench]) -> None:
    bench = make(variants=(NEAR,), seeds=1)
    bench.run(Landscape(tests=TESTS))
    assert fresh_seeds(bench) == {(NEAR, 1e-3): [1, 2]}


def test_the_summary_that_selects_never_sees_fresh_runs(ended: Bench, make: Callable[..., Bench]) -> None:
    plain = make("plain", fresh="null")
    plain.run(Landscape(tests=TESTS))
    found, without = (read_summary(each.results.root, "tiny").summary for each in (ended, plain))
    pd.testing.assert_frame_equal(found.learning_rates, without.learning_rates)
    assert found.cells["learning_rate"].tolist() == without.cells["learning_rate"].tolist()
    assert sorted(found.fresh_runs["seed"]) == [3, 3, 3, 4, 4, 4]
    assert set(rows(plain.results.root)) < set(rows(ended.results.root))


def test_another_chosen_rate_gets_seeds_of_its_own(make: Callable[..., Bench]) -> None:
    """At first 1e-4 is chosen. Once 1e-3 is, fresh seeds start again there; those at 1e-4 stay in the record."""
    bench = make(rates=(1e-5, 1e-4))
    bench.run(Landscape(tests=TESTS))
    trained = set(rows(bench.results.root))
    assert fresh_seeds(bench) == {(variant, 1e-4): [3, 4] for variant in TESTS}
    load(bench, rates=(1e-5, 1e-4, 1e-3))
    bench.run(Landscape(tests=TESTS))
    assert fresh_seeds(bench) == {(variant, 1e-3): [3, 4] for variant in TESTS}
    assert trained < set(rows(bench.results.root))
    load(bench, rates=(1e-5, 1e-4))
    assert bench.run(Landscape(tests=TESTS)).trained == 0
    assert fresh_seeds(bench) == {(variant, 1e-4): [3, 4] for variant in TESTS}


def test_further_seeds_of_the_study_are_fresh_no_more(ended: Bench) -> None:
    load(ended, seeds=4)
    ended.run(Landscape(tests=TESTS))
    assert fresh_seeds(ended) == {(variant, 1e-3): [4, 5] for variant in TESTS}
    summary = read_summary(ended.results.root, "tiny").summary
    assert sorted(summary.runs["seed"].unique()) == [0, 1, 2, 3]


def test_a_fresh_run_without_a_value_is_not_replaced(make: Callable[..., Bench]) -> None:
    bench = make(variants=(NEAR, ALIKE))
    outcome = bench.run(Landscape(tests=TESTS, failing_variant=ALIKE, failing_from=3))
    assert (outcome.trained, outcome.failed) == (2 * 2 * 3 + 4, 2)
    assert fresh_seeds(bench) == {(NEAR, 1e-3): [3, 4], (ALIKE, 1e-3): [3, 4]}


def test_fresh_seeds_have_the_options_of_the_chosen_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = "{sampler: quasi-random, low: 1e-5, high: 1e-2, rates: 4, space: {batch_size: [4, 8]}}"
    bench = search_bench(tmp_path, monkeypatch, search, seeds=1, fresh="2")
    bench.run(Landscape(tests=TESTS))
    wanted = read_wanted(bench.results.root, "tiny").groupby(["variant", "learning_rate"])
    sizes = wanted.agg(options=("options", "nunique"), seeds=("seed", list))
    assert sizes["options"].tolist() == [1] * 8
    assert sorted(sizes["seeds"]) == [[0]] * 6 + [[0, 1, 2]] * 2


def test_it_waits_for_all_that_chooses(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.run(Landscape(tests=TESTS), only=parse_only(f"variant={NEAR}"))
    assert not bench.results.proposals("tiny").exists()
    assert "; the runs that choose the rates have not all ended" in status_text(bench.results, "tiny")


def test_the_plan_counts_the_most(make: Callable[..., Bench], ended: Bench) -> None:
    plan = planned(make("new", fresh="4"))
    assert len(plan.wanted) == 3 * 2 * 3 + 3 * 4
    assert "fresh      4 fresh seeds, at the chosen rate of 3 cells: 12 runs" in plan_on(plan, {"CPU": 2.0})
    assert (len(planned(ended).wanted), len(planned(ended).reconciled.to_train)) == (18 + 6, 0)
    load(ended, fresh=UNTIL_DECIDED)
    plan = planned(ended)
    assert "up to 6 fresh seeds, until each pair is decided" in plan_on(plan, {"CPU": 2.0})
    assert len(plan.wanted) == 18 + 3 * 6
    succeeds("verify", "--results", ended.results.root)


def test_rates_that_are_added_later_are_counted_beside_fresh_seeds(ended: Bench) -> None:
    """Two more rates of three seeds; two fresh seeds a cell are there."""
    load(ended, rates=(1e-5, 1e-4, 1e-3))
    ended.run(Landscape(tests=TESTS))
    load(ended, rates=(1e-5, 1e-4, 1e-3), refine="2")
    assert len(planned(ended).reconciled.to_train) == 3 * 2 * 3


def test_an_option_of_the_command_gives_fresh_seeds_to_any_study(tmp_path: Path) -> None:
    study = load_study(write_study(tmp_path, equal_within="2.0")).with_options(fresh=3)
    assert (study.fresh, study.equal_within) == (Fresh(max=3, until_decided=False), 2.0)
    study = load_study(write_study(tmp_path, fresh=UNTIL_DECIDED))
    assert (study.fresh, study.equal_within) == (Fresh(max=6, until_decided=True), 0.1)
    changed = study.with_options(fresh=200)
    assert changed.facts() == {"fresh": asdict(Fresh(max=200, until_decided=False)), "equal_within": 0.1}
    assert changed.plain()["fresh"] == 200
