"""The folded tables of a report: every learning rate, every pair, the orders and the options."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from itertools import combinations

import pandas as pd

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.statistics.comparisons.orders import Kind
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.analysis.statistics.selection.summary import GROUP, StudySummary
from lr_sweep.common.text import NO_VALUE, rate_text

from .blocks import Entry, Table, entries_of, laid_out
from .cells import (
    compared_seeds,
    incomplete_text,
    incomplete_texts,
    mean_sem_text,
    measured_text,
    seeds_text,
)
from .numbers import p_value, range_text, with_minus

CHOSEN = "*"
MOST_PAIRS = 200
"""Rows of a table of pairs; of more it has those with a task's best variant, and its CSV file has all."""
KINDS: Mapping[Kind, str] = {
    "same": "as tuned",
    "order": "another order",
    "winner": "another winner",
    "unknown": NO_VALUE,
}


def learning_rate_table(summary: StudySummary, task: str, model: str) -> Table:
    """Lay out one task's test values, variants by learning rates: the figure in numbers."""
    shown, metric = summary.of(task=task, model=model), summary.metric
    rates, chosen = shown.learning_rates, shown.cells.set_index("variant")["learning_rate"]
    entries = [
        _at_rate(row, row["learning_rate"] == chosen[row["variant"]], metric)
        for row in rates.to_dict("records")
    ]
    texts = rates.assign(entry=entries).pivot(
        index="variant", columns="learning_rate", values="entry"
    )
    by_variant = texts.loc[rates["variant"].unique()].fillna(NO_VALUE)
    several = len(summary.cells[GROUP].drop_duplicates()) > 1
    group = f", {task}, {model}" if several else ""
    return Table(
        title=f"{metric.title} by learning rate{group}",
        caption=_by_rate_caption(summary, rates["most_seeds"].max()),
        header=("variant", *(rate_text(float(rate)) for rate in texts.columns)),
        rows=tuple(by_variant.itertuples(name=None)),
    )


def _at_rate(row: Row, chosen: bool, metric: Metric) -> str:
    incomplete = incomplete_text({**row, "num_lacking": 0})
    fewer_seeds = seeds_text(row) if row["num_values"] else ""
    lost = f" ({incomplete})" if incomplete else ""
    return mean_sem_text(row, metric) + fewer_seeds + lost + (f" {CHOSEN}" if chosen else "")


def _by_rate_caption(summary: StudySummary, num_seeds: int) -> str:
    metric = summary.metric
    unit = "In percent, " if metric.is_fraction else ""
    values = f"mean ± SEM over {num_seeds} seeds unless marked" if num_seeds > 1 else "one seed"
    measured = measured_text(summary)
    text = f"{unit}{values}{',' if measured else ''}{measured}."
    sentences = [text[0].upper() + text[1:]]
    if metric.chosen_on and not metric.untuned:
        sentences.append(f"A star marks the learning rate that {metric.chosen_on} chose.")
    if summary.fresh is not None:
        sentences.append("These seeds chose the learning rates, and compare no variants.")
    return " ".join(sentences)


def pair_table(pairs: pd.DataFrame, summary: StudySummary, leaders: Collection[str]) -> Table:
    """Show the comparisons of a study: differences in points of percent, or as they are.

    `pairs`: the result of `comparisons`, with `condition`; `leaders`: the best variants, one a task and model.
    """
    metric = summary.metric
    is_leading = pairs["variant"].isin(leaders) | pairs["other"].isin(leaders)
    shown = pairs[is_leading] if len(pairs) > MOST_PAIRS else pairs

    def seeds(row: Row) -> str:
        numbers = [row["num_seeds"], row["num_other_seeds"]]
        return " and ".join(map(str, dict.fromkeys(numbers)))

    def difference(row: Row) -> str:
        half_width = (row["high"] - row["low"]) / 2
        return with_minus(metric.difference_text(row["difference"], half_width))

    def yes_or_no(row: Row, answer: str) -> str:
        return "not tested" if math.isnan(row["corrected_p"]) else "yes" if row[answer] else "no"

    columns = {
        "variants": lambda row: f"{row['variant']} − {row['other']}",
        "seeds": seeds,
        "difference": difference,
        "95% interval": lambda row: range_text(*metric.ends_text(row["low"], row["high"])),
        "corrected p": lambda row: p_value(row["corrected_p"]),
        "different": lambda row: yes_or_no(row, "distinguishable"),
        "equal": lambda row: yes_or_no(row, "equal") if summary.equal_within else "",
        "findable": lambda row: metric.text(row["findable"]),
        "remarks": lambda row: "; ".join(filter(None, [row["note"], row["condition"]])),
    }
    caption = _pair_caption(summary, pairs, len(shown))
    return laid_out("Variants compared", caption, shown, columns)


