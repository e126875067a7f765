"""The values of a table: of which metric they are, in percent or as fractions, and whether they are of single runs."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from lr_sweep.analysis.judge.columns import Columns
from lr_sweep.analysis.judge.names import (
    WORDS,
    has_word,
    is_higher_better,
    is_named,
    listed,
    words_of,
)
from lr_sweep.analysis.judge.reading import Choice, QuestionError, Reading
from lr_sweep.analysis.judge.rows import splits_in
from lr_sweep.analysis.judge.runs import RATE
from lr_sweep.analysis.judge.table_file import TableFile
from lr_sweep.analysis.metric import Metric
from lr_sweep.common.errors import UserError, unknown

MOST_RUNS = 1000  # that a mean is of: a larger `N` counts parameters or examples
FAR = 10  # if the greatest values of two columns differ by more than this factor, one column is a fraction
MIXED = 0.2  # if more than this share of accuracies is up to 1, and others are above, some are fractions
ALIKE = 0.05  # a value is a fraction if a hundred times it differs so little from the median at its rate
WANTED = "`judge` needs the values of single runs, which say how far seeds differ: write a row for each run"


def refuse_means(table: TableFile, columns: Columns) -> None:
    """Make sure that values are of single runs, where no column of seeds or runs says so: a mean is no seed.

    Raises UserError where a column says of how many runs each row is, and QuestionError where a name, or a column of
    deviations beside it, says that a value may be a mean over seeds.
    """
    if {"seed", "run"} & columns.of.keys():
        return
    counts = [
        each
        for each in columns.unread
        if has_word(each.name, "runs") or words_of(each.name) == ["n"]
    ]
    if name := next(
        (each.name for each in counts if each.numbers and 1 < each.numbers[-1] <= MOST_RUNS), ""
    ):
        raise UserError(
            f"{table.path}: {name} says that rows are means over several runs. {WANTED}"
        )
    spread = next((each.name for each in columns.unread if has_word(each.name, "deviation")), "")
    for split in [
        each for each in ("validation", "test") if each in columns.of and each not in columns.given
    ]:
        name, sign = columns.of[split], ""
        if has_word(name, "mean") and not has_word(name, "of a mean"):
            sign = "as its name says"
        elif spread and {*words_of(spread)} - WORDS["deviation"] <= {*words_of(name)}:
            sign = f"as {spread} beside it is their deviation"
        if sign:
            choice = Choice(
                "it is of one run, as a mean over episodes", Reading(columns={split: name})
            )
            raise QuestionError(
                f"{table.path}: {name} may be a mean over seeds, {sign}. {WANTED}", [choice]
            )


def measured_rows(
    rows: pd.DataFrame, columns: Columns, reading: Reading, remarks: list[str]
) -> tuple[Metric, pd.DataFrame]:
    """Find the metric, and turn percents into fractions; a table without test data shows its validation data.

    Raises UserError, and QuestionError for a metric of unknown direction.
    """
    if reading.select_on_test and "validation" in columns.of:
        raise UserError(
            "--select-on-test: the table has validation data, which selects: leave the option out"
        )
    name = reading.metric or columns.metric or "score"
    said = (reading.higher_is_better, columns.higher_is_better, is_higher_better(name))
    if (higher := next((each for each in said if each is not None), None)) is None:
        ways = [
            Choice(f"{way} is better", Reading(higher_is_better=way == "more"))
            for way in ("more", "less")
        ]
        raise QuestionError(
            f"is more {name} better or worse? give --higher-is-better or --lower-is-better", ways
        )
    # Without rates nothing is chosen, but the step of a curve: of test data its last one counts.
    metric = Metric(name=name, higher_is_better=higher, untuned="learning_rate" not in columns.of)
    why = "as a column of the table says" if columns.higher_is_better is higher else "as given"
    otherwise = f", {why}; the column's name says otherwise" * (
        is_higher_better(columns.metric) is (not higher)
    )
    remarks.append(f"{name}: {metric.better} is better{otherwise}")
    if reading.is_fraction is None and _are_percents(rows, name):
        remarks.append(f"some values of {name} are above 1: all are read as percent")
        rows = rows.assign(**(rows[splits_in(rows)] / 100))
    lowest, highest = _range(rows)
    is_bounded = has_word(name, "higher", "error rate") and not has_word(name, "unbounded")
    is_fraction = is_bounded and lowest >= 0 and highest <= 1
    metric = replace(
        metric, is_fraction=is_fraction if reading.is_fraction is None else reading.is_fraction
    )
    if "test" not in columns.of:
        metric, rows = (
            replace(metric, reported_on="validation"),
            rows.assign(test=rows["validation"]),
        )
    if "validation" not in columns.of:
        metric = replace(
            metric, chosen_on="test" if reading.select_on_test or metric.untuned else ""
        )
        metric = replace(metric, model="final" if metric.untuned else metric.model)
        rows = rows.assign(validation=rows["test"]) if metric.chosen_on else rows
    return metric, rows


def _range(rows: pd.DataFrame) -> tuple[float, float]:
    values = rows[splits_in(rows)]
    return float(values.min().min()), float(values.max().max())


def _are_percents(rows: pd.DataFrame, name: str) -> bool:
    """Return whether the values are percents; raises UserError where some of them are fractions."""
    (lowest, highest), is_accuracy = _range(rows), has_word(name, "accuracy")
    if is_accuracy and lowest < 0:
        raise UserError(
            f"{name} is down to {lowest:g}, and none is below 0: write it as it was measured"
        )
    if not (has_word(name, "percent") and lowest >= 0 and 1 < highest <= 100):
        return False
    values = rows[splits_in(rows)]
    of_split = values.max()
    if (of_split.le(1) & (FAR * of_split).lt(highest)).any():
        text = ", ".join(f"{split} up to {value:g}" for split, value in of_split.items())
        raise UserError(
            f"{name} is a fraction in one column and percent in another ({text}): write all as fractions"
        )
    usual, known = (
        values.groupby([rows[column] for column in RATE]).transform("median"),
        values.to_numpy(),
    )
    hundredths = (100 * values / usual - 1).abs().lt(ALIKE) & values.le(1)
    if is_accuracy and ((known[known > 0] <= 1).mean() > MIXED or hundredths.any(axis=None)):
        raise UserError(
            f"{name} is a fraction in some rows and percent in others: write all as fractions"
        )
    return True


def per_step(table: TableFile, rows: pd.DataFrame, by: str) -> pd.Series[float]:
    """Return what a step of each run takes by a column that grows with the steps, with its name; raises UserError."""
    found = [name for name in table.columns if by == name or by in words_of(name)]
    if not found:
        raise UserError(f"--by {by}: {unknown('column', by, list(table.columns))}")
    devices = {
        text for name in table.columns if is_named(name, "device") for text in table.columns[name]
    }
    if has_word(found[0], "time") and len(devices) != 1:
        known = listed(sorted(devices)) or "not in the table"
        raise UserError(
            f"--by {by}: times compare variants on one kind of device, which is {known}: count steps"
        )
    values = pd.to_numeric(
        pd.Series(table.columns[found[0]], [str(line) for line in table.lines]), errors="coerce"
    )
    last = rows.assign(value=rows["where"].map(values[~values.index.duplicated()])).sort_values(
        "step"
    )
    return (last["value"] / last["step"]).groupby(last["run_id"]).last().rename(by)
