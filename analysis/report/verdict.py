"""The verdict in words: of each task and model what is best when tuned, and what a fixed rate would have said.

With `decide` it opens with what fresh seeds decided, which also has a table and a figure of intervals against seeds.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.report.blocks import Block, Image, Section, Verdict, write_csv
from lr_sweep.analysis.report.figure_frame import (
    MIN_WIDTH,
    Style,
    dress,
    framed,
    legend,
    save,
    variant_styles,
)
from lr_sweep.analysis.report.tables import incomplete_text, seeds_text
from lr_sweep.analysis.report.texts import laid_out, say
from lr_sweep.analysis.statistics.checks.grid import not_eligible
from lr_sweep.analysis.statistics.comparisons.decision import Decision
from lr_sweep.analysis.statistics.comparisons.verdicts import Certain, Conditions, Flip, Lead
from lr_sweep.analysis.statistics.selection.best import Cell
from lr_sweep.analysis.statistics.selection.summary import GROUP, StudySummary
from lr_sweep.common.text import counted, rate_text

MINUS = "\N{MINUS SIGN}"
MOST_NAMED = 3
"""Variants that a sentence names; more are counted."""
MOST_LOST = 6
"""Learning rates that could not be chosen; more are counted."""
COUNTS = ("num_rates", "num_others", "num_sure")
"""Columns of `verdicts`."""
Few = Mapping[tuple[str, float], str]
"""How few seeds a number rests on, by variant and learning rate; empty: all."""
MOST_PAIRS = 3
"""Pairs that a sentence on fresh seeds names; more are counted."""
MOST_PANELS, MOST_LINES = 9, 8
"""Tasks and models in the figure of fresh seeds, and pairs of variants, each with its own mark; the table has all."""
TITLE = "Difference of each pair against fresh seeds"


def verdict_block(
    found: pd.DataFrame,
    summary: StudySummary,
    device_s: Mapping[Cell, float] | None = None,
    decided: Mapping[tuple[str, str], str] | None = None,
    improving: Collection[Cell] = (),
) -> Verdict:
    """Write the result of `verdicts.verdicts`, an item a task and model, each with the chosen learning rates.

    Args:
        found: the result.
        summary: of the study.
        improving: cells that still improve at the end of their step budget.
        device_s: device seconds of a run at each cell's chosen rate; None: not known.
        decided: what fresh seeds say, by task and model; it comes first.
    """
    several = summary.cells["model"].nunique() > 1
    items = []
    for row in found.to_dict("records"):
        task, model = row["task"], row["model"]
        of = summary.of(task=task, model=model)
        name = f"{task}, {model}" if several else task
        rates = of.learning_rates.to_dict("records")
        few = {(rate["variant"], rate["learning_rate"]): seeds_text(rate) for rate in rates}
        fresh = (decided or {}).get((task, model), "")
        seconds = {
            cell[-1]: value for cell, value in (device_s or {}).items() if cell[:2] == (task, model)
        }
        opening = [fresh, "The seeds that chose the learning rates say:"] if fresh else []
        is_tuned = bool(of.learning_rates["variant"].duplicated().any())
        behind = [lead.over for lead in row["leads"] if (task, model, lead.over) in improving]
        budget = (
            [say("improving", several=len(behind) > 1, named=_listed(behind))] if behind else []
        )
        sentences = [*opening, *_sentences(row, summary, few, seconds, is_tuned=is_tuned), *budget]
        items.append((name, sentences, _rests_on(of, rates)))
    return Verdict(items)


def _sentences(
    row: Row, summary: StudySummary, few: Few, device_s: Mapping[str, float], *, is_tuned: bool
) -> Iterator[str]:
    """Yield the sentences on a task and model: what is certain, what is open, what one rate would have shown.

    `is_tuned`: whether some variant has several learning rates.
    """
    if not row["best"]:
        yield "No variant has a value."
        return
    metric, leader, certain = summary.metric, row["best"][0], row["certain"]
    costs = [
        device_s.get(leader, math.nan) + device_s.get(lead.over, math.nan) for lead in row["leads"]
    ]
    leads = [_lead(lead, metric, seed_s) for lead, seed_s in zip(row["leads"], costs, strict=True)]
    within = "" if summary.equal_within is None else metric.amount_text(summary.equal_within)
    counts = {name: row[name] for name in COUNTS}
    rest = [lead for lead in leads if certain is None or lead["over"] not in certain.losers]
    first = (
        [_certain(certain, leads, metric)]
        if certain
        else []
        if leads
        else [say("alone", leader=leader)]
    )
    opening, *others = [*first, *_open(leader, rest, within)]
    yield say("opening", said=opening, is_tuned=is_tuned, untuned=metric.untuned, **counts)
    yield from others
    if leads and is_tuned and row["num_rates"] > 1:
        if row["fixed_best"]:
            yield _at_fixed_rate(row, metric, few)
        if (flip := row["strongest"]) and (
            not row["flips"] or flip.learning_rate != row["fixed_rate"]
        ):
            yield _strongest(flip, leader, metric)
        yield say("elsewhere", metric=metric, **counts)


def _lead(lead: Lead, metric: Metric, seed_s: float) -> dict[str, Any]:
    """Return what sentences say of a lead, turned so that more is better, whichever way the metric is.

    `seed_s`: device seconds of one more seed of both variants; NaN: not known.
    """
    is_known, hours = not math.isnan(lead.low), lead.further_seeds * seed_s / 3600
    return lead._asdict() | {
        **_sized(lead.difference, lead.low, lead.high, metric),
        "certain": lead.certain,
        "is_known": is_known,
        "is_undecided": is_known
        and bool(lead.difference)
        and not (lead.distinguishable or lead.equal or lead.condition),
        "cost": f"{hours:.2g} device hours" if math.isfinite(hours) else "",
    }


def _sized(difference: float, low: float, high: float, metric: Metric) -> dict[str, str]:
    low, high = sorted((metric.sign * low, metric.sign * high))
    amount = metric.amount_text(metric.sign * difference, (high - low) / 2)
    return {
        "amount": amount,
        "interval": "no interval" if math.isnan(low) else _span(low, high, metric),
    }


def _span(low: float, high: float, metric: Metric) -> str:
    return " to ".join(
        MINUS + end[1:] if end.startswith("-") else end for end in metric.ends_text(low, high)
    )


def _certain(certain: Certain, leads: Sequence[Row], metric: Metric) -> str:
    closest = next(
        lead for lead in leads if lead["over"] in certain.losers
    )  # the leader is one of the winners
    is_pair = len(certain.winners) == len(certain.losers) == 1
    amount = amounts_text(certain, (closest["high"] - closest["low"]) / 2, metric)
    written = {**closest, "amount": amount, "is_pair": is_pair}
    winners, losers = _listed(certain.winners), _listed(certain.losers)
    if len(certain.winners) + len(certain.losers) > max(len(leads), MOST_NAMED + 2):
        losers = f"all {len(certain.losers)} others"
    return say(
        "certain", winners=winners, losers=losers, several=len(certain.winners) > 1, **written
    )


def amounts_text(certain: Certain, half: float, metric: Metric) -> str:
    """Write the smallest and the largest certain difference, with the digits that half an interval shows."""
    least, most = (metric.amount_text(abs(difference), half) for difference in certain.differences)
    return least if least == most else f"{least.removesuffix(' points')} to {most}"


def _open(leader: str, leads: Sequence[Row], within: str) -> Iterator[str]:
    """Yield a sentence on each lead that is not in the certain statement; those alike in what they lack share one."""
    alike = defaultdict[str, list[Row]](list)
    for lead in leads:
        alike[_lacks(lead)].append(lead)
    for lead in leads:
        several = alike[_lacks(lead)] if _lacks(lead) else [lead]
        if len(several) == 1:
            yield say("lead", leader=leader, within=within, **lead)
        elif lead is several[0]:
            yield _undecided(leader, several)


def _lacks(lead: Row) -> str:
    """Return why nothing is concluded from a lead; empty: something is."""
    if lead["is_undecided"]:
        return "seeds"
    return (
        "" if lead["is_known"] or lead["distinguishable"] or not lead["difference"] else "interval"
    )


def _undecided(leader: str, leads: Sequence[Row]) -> str:
    named = [
        say("undecided_lead", first=not index, **each)
        for index, each in enumerate(leads[:MOST_NAMED])
    ]
    if further := len(leads) - len(named):
        named.append(f"{counted(further, 'other')} by up to {leads[-1]['amount']}")
    seeds, is_known = max(each["num_seeds"] for each in leads), leads[0]["is_known"]
    return say("undecided", leader=leader, named=_joined(named), seeds=seeds, is_known=is_known)


def _listed(names: Sequence[str]) -> str:
    """Name all, or the first of many: `a, b, c and 4 others`."""
    return _joined(
        names
        if len(names) <= MOST_NAMED + 1
        else [*names[:MOST_NAMED], f"{len(names) - MOST_NAMED} others"]
    )


def _joined(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _at_fixed_rate(row: Row, metric: Metric, few: Few) -> str:
    rate, names = row["fixed_rate"], (row["best"][0], row["fixed_best"])
    leader, winner = (name + few.get((name, rate), "") for name in names)
    behind = -metric.sign * row["fixed_difference"]
    amount = "" if math.isnan(behind) else metric.amount_text(behind)
    said = {
        "rate": rate_text(rate),
        "leader": leader,
        "winner": winner,
        "amount": amount,
        "tied": behind == 0,
    }
    is_open = not any(lead.over == names[1] and lead.certain for lead in row["leads"])
    return say("fixed", flips=row["flips"], open=is_open, **said)


def _strongest(flip: Flip, leader: str, metric: Metric) -> str:
    written = _sized(flip.difference, flip.low, flip.high, metric)
    return say(
        "strongest", rate=rate_text(flip.learning_rate), winner=flip.worse, leader=leader, **written
    )


def _rests_on(group: StudySummary, rates: Sequence[dict[Any, Any]]) -> str:
    """Name the chosen learning rates, and those that have values and could not be chosen, with the reason."""
    known = group.cells.dropna(subset=["learning_rate"]).to_dict("records")
    chosen = [
        f"{cell['variant']} {rate_text(cell['learning_rate'])}{seeds_text(cell)}" for cell in known
    ]
    lost = [
        f"{row['variant']} {rate_text(row['learning_rate'])} ({row['num_values']} of {row['num_seeds']} seeds: "
        f"{incomplete_text(row)})"
        for row in not_eligible(rates, group.winners)
    ]
    if len(lost) > MOST_LOST:
        lost[MOST_LOST:] = [f"{len(lost) - MOST_LOST} more"]
    return say("rests_on", metric=group.metric, chosen=chosen, lost=lost)


def decided_texts(
    decision: Decision | None, conditions: Conditions = MappingProxyType({})
) -> Mapping[tuple[str, str], str]:
    """Return what fresh seeds say of each task and model, as sentences that open a report."""
    if decision is None:
        return {}
    of_group = defaultdict[tuple[str, str], list[Row]](list)
    for row in decision.table().to_dict("records"):
        better = turned(row, decision.metric)
        condition = conditions.get((row["task"], row["model"], better["other"]), "")
        of_group[row["task"], row["model"]].append({**better, "condition": condition})
    return {group: _group_text(rows, decision) for group, rows in of_group.items()}


def _group_text(rows: Sequence[Row], decision: Decision) -> str:
    leads = Counter(row["variant"] for row in rows)
    rows = sorted(
        rows, key=lambda row: (-leads[row["variant"]], not row["num_seeds"], abs(row["difference"]))
    )
    pairs = [_pair_text(row, decision) for row in rows[:MOST_PAIRS]]
    return say("decided", pairs=pairs, more=max(0, len(rows) - MOST_PAIRS))


def turned(row: Row, metric: Metric) -> Row:
    """Return a pair with its better variant first."""
    if not metric.sign * row["difference"] < 0:
        return row
    numbers = {"difference": -row["difference"], "low": -row["high"], "high": -row["low"]}
    return {**row, **numbers, "variant": row["other"], "other": row["variant"]}


def _pair_text(row: Row, decision: Decision) -> str:
    numbers = _sized(row["difference"], row["low"], row["high"], decision.metric)
    return say(
        "decided_pair", **{**row, "seeds": row["num_seeds"], "within": _within(decision), **numbers}
    )


def decided_section(
    folder: Path, decision: Decision | None, fresh: pd.DataFrame | None
) -> list[Section]:
    """Write the table, the figure and a row a fresh run; nothing without `decide`."""
    if decision is None:
        return []
    found, looks = decision.table(), decision.looks()
    table = laid_out(
        "decided",
        found,
        metric=decision.metric,
        within=_within(decision),
        error=decision.settings.error,
        progress=decision.progress(),
        lost=int(decision.num_used.sum() - decision.num_values.sum()),
        failures=decision.failures(),
    )
    write_csv(fresh if fresh is not None else pd.DataFrame(), folder / "fresh.csv")
    body: list[Block] = [table.write(folder, "decided", found)]
    if len(looks):
        body.append(Image(TITLE, *save(_figure(looks, decision), folder / "decided")))
    return [Section("Decided with fresh seeds", body)]


def _within(decision: Decision) -> str:
    limit = decision.settings.min_difference
    return decision.metric.amount_text(limit) if limit else ""


def _figure(looks: pd.DataFrame, decision: Decision) -> Figure:
    """Draw the difference of each pair with its interval, as it was after each seed; a panel a task and model."""
    groups = list(looks.groupby(GROUP, sort=False))
    names = list(dict.fromkeys(_name(row) for row in looks.to_dict("records")))
    styles = variant_styles(names[:MOST_LINES])
    caption = "Over the fresh seeds until then; bars: 95% intervals, for each pair alone."
    limit = decision.metric.scale * decision.settings.min_difference
    caption += f" Dotted: {_within(decision)} to both sides." if limit else ""
    if len(groups) > MOST_PANELS or len(names) > MOST_LINES:
        caption += (
            f" The first {MOST_PANELS} tasks and models and {MOST_LINES} pairs; the table has all."
        )
    drawn = groups[:MOST_PANELS]
    titles = [" ".join(map(str, labels)) for labels, _ in drawn]
    figure, panels = framed(TITLE, caption, legend(styles), titles, min(3, len(drawn)), MIN_WIDTH)
    for panel, (_, rows) in zip(panels, drawn, strict=True):
        _draw(panel, rows, styles, decision.metric)
        for height in (-limit, limit) if limit else ():
            panel.axhline(height, color="0.4", linestyle=":", linewidth=1)
    return figure


def _draw(panel: Axes, rows: pd.DataFrame, styles: Mapping[str, Style], metric: Metric) -> None:
    panel.axhline(0, color="0.6", linewidth=0.8)
    for index, (name, style) in enumerate(styles.items()):
        shown = rows[[_name(row) == name for row in rows.to_dict("records")]]
        middle = metric.scale * shown["difference"]
        ends = (middle - metric.scale * shown["low"], metric.scale * shown["high"] - middle)
        places = shown["num_seeds"] + 0.6 * (index + 0.5) / len(styles) - 0.3
        mark: dict[str, Any] = {"color": style.colour, "marker": style.marker, "markersize": 4}
        panel.errorbar(places, middle, yerr=ends, capsize=2, linewidth=1, **mark)
    dress(panel, "y", metric)
    panel.set_ylabel(f"difference{metric.points}")
    panel.set_xlabel("fresh seeds of each variant")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))


def _name(row: Row) -> str:
    return f"{row['variant']} − {row['other']}"
