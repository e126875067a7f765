"""What cells are made of: numbers and texts by name, of labels such as `adam, width=64` or of runs' contents."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pandas as pd

from lr_sweep.analysis.record.contents import settings
from lr_sweep.analysis.statistics.selection.best import CELL

SIZE = re.compile(r"(.+)=([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)")


def of_labels(cells: pd.DataFrame) -> pd.DataFrame:
    """Split the labels of cells into numbers by name, and the text that remains, a column each."""
    return pd.DataFrame([_parts(labels) for labels in cells[CELL].itertuples(index=False)], index=cells.index)


def _parts(labels: Iterable[str]) -> dict[str, float | str]:
    found: dict[str, float | str] = {}
    for label, text in zip(CELL, labels, strict=True):
        rest = []
        for part in text.split(", "):
            if match := SIZE.fullmatch(part):
                found[match[1]] = float(match[2])
            else:
                rest.append(part)
        found[label] = ", ".join(rest)
    return found


def of_contents(cells: pd.DataFrame, wanted: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each of some cells with a recorded run, with a column for each thing that it is made of.

    Args:
        cells: rows of `StudySummary.cells`.
        wanted: columns of `WANTED`, for the step budget.
        runs: columns of `RUNS`, `content` among them.
    """
    recorded = wanted[[*CELL, "run_id", "num_steps"]].merge(runs[["run_id", "content"]], on="run_id")
    first = recorded.drop_duplicates(CELL).set_index(CELL)
    rows = {}
    for index, *cell in cells[CELL].itertuples(name=None):
        if tuple(cell) in first.index:
            of_cell = first.loc[tuple(cell)]
            rows[index] = settings(of_cell["content"]) | {"num_steps": int(of_cell["num_steps"])}
    return pd.DataFrame.from_dict(rows, orient="index")
