"""The tables and figures of a paper that a study has the runs for, written by number.

A study whose name begins with that of a table of Lu et al. 2021, as in `lu2021-table3-swept`, has that table; any other
has those of Rothermel et al. 2021. A study of another metric than accuracy, or of a user's table, has none of a paper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.paper import published as theirs
from lr_sweep.analysis.paper.entries import (
    NEVER,
    REFERENCE,
    OurNumbers,
    budget_text,
    published_text,
)
from lr_sweep.analysis.paper.published import (
    SMALL_MODELS,
    TABLES,
    Entry,
    entries,
    published,
    published_best,
    table_of,
)
from lr_sweep.analysis.record.study import StudyInfo
from lr_sweep.analysis.report import figure_frame, figures
from lr_sweep.analysis.report.blocks import Block, Image, Table, stem_of_each
from lr_sweep.analysis.report.figures import BEST_RATE, PublishedBest, chosen_points
from lr_sweep.analysis.report.tables import compared_seeds, facts, main_table, marks_text
from lr_sweep.analysis.report.texts import say
from lr_sweep.analysis.statistics.rates.optimum import optima
from lr_sweep.analysis.statistics.selection.best import CELL, Cell, tuples_in
from lr_sweep.analysis.statistics.selection.summary import GROUP, StudySummary
from lr_sweep.common.text import NO_VALUE

FIGURE_1_TASK = "cifar10-lra"
ROWS_OF_TABLE_3 = {
    "train": theirs.TRAIN_AT_END,
    "test": theirs.TEST_AT_END,
    "diff": theirs.TRAIN_MINUS_TEST_AT_END,
}

Labels = tuple[str, ...]
"""What a row begins with."""
Rows = Mapping[Labels, tuple[str, str, str]]
"""Metric, model and variant of each row; its columns are tasks."""


class Written(NamedTuple):
    """What `write_paper` wrote, as blocks of the report."""

    main: list[Table]
    sweeps: list[Image]
    further: list[Block]


class Place(NamedTuple):
    """What an entry is about, and what is published of it."""

    metric: str
    cell: Cell
    published: Entry | None


Places = dict[tuple[Labels, str], Place]
"""What stands where, by labels of the row and heading of the column."""


class Layout(NamedTuple):
    """A table's texts, ours and published ones."""

    header: Labels
    rows: tuple[Labels, ...]
    columns: Mapping[str, int]
    """Places of our columns."""
    published_in: list[int]
    """Tables of the paper that have any of the entries."""


def write_paper(
    folder: Path, info: StudyInfo, summary: StudySummary, curves: pd.DataFrame
) -> Written:
    """Write the files of tables and figures into `folder`; `curves` have `run_id`, `step` and the accuracies.

    Main tables are Table 1, one a model; a table of Lu et al. 2021; or the main table of each model. Sweeps are
    figures 3 and 1. Further blocks are Figure 2 left and Tables 2 to 5.
    """
    stems = stem_of_each(summary.runs["model"].unique())
    shown = {model: summary.of(model=model) for model in stems}
    number, found = table_of(info.study) if _of_papers(info) else None, optima(summary)
    if number:
        table = lu_table(number, info, summary, curves).write(folder, f"lu2021-table{number}")
        is_swept = summary.learning_rates.groupby(CELL)["learning_rate"].nunique().max() > 1
        return Written(
            [table], _sweep_figures(folder, info, found, shown, stems) if is_swept else [], []
        )
    sweeps = _sweep_figures(folder, info, found, shown, stems)
    if not info.metric.chosen_on:
        return Written([], sweeps, [])
    bars: list[Block] = [
        _bar_figure(folder, info, shown[model], model, stem) for model, stem in stems.items()
    ]
    if not _of_papers(info):
        main = [
            main_table(info, summary, model).write(folder, f"main-{stem}")
            for model, stem in stems.items()
        ]
        return Written(main, sweeps, bars)
    tables = paper_tables(info, summary, curves)
    for name, table in tables.items():
        table.write(folder, name)
    with_task = {
        m: each.of(task=FIGURE_1_TASK)
        for m, each in shown.items()
        if FIGURE_1_TASK in set(each.runs["task"])
    }
    sweeps += _sweep_figures(folder, info, found, with_task, stems, FIGURE_1_TASK)
    by_number = sorted(tables, key=lambda name: name.partition("-")[0])
    main = [tables[name] for name in by_number if name.startswith("table1-")]
    others = [tables[name] for name in by_number[len(main) :]]
    return Written(main, sweeps, [*bars, *others])


