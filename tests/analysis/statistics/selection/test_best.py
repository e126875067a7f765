import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lr_sweep.analysis.record.columns import CURVES, RUNS, WANTED
from lr_sweep.analysis.statistics.selection.best import best_learning_rates, best_steps, comparable, seeds_of
from lr_sweep.analysis.statistics.selection.summary import summarise


def curves(*points: tuple[str, int, float]) -> pd.DataFrame:
    return pd.DataFrame(points, columns=["run_id", "step", "validation"])


def per_run(values: dict[float, list[float]], status: str = "diverged") -> pd.DataFrame:
    """One cell: learning rate to the validation accuracy of each seed; `status` of every run."""
    rows = [(rate, seed, x) for rate, seeds in values.items() for seed, x in enumerate(seeds)]
    frame = pd.DataFrame(rows, columns=["learning_rate", "seed", "validation"])
    return frame.assign(task="mnist", model="gpt2", variant="frozen-random", status=status)


def test_highest_validation_accuracy_wins_and_ties_go_to_the_earliest_step() -> None:
    frame = curves(("a", 300, 0.7), ("a", 200, 0.7), ("a", 100, 0.6), ("b", 100, math.nan), ("b", 200, 0.1))
    best = best_steps(frame)
    assert best.to_dict("records") == [
        {"run_id": "a", "best_step": 200, "validation": 0.7},
        {"run_id": "b", "best_step": 200, "validation": 0.1},
    ]
    assert best_steps(frame.head(0)).empty


@pytest.mark.parametrize(
    ("seeds", "numbers"),
    [
        ({1e-3: [0], 1e-2: [0]}, [1, 1]),
        ({1e-3: [0], 1e-2: [0, 1, 2]}, [3, 3]),
        ({1e-3: [0, 1], 1e-2: [1, 2]}, [3, 3]),  # each has lost one
        ({1e-3: [3, 5], 1e-2: [4, 6, 7]}, [2, 3]),  # each run drew its own
    ],
)
def test_seeds_of_a_learning_rate(seeds: dict[float, list[int]], numbers: list[int]) -> None:
    rows = [("t", "m", "v", rate, seed) for rate, found in seeds.items() for seed in found]
    frame = pd.DataFrame(rows, columns=["task", "model", "variant", "learning_rate", "seed"])
    assert seeds_of(frame).tolist() == numbers


def test_a_rate_with_fewer_seeds_of_its_own_may_be_the_best() -> None:
    """A rate that lost one of the seeds that it has in common with others may not."""
    for seeds, best in (([0, 1, 2], 1e-2), ([0, 1, 0], 1e-3)):
        runs = pd.DataFrame({"learning_rate": [1e-3, 1e-3, 1e-2], "seed": seeds, "status": "complete"})
        runs = runs.assign(task="t", model="m", variant="v", validation=[0.5, 0.6, 0.9])
        assert best_learning_rates(runs)["learning_rate"].tolist() == [best]


@pytest.mark.parametrize(
    ("values", "rate", "mean", "incomplete", "edge"),
    [
        # The mean decides, not the best seed.
        ({1e-5: [0.1, 0.1], 1e-4: [0.5, 0.5], 1e-3: [0.0, 0.9]}, 1e-4, 0.5, False, ""),
        # A tie of means goes to the smaller learning rate, also where sums differ in the last bit.
        ({1e-5: [0.1, 0.2, 0.3], 1e-4: [0.3, 0.2, 0.1], 1e-3: [0.1, 0.1, 0.1]}, 1e-5, 0.2, False, ""),
        # One inside is as good as the smallest: that is no edge. A tie over all has none either.
        ({1e-5: [0.2], 1e-4: [0.1], 1e-3: [0.2]}, 1e-5, 0.2, False, "low"),
        ({1e-5: [0.2], 1e-4: [0.2], 1e-3: [0.2]}, 1e-5, 0.2, False, ""),
        ({1e-5: [0.2], 1e-4: [0.2]}, 1e-5, 0.2, False, ""),
        # A learning rate that lacks a seed is not eligible while another has them all.
        ({1e-5: [0.3, 0.3], 1e-4: [0.4, 0.4], 1e-3: [0.9, math.nan]}, 1e-4, 0.4, False, ""),
        # None has them all: those with the most seeds.
        ({1e-5: [0.3, 0.3, math.nan], 1e-4: [0.9, math.nan, math.nan]}, 1e-5, 0.3, True, "low"),
        ({1e-5: [0.1, 0.1], 1e-4: [0.2, 0.2]}, 1e-4, 0.2, False, "high"),
        # A rate that diverged was tried.
        ({1e-5: [0.1], 1e-4: [0.2], 1e-3: [math.nan]}, 1e-4, 0.2, False, ""),
        ({1e-4: [0.2]}, 1e-4, 0.2, False, ""),
    ],
)
def test_learning_rate(values: dict, rate: float, mean: float, incomplete: bool, edge: str) -> None:
    (best,) = best_learning_rates(per_run(values)).to_dict("records")
    assert best["learning_rate"] == rate
    assert best["validation_mean"] == pytest.approx(mean)
    assert best["incomplete"] is incomplete
    assert best["at_edge"] == edge


