"""The numbers that the two papers publish, to compare ours with; both files were copied by hand.

`rothermel2021.csv`: tables 1 to 5 of Rothermel et al. 2021 (`value` is empty where the paper has "-", never reached;
`sem` is over 3 seeds). `lu2021.csv`: tables 1 to 21 of Lu et al. 2021, a line an entry: `row` and `column` as the paper
labels them, `task`, `model` and `variant` as here, `value` as printed ("Train less Test" of table 7 is computed).
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML

from lr_sweep.analysis.statistics.selection.best import Cell

TEST = "test_accuracy_percent"
MAX_STEPS = "max_gradient_steps"
STEPS_TO_MATCH = "gradient_steps_to_match_frozen_pretrained"
TRAIN_AT_END = "train_accuracy_percent_at_max_steps"
TEST_AT_END = "test_accuracy_percent_at_max_steps"
TRAIN_MINUS_TEST_AT_END = "train_minus_test_percent_at_max_steps"
"""The metrics of Rothermel et al. 2021."""

TRAIN = "train_accuracy_percent"
TRAIN_MINUS_TEST = "train_minus_test_percent"
STEPS = "gradient_steps_to_converge"
SPEEDUP = "speedup"
"""Gradient steps of `frozen-random` over those of `frozen-pretrained`."""
PARAMETERS = "trained_parameters"
"""The metrics of Lu et al. 2021, beside `TEST`."""

NAME = re.compile(r"lu2021-table(?P<table>[1-9]|1[0-9]|2[01])(?P<kind>-swept|-small)?\b")
"""How names of studies of a table begin."""
SMALL_MODELS = {
    "gpt2": "tiny",
    "gpt2-bit": "tiny-bit",
    "lstm-3": "tiny-lstm-3",
    "lstm-12-residual-positions": "tiny-lstm-12",
}
"""Models, and what stands for them in the studies for two cores."""

FOLDER = Path(__file__).parent


class Entry(NamedTuple):
    """One number of a paper's table."""

    table: int
    task: str
    model: str
    """Empty: not trained here."""
    variant: str
    metric: str
    value: str
    """The number as printed, without its unit; empty: "-" in the paper, never reached."""
    sem: str = ""
    """The standard error as printed; empty: not given."""
    row: str = ""
    column: str = ""
    """Labels in the paper; empty for Rothermel et al. 2021."""

    @property
    def cell(self) -> Cell:
        """Task, model and variant."""
        return self.task, self.model, self.variant

    @property
    def number(self) -> float:
        """The value; NaN: never reached."""
        return float(self.value or math.nan)


def published(table: int, cell: Cell, metric: str) -> Entry | None:
    """Return what Rothermel et al. 2021 report of a cell (variant `all` in table 5); None: they have no such entry."""
    key = (table, cell, metric)
    listed = _entries("rothermel2021")
    return next((entry for entry in listed if (entry.table, entry.cell, entry.metric) == key), None)


def published_best(cell: Cell) -> Entry | None:
    """Return a cell's best test accuracy: of Table 1, which has gpt2, or of Table 4, which adds distilgpt2."""
    return published(1, cell, TEST) or published(4, cell, TEST)


@cache
def _entries(paper: str) -> list[Entry]:
    with (FOLDER / f"{paper}.csv").open(encoding="utf-8", newline="") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    return [Entry(**row | {"table": int(row["table"].removeprefix("table"))}) for row in rows]


@dataclass(frozen=True)
class TableText:
    """What `lu2021.yaml` says about a table."""

    title: str
    corner: str
    note: str = ""
    small: Mapping[str, str] = field(default_factory=dict)
    """Empty: the table has no study for two cores."""


TABLES = {
    number: TableText(**text)
    for number, text in YAML(typ="safe", pure=True).load(FOLDER / "lu2021.yaml").items()
}


def table_of(study: str) -> int | None:
    """Return the number of the table of Lu et al. 2021 that a study is of, by its name; None: of none."""
    match = NAME.match(study)
    return None if match is None else int(match["table"])


def is_small(study: str) -> bool:
    """Return whether a study of a table is the one for two cores, by its name."""
    match = NAME.match(study)
    return match is not None and match["kind"] == "-small"


def entries(table: int, *, small: bool = False) -> list[Entry]:
    """Return a table of Lu et al. 2021, row by row or column by column; `small`: about what stands for its cells."""
    listed = [entry for entry in _entries("lu2021") if entry.table == table]
    if not small:
        return listed
    tasks = TABLES[table].small
    return [
        entry._replace(task=tasks[entry.task], model=SMALL_MODELS[entry.model])
        for entry in listed
        if entry.task in tasks and entry.model in SMALL_MODELS
    ]
