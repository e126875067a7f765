"""Replays recorded grids to compare ways of choosing learning rates at equal cost; trains nothing.

    python -m benchmarks.search RESULTS [STUDY...] [--replays 40] [--figure docs/images/search]

Takes a results directory with complete grids, or a report's `runs.csv`, which has no curves and so no early stopping.
Every way chooses among the grid's own rates: a proposal counts as the nearest rate of the grid, on the logarithmic
scale, that was not tried yet, so no value is interpolated. A cell's answer is the best rate trained to the budget, by
the mean over the recorded seeds; its regret is the difference of test means to the full grid's.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator

from lr_sweep.analysis.record.read import recorded_studies
from lr_sweep.analysis.report.figure_frame import save
from lr_sweep.analysis.statistics.rates.further_rates import three_digits
from lr_sweep.analysis.statistics.rates.refinement import ROUND_SIZE, refined_rates
from lr_sweep.benchmarks.recorded_cells import RecordedCell, Replay, read_cells, read_record
from lr_sweep.sweep.search.samplers import next_points
from lr_sweep.sweep.study.search import NUM_FIRST, Point, Search
from lr_sweep.sweep.study.settings import StopEarly

WAYS = ("grid subset", "random", "quasi-random", "tpe", "gp", "refine")
RULES: dict[str, StopEarly | None] = {"-": None, "median": StopEarly()}
AT_ONCE = 2
"""Rates of a round of `tpe` and `gp`."""
LEAST_GRID = 3
"""Rates of the coarse grid that `refine` begins with."""
STYLES = tuple(zip(("gray", "orange", "green", "brown", "blue", "red"), "sPXD^o", strict=True))
"""Colour and marker of each way."""
LEAST = 0.02
"""Points; lower regrets, some of them below 0, are drawn here on the logarithmic scale."""


def replayed(
    way: str, cell: RecordedCell, number: int, seed: int, rule: StopEarly | None = None
) -> Replay:
    """Train as many rates of a cell as a way has; all of them, if the grid has fewer."""
    replay, number = Replay(cell, rule), min(number, len(cell.rates))
    if way == "grid subset":
        replay.train(_subset(cell, number, seed))
    elif way == "refine":
        _refine(replay, number, seed)
    else:
        _search(replay, way, number, seed)
    return replay


def _subset(cell: RecordedCell, number: int, seed: int) -> list[int]:
    """Return evenly spaced rates, with an offset drawn per study."""
    offset = float(np.random.default_rng(seed).random())
    return sorted({int((index + offset) * len(cell.rates) / number) for index in range(number)})


def _refine(replay: Replay, number: int, seed: int) -> None:
    replay.train(_subset(replay.cell, min(number, max(LEAST_GRID, number // 2)), seed))
    while (left := number - len(replay.tried)) > 0:
        observed = [replay.observation(index) for index in replay.tried]
        _train_nearest(replay, refined_rates(observed, min(ROUND_SIZE, left), maximise=True), left)


def _search(replay: Replay, way: str, number: int, seed: int) -> None:
    low, high = three_digits(replay.cell.rates[0]), three_digits(replay.cell.rates[-1])
    search = Search(sampler=way, low=low, high=high, rates=100, seed=seed)  # type: ignore[arg-type]
    while (left := number - len(tried := replay.tried)) > 0:
        observed = [(Point(each.learning_rate), each) for each in map(replay.observation, tried)]
        adaptive = way in ("tpe", "gp")
        size = min(
            left,
            left
            if not adaptive
            else AT_ONCE
            if len(tried) >= NUM_FIRST
            else NUM_FIRST - len(tried),
        )
        points = next_points(search, replay.cell.labels, observed, size, maximise=True)
        _train_nearest(replay, [point.learning_rate for point in points], left)


def _train_nearest(replay: Replay, rates: Sequence[float], left: int) -> None:
    """Train the rates of the grid that are nearest to those proposed; if none is proposed, the nearest to the first."""
    chosen: list[int] = []
    for rate in list(rates)[:left] or [float(replay.cell.rates[0])]:
        chosen.append(replay.cell.nearest(rate, [*replay.tried, *chosen]))
    replay.train(chosen)


def scores(
    cells: Sequence[RecordedCell], answers: dict[tuple[str, str, str], int | None]
) -> tuple[float, float]:
    """Return the mean regret of test accuracy, in points, and the share of pairs of variants in the wrong order."""
    truth = {
        cell.labels: cell.test[full]
        for cell in cells
        if (full := cell.answer(range(len(cell.rates)))) is not None
    }
    by_label = {cell.labels: cell for cell in cells}
    found = {
        labels: math.nan if (index := answers[labels]) is None else by_label[labels].test[index]
        for labels in truth
    }
    regrets = [
        truth[labels] - (0.0 if math.isnan(value) else value) for labels, value in found.items()
    ]
    pairs = [
        (a, b)
        for a, b in itertools.combinations(truth, 2)
        if a[:2] == b[:2] and truth[a] != truth[b]  # of one task and model
    ]
    wrong = [not (found[a] - found[b]) * (truth[a] - truth[b]) > 0 for a, b in pairs]
    return 100 * float(np.mean(regrets)), float(np.mean(wrong)) if wrong else math.nan


def compared(cells: Sequence[RecordedCell], numbers: Sequence[int], replays: int) -> pd.DataFrame:
    """Replay every way, rule and number of rates; a row each, with shares of the whole grid's cost."""
    whole = np.array([cell.whole_cost for cell in cells]).sum(axis=0)
    rules = RULES if cells[0].curves is not None else {"-": None}
    rows = []
    for way, (name, rule), number in itertools.product(WAYS, rules.items(), numbers):
        if (way in ("tpe", "gp") and number <= NUM_FIRST) or (
            way == "refine" and number <= LEAST_GRID
        ):
            continue  # no rate is chosen by values yet
        found = []
        for seed in range(replays):
            made = {cell.labels: replayed(way, cell, number, seed, rule) for cell in cells}
            cost = (
                np.array([(each.run_steps, each.seconds) for each in made.values()]).sum(axis=0)
                / whole
            )
            found.append(
                (*scores(cells, {labels: each.answer for labels, each in made.items()}), *cost)
            )
        regret, wrong, run_steps, seconds = np.mean(found, axis=0)
        sem = float(np.std([each[0] for each in found], ddof=1)) / math.sqrt(replays)
        hours = whole[1] * seconds / 3600 if cells[0].curves is not None else math.nan
        rows.append((number, run_steps, seconds, hours, way, name, regret, sem, wrong))
        print(_line(rows[-1]), flush=True)
    columns = ["rates", "run_steps", "seconds", "device_h", "way", "rule", "regret", "sem", "wrong"]
    return pd.DataFrame(rows, columns=columns)


