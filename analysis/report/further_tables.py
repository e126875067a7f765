"""Tables of intervals, comparisons, orders, sensitivities, importances and device time."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import partial

import pandas as pd

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.report.blocks import Row, Table
from lr_sweep.analysis.report.tables import incomplete_text, mean_sem_text, pretrained_text
from lr_sweep.analysis.report.texts import say
from lr_sweep.analysis.statistics.importance import COMPONENTS
from lr_sweep.analysis.statistics.selection import CELL
from lr_sweep.analysis.statistics.uncertainty import t_factor
from lr_sweep.common.text import NO_VALUE, percent_text, rate_text

SHOWN_TRIES = (1, 2, 3, 5, 10)
"""Columns of the table of expected bests; the CSV file has every number."""
UNKNOWN = "unknown"
COMPONENT_NAMES = {"learning_rate_by_variant": "rate by variant"}
"""Headings that are not the component's own name."""

GROUP = {"task": "task", "model": "model"}
LABELS = GROUP | {"variant": "variant"}
"""Columns that name a cell, as `Table.of` takes them."""


def interval_table(found: pd.DataFrame, metric: Metric = ACCURACY) -> Table:
    """Show the result of `uncertainty.intervals`."""
    return Table.of(
        found,
        f"{metric.title} with intervals",
        say("intervals", metric=metric, t_factor=t_factor(3)),
        {
            **LABELS,
            "learning rate": _rate,
            "seeds": lambda cell: f"{cell['num_tests']} of {cell['num_seeds']}",
            "mean ± SEM": lambda cell: mean_sem_text(cell, metric),
            "through selection": lambda cell: _interval(cell["low"], cell["high"], metric),
            "fixed rate": lambda cell: _interval(cell["t_low"], cell["t_high"], metric),
            "remarks": "note",
        },
    )


def options_table(chosen: pd.DataFrame) -> Table:
    """Show what `options_at_chosen` returns."""
    names = [str(name) for name in chosen if name not in (*CELL, "learning_rate")]
    shown: dict[str, str | Callable[[Row], str]] = {name: partial(_option, name) for name in names}
    what = "What the search chose with each cell's learning rate."
    return Table.of(chosen, "Options at the chosen learning rate", what, {**LABELS, "learning rate": _rate, **shown})


def _option(name: str, row: Row) -> str:
    return json.dumps(row[name])


