"""The tables and figures of a paper that a study has the runs for, written by number.

A study of another metric than accuracy, or of a user's table, has the same figures without numbers, and no tables of
papers. A study whose name begins with that of a table of Lu et al. 2021, as in `lu2021-table3-swept`, has that table;
any other has the tables and figures of Rothermel et al. 2021.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.paper.lu2021.published import table_of
from lr_sweep.analysis.paper.lu2021.tables import lu_table
from lr_sweep.analysis.paper.published import TEST, published
from lr_sweep.analysis.paper.tables import paper_tables
from lr_sweep.analysis.record.read import StudyInfo
from lr_sweep.analysis.report import figures
from lr_sweep.analysis.report.blocks import Block, Image, Paragraph, Table, stem_of_each
from lr_sweep.analysis.report.figures import PublishedBest
from lr_sweep.analysis.report.tables import facts, main_table
from lr_sweep.analysis.report.texts import say
from lr_sweep.analysis.statistics.aggregate import StudySummary
from lr_sweep.analysis.statistics.selection import CELL

FIGURE_1_TASK = "cifar10-lra"

PUBLISHED = "Rothermel et al. 2021, Tables 1 and 4; the differences are in those tables here"


def write_paper(
    folder: Path, info: StudyInfo, summary: StudySummary, curves: pd.DataFrame
) -> tuple[list[Table], list[Image], list[Block]]:
    """Write the files of tables and figures into `folder`; `curves` have `run_id`, `step` and the accuracies.

    Returns:
        As blocks of the report: Table 1, one a model; figures 3 and 1, one a model; and Figure 2 left, Tables 2 to 5,
        and a sentence for each table or figure that the study lacks the runs for. Of a table of Lu et al. 2021: the
        table; figure 3, one a model, if learning rates are swept; and nothing. Of a study that has nothing to do with
        the papers: the main table, its figure of the sweep and its bars, one each a model.
    """
    if not _of_papers(info):
        return _write_plain(folder, info, summary)
    if number := table_of(info.study):
        return _write_lu2021(number, folder, info, summary, curves)
    tables, left_out = paper_tables(info, summary, curves)
    for name, table in tables.items():
        table.write(folder, name)
    by_model = {model: summary.of(model=model) for model in summary.runs["model"].unique()}
    stems = stem_of_each(by_model)
    sweeps = [_sweep_figure(folder, info, shown, model, stems[model]) for model, shown in by_model.items()]
    if FIGURE_1_TASK in set(summary.runs["task"]):
        of_task = {model: shown.of(task=FIGURE_1_TASK) for model, shown in by_model.items()}
        sweeps += [
            _sweep_figure(folder, info, shown, model, stems[model], FIGURE_1_TASK) for model, shown in of_task.items()
        ]
    else:
        left_out.append(f"Figure 1, the sweep on {FIGURE_1_TASK}, is left out: the study does not have this task.")
    bars = [_bar_figure(folder, info, shown, model, stems[model]) for model, shown in by_model.items()]
    by_number = sorted(tables, key=lambda name: name.partition("-")[0])
    main = [tables[name] for name in by_number if name.startswith("table1-")]
    others = [tables[name] for name in by_number[len(main) :]]
    return main, sweeps, [*bars, *others, *map(Paragraph, left_out)]


def _of_papers(info: StudyInfo) -> bool:
    return info.metric == ACCURACY and not info.from_table


def _write_plain(folder: Path, info: StudyInfo, summary: StudySummary) -> tuple[list[Table], list[Image], list[Block]]:
    by_model = {model: summary.of(model=model) for model in summary.runs["model"].unique()}
    stems = stem_of_each(by_model)
    sweeps = [_sweep_figure(folder, info, shown, model, stems[model]) for model, shown in by_model.items()]
    if not info.metric.chosen_on:
        return [], sweeps, []
    tables = [main_table(info, summary, model).write(folder, f"main-{stems[model]}") for model in by_model]
    return tables, sweeps, [_bar_figure(folder, info, shown, model, stems[model]) for model, shown in by_model.items()]


def _write_lu2021(
    number: int, folder: Path, info: StudyInfo, summary: StudySummary, curves: pd.DataFrame
) -> tuple[list[Table], list[Image], list[Block]]:
    table = lu_table(number, info, summary, curves).write(folder, f"lu2021-table{number}")
    swept = summary.learning_rates.groupby(CELL)["learning_rate"].nunique().max() > 1
    models = summary.runs["model"].unique() if swept else ()
    stems = stem_of_each(models)
    return [table], [_sweep_figure(folder, info, summary.of(model=model), model, stems[model]) for model in stems], []


def best_published(info: StudyInfo, cells: pd.DataFrame) -> PublishedBest:
    """Look up Rothermel et al.'s best test accuracy of each cell, in percent, by task, model and variant.

    Of a table of Lu et al. 2021 there is none: their values are not tuned, and are in the table. None: the study has
    nothing to do with the papers.
    """
    if not _of_papers(info):
        return None
    found: dict[tuple[str, str, str], float] = {}
    if table_of(info.study):
        return found
    for task, model, variant in cells[CELL].itertuples(index=False, name=None):
        # Table 4 repeats Table 1 for gpt2 and adds distilgpt2.
        entry = published(1, task, model, variant, TEST) or published(4, task, model, variant, TEST)
        if entry is not None:
            found[task, model, variant] = entry.value
    return found


def _figure_caption(info: StudyInfo, shown: StudySummary, published_lines: str) -> str:
    """Say what a figure shows; `published_lines`: how the lines of published values look, empty if there are none."""
    text = f"{say('measured', metric=info.metric)} {facts(info, shown.runs)}"
    return f"{text} {published_lines} lines: {PUBLISHED}." if published_lines else text


def _sweep_figure(
    folder: Path, info: StudyInfo, shown: StudySummary, model: str, stem: str, task: str | None = None
) -> Image:
    """Draw one model's sweep, over all tasks (Figure 3) or one (Figure 1)."""
    best = best_published(info, shown.cells)
    title = f"{info.title}: {model}" if task is None else f"{info.title}: {model}, {task}"
    text = f"{say('measured', metric=info.metric)} {facts(info, shown.runs)}" + (
        f" Dotted lines: {PUBLISHED}." if best else ""
    )
    figure = figures.learning_rate_figure(shown.learning_rates, shown.cells, title, text, best, info.metric)
    number, kind = (3, "learning-rates") if task is None else (1, "figure1")
    files = figures.save(figure, folder / f"{kind}-{stem}")
    numbered = f"Figure {number}. " if _of_papers(info) else ""
    return Image(f"{numbered}{info.metric.title} against learning rate, {model}", *files)


def _bar_figure(folder: Path, info: StudyInfo, shown: StudySummary, model: str, stem: str) -> Image:
    """Draw one model's cells at their chosen learning rates."""
    best = best_published(info, shown.cells)
    text = f"{say('measured', metric=info.metric)} {facts(info, shown.runs)}" + (
        f" Black lines: {PUBLISHED}." if best else ""
    )
    figure = figures.best_rates_figure(
        shown.cells, f"{info.title}: {model}, best learning rates", text, best, info.metric
    )
    kind, numbered = ("figure2-left", "Figure 2, left. ") if _of_papers(info) else ("best", "")
    files = figures.save(figure, folder / f"{kind}-{stem}")
    return Image(f"{numbered}{info.metric.title} at the best learning rate, {model}", *files)
