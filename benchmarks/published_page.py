"""A page of the two papers' own values: Lu et al. 2021 at their one learning rate, beside Rothermel et al. 2021, tuned.

    python -m benchmarks.published_page rothermel2021

Nothing here was trained by this program. Published are values at 1e-3 and tuned ones; the curves between are in
Rothermel et al.'s figures only, so the page has none. The learning rates of their tuned values are not published.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.paper.published import TEST, Entry, entries, published
from lr_sweep.analysis.report.blocks import Bullets, Section, SweepChart, Table, Verdict
from lr_sweep.analysis.report.figure_frame import variant_styles
from lr_sweep.analysis.report.page import handle_data, page_html
from lr_sweep.analysis.statistics.comparisons.orders import (
    LU2021_LEARNING_RATE,
    Order,
    kind_of,
    order_of,
)
from lr_sweep.common.files import write_bytes
from lr_sweep.common.text import NO_VALUE, percent_text, rate_text

TITLE = "The papers' own values: one learning rate, and tuned"
MODEL = "gpt2"
TASKS = ("cifar10-lra", "cifar10", "mnist", "listops")
VARIANTS = ("frozen-random", "frozen-pretrained", "unfrozen-random", "unfrozen-pretrained")
LU2021_TABLES = (2, 13, 1)
"""Where Lu et al. 2021 have the 12-layer GPT-2 at 1e-3: frozen, unfrozen pretrained, unfrozen random (MNIST)."""
ABOUT = (
    "At 1e-3: Lu et al. 2021, tables 2 (frozen), 13 (`+ Both`: unfrozen pretrained) and 1 (`Full`: unfrozen random, on "
    "MNIST). Their other values of `Full` are of 3 layers or of another paper, so they are left out: no value.",
    "Lu et al. mark 93.1 (MNIST, unfrozen pretrained) as diverged, reported before divergence. They selected no model "
    "on validation data, and Rothermel et al. write that each value appears to be of one seed.",
    "Tuned: Rothermel et al. 2021, Table 1, mean ± standard error of the mean (SEM) over 3 seeds, learning rate and "
    "step chosen on validation data. Which learning rates these were is not published, nor are the sweep's values.",
    "The two papers differ in more than the rate: splits, gradient steps, and on ListOps the length of sequences and a "
    "token that Lu et al.'s code dropped. Compare orders, not numbers.",
    "Differences are not tested here: the seeds' values are not published.",
)
FIXED = rate_text(LU2021_LEARNING_RATE)

Values = Mapping[str, float]
"""Test accuracy in percent, by variant."""


def main() -> None:
    """Write the page into a folder, and print where."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where to write index.html")
    print(write_demonstration(parser.parse_args().folder))


def demonstration_page() -> str:
    """Return the page: per task what Lu et al.'s rate concludes and what tuning does, figure, table, caveats."""
    verdict = Verdict([(task, _verdict(task), "") for task in TASKS])
    chart = SweepChart(
        "Markers: Lu et al. 2021, at 1e-3. Dotted lines: Rothermel et al. 2021, tuned.", verdict
    )
    sections = [
        Section("", [verdict, chart, _table()], folded=False),
        Section("What this is and is not", [Bullets(ABOUT)]),
    ]
    return page_html(TITLE, sections, {"panels": [_panel(task) for task in TASKS]})


