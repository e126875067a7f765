"""What fresh seeds decided: the sentence that opens a report, a table, and a figure of intervals against seeds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.report.blocks import Block, Image, Section
from lr_sweep.analysis.report.figure_frame import MIN_WIDTH, Style, dress, framed, legend, save, variant_styles
from lr_sweep.analysis.report.spreadsheet import write_csv
from lr_sweep.analysis.report.texts import laid_out, say
from lr_sweep.analysis.report.verdict import sized
from lr_sweep.analysis.statistics.comparisons.decision import Decision
from lr_sweep.analysis.statistics.selection.summary import GROUP

MOST_PAIRS = 3
"""That a sentence names; more are counted."""
MOST_PANELS, MOST_LINES = 9, 8
"""Tasks and models in the figure, and pairs of variants, each with a mark of its own; the table has all."""
TITLE = "Difference of each pair against fresh seeds"


def decided_texts(decision: Decision | None) -> Mapping[tuple[str, str], str]:
    """Return what fresh seeds say of each task and model, as sentences that open a report."""
    if decision is None:
        return {}
    of_group = defaultdict[tuple[str, str], list[Row]](list)
    for row in decision.table().to_dict("records"):
        of_group[row["task"], row["model"]].append(_turned(row, decision.metric))
    return {group: _group_text(rows, decision) for group, rows in of_group.items()}


def _group_text(rows: Sequence[Row], decision: Decision) -> str:
    """Say what became of the pairs: first the variant that leads most others, against the closest one first."""
    leads = Counter(row["variant"] for row in rows)
    rows = sorted(rows, key=lambda row: (-leads[row["variant"]], not row["num_seeds"], abs(row["difference"])))
    pairs = [_pair_text(row, decision) for row in rows[:MOST_PAIRS]]
    return say("decided", pairs=pairs, more=max(0, len(rows) - MOST_PAIRS))


def _turned(row: Row, metric: Metric) -> Row:
    if not metric.sign * row["difference"] < 0:
        return row
    numbers = {"difference": -row["difference"], "low": -row["high"], "high": -row["low"]}
    return {**row, **numbers, "variant": row["other"], "other": row["variant"]}


def _pair_text(row: Row, decision: Decision) -> str:
    numbers = sized(row["difference"], row["low"], row["high"], decision.metric)
    return say("decided_pair", **{**row, "seeds": row["num_seeds"], "within": _within(decision), **numbers})


def decided_section(folder: Path, decision: Decision | None, fresh: pd.DataFrame | None) -> list[Section]:
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
    )
    write_csv(fresh if fresh is not None else pd.DataFrame(), folder / "fresh.csv")
    body: list[Block] = [table.write(folder, "decided", found)]
    if len(looks):
        body.append(Image(TITLE, *save(_figure(looks, decision), folder / "decided")))
    return [Section("Decided with fresh seeds", body)]


def _within(decision: Decision) -> str:
    """Return within what variants count as equal; empty: none do."""
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
        caption += f" The first {MOST_PANELS} tasks and models and {MOST_LINES} pairs; the table has all."
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
