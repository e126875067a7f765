"""How much the learning rate matters: a number per cell, and what trying fewer of them would have found.

Both read validation accuracy only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.aggregate import Summary
from analysis.selection import CELL
from analysis.table_formats import Table, write_tables
from analysis.tables import percent_text
from analysis.text import NO_VALUE, rate_text

Floats = NDArray[np.float64]

SHOWN_TRIES = (1, 2, 3, 5, 10)
"""Columns of the table of expected bests; the CSV file has every number."""


def mean_shortfall(rates: Floats, accuracies: Floats) -> float:
    """Return how far accuracy lies below its best, on average over the logarithm of the learning rate.

    Learning-rate sensitivity of Wortsman et al. 2023 ("Small-scale proxies for large-scale Transformer training
    instabilities", section 2.2) with accuracy in place of loss: there the mean over the sweep of
    min(loss, loss at initialisation) less the best loss. Between learning rates accuracy is taken as linear in their
    logarithm, so unevenly spaced ones count by the stretch they stand for.

    Args:
        rates: learning rates, rising.
        accuracies: fractions, one a learning rate.

    Returns:
        A fraction; NaN with fewer than two learning rates.
    """
    if len(rates) < 2:
        return math.nan
    places = np.log(rates)
    shortfall = accuracies.max() - accuracies
    return float(np.trapezoid(shortfall, places) / (places[-1] - places[0]))


def expected_best(accuracies: Floats, num_tried: int) -> tuple[float, float]:
    """Return the expected highest accuracy of so many learning rates, picked at random from those that were swept.

    Args:
        accuracies: validation accuracies, one a learning rate; n of them.
        num_tried: k, from 1 to n.

    Returns:
        First the expectation over all subsets of k different ones, which is unbiased (Tang et al. 2020, "Showing Your
        Work Doesn't Always Work") and the noisier of the two (Dodge et al. 2021, "Expected Validation Performance and
        Estimation of a Random Variable's Maximum"); then that of k draws with replacement (Dodge et al. 2019, "Show
        Your Work"), which is too low, the more so as k nears n. Both are fractions, equal at k = 1.

    Raises:
        ValueError: `num_tried` is not between 1 and n.
    """
    n = len(accuracies)
    if not 1 <= num_tried <= n:
        raise ValueError(f"got {num_tried} learning rates tried of {n}, want 1 to {n}")
    rising = np.sort(accuracies)
    # The share of subsets whose best is at a place, C(place, k - 1) / C(n, k), from the highest place down: each is the
    # last one times (place - k + 1) / place. The binomials themselves have hundreds of digits.
    places = np.arange(n - 1, 0, -1)
    factors = ((places - num_tried + 1) / places).clip(min=0.0)
    without = np.cumprod([num_tried / n, *factors])[::-1]
    below = (np.arange(n + 1) / n) ** num_tried
    return float(rising @ without), float(rising @ np.diff(below))


def sensitivities(summary: Summary) -> pd.DataFrame:
    """Measure every cell by `mean_shortfall`.

    Where every run of a learning rate diverged before its first evaluation there is no accuracy; it counts as the
    lowest mean of the task, which stands for chance, as a loss would be cut at that of an untrained model. Learning
    rates with missing or failed runs only are left out.

    Returns:
        One row a cell: the cell's columns, `sensitivity` (fraction; NaN: fewer than two learning rates), `low` and
        `high` (the learning rates it is measured between), `num_rates`, `num_floored` (without an accuracy) and
        `num_lost` (runs of the cell that are missing or failed).
    """
    lowest = summary.learning_rates.groupby("task")["validation_mean"].min().to_dict()
    rows = [
        dict(zip(CELL, cell, strict=True)) | _sensitivity(rates.to_dict("records"), lowest[cell[0]])
        for cell, rates in summary.learning_rates.groupby(CELL, sort=False)
    ]
    return pd.DataFrame(rows)


def expected_bests(summary: Summary) -> pd.DataFrame:
    """Give every cell's expected best validation accuracy against the number of learning rates tried.

    Returns:
        One row a cell and number: the cell's columns, `num_tried`, `num_rates` (with a value) and `expected`
        (unbiased) and `expected_with_replacement` (fractions; see `expected_best`).
    """
    rows: list[dict[str, Any]] = []
    for cell, rates in summary.learning_rates.groupby(CELL, sort=False):
        means = rates["validation_mean"].dropna().to_numpy(dtype=float)
        for num_tried in range(1, len(means) + 1):
            unbiased, biased = expected_best(means, num_tried)
            counts = {"num_tried": num_tried, "num_rates": len(means)}
            found = counts | {"expected": unbiased, "expected_with_replacement": biased}
            rows.append(dict(zip(CELL, cell, strict=True)) | found)
    columns = [*CELL, "num_tried", "num_rates", "expected", "expected_with_replacement"]
    return pd.DataFrame(rows, columns=columns)


def sensitivity_table(found: pd.DataFrame, bests: pd.DataFrame) -> Table:
    """Show the results of `sensitivities` and `expected_bests` side by side."""
    expected = {(*key, tried): value for *key, tried, value in bests[[*CELL, "num_tried", "expected"]].to_numpy()}
    most = int(bests["num_tried"].max()) if len(bests) else 0
    tries = sorted({n for n in SHOWN_TRIES if n < most} | ({most} if most else set()))
    rows = tuple(
        _row(cell, [expected.get((*(cell[key] for key in CELL), n)) for n in tries])
        for cell in found.to_dict("records")
    )
    return Table(
        title="How much the learning rate matters",
        caption="Sensitivity: how many points validation accuracy (mean over seeds) lies below the cell's best, on "
        "average over the logarithm of the learning rate between the two named (Wortsman et al. 2023, with accuracy in "
        "place of loss). It depends on that range: compare only equal ones. Best of k: expected best validation "
        "accuracy, in percent, had k of the sweep's learning rates been tried, picked at random (Dodge et al. 2019, in "
        "the unbiased form of Tang et al. 2020). A grid's learning rates are no random draws: it says what "
        "these ones had to offer, and its last column is the best there was, which is itself optimistic.",
        header=(*CELL, "sensitivity", "between", *(f"best of {n}" for n in tries), "remarks"),
        rows=rows,
    )


def write_sensitivity(folder: Path, summary: Summary) -> Table:
    """Write the table `sensitivity` in every format, and `expected_best.csv`; return the table."""
    found, bests = sensitivities(summary), expected_bests(summary)
    shown = sensitivity_table(found, bests)
    write_tables(folder, {"sensitivity": shown}, found)
    bests.to_csv(folder / "expected_best.csv", index=False)
    return shown


def _sensitivity(rates: list[dict[Any, Any]], lowest: float) -> dict[str, Any]:
    known = [row for row in rates if row["num_values"]]
    floored = [] if math.isnan(lowest) else [row for row in rates if not row["num_values"] and row["diverged"]]
    means = {row["learning_rate"]: row["validation_mean"] for row in known}
    means |= {row["learning_rate"]: lowest for row in floored}
    swept = sorted(means)
    return {
        "sensitivity": mean_shortfall(np.array(swept), np.array([means[rate] for rate in swept])),
        "low": swept[0] if swept else math.nan,
        "high": swept[-1] if swept else math.nan,
        "num_rates": len(swept),
        "num_floored": len(floored),
        "num_lost": sum(row["missing"] + row["failed"] for row in rates),
    }


def _row(cell: dict[Any, Any], expected: Sequence[float | None]) -> tuple[str, ...]:
    has = not math.isnan(cell["sensitivity"])
    notes = [] if has else ["fewer than two learning rates have a value"]
    if cell["num_floored"]:
        notes.append(f"{cell['num_floored']} without a value, all diverged: counted as the task's lowest mean")
    if cell["num_lost"]:
        notes.append(f"{cell['num_lost']} runs missing or failed, may change")
    return (
        *(str(cell[key]) for key in CELL),
        percent_text(cell["sensitivity"]),
        f"{rate_text(cell['low'])} to {rate_text(cell['high'])}" if has else NO_VALUE,
        *(NO_VALUE if value is None else percent_text(value) for value in expected),
        "; ".join(notes),
    )