def _pair_caption(summary: StudySummary, pairs: pd.DataFrame, num_shown: int) -> str:
    metric, num_tested = summary.metric, pairs["p"].count()
    unit = "in points" if metric.is_fraction else f"{metric.better} is better"
    sentences = [
        f"Mean {metric.test} over {compared_seeds(summary)} of the first variant minus that of the "
        f"second ({unit}), each at its own learning rate. Welch's t tests."
    ]
    if num_tested > 1:
        sentences.append(
            f"p and the interval are corrected for all {num_tested} pairs of the study (Holm)."
        )
    sentences.append('"Findable" is the difference that these seeds would find in 80% of studies.')
    if summary.equal_within is not None:
        within = metric.amount_text(summary.equal_within)
        sentences.append(
            f"Equal variants certainly differ by less than {within}, and both are tuned."
        )
    if (pairs["condition"] != "").any():
        sentences.append("A condition says why the worse variant may yet be better.")
    if num_shown < len(pairs):
        sentences.append(
            "Only pairs with the best variant of a task are shown; "
            f"`comparisons.csv` has all {len(pairs)}."
        )
    return " ".join(sentences)


def order_table(orders: pd.DataFrame, metric: Metric = ACCURACY, *, fresh: bool = False) -> Table:
    """Show the result of `order_texts`; `fresh`: the tuned means are of fresh seeds."""

    def conclusion(row: Row) -> str:
        if math.isnan(row["learning_rate"]):
            return ""
        return KINDS[row["kind"]] + ("" if row["sure"] else ", not significant")

    columns = {
        "learning rate": lambda row: (
            "tuned" if math.isnan(row["learning_rate"]) else rate_text(row["learning_rate"])
        ),
        "order": entries_of("order"),
        "not complete": entries_of("incomplete"),
        "conclusion": conclusion,
        "significant": entries_of("leads"),
    }
    seeds = ", on fresh seeds" if fresh else ""
    caption = (
        f"By mean {metric.test}, best first. The row `tuned` has each variant at its own learning rate{seeds}; "
        "the other rows have all variants at one rate. Variants joined by = have equal means. Every pair is "
        "tested at every rate with three seeds or more (Welch's t tests, corrected for all pairs and rates by "
        "Holm's method; `comparisons-at-rates.csv`)."
    )
    return laid_out("Order of the variants at each learning rate", caption, orders, columns)


def order_texts(orders: pd.DataFrame) -> pd.DataFrame:
    """Return the result of `orders` with its orders and incomplete runs as text: `a > b = c`.

    `leads` names the variants that lead others significantly; means are in `learning_rates.csv`.
    """
    written = [" > ".join(map(" = ".join, order)) or NO_VALUE for order in orders["order"]]
    means_and_leads = zip(orders["means"], orders["significant"], strict=True)
    shown = orders.assign(
        order=written,
        incomplete=list(map(incomplete_texts, orders["incomplete"])),
        leads=[_leads_text(means, leads) for means, leads in means_and_leads],
    )
    return shown.drop(columns=["means", "significant"])


def _leads_text(means: Mapping[str, float], significant: Collection[tuple[str, str]]) -> str:
    """Name the pairs that differ significantly, the better variant first; `means`: best first."""
    leads = [pair for pair in combinations(means, 2) if pair in significant]
    return ", ".join(map(" > ".join, leads))


def options_table(options: pd.DataFrame) -> Table:
    """Show what `options_at_chosen` returns."""
    names = [str(name) for name in options if name not in (*CELL, "learning_rate")]

    def option(name: str) -> Entry:
        return lambda row: json.dumps(row[name])

    columns = {
        "variant": entries_of("variant"),
        "learning rate": lambda row: rate_text(row["learning_rate"]),
        **{name: option(name) for name in names},
    }
    caption = "What the search chose with each variant's learning rate."
    return laid_out("Options at the chosen learning rate", caption, options, columns)


def options_at_chosen(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row a cell with its learning rate and a column an option that a search chose with it.

    `runs`: those at the chosen learning rates, with a column `options` of JSON.
    """
    first = runs.dropna(subset=["options"]).drop_duplicates(CELL).reset_index(drop=True)
    options = pd.DataFrame([json.loads(text) for text in first["options"]], dtype=object)
    return pd.concat([first[[*CELL, "learning_rate"]], options], axis=1)
