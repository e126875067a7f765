"""The tables of a study's accuracies, one entry a cell or learning rate, and how their entries and captions read.

Accuracies stand for the values of any metric.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pandas as pd

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.record.study import StudyInfo
from lr_sweep.analysis.report.blocks import Table
from lr_sweep.analysis.report.texts import laid_out, say
from lr_sweep.analysis.statistics.comparisons.pairs import comparisons
from lr_sweep.analysis.statistics.comparisons.uncertainty import t_factor
from lr_sweep.analysis.statistics.comparisons.verdicts import ranked
from lr_sweep.analysis.statistics.selection.best import (
    CELL,
    comparable,
    rule_text,
    seeds_of,
    tuples_in,
)
from lr_sweep.analysis.statistics.selection.summary import GROUP, OUTCOMES, StudySummary
from lr_sweep.common.text import NO_VALUE, counted, rate_text

PROVISIONAL = "†"
AT_EDGE = "‡"
UNSTABLE = "§"
CHOSEN = "*"
MARKS = {
    NO_VALUE: "no value, and why",
    PROVISIONAL: "runs are missing, short or failed, so the choice may change",
    AT_EDGE: "the chosen learning rate is the smallest or largest tried, so the best may lie outside",
    UNSTABLE: "runs at the chosen learning rate diverged; they count with their best model before that, if any",
}
MOST_PAIRS = 200
"""Rows of a table of pairs; of more it has those with a task's best variant, and its CSV file has all."""
Leaders = Mapping[tuple[str, str], str]
"""The best variant of each task and model."""
MOST_BUDGETS = 3
"""Step budgets of one task that are listed; more are given as a range."""


def facts(info: StudyInfo, summary: StudySummary) -> str:
    """Say what the numbers of a summary rest on: in the caption of what stands alone, else once."""
    runs = summary.runs
    return say(
        "facts",
        info=info,
        seeds=seeds_of(runs).max(),
        fresh=_fresh_seeds(summary),
        rule=rule_text(info.metric, has_steps(runs)),
        budgets=_budgets(runs),
        pretrained=_pretrained_text(runs),
        data=_grouped(runs, "data_origin", "task"),
    )


def _fresh_seeds(summary: StudySummary) -> str:
    """Count the fresh seeds of a cell; empty: the seeds that choose a learning rate compare, too."""
    return counted(summary.cells["most_seeds"].max(), "fresh seed") if summary.fresh else ""


def compared_seeds(summary: StudySummary) -> str:
    """Name the seeds whose mean a cell has at its chosen learning rate."""
    fresh = _fresh_seeds(summary)
    return f"{fresh}, which chose no learning rate" if fresh else "seeds"


def has_steps(runs: pd.DataFrame) -> bool:
    """Return whether the steps of runs are known; those of a table may not be."""
    return bool(runs["num_steps"].gt(0).any())


def _pretrained_text(runs: pd.DataFrame) -> str:
    """Name what "pretrained" means for these runs, for captions; empty for a table's runs without it."""
    if runs["data_origin"].isna().all() and runs["pretrained_on"].isna().all():
        return ""
    return _grouped(runs, "pretrained_on", "model") or "no variant"


def _budgets(runs: pd.DataFrame) -> str:
    if not has_steps(runs):
        return ""
    if runs.groupby("task")["num_steps"].nunique().max() > MOST_BUDGETS:
        return f"{runs['num_steps'].min()} to {runs['num_steps'].max()}"
    return _grouped(runs, "num_steps", "task")


def main_table(info: StudyInfo, summary: StudySummary, model: str) -> Table:
    """Lay out one model's test accuracies, variants by tasks, as in Rothermel et al. 2021, Table 1.

    `summary` is of the whole study, since comparisons are corrected over all of it.
    """
    shown, metric = summary.of(model=model), summary.metric
    tasks, variants = list(shown.cells["task"].unique()), list(shown.cells["variant"].unique())
    texts = {
        (cell["variant"], cell["task"]): accuracy_text(cell, metric)
        for cell in shown.cells.to_dict("records")
    }
    rows = tuple((v, *(texts.get((v, t), NO_VALUE) for t in tasks)) for v in variants)
    num_bold = None if is_tested(summary) else 1
    bold = frozenset(
        (variants.index(variant), tasks.index(labels["task"]) + 1)
        for labels, best, *_ in ranked(summary)
        for variant in best[:num_bold]
        if labels["model"] == model
    )
    return Table(
        title=f"{metric.title}, {model}",
        caption=say("tuned", metric=metric, seeds=compared_seeds(summary)) + marks_text(rows),
        shared=facts(info, shown),
        header=("variant", *tasks),
        rows=rows,
        bold=bold,
        bold_text=bold_text(summary),
    )


def is_tested(summary: StudySummary) -> bool:
    """Return whether any two variants of the study have enough seeds to be compared."""
    return bool(comparisons(summary)["p"].notna().any())


