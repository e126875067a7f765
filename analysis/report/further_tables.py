"""Tables of intervals, comparisons, orders and device time; `tables.yaml` lays them out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.report.blocks import Table
from lr_sweep.analysis.report.tables import incomplete_texts
from lr_sweep.analysis.report.texts import laid_out, say
from lr_sweep.analysis.statistics.checks.modes import two_modes
from lr_sweep.analysis.statistics.comparisons.pairs import is_paired, seed_correlation
from lr_sweep.analysis.statistics.comparisons.uncertainty import t_factor
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.analysis.statistics.selection.summary import GROUP, StudySummary
from lr_sweep.common.text import NO_VALUE, rate_text

MOST_PAIRS = 200
"""Rows of a table of pairs; of more it has those with a task's best variant, and its CSV file has all."""
Leaders = Mapping[tuple[str, str], str]
"""The best variant of each task and model."""


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
            (*(row[name] for name in CELL), rate_text(row["learning_rate"]), *(json.dumps(row[name]) for name in names))
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


def comparison_table(found: pd.DataFrame, summary: StudySummary, leaders: Leaders | None = None) -> Table:
    """Show the result of `comparisons.comparisons` of a study: differences in points of percent, or as they are."""
    metric, paired = summary.metric, is_paired(summary)
    facts: dict[str, Any] = {"tested": found["p"].count(), "groups": len(found[GROUP].drop_duplicates())}
    facts |= {"within": "" if summary.equal_within is None else metric.amount_text(summary.equal_within)}
    refused = "" if paired or not summary.paired else say("refused", correlation=seed_correlation(summary))
    facts |= {"paired": paired, "refused": refused, "two_modes": ", ".join(map(" ".join, two_modes(summary)))}
    shown = _leading(found, ("variant", "other"), leaders)
    return laid_out("comparisons", shown, metric=metric, of=len(found), **facts)


def _leading(pairs: pd.DataFrame, names: tuple[str, str], leaders: Leaders | None) -> pd.DataFrame:
    """Return the pairs that a table shows; `names` are the columns of the two variants."""
    if leaders is None or len(pairs) <= MOST_PAIRS:
        return pairs
    best = pd.Series([leaders.get(group) for group in pairs[GROUP].itertuples(index=False, name=None)], pairs.index)
    return pairs[pairs[names[0]].eq(best) | pairs[names[1]].eq(best)]


def order_table(found: pd.DataFrame, metric: Metric = ACCURACY) -> Table:
    """Show the result of `orders.orders`."""
    return laid_out("orders", order_texts(found), metric=metric)


def order_texts(found: pd.DataFrame) -> pd.DataFrame:
    """Return the result of `orders.orders` with an order as `a > b = c`, runs that are not complete and flips as text.

    `flipped` names the flips; means are in `learning_rates.csv`.
    """
    written = [" > ".join(map(" = ".join, order)) or NO_VALUE for order in found["order"]]
    flipped = [", ".join(f"{flip.worse} > {flip.better}" for flip in flips) for flips in found["flips"]]
    shown = found.assign(order=written, incomplete=list(map(incomplete_texts, found["incomplete"])), flipped=flipped)
    return shown.drop(columns=["means", "flips"])


def ledger_table(cells: pd.DataFrame) -> Table:
    """Show the result of `ledger.ledger` with a total."""
    total = cells.drop(columns=CELL).sum().to_frame().T.assign(task="total", model="", variant="")
    return laid_out("ledger", pd.concat([cells, total]))
