"""Checks of a comparison: variants that were tuned unequally."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from lr_sweep.analysis.statistics.checks.finding import CheckFinding
from lr_sweep.analysis.statistics.checks.variants import unequal_tuning
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.analysis.study_report import write_report
from lr_sweep.sweep.study.file import load_study, shipped_studies
from lr_sweep.tests.support.records import SyntheticRecord, summary_of

pytestmark = pytest.mark.usefixtures("undrawn")
A, B = "frozen-random", "unfrozen-random"


def unequal_in(made: SyntheticRecord) -> list[CheckFinding]:
    return list(unequal_tuning(summary_of(made.write())))


def tuned(made: SyntheticRecord, variant: str, rates: tuple[float, ...], seeds: int = 2, budget: int = 300) -> None:
    for rate, seed in product(rates, range(seeds)):
        made.add(rate, seed, [(budget, 0.5, 0.5)], variant=variant, budget=budget)


def test_fewer_learning_rates(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    tuned(made, A, (1e-3,))
    tuned(made, B, (1e-4, 1e-3, 1e-2))
    (found,) = unequal_in(made)
    assert (found.check, found.level, found.variant) == ("unequal", "problem", A)
    assert found.message == f"unequal tuning: 1 learning rate, 1e-3; {B} had 3 learning rates from 1e-4 to 1e-2"
    assert found.fix == "try 3 learning rates from 1e-4 to 1e-2 for it, too"
    assert found.message in write_report(tmp_path, "small").text


def test_a_rate_whose_runs_failed_was_not_tried(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    tuned(made, A, (1e-4, 1e-3))
    tuned(made, B, (1e-4, 1e-3, 1e-2))
    made.add(1e-2, 0, [], "failed", 0, variant=A)
    (found,) = unequal_in(made)
    assert (
        found.message
        == f"unequal tuning: 2 learning rates from 1e-4 to 1e-3; {B} had 3 learning rates from 1e-4 to 1e-2"
    )
    assert found.variant == A


@pytest.mark.parametrize(
    ("rates", "others", "unequal"),
    [
        ((1e-4, 1e-3, 1e-2), (1e-3, 1e-2, 1e-1), {A, B}),  # either lacks an end of the other
        ((1e-4, 1e-3, 1e-2), (1e-4, 1e-3, 1e-2), set()),
        ((1.2e-4, 9e-4, 8.9e-3), (1e-4, 1e-3, 1e-2), set()),  # draws from one range
        ((1.2e-4, 8.9e-3), (1.1e-4, 2e-3, 9.5e-3), {A}),  # fewer draws: other ones will do
    ],
)
def test_ranges_and_numbers_of_rates(
    tmp_path: Path, rates: tuple[float, ...], others: tuple[float, ...], unequal: set[str]
) -> None:
    made = SyntheticRecord(tmp_path)
    tuned(made, A, rates)
    tuned(made, B, others)
    found = unequal_in(made)
    assert {each.variant for each in found} == unequal


def test_fewer_steps_are_a_problem_and_fewer_seeds_are_not(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    tuned(made, A, (1e-3,), seeds=1, budget=300)
    tuned(made, B, (1e-3,), seeds=3, budget=500)
    (found,) = unequal_in(made)
    assert (found.check, found.level) == ("unequal", "problem")
    assert found.message == f"unequal tuning: trained for 300 steps, {B} for 500"


def test_runs_that_end_early_are_named(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    tuned(made, A, (1e-3, 1e-2), budget=300)
    tuned(made, A, (1e-1,), budget=100)
    (found,) = unequal_in(made)
    assert (found.check, found.level) == ("short", "note")
    assert found.message == "2 of 6 runs end before step 300, with the values they had"


def test_other_tasks_and_models_are_not_compared(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for rate in (1e-4, 1e-3, 1e-2):
        made.add(rate, 0, [(300, 0.5, 0.5)])
    made.add(1e-3, 0, [(300, 0.5, 0.5)], task="cifar10")
    made.add(1e-3, 0, [(300, 0.5, 0.5)], model="tiny")
    assert unequal_in(made) == []


def wanted_by(name: str) -> pd.DataFrame:
    """The grid of a shipped study, without its data and weights."""
    study = load_study(name)
    rates = (
        [study.search.range.at(index / study.search.rates) for index in range(study.search.rates)]
        if study.search
        else []
    )
    rows = [
        {
            **{"task": cell.task, "model": cell.model, "variant": cell.variant, "learning_rate": rate, "seed": seed},
            "num_steps": study.tasks[cell.task].num_steps,
        }
        for cell in study.cell_list()
        for rate, seed in product(cell.learning_rates or rates, study.seed_list())
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize("name", sorted(shipped_studies()))
def test_no_shipped_study_tunes_unequally(name: str) -> None:
    wanted = wanted_by(name)
    rates = wanted.groupby([*CELL, "learning_rate"]).size().rename("num_wanted").reset_index()
    rates = rates.assign(num_values=rates["num_wanted"])
    cells = wanted[CELL].drop_duplicates().assign(validation_mean=0.5)
    assert list(unequal_tuning(StudySummary(runs=wanted, learning_rates=rates, cells=cells))) == []


@pytest.mark.parametrize(("longer", "problems"), [("num-steps-600", []), ("longer", [A + "-num-steps-300"])])
def test_variants_named_by_their_budgets_differ_on_purpose(tmp_path: Path, longer: str, problems: list[str]) -> None:
    made = SyntheticRecord(tmp_path)
    tuned(made, f"{A}-num-steps-300", (1e-3,))
    tuned(made, f"{A}-{longer}", (1e-3,), budget=600)
    assert [each.variant for each in unequal_in(made)] == problems
