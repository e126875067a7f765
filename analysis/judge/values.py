"""The metric of a table: its name, which way it is better, and whether its values are percents."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.common.errors import UserError

from .contract import Contract
from .text_rows import splits_in

FAR = 10
"""Ratio of the greatest values of two columns from which one has fractions and the other percents."""
MIXED = 0.2
"""Share of accuracies up to 1, where others are above, from which some are fractions."""
BOUNDED = ("accuracy", "error", "f1", "precision", "recall", "dice", "iou", "miou", "auc", "auroc")
"""Metrics whose values are fractions, or percents."""


def measured_rows(
    rows: pd.DataFrame, contract: Contract, said: Metric | None, on_test: bool
) -> tuple[Metric, pd.DataFrame]:
    """Return the metric, and rows whose percents are fractions; a table without test data shows its validation data.

    `said`: the metric that the table itself names. `on_test`: test data select where there is no validation data.

    Raises UserError for values of two units.
    """
    columns, name = contract.columns, contract.metric or "score"
    if on_test and "validation" in columns:
        advice = "the table has validation data, which selects: leave the option out"
        raise UserError(f"--select-on-test: {advice}")
    splits = splits_in(rows)
    values = rows[splits]
    if said is None and name in BOUNDED and _are_percents(values, name):
        rows = rows.assign(**(values / 100))
    lowest, highest = rows[splits].min().min(), rows[splits].max().max()
    is_fraction = name in BOUNDED and bool(lowest >= 0 and highest <= 1)
    metric = said or Metric(
        name=name, higher_is_better=contract.higher_is_better, is_fraction=is_fraction
    )
    metric = replace(metric, untuned="learning_rate" not in columns)
    if "test" not in columns:
        return replace(metric, reported_on="validation"), rows.assign(test=rows["validation"])
    if "validation" in columns:
        return metric, rows
    if not on_test and not metric.untuned:
        return replace(metric, chosen_on=""), rows
    # Without rates nothing is chosen but the step of a curve: of test data its last one counts.
    if metric.untuned:
        metric = replace(metric, model="final")
    return replace(metric, chosen_on="test"), rows.assign(validation=rows["test"])


def _are_percents(values: pd.DataFrame, name: str) -> bool:
    """Return whether the values are percents; raises UserError where some of them are fractions."""
    lowest, highest = values.min().min(), values.max().max()
    if lowest < 0:
        raise UserError(
            f"{name} is down to {lowest:g}, and none is below 0: write it as it was measured"
        )
    if not 1 < highest <= 100:
        return False
    greatest = values.max()
    known = values.to_numpy()
    is_mixed = name == "accuracy" and (known[known > 0] <= 1).mean() > MIXED
    if is_mixed or (greatest.le(1) & (FAR * greatest).lt(highest)).any():
        text = ", ".join(f"{split} up to {value:g}" for split, value in greatest.items())
        raise UserError(
            f"{name} is a fraction in some places and percent in others ({text}): write all as fractions"
        )
    return True
