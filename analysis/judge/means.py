"""Means over seeds are no runs: a table of them is refused, as one mean would count as one seed."""

from __future__ import annotations

from lr_sweep.analysis.judge.columns import Columns
from lr_sweep.analysis.judge.content import Content
from lr_sweep.analysis.judge.names import MEANS, OF_MEANS
from lr_sweep.analysis.judge.reading import Choice, QuestionError, Reading
from lr_sweep.analysis.judge.table_file import TableFile
from lr_sweep.analysis.judge.words import words_of
from lr_sweep.common.errors import UserError

NUMBERED = {"seeds", "runs", "repeats", "replicates", "reps", "folds"}
"""Words of columns that say how many runs a mean is of; or `n` alone."""
DEVIATIONS = {"std", "sd", "sem", "stderr", "stdev", "var", "variance", "ci", "ci95"}
WANTED = "`judge` needs the values of single runs, which say how far seeds differ: write a row for each run"


def refuse_means(table: TableFile, columns: Columns, reading: Reading) -> None:
    """Make sure that values are of single runs, where no column of seeds or runs says so.

    Raises:
        UserError: a column says of how many runs each row is.
        QuestionError: a name, or a column of deviations beside it, says that a value may be a mean over seeds.
    """
    if {"seed", "run"} & columns.of.keys():
        return
    content = Content(table)
    for name in [each for each in columns.unread if _counts_runs(each)]:
        if content.is_numbers(name) and max(content.numbers(name)) > 1:
            raise UserError(f"{table.path}: {name} says that rows are means over several runs. {WANTED}")
    for split in [each for each in ("validation", "test") if each in columns.of and each not in reading.columns]:
        name = columns.of[split]
        if sign := _mean_of(name, columns):
            choice = Choice("it is of one run, as a mean over episodes", Reading(columns={split: name}))
            raise QuestionError(f"{table.path}: {name} may be a mean over seeds, {sign}. {WANTED}", [choice])


def _counts_runs(name: str) -> bool:
    words = set(words_of(name))
    return words == {"n"} or bool(words & NUMBERED)


def _mean_of(name: str, columns: Columns) -> str:
    """Return why a column may hold means over seeds; empty: nothing says so."""
    words = set(words_of(name))
    if words & MEANS and not words & OF_MEANS:
        return "as its name says"
    spread = next((each for each in columns.unread if set(words_of(each)) & DEVIATIONS), None)
    beside = spread is not None and set(words_of(spread)) - DEVIATIONS <= words
    return f"as {spread} beside it is their deviation" if beside else ""
