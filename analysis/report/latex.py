"""The table of a report for LaTeX, which marks what the verdict's tests say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from lr_sweep.analysis.record.study import StudyInfo
from lr_sweep.analysis.report.blocks import Table, file_stem
from lr_sweep.analysis.report.tables import main_table
from lr_sweep.analysis.report.texts import say
from lr_sweep.analysis.statistics.comparisons.pairs import comparisons, is_paired
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.common.text import rate_text

SPECIAL = str.maketrans(
    {
        **{mark: f"\\{mark}" for mark in "&%$#_{}"},
        **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
        **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''"},
        **{"±": r"$\pm$", "−": "$-$", "×": r"$\times$", "†": r"$\dagger$", "‡": r"$\ddagger$", "§": r"\S{}"},
    }
)
"""What TeX reads as a command, or has no letter for."""


def latex_text(info: StudyInfo, summary: StudySummary, found: pd.DataFrame, by_rate: Sequence[Table]) -> str:
    """Return a table of each model, best entries marked; where no learning rate is chosen, the tables by rate.

    `found`: the result of `verdicts.verdicts`, whose tests are those of the marks.
    """
    tables = [_of_model(info, summary, found, model) for model in summary.runs["model"].unique()]
    tables = tables if summary.metric.chosen_on else [(table, frozenset()) for table in by_rate]
    parts = []
    for number, (table, leaders) in enumerate(tables):
        caption = f"{table.title}. {table.full_caption}" if len(tables) > 1 else table.full_caption
        label = f"tab:{file_stem(info.study)}{f'-{number}' if number else ''}"
        parts.append(_latex(table, leaders, caption, label))
    return "\n".join([r"% In the preamble: \usepackage{booktabs}", *parts])


def _of_model(
    info: StudyInfo, summary: StudySummary, found: pd.DataFrame, model: str
) -> tuple[Table, frozenset[tuple[int, int]]]:
    """Lay out a model's table, of one task with the learning rates, and say where the leaders stand."""
    table, metric = main_table(info, summary, model), summary.metric
    rows: list[dict[Any, Any]] = found[found["model"] == model].to_dict("records")
    leads = [(row, lead) for row in rows for lead in row["leads"] if lead.condition]
    tested = int(comparisons(summary)["p"].count())
    facts: dict[str, Any] = {"metric": metric, "paired": is_paired(summary), "tested": tested}
    facts["conditional"] = [(row["task"], row["best"][0], lead.over, lead.condition) for row, lead in leads]
    facts["tasks"] = len(rows)
    table = replace(table, bold_text=say("latex_marks", **facts))
    variants, tasks = [row[0] for row in table.rows], table.header[1:]
    best = {(variants.index(row["best"][0]), tasks.index(row["task"]) + 1) for row in rows if row["best"]}
    if len(tasks) > 1:
        return table, frozenset(best)
    rates = summary.of(model=model).cells.set_index("variant")["learning_rate"]
    lines = tuple((variant, rate_text(rates[variant]), text) for variant, text in table.rows)
    header = ("variant", "learning rate", metric.axis)
    moved = replace(table, header=header, rows=lines, bold=frozenset((i, j + 1) for i, j in table.bold))
    return moved, frozenset((i, j + 1) for i, j in best)


def _latex(table: Table, leaders: frozenset[tuple[int, int]], caption: str, label: str) -> str:
    rows = [list(map(escaped, row)) for row in table.rows]
    for i, j in table.bold:
        rows[i][j] = rf"\{'textbf' if (i, j) in leaders else 'underline'}{{{rows[i][j]}}}"
    frame = pd.DataFrame(rows, columns=[*map(escaped, table.header)])
    return frame.style.hide(axis="index").to_latex(
        hrules=True,
        column_format="l" + "r" * (len(table.header) - 1),
        position_float="centering",
        caption=escaped(caption),
        label=label,
    )


def escaped(text: str) -> str:
    """Return a text as TeX prints it: on one line, without commands or ligatures of its own."""
    return re.sub("-(?=-)", "-{}", " ".join(text.split()).translate(SPECIAL))
