"""The table for a paper, of runs whose numbers are worked out by hand; TeX reads it in the slow test."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.judge import judged, write_judged
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.report.latex import escaped
from lr_sweep.analysis.study_report import Report

SPREAD = (-0.01, 0.0, 0.01)
"""Of three seeds: the SEM is 0.01 / sqrt(3) = 0.0058."""
Means = dict[tuple[str, str], tuple[float, float, float]]
CLEAR: Means = {("t", "new-a"): (0.7, 0.9, 0.6), ("t", "new-b"): (0.7, 0.895, 0.6), ("t", "old"): (0.5, 0.6, 0.5)}
"""Mean accuracy at 1e-3, 1e-2 and 1e-1."""
EDGE: Means = {("t", "ours"): (0.7, 0.9, 0.6), ("t", "base"): (0.5, 0.7, 0.8)}


def report_of(folder: Path, means: Means, *, latex: bool = True, lower: bool = False) -> Report:
    rows = ["task,variant,lr,seed,val_acc,test_acc"]
    for (task, variant), by_rate in means.items():
        for rate, mean in zip(("1e-3", "1e-2", "1e-1"), by_rate, strict=True):
            rows += [f'"{task}","{variant}",{rate},{i},{mean + x},{mean + x}' for i, x in enumerate(SPREAD)]
    (folder / "mine_1.csv").write_text("\n".join(rows) + "\n")
    reading = Reading(higher_is_better=False if lower else None)
    return write_judged(judged([folder / "mine_1.csv"], reading).study, folder / "report", latex=latex)


def rows_of(report: Report) -> list[str]:
    text = (report.folder / "table.tex").read_text()
    return text.split("\\midrule\n")[1].split("\\bottomrule")[0].splitlines()


def test_a_table_that_a_paper_can_have(tmp_path: Path) -> None:
    """t of 3 seeds is 4.303, so an interval reaches 2.5 points to each side. All rows have one number of decimals."""
    report = report_of(tmp_path, CLEAR)
    rows = rows_of(report)
    assert [rows[0], rows[1].split(" & $-$0.5")[0], rows[2].split(" & $3")[0]] == [
        r"new-a & $10^{-2}$ & 3 & \textbf{90.0} & 87.5 to 92.5 &  &  \\",
        r"new-b & $10^{-2}$ & 3 & \textbf{89.5} & 87.0 to 92.0",
        r"old & $10^{-2}$ & 3 & 60.0 & 57.5 to 62.5 & $-$30.0",
    ]
    text = (report.folder / "table.tex").read_text()
    for part in ("highest mean, and means that do not differ", "Welch's t tests", r"\label{tab:mine_1}", "{lrrrrrr}"):
        assert part in text


def test_a_lead_that_holds_as_far_as_the_grid_reaches_is_conditional(tmp_path: Path) -> None:
    report = report_of(tmp_path, EDGE)
    assert r"base & $10^{-1}$ & 3 & 80.0\rlap{\textsuperscript{$\ddagger$}} &" in rows_of(report)[1]
    assert "base is worse only as far as the grid reaches: base still" in (report.folder / "table.tex").read_text()


def test_a_small_difference_gives_its_decimals_to_the_column(tmp_path: Path) -> None:
    means: Means = {("t", "a"): (0.7, 0.9, 0.6), ("t", "b"): (0.7, 0.8997, 0.6), ("t", "c"): (0.5, 0.6, 0.5)}
    assert [row.split(" & ")[5] for row in rows_of(report_of(tmp_path, means))] == ["", "$-$0.03", "$-$30.00"]


def test_several_tasks_are_rows(tmp_path: Path) -> None:
    open_: Means = {("u", name): (0.7, 0.9 + add, 0.6) for name, add in (("new-a", 0.0), ("new-b", 0.005))}
    report = report_of(tmp_path, CLEAR | open_)
    assert [row.split(" & ")[:2] for row in rows_of(report)] == [
        *(["t", "new-a"], ["t", "new-b"], ["t", "old"], ["u", "new-b"], ["u", "new-a"]),
    ]


def test_of_a_metric_to_minimise_the_lowest_is_bold(tmp_path: Path) -> None:
    turned = {name: (0.9, 0.4, 0.9) if name[1] == "old" else (0.9, 0.6, 0.9) for name in CLEAR}
    report = report_of(tmp_path, turned, lower=True)
    assert rows_of(report)[0].startswith(r"old & $10^{-2}$ & 3 & \textbf{40.0}")


def test_without_latex_there_is_no_table_and_no_pdf(tmp_path: Path) -> None:
    report = report_of(tmp_path, CLEAR, latex=False)
    assert {path.suffix for path in report.files} == {".md", ".csv", ".json", ".png", ".html"}


def test_what_tex_reads_as_commands_is_escaped() -> None:
    assert escaped("a_b 5% {x} $1 & #2 ~ ^\n\\c -- <d>") == (
        r"a\_b 5\% \{x\} \$1 \& \#2 \textasciitilde{} \textasciicircum{} \textbackslash{}c -{}- "
        r"\textless{}d\textgreater{}"
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex: Debian's texlive-latex-recommended has it")
def test_tex_reads_the_table_and_the_figure(tmp_path: Path) -> None:
    names = ("a_b & 5%", "{c} #1 -- $2", "d^e ~ \\f <g|h>")
    means: Means = {(task, name): CLEAR["t", "old"] for task in ("x_1", "50%") for name in names}
    report = report_of(tmp_path, means)
    (figure,) = report.folder.glob("learning-rates-*.pdf")
    assert b"/FontFile2" in figure.read_bytes()  # letters are embedded, as TrueType
    assert b"/Type3" not in figure.read_bytes()
    page = rf"""\documentclass{{article}}\usepackage{{booktabs,graphicx}}\begin{{document}}
    \input{{{report.folder}/table.tex}}\includegraphics[width=5cm]{{{figure}}}\end{{document}}"""
    (tmp_path / "page.tex").write_text(page)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stdout
    assert "Missing character" not in (tmp_path / "page.log").read_text(errors="replace")
