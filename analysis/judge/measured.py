"""The metric of a table: its name, which way it is better, and whether its values are percents."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.report.blocks import as_written
from lr_sweep.common.errors import UserError

from .contract import Contract
from .names import SPLITS, plain
from .rows import splits_in
from .table_file import TableFile

MIXED = 0.2
"""Share of accuracies up to 1, where others are above, from which some are fractions."""
FAR = 10
"""Ratio of the greatest values of two columns from which one has fractions and the other percents."""
BOUNDED = ("accuracy", "error", "f1", "precision", "recall", "dice", "iou", "miou", "auc", "auroc")
"""Metrics whose values are fractions, or percents."""


def exported(table: TableFile) -> tuple[TableFile, Metric | None]:
    """Return a table with what its columns say of its metric, and this metric; None: it is another program's.

    `export`, a report's `runs.csv` and its runs in MLflow name their metric. Raises UserError for several metrics.
    """
    names = {plain(name): name for name in reversed([*table.frame])}
    if not set(ACCURACY.columns) <= names.keys():
        return table, None
    facts = table.frame[[names[name] for name in ACCURACY.columns]].drop_duplicates()
    (metric, higher, fraction), *others = facts.to_numpy().tolist()
    if others:
        listed = ", ".join(sorted(facts.iloc[:, 0]))
        advice = f"judge those of one: --where {names['metric_name']}=NAME"
        raise UserError(f"got runs of several metrics, {listed}: {advice}")
    values = {split: names.get(split, names.get(plain(f"{split}_{metric}"))) for split in SPLITS}
    known = table.known | {split: name for split, name in values.items() if name}
    said = Metric(
        name=as_written(metric),
        higher_is_better=higher.lower() == "true",
        is_fraction=fraction.lower() == "true",
    )
    return replace(table, known=known, higher_is_better=said.higher_is_better), said


def measured_rows(
    rows: pd.DataFrame, contract: Contract, said: Metric | None, on_test: bool
) -> tuple[Metric, pd.DataFrame]:
    """Return the metric, and rows whose percents are fractions; a table without test data shows its validation data.

    `said`: the metric that the table itself names. `on_test`: test data select where there is no validation data.

    Raises UserError for values of two units.
    """
    name, columns = contract.metric or "score", contract.columns
    if on_test and "validation" in columns:
        advice = "the table has validation data, which selects: leave the option out"
        raise UserError(f"--select-on-test: {advice}")
    if said is None:
        is_bounded = name in BOUNDED
        rows = _as_fractions(rows, name) if is_bounded else rows
        values = rows[splits_in(rows)]
        is_fraction = is_bounded and bool(
            (values.ge(0) & values.le(1) | values.isna()).all(axis=None)
        )
        higher = bool(contract.higher_is_better)
        said = Metric(name=name, higher_is_better=higher, is_fraction=is_fraction)
    metric = replace(said, untuned="learning_rate" not in columns)
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


def _as_fractions(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return rows whose percents are fractions; raises UserError where only some of the values are percents."""
    values = rows[splits_in(rows)]
    greatest, lowest = values.max(), values.min().min()
    if lowest < 0:
        raise UserError(
            f"{name} is down to {lowest:g}, and none is below 0: write it as it was measured"
        )
    highest = greatest.max()
    if not 1 < highest <= 100:
        return rows
    known = values.to_numpy()
    is_mixed = name == "accuracy" and (known[known > 0] <= 1).mean() > MIXED
    if is_mixed or (greatest.le(1) & (FAR * greatest).lt(highest)).any():
        text = ", ".join(f"{split} up to {value:g}" for split, value in greatest.items())
        raise UserError(
            f"{name} is a fraction in some places and percent in others ({text}): write all as fractions"
        )
    return rows.assign(**(values / 100))
