"""The chart export of W&B: a column of steps, and for each run one of values with its least and greatest."""

from __future__ import annotations

from dataclasses import replace

from lr_sweep.analysis.judge.readers.from_rows import labels_of, table_of_rows
from lr_sweep.analysis.judge.table_file import MOST_ROWS, TableFile
from lr_sweep.common.errors import UserError

BETWEEN = " - "
"""Between the name of a run and that of a metric."""
ENDS = ("__MIN", "__MAX")
STEPS = {"step", "_step", "epoch", "global_step", "trainer/global_step", "relative time (process)"}


def without_chart(table: TableFile) -> TableFile:
    """Return a chart with a row a run and step, and any other table as it is.

    The names of runs give their settings. Raises UserError if they have no rate.
    """
    first, *others = table.columns
    if first.lower() not in STEPS or not others or not all(BETWEEN in name for name in others):
        return table
    rows = []
    for name in [name for name in others if not name.endswith(ENDS)]:
        run, _, metric = name.rpartition(BETWEEN)
        labels = {"run": run, **labels_of(run)}
        if not {"lr", "learning_rate"} & {key.lower().rpartition(".")[2] for key in labels}:
            raise UserError(
                f"{table.path}: a chart of W&B, in which the name of the run {run[:60]!r} has no learning rate: export "
                "the table of runs instead, or group the runs by it"
            )
        steps = zip(table.columns[first], table.columns[name], strict=True)
        rows += [{**labels, "step": step, metric: value} for step, value in steps if value.strip()]
        if len(rows) > MOST_ROWS:  # which is refused: the rest would fill the memory
            break
    found = table_of_rows(table.path, rows, "a chart of W&B")
    return replace(found, sha256=table.sha256, decimal_comma=table.decimal_comma)