def _line(row: tuple[int, float, float, float, str, str, float, float, float]) -> str:
    number, run_steps, _, hours, way, rule, regret, sem, wrong = row
    shown = "-" if math.isnan(hours) else f"{hours:.3f}"
    return f"| {number} | {run_steps:.0%} | {shown} | {way} | {rule} | {regret:.2f} ± {sem:.2f} | {wrong:.1%} |"


def whole_grid(cells: Sequence[RecordedCell], rule: StopEarly) -> str:
    """Describe what a rule does to the whole grid, all rates started together: cost, loss, and whom it stops wrongly.

    A fast starter is a rate larger than the best, chosen because the rule stopped the best one.
    """
    made = {cell.labels: Replay(cell, rule) for cell in cells}
    for each in made.values():
        each.train(range(len(each.cell.rates)))
    cost = np.array([(each.run_steps, each.seconds) for each in made.values()]).sum(axis=0)
    run_steps, seconds = cost / np.array([cell.whole_cost for cell in cells]).sum(axis=0)
    regret, wrong = scores(cells, {labels: each.answer for labels, each in made.items()})
    best = {labels: each.cell.answer(range(len(each.cell.rates))) for labels, each in made.items()}
    missed = [labels for labels, each in made.items() if best[labels] in each.stopped]
    larger = sum((made[labels].answer or 0) > (best[labels] or 0) for labels in missed)
    return (
        f"whole grid, {rule.rule}: {run_steps:.0%} of the run-steps, {seconds:.0%} of the device time; regret "
        f"{regret:.2f} points, wrong orders {wrong:.1%}; stops the best rate in {len(missed)} of {len(cells)} cells, "
        f"in {larger} for a larger one"
    )