def best_published(info: StudyInfo, cells: pd.DataFrame) -> PublishedBest:
    """Look up Rothermel et al.'s best test accuracy of each cell, in percent; None: the study is of no paper.

    Of a table of Lu et al. 2021 there is none: their values are not tuned, and are in the table.
    """
    if not _of_papers(info):
        return None
    if table_of(info.study):
        return {}
    found = {cell: published_best(cell) for cell in tuples_in(cells[CELL])}
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
        figure = sweep_figure(info, each, found, model, task)
        files = figure_frame.save(
            figure, folder / f"{'figure1' if task else 'learning-rates'}-{stems[model]}"
        )
        numbered = f"Figure {1 if task else 3}. " if _of_papers(info) else ""
        images.append(
            Image(f"{numbered}{info.metric.title} against learning rate, {model}", *files)
        )
    return images


def sweep_figure(
    info: StudyInfo, shown: StudySummary, found: pd.DataFrame, model: str, task: str = ""
) -> Figure:
    """Draw the sweep of a model, a panel a task; `shown`: what is of it; `found`: optima of all cells."""
    best = best_published(info, shown.cells)
    title = f"{info.title}: {model}, {task}" if task else f"{info.title}: {model}"
    caption = _caption(info, shown, "Dotted" if best else "")
    cells = shown.cells
    if info.metric.chosen_on:
        cells = cells.merge(found[[*CELL, *BEST_RATE]], on=CELL, how="left")
        cells = cells.merge(chosen_points(shown), on=CELL, how="left")
    return figures.learning_rate_figure(
        shown.learning_rates, cells, title, caption, best, info.metric
    )


def _bar_figure(folder: Path, info: StudyInfo, shown: StudySummary, model: str, stem: str) -> Image:
    best = best_published(info, shown.cells)
    heading, caption = (
        f"{info.title}: {model}, best learning rates",
        _caption(info, shown, "Black" if best else ""),
    )
    figure = figures.best_rates_figure(shown.cells, heading, caption, best, info.metric)
    title = f"{info.metric.title} at the best learning rate, {model}"
    if _of_papers(info):
        return Image(
            f"Figure 2, left. {title}", *figure_frame.save(figure, folder / f"figure2-left-{stem}")
        )
    return Image(title, *figure_frame.save(figure, folder / f"best-{stem}"))


def _caption(info: StudyInfo, shown: StudySummary, lines: str) -> str:
    fresh = shown.fresh is not None
    return say("figure", metric=info.metric, fresh=fresh, facts=facts(info, shown), lines=lines)


def lay_out(corner: Labels, places: Places, ours: OurNumbers, absent: str) -> Layout:
    """Lay out entries by labels of rows and heading of columns, in the order in which they come.

    `corner`: headings of the labels; `absent`: what is written for a cell that the study does not have.
    """
    header, lines = list(corner), {labels: list(labels) for labels, _ in places}
    columns = {}
    for column in dict.fromkeys(column for _, column in places):
        columns[column] = len(header)
        of_column = [places.get((labels, column)) for labels in lines]
        beside = any(place and place.published for place in of_column)
        header += [column, f"{column}, published"] if beside else [column]
        for line, place in zip(lines.values(), of_column, strict=True):
            number = place and ours.of(place.metric, place.cell)
            line.append(number.text if number else absent)
            if beside:
                there = place and place.published
                line.append(
                    published_text(there, number.value if number else math.nan) if there else ""
                )
    tables = {place.published.table for place in places.values() if place.published}
    return Layout(tuple(header), tuple(map(tuple, lines.values())), columns, sorted(tables))


def paper_tables(info: StudyInfo, summary: StudySummary, curves: pd.DataFrame) -> dict[str, Table]:
    """Return each table of Rothermel et al. 2021 that the study has the runs for, by file name without ending."""
    ours = OurNumbers(summary, curves)
    table = partial(_table, info, ours)
    found = {}
    models = list(summary.runs["model"].unique())
    for model, stem in stem_of_each(models).items():
        shown = summary.of(model=model)
        variants = list(shown.cells["variant"].unique())
        found[f"table1-{stem}"] = _table1(info, summary, ours, model)
        if REFERENCE in variants:
            title, what = (
                f"Gradient steps to match {REFERENCE}",
                say("to_match", reference=REFERENCE, never=NEVER),
            )
            rows: Rows = {(v,): (theirs.STEPS_TO_MATCH, model, v) for v in variants}
            found[f"table2-{stem}"] = table(2, f"{title}, {model}", what, ("variant",), rows, shown)
        if ours.have_test_at_end(model):
            title, what = f"Train and test accuracy at the last step, {model}", say("at_last_step")
            rows = {
                (v, name): (metric, model, v)
                for v in variants
                for name, metric in ROWS_OF_TABLE_3.items()
            }
            found[f"table3-{stem}"] = table(3, title, what, ("variant", "accuracy"), rows, shown)
    if len(models) > 1:
        rows = {
            (v, model): (theirs.TEST, model, v)
            for v in summary.cells["variant"].unique()
            for model in models
        }
        what = say("tuned", metric=info.metric, seeds=compared_seeds(summary))
        found["table4"] = table(
            4, "Test accuracy of the models", what, ("variant", "model"), rows, summary
        )
    found["table5"] = _table5(summary.runs, ours)
    return found


