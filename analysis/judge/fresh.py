"""`judge --decide`: a table's variants compared on the fresh seeds of a second table, and what to run next."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from lr_sweep.analysis.record.study import Fresh
from lr_sweep.analysis.statistics.comparisons.fresh import next_seeds, progress
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.common.errors import UserError
from lr_sweep.common.text import counted, rate_text

from .judge import Judged, judged
from .runs import RUN

UNTIL_DECIDED = Fresh(max=20, until_decided=True)


def on_fresh_seeds(found: Judged, table: str, fresh: Fresh = UNTIL_DECIDED) -> Judged:
    """Rest a judged table on the seeds of a second table, read as the first one was.

    Raises UserError if a run is in both: seeds that chose the learning rate are not fresh.
    """
    chosen = found.study.summary
    if not chosen.metric.chosen_on:
        raise UserError(
            "--decide: the table chooses no learning rate, so no seed is one at a chosen rate"
        )
    runs = judged([table], found.reading).study.summary.runs
    tasks = chosen.cells["task"].unique()
    if len(tasks) == 1 and runs["task"].nunique() == 1:
        runs = runs.assign(task=tasks[0])  # without a column of tasks each file is one
    _refuse_seeds_that_chose(chosen, runs, table)
    summary = chosen.on_fresh_seeds(fresh, runs)
    about = (*found.study.about_table, *_left_out(summary, len(runs)))
    return found._replace(study=replace(found.study, summary=summary, about_table=about))


def _refuse_seeds_that_chose(chosen: StudySummary, runs: pd.DataFrame, table: str) -> None:
    in_both = runs.merge(chosen.runs[RUN], on=RUN)
    if in_both.empty:
        return
    row = in_both.iloc[0]
    run = f"seed {row['seed']} of {row['variant']} at {rate_text(row['learning_rate'])}"
    raise UserError(
        f"--decide {table}: {run} is in both tables: leave out seeds that chose the learning rate"
    )


def _left_out(summary: StudySummary, num_runs: int) -> list[str]:
    number = num_runs - len(summary.chosen_runs)
    return [f"{counted(number, 'run')} of no variant at its chosen rate"] if number else []


def fresh_text(summary: StudySummary) -> str:
    """Say how far the comparison is, and which fresh seeds to run next."""
    lines = [f"decided    {progress(summary)}"]
    rates = summary.cells.set_index(CELL)["learning_rate"]
    for cell, number in next_seeds(summary).items():
        where = f"{' '.join(cell)} at {rate_text(rates[cell])}"
        lines.append(f"run next   {where}: {counted(number, 'fresh seed')}")
    return "\n".join(lines)
