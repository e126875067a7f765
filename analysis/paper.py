"""Every table and figure of Rothermel et al. 2021 that a study has the runs for, written by number."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from analysis import figures, published
from analysis.aggregate import Summary
from analysis.paper_tables import paper_tables
from analysis.record import StudyInfo
from analysis.sections import Block, Image, Paragraph
from analysis.table_formats import Table, file_stem, write_tables
from analysis.tables import caption

FIGURE_1_TASK = "cifar10-lra"

MEASURED = (
    "Test accuracy of each run's best model by validation accuracy, mean over seeds; error bars: standard error of the "
    "mean (SEM)."
)


@dataclass(frozen=True, kw_only=True)
class Paper:
    """What was written."""

    tables: dict[str, Table]
    """By file name without ending: `<name>.md`, `<name>.tex`, `<name>.csv`."""
    sweep_figures: tuple[Image, ...]
    """Figures 1 and 3."""
    bar_figures: tuple[Image, ...]
    """Figure 2 left."""
    left_out: tuple[str, ...]
    """A sentence for each artefact that the study lacks the runs for."""

    def tables_of(self, number: int) -> list[Table]:
        """Return the paper's table of that number, one a model where it is one a model."""
        return [table for name, table in self.tables.items() if name.split("-")[0] == f"table{number}"]

    def further(self) -> list[Block]:
        """Return what does not stand at the top of the report: Figure 2 and Tables 2 to 5."""
        tables = [table for number in (2, 3, 4, 5) for table in self.tables_of(number)]
        return [*self.bar_figures, *tables, *map(Paragraph, self.left_out)]


def write_paper(folder: Path, info: StudyInfo, wanted: pd.DataFrame, summary: Summary, curves: pd.DataFrame) -> Paper:
    """Write the artefacts' files into `folder`.

    Args:
        folder: where to write.
        info: the study.
        wanted: its wanted runs.
        summary: its numbers.
        curves: `run_id`, `step`, `train_accuracy`, `validation_accuracy`, `test_accuracy`.
    """
    found, left_out = paper_tables(info, wanted, summary, curves)
    write_tables(folder, found)
    models = list(wanted["model"].unique())
    sweeps = [_sweep_figure(folder, info, wanted, summary, model) for model in models]
    shown = set(wanted["task"])
    if FIGURE_1_TASK in shown:
        sweeps += [_sweep_figure(folder, info, wanted, summary, model, FIGURE_1_TASK) for model in models]
    else:
        left_out.append(f"Figure 1, the sweep on {FIGURE_1_TASK}, is left out: the study does not have this task.")
    return Paper(
        tables=found,
        sweep_figures=tuple(sweeps),
        bar_figures=tuple(_bar_figure(folder, info, wanted, summary, model) for model in models),
        left_out=tuple(left_out),
    )


def _sweep_figure(
    folder: Path, info: StudyInfo, wanted: pd.DataFrame, summary: Summary, model: str, task: str | None = None
) -> Image:
    """Draw one model's sweep, over all tasks (Figure 3) or one (Figure 1); return it."""
    rates, cells, shown = (
        frame[(frame["model"] == model) & (True if task is None else frame["task"] == task)]
        for frame in (summary.learning_rates, summary.cells, wanted)
    )
    best = published_best(cells)
    title = f"{info.title}: {model}" if task is None else f"{info.title}: {model}, {task}"
    text = caption(info, shown, MEASURED) + _published_text(best, "dotted lines")
    figure = figures.learning_rate_figure(rates, cells, title, text, best)
    number, stem = (3, "learning-rates") if task is None else (1, "figure1")
    paths = figures.save(figure, folder / f"{stem}-{file_stem(model)}")
    return _image(paths, f"Figure {number}. Test accuracy against learning rate, {model}")


def _bar_figure(folder: Path, info: StudyInfo, wanted: pd.DataFrame, summary: Summary, model: str) -> Image:
    """Draw one model's cells at their chosen learning rates; return the figure."""
    cells = summary.cells[summary.cells["model"] == model]
    best = published_best(cells)
    text = caption(info, wanted[wanted["model"] == model], MEASURED) + _published_text(best, "black lines")
    figure = figures.best_rates_figure(cells, f"{info.title}: {model}, best learning rates", text, best)
    paths = figures.save(figure, folder / f"figure2-left-{file_stem(model)}")
    return _image(paths, f"Figure 2, left. Test accuracy at the best learning rate, {model}")


def published_best(cells: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Look up the paper's best test accuracy of each cell of one model, in percent, by task and variant."""
    found = {}
    for task, model, variant in cells[["task", "model", "variant"]].itertuples(index=False):
        # Table 4 repeats Table 1 for gpt2 and adds distilgpt2.
        tables = (published.published(number, task, model, variant, published.TEST) for number in (1, 4))
        if there := next((entry for entry in tables if entry), None):
            found[task, variant] = there.value
    return found


def _published_text(best: dict[tuple[str, str], float], drawn_as: str) -> str:
    there = "Rothermel et al. 2021, Tables 1 and 4; the differences are in those tables here"
    return f" {drawn_as.capitalize()}: {there}." if best else ""


def _image(paths: list[Path], title: str) -> Image:
    png, *others = paths
    return Image(title=title, png=png, others=tuple(others))
