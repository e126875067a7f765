"""A table of fresh seeds at the learning rates that the first table chose: what it decides, and what to run next."""

from __future__ import annotations

import textwrap

from lr_sweep.analysis.judge.judge import Judged, judged
from lr_sweep.analysis.judge.runs import RUN
from lr_sweep.analysis.record.read import Deciding
from lr_sweep.analysis.report.decided import decided_texts
from lr_sweep.analysis.statistics.comparisons.decision import Decision, decide
from lr_sweep.common.errors import UserError
from lr_sweep.common.text import counted, rate_text

MAX_SEEDS, ERROR, WIDTH = 20, 0.05, 110


def decided_text(found: Judged, fresh: str, min_difference: float) -> str:
    """Compare all variants of each task and model on the seeds of a table, read as the first one was; say what to run.

    Raises UserError if a run is in both: seeds that chose are not fresh.
    """
    chosen = found.study.summary
    if not chosen.metric.chosen_on:
        raise UserError("--decide: the table chooses no learning rate, so no seed is one at a chosen rate")
    runs = judged([fresh], found.reading).study.summary.runs
    if len(tasks := chosen.cells["task"].unique()) == 1 and runs["task"].nunique() == 1:
        runs = runs.assign(task=tasks[0])  # without a column of tasks each file is one
    both = runs.merge(chosen.runs[RUN], on=RUN)
    if len(both):
        row = both.iloc[0]
        where = f"seed {row['seed']} of {row['variant']} at {rate_text(row['learning_rate'])}"
        raise UserError(f"--decide {fresh}: {where} is in both tables: leave out seeds that chose the learning rate")
    settings = Deciding(pairs="all", min_difference=min_difference, max_seeds=MAX_SEEDS, error=ERROR)
    decision = decide(chosen, runs, settings)
    return next_text(decision, len(runs) - int(decision.num_used.sum()))


def next_text(decision: Decision, num_elsewhere: int) -> str:
    """Say what is decided, and which seeds to run next; `num_elsewhere`: runs at no chosen rate."""
    rates = dict(zip(decision.cells, decision.rates, strict=True))
    several = len({cell[:2] for cell in decision.cells}) > 1
    next_ = [
        f"{' '.join(cell) if several else cell[2]} at {rate_text(rates[cell])}: {counted(number, 'fresh seed')}"
        for cell, number in decision.next_seeds().items()
    ]
    elsewhere = [f"{counted(num_elsewhere, 'run')} of no compared variant at its chosen rate"] if num_elsewhere else []
    said = {"decided": [decision.progress(), *decided_texts(decision).values()], "left out": elsewhere}
    said["run next"] = next_
    return "\n".join(_laid_out(head, line) for head, lines in said.items() for line in lines)


def _laid_out(head: str, line: str) -> str:
    return textwrap.fill(line, WIDTH, initial_indent=f"{head:11}", subsequent_indent=" " * 11)
