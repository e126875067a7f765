"""The tables and figures of a paper that a study has the runs for, written by number.

A study of another metric than accuracy, or of a user's table, has the same figures without numbers, and no tables of
papers. A study whose name begins with that of a table of Lu et al. 2021, as in `lu2021-table3-swept`, has that table;
any other has the tables and figures of Rothermel et al. 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.paper.published import published_best, table_of
from lr_sweep.analysis.paper.tables import lu_table, paper_tables
from lr_sweep.analysis.record.read import StudyInfo
from lr_sweep.analysis.report import figure_frame, figures
from lr_sweep.analysis.report.blocks import Block, Image, Paragraph, Table, stem_of_each
from lr_sweep.analysis.report.figures import BEST_RATE, PublishedBest
from lr_sweep.analysis.report.tables import facts, main_table
from lr_sweep.analysis.report.texts import say
from lr_sweep.analysis.statistics.rates.optimum import optima
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.analysis.statistics.selection.summary import StudySummary

FIGURE_1_TASK = "cifar10-lra"


class Written(NamedTuple):
    """What `write_paper` wrote, as blocks of the report."""

    main: list[Table]
    sweeps: list[Image]
    further: list[Block]


def write_paper(folder: Path, info: StudyInfo, summary: StudySummary, curves: pd.DataFrame) -> Written:
    """Write the files of tables and figures into `folder`; `curves` have `run_id`, `step` and the accuracies.

    Main tables are Table 1, one a model; a table of Lu et al. 2021; or the main table of each model. Sweeps are
    figures 3 and 1. Further blocks are Figure 2 left, Tables 2 to 5, and a sentence for each table or figure that the
    study lacks the runs for.
    """
    stems = stem_of_each(summary.runs["model"].unique())
    shown = {model: summary.of(model=model) for model in stems}
    number, found = table_of(info.study) if _of_papers(info) else None, optima(summary)[[*CELL, *BEST_RATE]]
    if number:
        table = lu_table(number, info, summary, curves).write(folder, f"lu2021-table{number}")
        is_swept = summary.learning_rates.groupby(CELL)["learning_rate"].nunique().max() > 1
        return Written([table], _sweep_figures(folder, info, found, shown, stems) if is_swept else [], [])
    sweeps = _sweep_figures(folder, info, found, shown, stems)
    if not info.metric.chosen_on:
        return Written([], sweeps, [])
    bars: list[Block] = [_bar_figure(folder, info, shown[model], model, stem) for model, stem in stems.items()]
    if not _of_papers(info):
        main = [main_table(info, summary, model).write(folder, f"main-{stem}") for model, stem in stems.items()]
        return Written(main, sweeps, bars)
    tables, left_out = paper_tables(info, summary, curves)
    for name, table in tables.items():
        table.write(folder, name)
    with_task = {m: each.of(task=FIGURE_1_TASK) for m, each in shown.items() if FIGURE_1_TASK in set(each.runs["task"])}
    sweeps += _sweep_figures(folder, info, found, with_task, stems, FIGURE_1_TASK)
    if not with_task:
        left_out.append(f"Figure 1, the sweep on {FIGURE_1_TASK}, is left out: the study does not have this task.")
    by_number = sorted(tables, key=lambda name: name.partition("-")[0])
    main = [tables[name] for name in by_number if name.startswith("table1-")]
    others = [tables[name] for name in by_number[len(main) :]]
    return Written(main, sweeps, [*bars, *others, *map(Paragraph, left_out)])


def best_published(info: StudyInfo, cells: pd.DataFrame) -> PublishedBest:
    """Look up Rothermel et al.'s best test accuracy of each cell, in percent, by task, model and variant.

    Of a table of Lu et al. 2021 there is none: their values are not tuned, and are in the table. None: the study has
    nothing to do with the papers.
    """
    if not _of_papers(info):
        return None
    if table_of(info.study):
        return {}
    found = {cell: published_best(cell) for cell in cells[CELL].itertuples(index=False, name=None)}
    return {cell: entry.number for cell, entry in found.items() if entry is not None}


def _of_papers(info: StudyInfo) -> bool:
    return info.metric == ACCURACY and not info.from_table


def _sweep_figures(
    folder: Path,
    info: StudyInfo,
    found: pd.DataFrame,
    shown: Mapping[str, StudySummary],
    stems: Mapping[str, str],
    task: str = "",
) -> list[Image]:
    """Draw each model's sweep, over all tasks (Figure 3) or one (Figure 1); `found`: optima of all cells."""
    images = []
    for model, each in shown.items():
        best = best_published(info, each.cells)
        title = f"{info.title}: {model}, {task}" if task else f"{info.title}: {model}"
        caption = _caption(info, each, "Dotted" if best else "")
        cells = each.cells.merge(found, on=CELL, how="left") if info.metric.chosen_on else each.cells
        figure = figures.learning_rate_figure(each.learning_rates, cells, title, caption, best, info.metric)
        files = figure_frame.save(figure, folder / f"{'figure1' if task else 'learning-rates'}-{stems[model]}")
        numbered = f"Figure {1 if task else 3}. " if _of_papers(info) else ""
        images.append(Image(f"{numbered}{info.metric.title} against learning rate, {model}", *files))
    return images


def _bar_figure(folder: Path, info: StudyInfo, shown: StudySummary, model: str, stem: str) -> Image:
    best = best_published(info, shown.cells)
    heading, caption = f"{info.title}: {model}, best learning rates", _caption(info, shown, "Black" if best else "")
    figure = figures.best_rates_figure(shown.cells, heading, caption, best, info.metric)
    title = f"{info.metric.title} at the best learning rate, {model}"
    if _of_papers(info):
        return Image(f"Figure 2, left. {title}", *figure_frame.save(figure, folder / f"figure2-left-{stem}"))
    return Image(title, *figure_frame.save(figure, folder / f"best-{stem}"))


def _caption(info: StudyInfo, shown: StudySummary, lines: str) -> str:
    """Say what a figure shows; `lines`: how those of published values look, empty if there are none."""
    return say("figure", metric=info.metric, facts=facts(info, shown.runs), lines=lines)
