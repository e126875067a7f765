"""The report as one HTML file that needs no network and no library, and the data of its one chart, for JavaScript."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.report.blocks import Section
from lr_sweep.analysis.report.figure_frame import Style, variant_styles
from lr_sweep.analysis.report.figures import PublishedBest, chosen_points, near_lu2021
from lr_sweep.analysis.report.tables import incomplete_texts, lost_text, mean_sem_text, seeds_text
from lr_sweep.analysis.report.texts import say
from lr_sweep.analysis.statistics.comparisons.conditions import Conditions
from lr_sweep.analysis.statistics.comparisons.orders import LU2021_LEARNING_RATE, Kind, Order
from lr_sweep.analysis.statistics.rates.optimum import optima
from lr_sweep.analysis.statistics.selection.best import CELL, rows_by_cell
from lr_sweep.analysis.statistics.selection.summary import GROUP, OUTCOMES, SELDOM, StudySummary
from lr_sweep.common.files import Fields
from lr_sweep.common.text import counted, percent_text, rate_text

WEB = Path(__file__).with_name("web")
SCRIPTS = ("drawing.js", "chart.js", "values.js", "handle.js", "page.js")
"""Scripts of the page in the order in which they run."""
HYPHENATED = re.compile(r"\w[\w.+]*(?:-[\w.+]+)+")
"""Names and learning rates that a browser would break at their hyphens."""
LONG_ENTRY = 20
"""Entries with more characters are broken into lines by a browser, others never."""
MOST_LEADS = 2
"""Tasks and models whose verdict is above the figure, so that both are on the first screen."""
SHADED: tuple[Kind, ...] = ("order", "winner")
"""Conclusions at a learning rate that differ from the tuned one."""
DIGITS = 4
"""Decimals of percentages: far below what a screen shows."""


def page_html(title: str, sections: Sequence[Section], data: Mapping[str, Any]) -> str:
    """Return `index.html`, with `data` from `chart_data`; the same content gives the same text.

    Raises ValueError for a number in `data` that is NaN or infinite, which browsers do not read.
    """
    script = "\n".join(web_text(name) for name in SCRIPTS)
    values = {"title": title, "sections": sections, "data": data, "style": web_text("page.css")}
    # In a block, which keeps the scripts' names out of the page's global ones.
    values["script"] = f'"use strict";\n{{\n{script}\n}}\n'
    return filled("page.html", **values)


def filled(template: str, *folders: Path, **values: Any) -> str:
    """Return one of the templates, or of those of further folders, with values in the places of their names."""
    return _templates(*folders).get_template(template).render(values)


@cache
def _templates(*folders: Path) -> Environment:
    templates = Environment(
        loader=FileSystemLoader([*folders, Path(__file__).with_name("templates")]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    templates.filters |= {
        "prose": _prose,
        "unbroken": _unbroken,
        "unparted": _unparted,
        "digest": _digest,
    }
    templates.globals["most_leads"] = MOST_LEADS
    templates.tests |= {
        "long": lambda text: len(text) > LONG_ENTRY,
        "numbers": re.compile(r"[\d ]+").fullmatch,
    }
    templates.policies["json.dumps_kwargs"] = {
        "ensure_ascii": False,
        "allow_nan": False,
        "separators": (",", ":"),
    }
    return templates


def web_text(name: str) -> str:
    """Return a script or style of the page by its file's name."""
    return (WEB / name).read_text(encoding="utf-8")


def _prose(text: str) -> Markup:
    """Escape text; what stands between backticks is code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(_unbroken(text))))


def _unbroken(text: str) -> Markup:
    """Escape text, and keep names and learning rates whole: a browser breaks `1e-3` at its hyphen."""
    return Markup(HYPHENATED.sub(r'<data value="\g<0>">\g<0></data>', str(escape(text))))


def _unparted(text: str) -> Markup:
    """As `_unbroken`, and keep marks beside their numbers where a narrow screen breaks an entry into lines."""
    return _unbroken(text.replace("± ", "±\N{NO-BREAK SPACE}").replace(" *", "\N{NO-BREAK SPACE}*"))


def _digest(text: str) -> Markup:
    """Return what the page's policy allows a style or a script by."""
    return Markup(f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}")


