"""Optuna's own plots of a search for options beside the learning rate."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.selection.best import CELL, RATE
from lr_sweep.analysis.statistics.selection.summary import StudySummary

from .blocks import Image
from .figure_frame import plain, save

if TYPE_CHECKING:
    from optuna import Study

MOST_CELLS = 4
"""Largest number of cells that are drawn; the order is the study's."""
FEWEST_RATES = 8
"""Learning rates that a cell needs: the importance compares the best quarter with all."""


def search_figures(folder: Path, summary: StudySummary) -> list[Image]:
    """Draw two figures of each searched cell into a folder; without searched options there are none."""
    if "options" not in summary.runs:
        return []
    options = summary.runs.dropna(subset="options").drop_duplicates(RATE)
    rates = summary.learning_rates.dropna(subset="validation_mean")
    searched = rates.merge(options[[*RATE, "options"]], on=RATE).groupby(CELL, sort=False)
    cells = [cell for cell in searched if len(cell[1]) >= FEWEST_RATES]
    images = []
    for number, (names, tried) in enumerate(cells[:MOST_CELLS], 1):
        for title, figure in _plots(tried, summary.metric).items():
            path = folder / f"{title.lower()}-{number}.png"
            save(figure, path)
            images.append(Image(f"{title}: {', '.join(map(str, names))}", path))
    return images


def _plots(tried: pd.DataFrame, metric: Metric) -> dict[str, Any]:
    """Return the figures of a cell, by title."""
    import optuna
    from matplotlib import pyplot

    study = optuna_study(tried, metric)
    value = plain(metric.validation)
    names = list(study.trials[-1].params)  # Optuna's own order changes from process to process
    best_quarter = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=0.25)
    plots = optuna.visualization.matplotlib
    layout = matplotlib.rc_context({"figure.constrained_layout.use": True})
    with layout, warnings.catch_warnings(action="ignore"):
        axes = {
            "Options": plots.plot_parallel_coordinate(study, target_name=value),
            "Importance": plots.plot_param_importances(
                study,
                best_quarter,
                names,
                target_name=value,
            ),
        }
    for plot in axes.values():
        pyplot.close(plot.figure)
    return {title: plot.figure for title, plot in axes.items()}


def optuna_study(tried: pd.DataFrame, metric: Metric) -> Study:
    """Return Optuna's study in memory, with a trial for each learning rate and its options."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize" if metric.higher_is_better else "minimize")
    points = [json.loads(options.replace("$", r"\\$")) for options in tried["options"]]
    for point, rate in zip(points, tried["learning_rate"], strict=True):
        point["learning rate"] = rate
    for point, value in zip(points, tried["validation_mean"], strict=True):
        axes = {name: _axis([p[name] for p in points if name in p]) for name in point}
        trial = optuna.create_trial(params=point, distributions=axes, value=value)
        study.add_trial(trial)
    return study


def _axis(values: list[Any]) -> Any:
    """Return the axis of a range, whose values are floats, or of choices."""
    from optuna import distributions

    if not all(isinstance(value, float) for value in values):
        return distributions.CategoricalDistribution(sorted(set(values), key=str))
    low, high = min(values), max(values)
    return distributions.FloatDistribution(low, high, log=low > 0)
