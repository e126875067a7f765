import math

import numpy as np
from matplotlib.lines import Line2D

from lr_sweep.analysis.paper.published import MAX_STEPS, STEPS_TO_MATCH, TEST, published
from lr_sweep.analysis.report import figures
from lr_sweep.tests.analysis.test_paper import VARIANTS, golden_runs, summary_of


def heights(lines: list[Line2D]) -> list[float]:
    return [float(np.asarray(line.get_ydata())[0]) for line in lines]


def test_published_numbers_are_found_by_their_place_in_the_paper() -> None:
    entry = published(1, "cifar10-lra", "gpt2", "frozen-pretrained", TEST)
    assert entry is not None
    assert (entry.value, entry.sem) == (54.7, 1.4)
    never = published(2, "mnist", "gpt2", "frozen-random", STEPS_TO_MATCH)
    assert never is not None
    assert math.isnan(never.value)
    budget = published(5, "listops", "gpt2", "all", MAX_STEPS)
    assert budget is not None
    assert budget.value == 300_000
    assert published(1, "digits", "gpt2", "frozen-random", TEST) is None


def test_figures_draw_published_values_where_there_are_any() -> None:
    runs = [golden_runs("mnist", variant) for variant in VARIANTS]
    summary, _ = summary_of([row for rows, _ in runs for row in rows], [p for _, points in runs for p in points])
    best = {("mnist", "gpt2", "frozen-random"): 55.0, ("mnist", "gpt2", "unfrozen-random"): 66.0}
    best["cifar10", "gpt2", "frozen-random"] = 1.0
    sweep = figures.learning_rate_figure(summary.learning_rates, summary.cells, "Title", "Caption.", best)
    assert heights([line for line in sweep.axes[0].lines if line.get_linestyle() == ":"]) == [55.0, 66.0]
    bars = figures.best_rates_figure(summary.cells, "Title", "Caption.", best)
    drawn = [round(patch.get_height(), 1) for patch in bars.axes[0].patches]  # type: ignore[attr-defined]
    assert drawn == [98.0, 98.5, 98.7, 99.0]  # Table 1, MNIST
    assert heights([line for line in bars.axes[0].lines if line.get_linewidth() == 1.6]) == [55.0, 66.0]
    plain = figures.learning_rate_figure(summary.learning_rates, summary.cells, "Title", "Caption.", {})
    assert not [line for line in plain.axes[0].lines if line.get_linestyle() == ":"]
