"""Which runs failed, by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from lr_sweep.analysis.statistics.comparisons.conditions import with_conditions
from lr_sweep.analysis.statistics.comparisons.failures import failed_runs, fisher_p, unexplained_failures
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.tests.support.records import SyntheticRecord, add_fresh, summary_of


def test_failed_runs_by_hand() -> None:
    """Medians are 2, 2 and 10, median deviations 1, 1 and 0; three runs do not show which of them failed."""
    some = np.array(
        [[1, 2, 3, 4, -6.1], [1, 2, 3, 4, -5.9], [10, 10, 10, 9.9, math.nan], [1, 2, -99, math.nan, math.nan]]
    )
    assert failed_runs(some, True).sum(-1).tolist() == [1, 0, 1, 0]
    assert failed_runs(some, False).sum(-1).tolist() == [1, 0, 0, 0]  # 0.1 is less than 2% of 10
    assert failed_runs(some[:, :3], True).sum(-1).tolist() == [0, 0, 0, 0]


def study(folder: Path, a: Sequence[Sequence[float]], fresh: Sequence[float]) -> StudySummary:
    """Variant a with these values at 1e-4, 1e-3 and 1e-2, and fresh ones at 1e-3; b is 30 points behind."""
    made = SyntheticRecord(folder)
    for rate, values in zip((1e-4, 1e-3, 1e-2), a, strict=True):
        for seed, value in enumerate(values):
            made.add(rate, seed, [(300, value, value)], variant="a")
            made.add(rate, seed, [(300, value, value - 0.3)], variant="b")
    add_fresh(made, 1e-3, "a", fresh)
    add_fresh(made, 1e-3, "b", [value - 0.3 for value in fresh])
    return summary_of(made.write(fresh={"max": len(fresh)}))


FRESH = (0.89, 0.90, 0.91, 0.90, 0.90)
SOUND = ((0.885, 0.89), (0.90, 0.91), (0.5, 0.1))


@pytest.mark.parametrize(
    ("a", "fresh", "failures"),
    [
        (SOUND, FRESH, None),  # the runs at 1e-2 do not compete
        (((0.89, 0.4), *SOUND[1:]), FRESH, (1, 4)),
        (((0.89, 0.4), (0.90, 0.91), (0.89, 0.3)), FRESH, (2, 6)),
        (((0.89, 0.84), *SOUND[1:]), FRESH, (1, 4)),  # 5 points; the limit is sqrt(2) x 0.0069 x 4.698 = 4.6
        (((0.89, 0.845), *SOUND[1:]), FRESH, None),  # 4.5 points
        (((0.89, 0.4), *SOUND[1:]), (0.89, 0.90, 0.4, 0.90, 0.90), None),  # a fresh run failed, too
    ],
)
def test_failures_while_rates_were_chosen(
    tmp_path: Path, a: Sequence[Sequence[float]], fresh: Sequence[float], failures: tuple[int, int] | None
) -> None:
    assert unexplained_failures(study(tmp_path, a, fresh)).get(("mnist", "gpt2", "a")) == failures


def test_a_lead_of_a_variant_that_failed_unseen_by_fresh_seeds_is_conditional(tmp_path: Path) -> None:
    (row,) = with_conditions(study(tmp_path, ((0.89, 0.4), *SOUND[1:]), FRESH)).to_dict("records")
    expected = "among the runs that work: 1 of 4 runs of a failed while its learning rate was chosen"
    assert (row["distinguishable"], row["condition"]) == (True, expected)


@pytest.mark.parametrize(("failed", "other", "p"), [(0, 5, 2 / 252), (0, 1, 1.0), (0, 3, 42 / 252), (2, 2, 1.0)])
def test_fishers_test_of_failed_runs_by_hand(failed: int, other: int, p: float) -> None:
    """Five runs each. Of three failures all are of one side in 2 x 10 of 120 ways."""
    assert fisher_p(failed, other, 5, 5) == pytest.approx(p)