def _table1(info: StudyInfo, summary: StudySummary, ours: OurNumbers, model: str) -> Table:
    table, shown = main_table(info, summary, model), summary.of(model=model)
    rows: Rows = {(row[0],): (theirs.TEST, model, row[0]) for row in table.rows}
    layout = lay_out(("variant",), _places(1, rows, shown), ours, NO_VALUE)
    return replace(
        table,
        title=f"Table 1. {table.title}",
        caption=f"{table.caption}{_about_published(layout, shown.runs)}",
        header=layout.header,
        rows=layout.rows,
        bold=frozenset((i, layout.columns[table.header[j]]) for i, j in table.bold),
    )


def _table(
    info: StudyInfo,
    ours: OurNumbers,
    number: int,
    title: str,
    what: str,
    corner: Labels,
    rows: Rows,
    shown: StudySummary,
) -> Table:
    layout = lay_out(corner, _places(number, rows, shown), ours, NO_VALUE)
    unit = "gradient steps" if number == 2 else "percentage points"
    return Table(
        title=f"Table {number}. {title}",
        caption=f"{what}{marks_text(layout.rows)}{_about_published(layout, shown.runs, unit)}",
        shared=facts(info, shown),
        header=layout.header,
        rows=layout.rows,
    )


def _table5(runs: pd.DataFrame, ours: OurNumbers) -> Table:
    places: Places = {}
    for task, model in tuples_in(runs[GROUP].drop_duplicates()):
        cell = (task, model, "all")
        places[(task, model), "gradient steps"] = Place(
            theirs.MAX_STEPS, cell, published(5, cell, theirs.MAX_STEPS)
        )
    layout = lay_out(("task", "model"), places, ours, NO_VALUE)
    about = " Published: Rothermel et al. 2021, Table 5; in brackets ours less theirs."
    return Table(
        title="Table 5. Step budgets",
        caption=f"Gradient steps after which runs end.{about if layout.published_in else ''}",
        header=(*layout.header[:3], "published (difference)")[: len(layout.header)],
        rows=layout.rows,
    )


def _places(number: int, rows: Rows, shown: StudySummary) -> Places:
    places: Places = {}
    for labels, (metric, model, variant) in rows.items():
        for task in shown.cells["task"].unique():
            cell = (task, model, variant)
            there = theirs.published_best(cell) if number == 1 else published(number, cell, metric)
            places[labels, task] = Place(metric, cell, there)
    return places


def _about_published(layout: Layout, runs: pd.DataFrame, unit: str = "percentage points") -> str:
    """Say what the published columns are, if there are any, and which tasks ran for other budgets than the paper's."""
    if not layout.published_in:
        return ""
    other = []
    for (task, model), rows in runs.groupby(GROUP, sort=False):
        there, here = (
            published(5, (str(task), "gpt2", "all"), theirs.MAX_STEPS),
            rows["num_steps"].max(),
        )
        if there is not None and here != there.number:
            other.append(
                f"{task} on {model} {budget_text(here)} steps here, {budget_text(there.number)} there"
            )
    tables = " and ".join(f"Table {number}" for number in layout.published_in)
    return " " + say("rothermel2021", tables=tables, unit=unit, other_budgets="; ".join(other))


def lu_table(number: int, info: StudyInfo, summary: StudySummary, curves: pd.DataFrame) -> Table:
    """Lay out a table of Lu et al. 2021 with our numbers beside the published ones; empty where one is missing."""
    small = theirs.is_small(info.study)
    found, text = entries(number, small=small), TABLES[number]
    places: Places = {
        ((entry.row,), entry.column): Place(entry.metric, entry.cell, entry) for entry in found
    }
    layout = lay_out((text.corner,), places, OurNumbers(summary, curves), absent="")
    metrics = list(dict.fromkeys(entry.metric for entry in found))
    about = say(
        "lu2021",
        metrics=metrics,
        number=number,
        note=text.note,
        stand_ins=_stand_ins(number) if small else "",
    )
    return Table(
        title=f"Table {number}. {text.title[0].upper()}{text.title[1:]}",
        caption=about + marks_text(layout.rows),
        shared=facts(info, summary),
        header=layout.header,
        rows=layout.rows,
    )


def _stand_ins(number: int) -> str:
    models = {entry.model for entry in entries(number)}
    pairs = {
        **TABLES[number].small,
        **{model: ours for model, ours in SMALL_MODELS.items() if model in models},
    }
    return ", ".join(f"{here} for {there}" for there, here in pairs.items())