def write_demonstration(folder: Path) -> Path:
    """Write `index.html` into a folder; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "index.html"
    write_bytes(path, demonstration_page().encode())
    return path


def at_fixed_rate(task: str) -> Values:
    """Return what Lu et al. 2021 report of the 12-layer GPT-2 at 1e-3; variants without a value are left out."""
    found = [entry for table in LU2021_TABLES for entry in entries(table) if entry.metric == TEST]
    values = {entry.cell: entry.number for entry in found}
    return {
        variant: values[task, MODEL, variant]
        for variant in VARIANTS
        if (task, MODEL, variant) in values
    }


def tuned_values(task: str) -> Mapping[str, Entry]:
    """Return Rothermel et al. 2021, Table 1."""
    found = {variant: published(1, (task, MODEL, variant), TEST) for variant in VARIANTS}
    return {variant: entry for variant, entry in found.items() if entry is not None}


def _verdict(task: str) -> tuple[str, str]:
    fixed, tuned = at_fixed_rate(task), tuned_values(task)
    here, second, *_ = sorted(fixed, key=lambda variant: -fixed[variant])
    best, other, *_ = sorted(tuned, key=lambda variant: -tuned[variant].number)
    return (
        f"Tuned, {best} is first with {_with_sem(tuned[best])}, then {other} with {_with_sem(tuned[other])}.",
        f"At 1e-3 alone, {here} is first with {_percent(fixed[here])}, then {second} with {_percent(fixed[second])}.",
    )


def _table() -> Table:
    """Lay out both papers' values, tasks by variants."""
    rows: list[tuple[str, ...]] = []
    for task in TASKS:
        fixed, tuned = at_fixed_rate(task), tuned_values(task)
        rows.append((task, FIXED, *(_percent(fixed.get(v, math.nan)) for v in VARIANTS)))
        rows.append((task, "tuned", *(_with_sem(tuned[v]) for v in VARIANTS)))
    caption = f"{ACCURACY.title} in percent, GPT-2 of 12 layers. {NO_VALUE}: not published."
    header = ("task", "learning rate", *VARIANTS)
    return Table(title="Both papers' values", caption=caption, header=header, rows=tuple(rows))


def _panel(task: str) -> dict[str, Any]:
    """Return the data of the chart's panel, as `page.chart_data` does."""
    fixed, tuned = at_fixed_rate(task), tuned_values(task)
    best = _order({v: entry.number for v, entry in tuned.items()})
    orders = [_row(math.nan, best, best), _row(LU2021_LEARNING_RATE, _order(fixed), best)]
    handle = handle_data(pd.DataFrame(orders), VARIANTS, LU2021_LEARNING_RATE)
    lost = ", ".join(variant for variant in VARIANTS if variant not in fixed)
    handle["rates"][0]["lost"] = f"{lost}: not published" if lost else ""
    lines = [_line(variant, fixed, tuned[variant]) for variant in VARIANTS]
    marked = {"rate": LU2021_LEARNING_RATE, "label": f"Lu et al. 2021 ({FIXED})"}
    return {"task": task, "model": MODEL, "fixed": marked, "lines": lines, "handle": handle}


def _order(values: Values) -> Order:
    return order_of(dict(sorted(values.items(), key=lambda item: -item[1])))


def _row(rate: float, order: Order, tuned: Order) -> dict[str, Any]:
    """Return what the handle reads of `verdicts.orders`; nothing is tested."""
    kind = kind_of(order, tuned, {})
    return {"learning_rate": rate, "order": order, "incomplete": {}, "kind": kind, "sure": True}


def _line(variant: str, fixed: Values, tuned: Entry) -> dict[str, Any]:
    style, value = variant_styles([variant])[variant], fixed.get(variant, math.nan)
    point = {"rate": LU2021_LEARNING_RATE, "rate_text": FIXED, "sem": None, "chosen": False}
    point |= {"mean": value, "text": _percent(value), "seeds": "", "lost": "", "kind": "full"}
    return {
        "variant": variant,
        "colour": style.colour,
        "marker": style.marker,
        "dash": " ".join(map(str, style.dash)),
        "published": tuned.number,
        "published_text": _with_sem(tuned),
        "points": [point] if variant in fixed else [],
    }


def _percent(value: float) -> str:
    return percent_text(value / 100)


def _with_sem(entry: Entry) -> str:
    return f"{entry.value} ± {entry.sem}"


if __name__ == "__main__":
    main()