def draw(tables: Mapping[str, pd.DataFrame], stem: Path) -> None:
    """Draw regret against cost, a panel per grid of the rows of `compared`; write `stem.png` and `stem.svg`."""
    columns = min(3, len(tables))
    rows = -(-len(tables) // columns)
    figure = Figure(figsize=(4.0 * columns, 2.9 * rows + 0.8), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for panel in panels[len(tables) :]:
        panel.remove()
    for panel, (name, table) in zip(panels, tables.items(), strict=False):
        _panel(panel, name, table)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside upper center",
        ncols=len(handles) // 2,
        frameon=False,
        fontsize=7,
    )
    stem.parent.mkdir(parents=True, exist_ok=True)
    save(figure, stem)


def _panel(panel: Axes, name: str, table: pd.DataFrame) -> None:
    styles = dict(zip(table["way"].unique(), STYLES, strict=False))
    for (way, rule), rows in table.groupby(["way", "rule"], sort=False):
        colour, marker = styles[way]
        plain = rule == "-"
        panel.plot(
            100 * rows["run_steps"],
            rows["regret"].clip(lower=LEAST),
            color=f"tab:{colour}",
            marker=marker,
            markersize=5,
            markerfacecolor=f"tab:{colour}" if plain else "white",
            linestyle="-" if plain else ":",
            linewidth=1,
            label=way if plain else f"{way}, {rule}",
        )
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.axvline(40, color="0.7", linewidth=0.8, linestyle="--")
    panel.set_title(name, fontsize=9)
    panel.set_xlabel("run-steps, % of the grid's", fontsize=8)
    panel.set_ylabel("regret, points of test accuracy", fontsize=8)
    panel.tick_params(labelsize=7)


def main() -> None:
    """Print a table per grid, and draw the figure."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("source", type=Path, help="a results directory, or a report's runs.csv")
    options.add_argument("studies", nargs="*", help="of a results directory; default: all")
    options.add_argument("--replays", type=int, default=40)
    options.add_argument(
        "--rates", type=int, nargs="*", help="budgets; default: 2 to the whole grid"
    )
    options.add_argument("--figure", type=Path, help="stem of a .png and an .svg")
    chosen = options.parse_args()
    drawn = {}
    table = chosen.source.suffix == ".csv"
    for name in (
        [chosen.source.parent.name] if table else chosen.studies or recorded_studies(chosen.source)
    ):
        cells = read_cells(chosen.source) if table else read_record(chosen.source, name)
        num_rates = max(len(cell.rates) for cell in cells)
        hours = (
            ""
            if table
            else f", {sum(cell.whole_cost[1] for cell in cells) / 3600:.2f} device-hours"
        )
        print(
            f"\n{name}: {len(cells)} cells of {num_rates} learning rates{hours}, {chosen.replays} replays"
        )
        for rule in [] if table else [rule for rule in RULES.values() if rule]:
            print(whole_grid(cells, rule))
        print(
            "| rates | of the run-steps | device-hours | way | stopping | regret, points | wrong orders |"
        )
        print("|---|---|---|---|---|---|---|")
        drawn[name] = compared(cells, chosen.rates or range(2, num_rates + 1), chosen.replays)
    if chosen.figure:
        draw(drawn, chosen.figure)


if __name__ == "__main__":
    main()
