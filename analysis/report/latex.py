"""The table of a report for LaTeX, which marks what the verdict's tests say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from lr_sweep.analysis.record.study import StudyInfo
from lr_sweep.analysis.report.blocks import Table, file_stem
from lr_sweep.analysis.report.tables import is_tested, main_table
from lr_sweep.analysis.report.texts import say
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.common.text import rate_text

SPECIAL = str.maketrans(
    {
        **{mark: f"\\{mark}" for mark in "&%$#_{}"},
        **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
        **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''"},
        **{
            "±": r"$\pm$",
            "−": "$-$",
            "×": r"$\times$",
            "†": r"$\dagger$",
            "‡": r"$\ddagger$",
            "§": r"\S{}",
        },
    }
)
"""What TeX reads as a command, or has no letter for."""


def latex_text(
    info: StudyInfo, summary: StudySummary, found: pd.DataFrame, by_rate: Sequence[Table]
) -> str:
    """Return a table of each model, best entries marked; where no learning rate is chosen, the tables by rate.

    `found`: the result of `verdicts.verdicts`, whose tests are those of the marks.
    """
    tables = [
        replace(table, rows=tuple(tuple(map(escaped, row)) for row in table.rows))
        for table in by_rate
    ]
    if summary.metric.chosen_on:
        tables = [
            _of_model(info, summary, found, model) for model in summary.runs["model"].unique()
        ]
    is_alone = len(tables) == 1 and bool(
        summary.metric.chosen_on
    )  # its caption begins as its title does
    parts = [r"% In the preamble: \usepackage{booktabs}"]
    for number, table in enumerate(tables):
        frame = pd.DataFrame(list(table.rows), columns=[*map(escaped, table.header)])
        text = frame.style.hide(axis="index").to_latex(
            hrules=True,
            column_format=f"l{'r' * (len(table.header) - 1)}",
            position_float="centering",
            caption=escaped(
                table.full_caption if is_alone else f"{table.title}. {table.full_caption}"
            ),
            label=f"tab:{file_stem(info.study)}{f'-{number}' if number else ''}",
        )
        parts.append(text)
    return "\n".join(parts)


def _of_model(info: StudyInfo, summary: StudySummary, found: pd.DataFrame, model: str) -> Table:
    """Lay out a model's table with rows for TeX; of one task it has the learning rates."""
    table, metric, rows = (
        main_table(info, summary, model),
        summary.metric,
        found[found["model"] == model],
    )
    leaders = {
        (best[0], task) for task, best in zip(rows["task"], rows["best"], strict=True) if best
    }
    rates = summary.of(model=model).cells.set_index("variant")["learning_rate"]
    is_one, lines = len(rows) == 1, []
    for i, (variant, *texts) in enumerate(table.rows):
        entries = [escaped(variant), rate_text(rates[variant])] if is_one else [escaped(variant)]
        for j, (task, text) in enumerate(zip(table.header[1:], texts, strict=True), 1):
            mark = "textbf" if (variant, task) in leaders else "underline"
            entries.append(
                rf"\{mark}{{{escaped(text)}}}" if (i, j) in table.bold else escaped(text)
            )
        lines.append(tuple(entries))
    marks = say(
        "latex_marks",
        metric=metric,
        tested=is_tested(summary),
        rows=rows.to_dict("records"),
    )
    header = ("variant", "learning rate", metric.axis) if is_one else table.header
    return replace(table, header=header, rows=tuple(lines), bold_text=marks)


def escaped(text: str) -> str:
    """Return a text as TeX prints it: on one line, without commands or ligatures of its own."""
    return re.sub("-(?=-)", "-{}", " ".join(text.split()).translate(SPECIAL))