def options_at_chosen(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row a cell with its learning rate and a column an option that a search chose with it.

    `runs`: those at the chosen learning rates, with a column `options` of JSON.
    """
    first = runs.dropna(subset=["options"]).drop_duplicates(CELL).reset_index(drop=True)
    found = pd.DataFrame([json.loads(text) for text in first["options"]], dtype=object)
    return pd.concat([first[[*CELL, "learning_rate"]], found], axis=1)


def comparison_table(found: pd.DataFrame, metric: Metric = ACCURACY) -> Table:
    """Show the result of `comparisons.comparisons`: differences in points of percent, or as they are."""
    groups = len(found[list(GROUP)].drop_duplicates())
    return Table.of(
        found,
        "Variants compared",
        say("comparisons", metric=metric, tested=found["p"].count(), groups=groups),
        {
            **GROUP,
            "variants": lambda pair: f"{pair['variant']} − {pair['other']}",
            "seeds": lambda pair: " and ".join(map(str, dict.fromkeys((pair["num_seeds"], pair["num_other_seeds"])))),
            "difference": lambda pair: metric.difference_text(pair["difference"], _half(pair)),
            "95% interval": lambda pair: _interval(pair["low"], pair["high"], metric),
            "p": lambda pair: _p_value(pair["p"]),
            "Holm p": lambda pair: _p_value(pair["holm_p"]),
            "distinguishable": _distinguishable,
            "remarks": "note",
        },
    )


def order_table(found: pd.DataFrame, metric: Metric = ACCURACY) -> Table:
    """Show the result of `orders.orders`."""
    return Table.of(
        order_texts(found),
        "Order of the variants at each learning rate",
        say("orders", metric=metric),
        {
            **GROUP,
            "learning rate": lambda row: "tuned" if math.isnan(row["learning_rate"]) else _rate(row),
            "order": "order",
            "not complete": "incomplete",
            "as tuned": _as_tuned,
        },
    )


def order_texts(found: pd.DataFrame) -> pd.DataFrame:
    """Return the result of `orders.orders` with an order as `a > b = c` and the runs that are not complete as text."""
    orders = [" > ".join(map(" = ".join, order)) or NO_VALUE for order in found["order"]]
    lost = [[f"{name}: {incomplete_text(row)}" for name, row in rows.items()] for rows in found["incomplete"]]
    return found.assign(order=orders, incomplete=list(map("; ".join, lost)))


def reversal_table(found: pd.DataFrame, compared: pd.DataFrame, metric: Metric = ACCURACY) -> Table:
    """Show the result of `orders.reversals`, with what `comparisons.comparisons` found of the same pairs."""
    pairs = {
        (pair["task"], pair["model"], frozenset((pair["variant"], pair["other"]))): pair
        for pair in compared.to_dict("records")
    }

    def pair_of(row: Row) -> Row:
        return pairs[row["task"], row["model"], frozenset((row["better"], row["worse"]))]

    return Table.of(
        reversal_texts(found),
        "Where a fixed learning rate would have concluded the opposite",
        say("reversals", metric=metric),
        {
            **GROUP,
            "tuned": lambda row: f"{row['better']} > {row['worse']}",
            "difference": lambda row: metric.difference_text(row["tuned_difference"], _half(pair_of(row))),
            "distinguishable": lambda row: _distinguishable(pair_of(row)),
            "opposite at": lambda row: (
                f"{row['num_opposite']} of {row['num_rates']}"
                + (f", {row['num_equal']} equal" if row["num_equal"] else "")
            ),
            "learning rates": "ranges",
        },
    )


def reversal_texts(found: pd.DataFrame) -> pd.DataFrame:
    """Return the result of `orders.reversals` with ranges of learning rates as `1e-6 to 1e-4, 1e-2`."""
    ends = [[dict.fromkeys(map(rate_text, pair)) for pair in ranges] for ranges in found["ranges"]]
    return found.assign(ranges=[", ".join(map(" to ".join, ranges)) for ranges in ends])


def sensitivity_table(found: pd.DataFrame, bests: pd.DataFrame, metric: Metric = ACCURACY) -> Table:
    """Show the results of `sensitivity.sensitivities` and `sensitivity.expected_bests` side by side."""
    expected = {(*key, tried): value for *key, tried, value in bests[[*CELL, "num_tried", "expected"]].to_numpy()}
    most = bests["num_tried"].max()
    tries = [n for n in SHOWN_TRIES if n < most] + ([int(most)] if len(bests) else [])

    def best_of(tried: int) -> Callable[[Row], str]:
        return lambda cell: metric.text(expected.get((*(cell[key] for key in CELL), tried), math.nan))

    return Table.of(
        found,
        "How much the learning rate matters",
        say("sensitivity", metric=metric),
        {
            **LABELS,
            "sensitivity": lambda cell: metric.text(cell["sensitivity"]),
            "between": _between,
            **{f"best of {n}": best_of(n) for n in tries},
            "remarks": _sensitivity_remarks,
        },
    )


def importance_table(runs: pd.DataFrame, shares: pd.DataFrame, metric: Metric = ACCURACY) -> Table:
    """Show the result of `importance.importances` of some rows of `StudySummary.runs`."""
    what = say("importance", metric=metric, pretrained=pretrained_text(runs))
    texts = shares.assign(**{name: shares[name].map(_share_text) for name in COMPONENTS})
    columns = {COMPONENT_NAMES.get(name, name.replace("_", " ")): name for name in COMPONENTS}
    return Table.of(texts, "Variance explained", what, {**GROUP, "runs": "num_runs", **columns, "remarks": "note"})


def ledger_table(cells: pd.DataFrame, timed_by: Sequence[str]) -> Table:
    """Show the result of `ledger.ledger` with a total, and on what the planned times were measured.

    Pace that was measured on a busy machine is no promise.
    """
    total = cells.drop(columns=CELL).sum().to_frame().T.assign(task="total", model="", variant="")
    return Table.of(
        pd.concat([cells, total]),
        "Device-seconds planned, used and wasted",
        say("ledger", timed_by=timed_by),
        {
            **LABELS,
            "ended": lambda cell: f"{cell['num_ended']:g}/{cell['num_runs']:g}",
            "planned": _planned,
            "used": lambda cell: _seconds(cell["used_s"]),
            "used / planned": _used_of_planned,
            "lost": _lost,
            "diverged": lambda cell: _seconds(cell["diverged_s"]),
        },
    )


def _rate(row: Row) -> str:
    return rate_text(row["learning_rate"])


def _interval(low: float, high: float, metric: Metric) -> str:
    """Write an interval: `[70.1, 72.3]`."""
    return NO_VALUE if math.isnan(low) else f"[{', '.join(metric.ends_text(low, high))}]"


def _half(pair: Row) -> float:
    return float(pair["high"] - pair["low"]) / 2


def _p_value(p: float) -> str:
    return NO_VALUE if math.isnan(p) else f"{p:.2g}"


def _distinguishable(pair: Row) -> str:
    return "not known" if math.isnan(pair["holm_p"]) else "yes" if pair["distinguishable"] else "no"


def _share_text(share: float) -> str:
    return NO_VALUE if math.isnan(share) else percent_text(max(share, 0.0), digits=0)


def _as_tuned(row: Row) -> str:
    if math.isnan(row["learning_rate"]):
        return ""
    return NO_VALUE if row["order"] == NO_VALUE else "yes" if row["same"] else "no"


def _sensitivity_remarks(cell: Row) -> str:
    found = ["fewer than two learning rates have a value"] if math.isnan(cell["sensitivity"]) else []
    if cell["num_floored"]:
        found.append(f"{cell['num_floored']} without a value, all diverged: counted as the task's lowest mean")
    if cell["num_fewer"]:
        found.append(f"{cell['num_fewer']} with fewer seeds")
    if cell["num_lost"]:
        found.append(f"{cell['num_lost']} runs missing or failed, may change")
    return "; ".join(found)


def _between(cell: Row) -> str:
    return NO_VALUE if math.isnan(cell["sensitivity"]) else f"{rate_text(cell['low'])} to {rate_text(cell['high'])}"


def _used_of_planned(cell: Row) -> str:
    planned_s = cell["planned_of_ended_s"]
    return f"{cell['used_of_planned_s'] / planned_s:.2f}" if planned_s else NO_VALUE


def _planned(cell: Row) -> str:
    if not cell["num_planned"]:
        return UNKNOWN
    some = cell["num_planned"] < cell["num_runs"]
    return _seconds(cell["planned_s"]) + (f" for {cell['num_planned']:g} of the runs" if some else "")


def _lost(cell: Row) -> str:
    if not cell["num_lost_unknown"]:
        return _seconds(cell["lost_s"])
    return UNKNOWN if cell["num_lost_unknown"] == cell["num_ended"] else f"at least {_seconds(cell['lost_s'])}"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.3g}"