def chart_data(
    summary: StudySummary,
    published: PublishedBest,
    orders: pd.DataFrame,
    conditions: Conditions = MappingProxyType({}),
) -> Fields:
    """Lay out test accuracy against learning rate: panels (task and model) of lines (variants) of points.

    `orders` is the result of `verdicts.orders`: what the handle of each panel shows.

    Returns only what JSON has: no NaN. Accuracies, and other fractions, are in percent. `metric` is left out where it
    is accuracy on test data, chosen on validation data.
    """
    metric = summary.metric
    rates_of, best_of = (
        rows_by_cell(summary.learning_rates),
        rows_by_cell(optima(summary)) if metric.chosen_on else {},
    )
    lu2021 = {
        "rate": LU2021_LEARNING_RATE,
        "label": f"Lu et al. 2021 ({rate_text(LU2021_LEARNING_RATE)})",
    }
    at_chosen = {
        tuple(row[key] for key in CELL): row for row in chosen_points(summary).to_dict("records")
    }
    orders_of = dict(list(orders.groupby(GROUP, sort=False)))
    panels = []
    for model, of_model in summary.cells.groupby("model", sort=False):
        styles = variant_styles(list(of_model["variant"].unique()))
        for task, of_task in of_model.groupby("task", sort=False):
            cells = {tuple(cell[key] for key in CELL): cell for cell in of_task.to_dict("records")}
            lines = [
                _line(
                    cell, rates_of[key], styles[cell["variant"]], (published or {}).get(key), metric
                )
                | {"optimum": _optimum(*best_of.get(key, ())), "condition": conditions.get(key, "")}
                | _seeds(cell, at_chosen[key], metric)
                for key, cell in cells.items()
            ]
            swept = [row["learning_rate"] for key in cells for row in rates_of[key]]
            fixed = lu2021 if published is not None and near_lu2021(swept) else None
            variants = [line["variant"] for line in lines]
            handle = handle_data(
                orders_of[task, model], variants, LU2021_LEARNING_RATE if fixed else None
            )
            panels.append(
                {"task": task, "model": model, "fixed": fixed, "lines": lines, "handle": handle}
            )
    return {"panels": panels} | ({} if metric == ACCURACY else {"metric": _metric(metric)})


def _metric(metric: Metric) -> Fields:
    unit, least, most = (" %", 0, 100) if metric.is_fraction else ("", None, None)
    names = {"title": metric.title, "axis": metric.axis, "chosen_on": metric.chosen_on}
    return names | {"unit": unit, "least": least, "most": most}


def _line(
    cell: Row, rates: Sequence[Row], style: Style, published: float | None, metric: Metric
) -> Fields:
    return {
        "variant": cell["variant"],
        "colour": style.colour,
        "marker": style.marker,
        "dash": " ".join(map(str, style.dash)),
        "published": published,
        "published_text": None if published is None else percent_text(published / 100),
        "edge": cell["at_edge"],
        "points": [
            _point(row, row["learning_rate"] == cell["learning_rate"], metric) for row in rates
        ],
    }


def _seeds(cell: Row, marks: Row, metric: Metric) -> Fields:
    """Lay out the values of single seeds at the chosen rate; `fresh`: the mean of fresh ones, if any."""
    values = marks["seed_values"] if isinstance(marks["seed_values"], tuple) else ()
    ends = [marks["fresh_low"], marks["fresh_high"]]
    has_ends = all(map(math.isfinite, ends))
    fresh = {
        "mean": _drawn(marks["fresh_mean"], metric),
        "ends": [_drawn(end, metric) for end in ends] if has_ends else [],
        "text": mean_sem_text(cell, metric),
        "seeds": counted(len(values), "fresh seed"),
        "interval": " to ".join(metric.ends_text(*ends)) if has_ends else "",
    }
    return {
        "seeds": [_drawn(value, metric) for value in values],
        "fresh": None if math.isnan(marks["fresh_mean"]) else fresh,
    }


