"""Checks of differences that are called significant where that is known to be wrong in more than 5% of studies."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lr_sweep.analysis.statistics.checks.finding import CheckFinding, finding_of
from lr_sweep.analysis.statistics.comparisons.noise import at_chosen
from lr_sweep.analysis.statistics.comparisons.pairs import comparisons, pairs_within
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.analysis.statistics.selection.summary import GROUP, StudySummary

UNEQUAL = 3.0
"""Ratio of the standard deviations of two variants' runs from which a difference of the two gets a note."""


def check_claims(summary: StudySummary) -> Iterator[CheckFinding]:
    """Report variants in significant differences that have two seeds, or much more noise than the other variant."""
    first, second = pairs_within(list(summary.cells[GROUP].itertuples(index=False, name=None)))
    sure = comparisons(summary)["distinguishable"].to_numpy(bool)
    rows, found = summary.cells[CELL].to_dict("records"), at_chosen(summary)
    deviation = np.sqrt(found.noise.variance)
    for cell in np.unique([first[sure], second[sure]]).tolist():
        others = np.concatenate([second[sure & (first == cell)], first[sure & (second == cell)]])
        least = deviation[others].min()
        if found.counts[cell] == 2:
            message = "two seeds: if a seed may change the result by far, up to 14% of studies have a false difference"
            yield finding_of(rows[cell], "two-seeds", "note", message, "add seeds")
        if deviation[cell] > UNEQUAL * least > 0:
            message = f"runs are {deviation[cell] / least:.2g} times as noisy as a variant's that it differs from"
            fix = "look at the runs: if a few are far worse than the others, more than 5% of such differences are false"
            yield finding_of(rows[cell], "unequal-noise", "note", message, fix)