@pytest.mark.parametrize(
    ("status", "edge"),
    [
        ("diverged", ""),
        ("stopped", ""),
        ("failed", "high"),
        ("missing", "high"),
        ("short", "high"),
        ("complete", "high"),
    ],
)
def test_a_rate_whose_runs_say_nothing_of_it_was_not_tried(status: str, edge: str) -> None:
    """The best of 1e-5, 1e-4 and 1e-3 is 1e-4; no run at 1e-3 has a value."""
    lost = [math.nan, math.nan]
    (best,) = best_learning_rates(per_run({1e-5: [0.1, 0.1], 1e-4: [0.2, 0.2], 1e-3: lost}, status)).to_dict("records")
    assert (best["learning_rate"], best["at_edge"]) == (1e-4, edge)


def test_a_cell_without_values_has_no_learning_rate() -> None:
    (best,) = best_learning_rates(per_run({1e-4: [math.nan, math.nan], 1e-3: [math.nan, math.nan]})).to_dict("records")
    assert math.isnan(best["learning_rate"])
    assert math.isnan(best["validation_mean"])
    assert best["incomplete"]


def test_selection_refuses_test_columns() -> None:
    with pytest.raises(ValueError, match=r"must not see test data: got columns \['test'\]"):
        best_steps(curves(("a", 1, 0.5)).assign(test=0.5))
    with pytest.raises(ValueError, match="test_loss"):
        best_learning_rates(per_run({1e-3: [0.5]}).assign(test_loss=0.5))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_permuting_test_columns_changes_no_choice(seed: int) -> None:
    generator = np.random.default_rng(seed)
    rates, steps = [1e-5, 1e-4, 1e-3], [100, 200, 300]
    labels = {"task": "mnist", "model": "gpt2", "variant": "frozen-random"}
    wanted = pd.DataFrame(
        [
            labels | {"run_id": f"{rate}-{s}", "learning_rate": rate, "seed": s, "num_steps": 300}
            for rate in rates
            for s in range(2)
        ]
    ).reindex(columns=[column.name for column in WANTED])
    runs = wanted.assign(status="complete", diverged_at_step=None, failure=None)
    runs = runs.reindex(columns=[column.name for column in RUNS]).astype({"diverged_at_step": "Int64"})
    grid = [{"run_id": run_id, "step": step} for run_id in wanted["run_id"] for step in steps]
    accuracies = {name: generator.integers(0, 5, len(grid)) / 5 for name in ("validation", "test")}
    frame = pd.DataFrame(grid).assign(**accuracies).reindex(columns=[column.name for column in CURVES])
    permuted = frame.assign(test=generator.permutation(frame["test"]))
    chosen = ["learning_rate", "validation_mean", "at_edge"]
    before, after = summarise(wanted, runs, frame), summarise(wanted, runs, permuted)
    pd.testing.assert_frame_equal(before.cells[chosen], after.cells[chosen])
    assert before.runs["best_step"].equals(after.runs["best_step"])


@pytest.mark.parametrize("mean", [0.7, 1234.5, 1.23e8, 1.25e-9, 1e-300, -2.5e-7])
def test_means_of_any_size_are_compared_by_their_digits(mean: float) -> None:
    assert comparable(mean) == comparable(float(np.nextafter(mean, math.inf))) == pytest.approx(mean, rel=1e-9)
    assert comparable(mean) != comparable(mean * (1 + 1e-7))


def test_means_that_are_no_digits_are_compared_as_they_are() -> None:
    assert [comparable(mean) for mean in (0.0, math.inf, -math.inf)] == [0.0, math.inf, -math.inf]
    assert math.isnan(comparable(math.nan))