def _optimum(found: Row = MappingProxyType({})) -> Fields | None:
    rates = [found.get(name, math.nan) for name in ("low", "optimum", "high")]
    return (
        {"rates": rates, "text": say("optimum", **found)}
        if all(map(math.isfinite, rates))
        else None
    )


def _point(row: Row, chosen: bool, metric: Metric) -> Fields:
    return {
        "rate": row["learning_rate"],
        "rate_text": rate_text(row["learning_rate"]),
        "mean": _drawn(row["test_mean"], metric),
        "sem": _drawn(row["test_sem"], metric),
        "text": mean_sem_text(row, metric) if row["num_values"] else lost_text(row),
        "few": seeds_text(row) if row["num_values"] else "",
        "seeds": f"{row['num_tests']} of {row['num_seeds']}",
        "lost": ", ".join(
            f"{row[status]} {status}"
            for status in OUTCOMES[1:]
            if status not in SELDOM or row[status]
        ),
        "kind": _kind(row),
        "chosen": chosen,
    }


def _kind(row: Row) -> str:
    """Return how a point is drawn: `full`, `partial` (fewer seeds), `diverged` (all of them), `none` (no value)."""
    if row["diverged"] == row["num_wanted"]:
        return (
            "diverged"  # also where some have a value, from before they diverged: as in the images
        )
    if not row["num_values"]:
        return "none"
    return "partial" if seeds_text(row) else "full"


def _drawn(value: float, metric: Metric) -> float | None:
    drawn = round(100 * value, DIGITS) if metric.is_fraction else value
    return None if pd.isna(value) else drawn


def handle_data(orders: pd.DataFrame, variants: Sequence[str], fixed_rate: float | None) -> Fields:
    """Lay out one panel's rows of `verdicts.orders`, variants as indices into `variants`.

    Returns:
        `tuned` (order), `rates` (rising: `rate`, `text`, `order`, `kind`, `sure`, and `lost`, the
        variants with runs that are not complete there), `flips` (`kind`, `sure`, and the indices `first` and `last` of
        neighbouring rates of that kind) and
        `start`, the index of the rate that is closest to `fixed_rate`, else of the first one with another winner,
        a sure one if there is one, else the middle.
    """
    tuned = next(iter(orders.loc[orders["learning_rate"].isna(), "order"]), ())
    fixed = orders.dropna(subset=["learning_rate"]).to_dict("records")
    rates = [
        {
            "rate": row["learning_rate"],
            "text": rate_text(row["learning_rate"]),
            "order": _indices(row["order"], variants),
            "kind": row["kind"],
            "sure": row["sure"],
            "lost": incomplete_texts(row["incomplete"]),
        }
        for row in fixed
    ]
    start = _start(rates, fixed_rate)
    return {
        "tuned": _indices(tuned, variants),
        "rates": rates,
        "flips": _flips(rates),
        "start": start,
    }


def _indices(order: Order, variants: Sequence[str]) -> list[list[int]]:
    return [[variants.index(variant) for variant in level] for level in order]


def _flips(rates: Sequence[Row]) -> list[Fields]:
    joined = groupby(enumerate(rates), key=lambda each: (each[1]["kind"], each[1]["sure"]))
    found = [
        (kind, sure, [index for index, _ in each])
        for (kind, sure), each in joined
        if kind in SHADED
    ]
    return [
        {"kind": kind, "sure": sure, "first": at[0], "last": at[-1]} for kind, sure, at in found
    ]


def _start(rates: Sequence[Row], fixed_rate: float | None) -> int:
    if fixed_rate is not None:
        return min(
            range(len(rates)), key=lambda index: abs(math.log(rates[index]["rate"] / fixed_rate))
        )
    others = [index for index, row in enumerate(rates) if row["kind"] == "winner"]
    return next(
        (index for index in others if rates[index]["sure"]), next(iter(others), len(rates) // 2)
    )
