"""Checks and observations of a searched study, worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.record.read import SearchRange
from lr_sweep.analysis.statistics.checks.finding import CheckFinding
from lr_sweep.analysis.statistics.checks.sweep import check_sweep
from lr_sweep.analysis.statistics.checks.unequal import unequal_tuning
from lr_sweep.analysis.statistics.rates.refinement import Observation, observations
from lr_sweep.tests.support.records import SyntheticRecord, summary_of
from lr_sweep.tests.support.synthetic import grid


def found_in(
    made: SyntheticRecord, high: float = 1e-2, rates: int = 3, space: Sequence[str] = (), winners: int | None = None
) -> dict[str, CheckFinding]:
    results = made.write()
    searched = SearchRange(sampler="gp", low=1e-5, high=high, rates=rates, space=space)
    summary = replace(summary_of(results), search=searched, winners=winners)
    found = [*check_sweep(summary, record.read_curves(results)), *unequal_tuning(summary)]
    return {each.check: each for each in found}


def searched(folder: Path, values: dict[float, float]) -> SyntheticRecord:
    made = SyntheticRecord(folder)
    grid(made, values)
    return made


@pytest.mark.parametrize(
    ("high", "fix"),
    [(1e-2, "set `high: 1e-1` and raise `rates`, now 3"), (1.0, "raise `rates`, now 3: the range has room")],
)
def test_best_at_the_edge_of_what_was_tried(tmp_path: Path, high: float, fix: str) -> None:
    made = searched(tmp_path, {2e-4: 0.5, 1e-3: 0.51, 5e-3: 0.52})
    edge = found_in(made, high)["edge"]
    assert (edge.level, edge.fix, edge.learning_rates) == ("problem", fix, ())


def test_a_search_before_its_end_is_missing_rates(tmp_path: Path) -> None:
    made = searched(tmp_path, {2e-4: 0.5, 1e-3: 0.52, 5e-3: 0.51})
    assert found_in(made) == {}
    assert found_in(made, rates=5)["missing"].message == "the search has proposed 3 of 5 learning rates"


def test_rates_to_add_become_more_rates(tmp_path: Path) -> None:
    made = searched(tmp_path, {2e-4: 0.5, 1e-3: 0.52})
    untuned = found_in(made, rates=2)["untuned"]
    assert (untuned.fix, untuned.learning_rates) == ("raise `rates`, now 2", ())


def test_rates_with_options_of_their_own_show_no_peak(tmp_path: Path) -> None:
    """By a parabola the peak is halfway between 1e-3 and 1e-2, 2.5 points higher: 60, 80, 80, 60 at -1, 0, 1, 2."""
    made = searched(tmp_path, {1e-4: 0.6, 1e-3: 0.8, 1e-2: 0.799, 1e-1: 0.6})
    assert set(found_in(made, 1e-1, 4)) == {"narrow"}
    assert found_in(made, 1e-1, 4, space=["batch_size"]) == {}


def test_winners_that_are_not_chosen_yet_are_missing(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    grid(made, {2e-4: 0.5, 1e-3: 0.6, 5e-3: 0.55}, seeds=1)
    message = "no learning rate has all seeds yet: the winners are not chosen"
    assert found_in(made, winners=1)["missing"].message == message
    made.add(1e-3, 1, [(300, 0.6, 0.6)])
    found = found_in(made, winners=1)
    assert found.keys() == {"winners"}
    assert found["winners"].message == "1 of 3 learning rates, the best of the first seed, have all seeds"


def test_observations(tmp_path: Path) -> None:
    """Mean over seeds; a rate where a seed has no value diverged, or its run was lost."""
    made = SyntheticRecord(tmp_path)
    for rate, accuracies in ((1e-4, (0.4, 0.6)), (1e-3, (0.6, None)), (1e-2, (0.7, None))):
        for seed, accuracy in enumerate(accuracies):
            if accuracy is not None:
                made.add(rate, seed, [(100, accuracy - 0.1, 0.9), (300, accuracy, 0.1)])
            elif rate == 1e-3:
                made.add(rate, seed, [], status="diverged")
            else:
                made.add(rate, seed, [], status="failed")
    results = made.write()
    wanted = record.read_wanted(results, record.recorded_studies(results)[0])
    curves = record.read_curves(results, names=["run_id", "step", "validation_accuracy"])
    (found,) = observations(wanted, record.read_runs(results), curves, ACCURACY).values()
    assert found == [
        Observation(1e-4, "measured", 0.5),
        Observation(1e-3, "diverged", None),
        Observation(1e-2, "lost", None),
    ]