def bold_text(summary: StudySummary) -> str:
    """Say what bold entries are."""
    return say("main_bold", metric=summary.metric, tested=is_tested(summary))


def learning_rate_table(summary: StudySummary, task: str, model: str) -> Table:
    """Lay out one task's test accuracies, variants by learning rates: the figure in numbers."""
    shown = summary.of(task=task, model=model)
    rates, chosen = shown.learning_rates, shown.cells.set_index("variant")["learning_rate"]
    metric = summary.metric
    swept = sorted(rates["learning_rate"].unique())
    texts = {
        (row["variant"], row["learning_rate"]): _at_rate(
            row, row["learning_rate"] == chosen[row["variant"]], metric
        )
        for row in rates.to_dict("records")
    }
    pretrained = _pretrained_text(summary.of(model=model).runs)
    return Table(
        title=f"{metric.title} by learning rate, {task}, {model}",
        caption=say(
            "learning_rates",
            metric=metric,
            seeds=rates["most_seeds"].max(),
            fresh=summary.fresh is not None,
            pretrained=pretrained,
        ),
        header=("variant", *map(rate_text, swept)),
        rows=tuple(
            (v, *(texts.get((v, rate), NO_VALUE) for rate in swept))
            for v in rates["variant"].unique()
        ),
    )


def detail_table(info: StudyInfo, summary: StudySummary) -> Table:
    """List every cell with its chosen learning rate and what that rests on."""
    cells, sign = summary.cells, summary.metric.sign
    shown = cells.assign(
        margin=sign
        * (cells["validation_mean"].map(comparable) - cells["runner_up_mean"].map(comparable)),
        not_complete=list(map(incomplete_text, cells.to_dict("records"))),
    )
    context = {"steps": has_steps(summary.runs), "seeds": compared_seeds(summary)}
    table = laid_out("cells", shown, metric=summary.metric, **context)
    return replace(table, shared=facts(info, summary))


def accuracy_text(cell: Row, metric: Metric = ACCURACY) -> str:
    """Write the test accuracy of a cell with what marks it."""
    if not cell["num_values"]:
        return lost_text(cell)
    return mean_sem_text(cell, metric) + seeds_text(cell) + marks_of(cell)


def lost_text(cell: Row) -> str:
    """Write why a cell, or one of its rates, has no value."""
    if not math.isnan(cell["validation_mean"]):
        return f"{NO_VALUE} (no fresh seed)"
    lost = [f"{cell[x]} of {cell['num_wanted']} {x}" for x in reversed(OUTCOMES) if cell[x]]
    return f"{NO_VALUE} ({', '.join(lost)})"


def incomplete_text(counts: Row) -> str:
    """Count the runs that are not complete: `1 missing, 2 diverged`; empty: all are."""
    found = [f"{counts[status]} {status}" for status in reversed(OUTCOMES[1:]) if counts[status]]
    return ", ".join(
        [
            *found,
            *([f"{lacking} without a value"] if (lacking := counts.get("num_lacking")) else []),
        ]
    )


def incomplete_texts(by_variant: Mapping[str, Row]) -> str:
    """Name the variants with runs that are not complete, and count these: `unfrozen-random: 3 diverged`."""
    return "; ".join(
        f"{variant}: {incomplete_text(counts)}" for variant, counts in by_variant.items()
    )


def seeds_text(row: Row, number: int | None = None) -> str:
    """Count the seeds that a number rests on where these are fewer than elsewhere in its cell, or in the study.

    `row`: of `StudySummary.cells` or `StudySummary.learning_rates`; `number`: of seeds, by default those with a test
    value.
    """
    number = row["num_tests"] if number is None else number
    if number < row["num_seeds"]:
        return f" ({number} of {row['num_seeds']} seeds)"
    return f" ({number} seed{'s' if number > 1 else ''})" if number < row["most_seeds"] else ""


def steps_text(best_steps: object) -> str:
    """Write the best steps of a cell, by seed; empty: it has no value."""
    return " ".join(map(str, best_steps)) if isinstance(best_steps, tuple) else ""


def marks_of(cell: Row) -> str:
    """Return the marks of `MARKS` that a cell's entries carry."""
    lost = cell["missing"] + cell["short"] + cell["failed"]
    holds = {PROVISIONAL: lost, AT_EDGE: cell["at_edge"], UNSTABLE: cell["num_diverged"]}
    marks = "".join(mark for mark, found in holds.items() if found)
    return f" {marks}" if marks else ""


def marks_text(rows: Sequence[Sequence[str]]) -> str:
    """Explain the marks that occur in a table's rows, for its caption."""
    return "".join(
        f" {mark}: {doc}."
        for mark, doc in MARKS.items()
        if any(mark in x for row in rows for x in row)
    )


