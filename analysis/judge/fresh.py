"""`judge --decide`: a table's variants compared on the fresh seeds of a second table, and which seeds to run next."""

from __future__ import annotations

from lr_sweep.analysis.judge.judge import Judged, judged
from lr_sweep.analysis.judge.runs import RUN
from lr_sweep.analysis.record.study import Deciding
from lr_sweep.analysis.report.verdict import decided_texts
from lr_sweep.analysis.statistics.comparisons.decision import decide
from lr_sweep.common.errors import UserError
from lr_sweep.common.text import counted, rate_text

DECIDE_ERROR = 0.05
MAX_SEEDS = 20
"""Fresh seeds of each variant, at most."""


def decided_text(found: Judged, fresh: str, min_difference: float) -> str:
    """Compare all variants of each task and model on the seeds of a table, read as the first one was; say what to run.

    Raises UserError if a run is in both: seeds that chose are not fresh.
    """
    chosen = found.study.summary
    if not chosen.metric.chosen_on:
        raise UserError(
            "--decide: the table chooses no learning rate, so no seed is one at a chosen rate"
        )
    runs = judged([fresh], found.reading).study.summary.runs
    if len(tasks := chosen.cells["task"].unique()) == 1 and runs["task"].nunique() == 1:
        runs = runs.assign(task=tasks[0])  # without a column of tasks each file is one
    both = runs.merge(chosen.runs[RUN], on=RUN)
    if len(both):
        row = both.iloc[0]
        where = f"seed {row['seed']} of {row['variant']} at {rate_text(row['learning_rate'])}"
        raise UserError(
            f"--decide {fresh}: {where} is in both tables: leave out seeds that chose the learning rate"
        )
    settings = Deciding(
        pairs="all", min_difference=min_difference, max_seeds=MAX_SEEDS, error=DECIDE_ERROR
    )
    decision = decide(chosen, runs, settings)
    rates = dict(zip(decision.cells, decision.rates, strict=True))
    several = len({cell[:2] for cell in decision.cells}) > 1
    next_ = [
        f"{' '.join(cell) if several else cell[2]} at {rate_text(rates[cell])}: {counted(number, 'fresh seed')}"
        for cell, number in decision.next_seeds().items()
    ]
    num_elsewhere = len(runs) - int(decision.num_used.sum())
    elsewhere = (
        [f"{counted(num_elsewhere, 'run')} of no compared variant at its chosen rate"]
        if num_elsewhere
        else []
    )
    decided = [decision.progress(), *decided_texts(decision).values()]
    failed = list(filter(None, [decision.failures()]))
    said = {"decided": decided, "failed": failed, "left out": elsewhere, "run next": next_}
    return "\n".join(f"{head:11}{line}" for head, lines in said.items() for line in lines)
