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
from lr_sweep.analysis.report import figure_frame
from lr_sweep.analysis.report.blocks import Image, Section, write_csv
from lr_sweep.analysis.report.laws import MOST_FIGURES
from lr_sweep.analysis.report.texts import laid_out, say
from lr_sweep.analysis.statistics.comparisons.target import RATE, StepsCompared
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.analysis.statistics.selection.summary import GROUP, StudySummary


def target_section(
    folder: Path, summary: StudySummary, found: StepsCompared, unit: str, timed: pd.DataFrame | None
) -> tuple[Section, Sequence[str]]:
    """Write when variants reach the target; also return the sentences.

    `unit`: what is counted, `steps` or another column; `timed`: columns of `RUNS`; None: of a table.
    """
    (cells, pairs, means), title = found, f"{unit.capitalize()} to a target"
    device_s, devices = (math.nan, []) if timed is None else _device_s(summary, timed, cells)
    cells = cells.assign(device_s=device_s)
    best = cells.drop_duplicates(GROUP)
    known: dict[str, Any] = {
        "metric": summary.metric,
        "unit": unit,
        "of": len(pairs),
        "several": len(best) > 1,
    }
    known |= {
        "shared": "shared_steps" in cells,
        "timed": cells["device_s"].notna().any(),
        "devices": devices,
    }
    tables = [laid_out("targets", cells, **known).write(folder, "targets", cells)]
    if len(pairs):
        with_best = laid_out("target_pairs", pairs.merge(best[CELL]), **known)
        tables.append(with_best.write(folder, "target_pairs", pairs))
    write_csv(means, folder / "target_means.csv")
    sentences = [
        say("target", **known, first=rows.iloc[0].to_dict(), pairs=pairs.merge(rows[GROUP].head(1)))
        for _, rows in cells.groupby(GROUP, sort=False)
    ]
    figures = [_figure(folder, summary, found, title)] if unit == "steps" else []
    return Section(title, [*figures, *tables]), sentences


def _device_s(
    summary: StudySummary, timed: pd.DataFrame, cells: pd.DataFrame
) -> tuple[pd.Series[float], list[str]]:
    """Return the device seconds to the target, and the devices of tasks and models with several, which have none."""
    runs = summary.runs[["run_id", *RATE]].merge(
        timed[["run_id", "device", "device_s", "num_steps"]], on="run_id"
    )
    several = runs.groupby(GROUP)["device"].transform("nunique") > 1
    per_step = (runs["device_s"] / runs["num_steps"]).mask(several).rename("per_step")
    found = cells.join(per_step.groupby([runs[name] for name in RATE]).mean(), on=RATE)
    return found["steps"] * found["per_step"], sorted(runs["device"][several].dropna().unique())


def _figure(folder: Path, summary: StudySummary, found: StepsCompared, title: str) -> Image:
    groups = list(found.cells.groupby(GROUP, sort=False))[:MOST_FIGURES]
    styles = figure_frame.variant_styles(list(found.cells["variant"].unique()))
    names, key = [f"{task}, {model}" for (task, model), _ in groups], figure_frame.legend(styles)
    figure, panels = figure_frame.framed(
        title, say("target_figure"), key, names, min(len(groups), 2)
    )
    for panel, (_, cells) in zip(panels, groups, strict=True):
        means = found.means[found.means["step"] >= cells["steps"].min() / 2]
        for cell in cells.to_dict("records"):
            _draw(
                panel,
                summary,
                cell,
                means.merge(pd.DataFrame([cell])[CELL]),
                styles[cell["variant"]],
            )
        panel.axhline(
            summary.metric.scale * cells["target"].iloc[0], color="0.4", linestyle="--", linewidth=1
        )
        panel.set_xlabel("step")
        figure_frame.dress(panel, "both", summary.metric)
        panel.set_ylabel(figure_frame.plain(summary.metric.validation))
    return Image(title, *figure_frame.save(figure, folder / "target"))


def _draw(
    panel: Axes, summary: StudySummary, cell: Row, means: pd.DataFrame, style: figure_frame.Style
) -> None:
    """Draw a variant's mean with its band, and when it reaches the target, with the interval of that."""
    values, look = (
        summary.metric.scale * means[["mean", "low", "high"]],
        figure_frame.line_look(style),
    )
    panel.plot(
        means["step"], values["mean"], linewidth=figure_frame.LINE_WIDTH, markersize=3, **look
    )
    panel.fill_between(means["step"], values["low"], values["high"], color=style.colour, alpha=0.2)
    if not cell["short"]:
        ends = np.nan_to_num([[cell["steps"] - cell["low"]], [cell["high"] - cell["steps"]]])
        at = summary.metric.scale * cell["target"]
        panel.errorbar([cell["steps"]], [at], xerr=ends, color=style.colour, capsize=4, linewidth=2)