def mean_sem_text(cell: Row, metric: Metric = ACCURACY) -> str:
    """Write mean ± SEM as the metric does; one seed has no SEM."""
    return metric.mean_text(cell["test_mean"], cell["test_sem"])


def _at_rate(row: Row, chosen: bool, metric: Metric) -> str:
    incomplete = incomplete_text({**row, "num_lacking": 0})
    some = seeds_text(row) if row["num_values"] else ""
    lost = f" ({incomplete})" if incomplete else ""
    return mean_sem_text(row, metric) + some + lost + (f" {CHOSEN}" if chosen else "")


def _grouped(runs: pd.DataFrame, column: str, by: str) -> str:
    """List the values of a column, each with what has it: `300 (mnist, cifar10)`."""
    names = runs.groupby(column, sort=False)[by].unique()
    return "; ".join(f"{value} ({', '.join(map(str, found))})" for value, found in names.items())


def interval_table(found: pd.DataFrame, metric: Metric = ACCURACY) -> Table:
    """Show the result of `uncertainty.intervals`."""
    return laid_out("intervals", found, metric=metric, t_factor=t_factor(3))


def options_table(chosen: pd.DataFrame) -> Table:
    """Show what `options_at_chosen` returns."""
    names = [name for name in chosen if name not in (*CELL, "learning_rate")]
    return Table(
        title="Options at the chosen learning rate",
        caption="What the search chose with each cell's learning rate.",
        header=(*CELL, "learning rate", *map(str, names)),
        rows=tuple(
            (
                *(row[name] for name in CELL),
                rate_text(row["learning_rate"]),
                *(json.dumps(row[name]) for name in names),
            )
            for row in chosen.to_dict("records")
        ),
    )


def options_at_chosen(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row a cell with its learning rate and a column an option that a search chose with it.

    `runs`: those at the chosen learning rates, with a column `options` of JSON.
    """
    first = runs.dropna(subset=["options"]).drop_duplicates(CELL).reset_index(drop=True)
    found = pd.DataFrame([json.loads(text) for text in first["options"]], dtype=object)
    return pd.concat([first[[*CELL, "learning_rate"]], found], axis=1)


def comparison_table(
    found: pd.DataFrame, summary: StudySummary, leaders: Leaders | None = None
) -> Table:
    """Show the result of `comparisons.comparisons` of a study: differences in points of percent, or as they are."""
    metric = summary.metric
    facts: dict[str, Any] = {
        "tested": found["p"].count(),
        "groups": len(found[GROUP].drop_duplicates()),
    }
    facts |= {
        "condition": "",
        "seeds": compared_seeds(summary),
        "within": "" if summary.equal_within is None else metric.amount_text(summary.equal_within),
    }
    shown = _leading(found, ("variant", "other"), leaders)
    return laid_out("comparisons", shown, metric=metric, of=len(found), **facts)


def _leading(pairs: pd.DataFrame, names: tuple[str, str], leaders: Leaders | None) -> pd.DataFrame:
    if leaders is None or len(pairs) <= MOST_PAIRS:
        return pairs
    best = pd.Series([leaders.get(group) for group in tuples_in(pairs[GROUP])], pairs.index)
    return pairs[pairs[names[0]].eq(best) | pairs[names[1]].eq(best)]


def order_table(found: pd.DataFrame, metric: Metric = ACCURACY, *, fresh: bool = False) -> Table:
    """Show the result of `verdicts.orders`; `fresh`: the tuned means are of fresh seeds."""
    return laid_out("orders", order_texts(found), metric=metric, fresh=fresh)


def order_texts(found: pd.DataFrame) -> pd.DataFrame:
    """Return the result of `verdicts.orders` with its orders and incomplete runs as text: `a > b = c`.

    `leads` names the variants that lead others significantly; means are in `learning_rates.csv`.
    """
    written = [" > ".join(map(" = ".join, order)) or NO_VALUE for order in found["order"]]
    incomplete = list(map(incomplete_texts, found["incomplete"]))
    leads = [
        _leads_text(means, significant)
        for means, significant in zip(found["means"], found["significant"], strict=True)
    ]
    shown = found.assign(order=written, incomplete=incomplete, leads=leads)
    return shown.drop(columns=["means", "significant"])


def _leads_text(means: Mapping[str, float], significant: Collection[tuple[str, str]]) -> str:
    """Name the pairs that differ significantly, the better variant first; `means`: best first."""
    ranked = list(means)
    leads = [(one, other) for one, other in combinations(ranked, 2) if (one, other) in significant]
    return ", ".join(map(" > ".join, leads))


def ledger_table(cells: pd.DataFrame) -> Table:
    """Show the result of `ledger.ledger` with a total."""
    total = cells.drop(columns=CELL).sum().to_frame().T.assign(task="total", model="", variant="")
    return laid_out("ledger", pd.concat([cells, total]))
