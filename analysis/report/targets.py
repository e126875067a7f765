"""Steps to a target: sentences, tables, and a figure of the curves around their crossings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.report.blocks import Image, Section, write_csv
from lr_sweep.analysis.report.figure_frame import (
    LINE_WIDTH,
    Style,
    dress,
    framed,
    legend,
    line_look,
    plain,
    save,
    variant_styles,
)
from lr_sweep.analysis.report.laws import MOST_FIGURES
from lr_sweep.analysis.report.texts import laid_out, say
from lr_sweep.analysis.statistics.comparisons.target import PAIR, RATE, StepsCompared
from lr_sweep.analysis.statistics.selection.best import CELL, tuples_in
from lr_sweep.analysis.statistics.selection.summary import GROUP, StudySummary


def target_section(
    folder: Path, summary: StudySummary, found: StepsCompared, unit: str, timed: pd.DataFrame | None
) -> tuple[Section, Sequence[str]]:
    """Write when variants reach the target; also return the sentences.

    `unit`: what is counted, `steps` or another column; `timed`: columns of `RUNS`; None: of a table.
    """
    (cells, pairs, means), title = found, f"{unit.capitalize()} to a target"
    cells = cells.assign(device_s=math.nan if timed is None else _device_s(summary, timed, cells))
    best = set(tuples_in(cells.drop_duplicates(GROUP)[CELL]))
    shown = [(*of, one) in best or (*of, other) in best for *of, one, other in tuples_in(pairs[PAIR])]
    known: dict[str, Any] = {"metric": summary.metric, "unit": unit}
    known |= {"shared": "shared_steps" in cells, "timed": cells["device_s"].notna().any(), "of": len(pairs)}
    known["several"] = len(cells[GROUP].drop_duplicates()) > 1
    tables = [laid_out("targets", cells, **known).write(folder, "targets", cells)]
    if len(pairs):
        tables.append(laid_out("target_pairs", pairs[shown], **known).write(folder, "target_pairs", pairs))
    write_csv(means, folder / "target_means.csv")
    sentences = [
        say("target", **known, first=rows.iloc[0].to_dict(), pairs=pairs.merge(rows[GROUP].head(1)))
        for _, rows in cells.groupby(GROUP, sort=False)
    ]
    figures = [_figure(folder, summary, found, title)] if unit == "steps" else []
    return Section(title, [*figures, *tables]), sentences


def _device_s(summary: StudySummary, timed: pd.DataFrame, cells: pd.DataFrame) -> pd.Series[float]:
    """Return the device seconds to the target; NaN where a task and model were trained on several devices."""
    timed = timed[["run_id", "device", "device_s"]].assign(trained=timed["num_steps"])
    runs = summary.runs[["run_id", *RATE]].merge(timed, on="run_id")
    one = runs.groupby(GROUP)["device"].transform("nunique").eq(1)
    runs["seconds"] = (runs["device_s"] / runs["trained"]).where(one)
    return cells["steps"] * cells.join(runs.groupby(RATE)["seconds"].mean(), on=RATE)["seconds"]


def _figure(folder: Path, summary: StudySummary, found: StepsCompared, title: str) -> Image:
    groups = list(found.cells.groupby(GROUP, sort=False))[:MOST_FIGURES]
    styles = variant_styles(list(found.cells["variant"].unique()))
    names, columns = [f"{task}, {model}" for (task, model), _ in groups], min(len(groups), 2)
    figure, panels = framed(title, say("target_figure"), legend(styles), names, columns)
    for panel, (_, cells) in zip(panels, groups, strict=True):
        means = found.means[found.means["step"] >= cells["steps"].min() / 2]
        for cell in cells.to_dict("records"):
            _draw(panel, summary, cell, means.merge(pd.DataFrame([cell])[CELL]), styles[cell["variant"]])
        panel.axhline(summary.metric.scale * cells["target"].iloc[0], color="0.4", linestyle="--", linewidth=1)
        panel.set_xlabel("step")
        dress(panel, "both", summary.metric)
        panel.set_ylabel(plain(summary.metric.validation))
    return Image(title, *save(figure, folder / "target"))


def _draw(panel: Axes, summary: StudySummary, cell: Row, means: pd.DataFrame, style: Style) -> None:
    """Draw a variant's mean with its band, and when it reaches the target, with the interval of that."""
    values = summary.metric.scale * means[["mean", "low", "high"]]
    panel.plot(means["step"], values["mean"], linewidth=LINE_WIDTH, markersize=3, **line_look(style))
    panel.fill_between(means["step"], values["low"], values["high"], color=style.colour, alpha=0.2)
    if not cell["short"]:
        ends = np.nan_to_num([[cell["steps"] - cell["low"]], [cell["high"] - cell["steps"]]])
        at = summary.metric.scale * cell["target"]
        panel.errorbar([cell["steps"]], [at], xerr=ends, color=style.colour, capsize=4, linewidth=2)
