"""Steps to a target: sentences, tables, and a figure of the curves around their crossings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.statistics.comparisons.target import RATE, StepsCompared
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.analysis.statistics.selection.summary import GROUP, StudySummary
from lr_sweep.common.text import rate_text

from .blocks import Section, Table, table_of_rows, write_csv
from .figure_frame import (
    Frame,
    Style,
    dress,
    framed,
    legend,
    line_look,
    validation_axis,
    variant_styles,
    write_image,
)
from .laws import MOST_FIGURES
from .numbers import ends_text, p_text, p_value, seconds_text

CAPTION = (
    "Mean over seeds at each evaluation, with its 95% interval as a band. Dashed: the target. Bars: 95% intervals of "
    "the step at which each variant reaches it."
)


def target_section(
    folder: Path,
    summary: StudySummary,
    found: StepsCompared,
    unit: str,
    timed: pd.DataFrame | None,
    *,
    pdf: bool = False,
) -> tuple[Section, Sequence[str]]:
    """Write when variants reach the target; also return the sentences.

    `unit`: what is counted, `steps` or another column; `timed`: columns of `RUNS`; None: of a table; `pdf`: as of
    `write_image`.
    """
    pairs, metric = found.pairs, summary.metric
    device_s = math.nan if timed is None else _device_s(summary, timed, found.cells)
    cells = found.cells.assign(device_s=device_s)
    best = cells.drop_duplicates(GROUP)
    tables = [targets_table(cells, metric, unit)]
    if len(pairs):
        tables.append(pairs_table(pairs.merge(best[CELL]), unit, len(pairs)))
    numbers = {"targets": cells, "target_pairs": pairs, "target_means": found.means}
    for stem, rows in numbers.items():
        write_csv(rows, folder / f"{stem}.csv")
    sentences = []
    for _, rows in cells.groupby(GROUP, sort=False):
        first = rows.iloc[0].to_dict()
        where = f"{first['task']}, {first['model']}: " if len(best) > 1 else ""
        sentences.append(where + target_text(first, pairs.merge(rows[GROUP].head(1)), metric, unit))
    title = f"{unit.capitalize()} to a target"
    draw = partial(_figure, summary, found, title)
    images = [write_image(title, folder / "target", draw, pdf=pdf)] if unit == "steps" else []
    return Section(title, [*images, *tables]), sentences


def target_text(first: Row, pairs: pd.DataFrame, metric: Metric, unit: str) -> str:
    """Say which variant reaches the target first: `first` of a task and model, whose `pairs` begin with its own."""
    goal = f"{metric.validation} {metric.text(first['target'])}"
    if first["short"]:
        return f"No variant reaches {goal} within its budget."
    text = f"{first['variant']} reaches {goal}{' first' if len(pairs) else ''}, in "
    steps = f"{seconds_text(first['steps'])} {unit}"
    if first["at_first"]:
        return f"{text}at most {steps}: it is there at its first evaluation."
    interval, certain = _interval_text(first), _certain_text(first)
    known = [f"95% interval {interval}" if interval else ""]
    known.append(f"certainly {certain} on" if certain else "")
    text += steps + _in_brackets(*known)
    if pairs.empty:
        return f"{text}."
    text += f"; {_slower_text(pairs.iloc[0].to_dict())}"
    if len(pairs) > 1:
        text += f"; {pairs['distinguishable'].sum()} of {len(pairs)} pairs differ significantly"
    return f"{text}."


def _interval_text(cell: Row) -> str:
    if math.isnan(cell["high"]):
        return ""
    return f"{seconds_text(cell['low'])} to {seconds_text(cell['high'])}"


def _certain_text(cell: Row) -> str:
    step = cell["certain_step"]
    return "" if math.isnan(step) else f"from step {step:.0f}"


def _slower_text(pair: Row) -> str:
    known, p = [], "not significant"
    if not math.isnan(pair["ratio_high"]):
        saved = ends_text(pair["saved_low"], pair["saved_high"])
        known.append(f"95% interval {ends_text(pair['ratio_low'], pair['ratio_high'])}")
        known.append(f"{seconds_text(pair['saved'])} more, {saved}")
    if pair["distinguishable"]:
        p = f"corrected p {p_text(pair['corrected_p'])}"
    return f"{pair['other']} needs {pair['ratio']:.3g} times as many{_in_brackets(*known, p)}"


def _in_brackets(*texts: str) -> str:
    known = "; ".join(filter(None, texts))
    return f" ({known})" if known else ""


def targets_table(cells: pd.DataFrame, metric: Metric, unit: str) -> Table:
    """Show when each variant reaches the target."""
    caption = (
        "Each variant at the learning rate that reaches the target first. The curve is the mean over seeds, fitted "
        'around its crossing; the 95% interval has the noise of runs and of evaluations. "Over" is the budget of a '
        'variant that does not reach the target. From "certain from" on, the mean is beyond the target by one-sided '
        "t tests, from the last step down (5%, corrected for the choice of the step)."
    )
    if cells["device_s"].notna().any():
        caption += (
            " Device-seconds compare variants on one kind of device. A task and model that was trained on several "
            "kinds has none."
        )
    rows = []
    for cell in cells.to_dict("records"):
        bound = "over " if cell["short"] else "at most " if cell["at_first"] else ""
        is_reached = not cell["short"]
        rows.append(
            {
                **{name: cell[name] for name in CELL},
                "learning rate": rate_text(cell["learning_rate"]),
                metric.validation: metric.text(cell["target"]),
                unit: f"{bound}{seconds_text(cell['steps'])}",
                "95% interval": _interval_text(cell) * is_reached,
                "reached": f"{cell['num_reached']} of {cell['num_runs']}",
                "certain from": _certain_text(cell).removeprefix("from "),
                "device-seconds": seconds_text(cell["device_s"]) * is_reached,
            }
        )
    return table_of_rows("When variants reach the target", caption, rows)


def pairs_table(pairs: pd.DataFrame, unit: str, num_pairs: int) -> Table:
    """Show pairs of `StepsCompared.pairs`, of so many."""
    caption = (
        "How much earlier the first variant reaches the target than the second, and how many times as fast it is, with "
        f"95% intervals for this pair alone (Welch's t on log {unit}, from the runs at the chosen rates). The "
        "corrected p covers all pairs of the study (Holm). A variant that does not reach the target counts with its "
        "budget, and is never called faster."
    )
    if len(pairs) < num_pairs:
        caption += f" Only pairs with the fastest variant are shown; `target_pairs.csv` has all {num_pairs}."
    rows = []
    for pair in pairs.to_dict("records"):
        is_tested = not math.isnan(pair["corrected_p"])
        rows.append(
            {
                "task": pair["task"],
                "model": pair["model"],
                "variants": f"{pair['variant']} and {pair['other']}",
                f"{unit} saved": seconds_text(pair["saved"]),
                "95% interval": ends_text(pair["saved_low"], pair["saved_high"]),
                "times as fast": f"{pair['ratio']:.3g}",
                "its interval": ends_text(pair["ratio_low"], pair["ratio_high"]),
                "corrected p": p_value(pair["corrected_p"]),
                "different": ("yes" if pair["distinguishable"] else "no")
                if is_tested
                else "not known",
                "remarks": pair["note"],
            }
        )
    return table_of_rows(f"{unit[0].upper()}{unit[1:]} saved", caption, rows)


def _device_s(summary: StudySummary, timed: pd.DataFrame, cells: pd.DataFrame) -> pd.Series[float]:
    """Return the device seconds to the target; NaN where a task and model was trained on several kinds of device."""
    columns = ["run_id", "device", "device_s", "num_steps"]
    runs = summary.runs[["run_id", *RATE]].merge(timed[columns], on="run_id")
    is_one_kind = runs.groupby(GROUP)["device"].transform("nunique") == 1
    runs["per_step"] = (runs["device_s"] / runs["num_steps"]).where(is_one_kind)
    return cells["steps"] * cells.join(runs.groupby(RATE)["per_step"].mean(), on=RATE)["per_step"]


def _figure(summary: StudySummary, found: StepsCompared, title: str, frame: Frame) -> Figure:
    groups = list(found.cells.groupby(GROUP, sort=False))[:MOST_FIGURES]
    of_all = variant_styles(list(summary.cells["variant"].unique()))
    styles = {variant: of_all[variant] for variant in found.cells["variant"].unique()}
    names = [f"{task}, {model}" for (task, model), _ in groups]
    figure, panels = framed(frame, title, CAPTION, legend(styles), names)
    metric = summary.metric
    for panel, (_, cells) in zip(panels, groups, strict=True):
        means = found.means[found.means["step"] >= cells["steps"].min() / 2]
        for cell in cells.to_dict("records"):
            of_cell = means.merge(pd.DataFrame([cell])[CELL])
            _draw(panel, metric, cell, of_cell, styles[cell["variant"]])
        target = metric.scale * cells["target"].iloc[0]
        panel.axhline(target, color="0.4", linestyle="--", linewidth=1)
        dress(panel, "step", validation_axis(metric))
    return figure


def _draw(panel: Axes, metric: Metric, cell: Row, means: pd.DataFrame, style: Style) -> None:
    """Draw a variant's mean with its band, and when it reaches the target, with the interval of that."""
    steps, values = means["step"], metric.scale * means[["mean", "low", "high"]]
    panel.plot(steps, values["mean"], **line_look(style))
    panel.fill_between(steps, values["low"], values["high"], color=style.colour, alpha=0.2)
    if not cell["short"]:
        at = metric.scale * cell["target"]
        ends = np.nan_to_num([[cell["steps"] - cell["low"]], [cell["high"] - cell["steps"]]])
        panel.errorbar([cell["steps"]], [at], xerr=ends, color=style.colour, capsize=4, linewidth=2)
