"""The report of a study: reads its record and writes a page, tables and figures that say what they rest on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from lr_sweep.analysis.paper.paper import paper_sections
from lr_sweep.analysis.record.columns import Now
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.record.read import check_format
from lr_sweep.analysis.statistics.checks.code import code_findings
from lr_sweep.analysis.statistics.checks.finding import CheckFinding, conditions_of, problems_first
from lr_sweep.analysis.statistics.checks.resumes import inexact_findings
from lr_sweep.analysis.statistics.checks.sweep import check_sweep
from lr_sweep.analysis.statistics.checks.variants import unequal_tuning
from lr_sweep.analysis.statistics.comparisons.conditions import with_conditions
from lr_sweep.analysis.statistics.comparisons.orders import comparisons_at_rates, orders
from lr_sweep.analysis.statistics.comparisons.target import compare_steps
from lr_sweep.analysis.statistics.comparisons.verdicts import verdicts
from lr_sweep.analysis.statistics.selection.best import tuples_in
from lr_sweep.analysis.statistics.selection.summary import GROUP
from lr_sweep.common.files import Fields

from .report import tables
from .report.blocks import (
    Block,
    Description,
    Paragraph,
    Section,
    SweepChart,
    Verdict,
    file_stem,
    write_csv,
)
from .report.chart import chart_data, sweep_panels
from .report.figures import curve_caption, curve_figures, sweep_caption, sweep_figures
from .report.findings import (
    cell_names,
    checks_line,
    count_problems,
    findings_list,
    folded,
    write_checks_json,
)
from .report.folder import new_report
from .report.latex import latex_text
from .report.laws import optima_section
from .report.page import page_html
from .report.results import results, results_table
from .report.search_figures import search_figures
from .report.targets import target_section
from .report.verdict import question, verdict_items
from .study_summary import Study, read_summary
from .study_texts import made_sections, reading_section, status_text

FURTHER_COLUMNS = (
    *("git_commit", "git_dirty", "versions", "device", "device_s"),
    *("started_at", "finished_at", "lost_steps", "resumed", "not_saved", "code", "content"),
)
"""What the report reads of runs beside what the summary does."""
MOST_ROWS_FIRST = 4
"""Rows of a table that is shown above the figure; a longer one is below it."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What `write_report` wrote."""

    folder: Path
    files: tuple[Path, ...]
    description: Description
    findings: tuple[CheckFinding, ...]

    @property
    def page(self) -> Path:
        """The file to open in a browser."""
        return self.folder / "index.html"

    @property
    def text(self) -> str:
        """The text for a terminal: verdict, results, status and checks."""
        return self.description.text()

    def as_json(self) -> Fields:
        """Return what `report.json` has, and where the page is."""
        return {**self.description.as_json(), "page": str(self.page)}

    @property
    def num_problems(self) -> int:
        """Findings that `--strict` fails on."""
        return count_problems(self.findings)


def write_report(
    results: Path, study: str, code_now: Now | None = None, *, latex: bool = False
) -> Report:
    """Write `studies/<study>/report/` from the record, whatever is in it so far; the folder is replaced whole.

    `code_now` gives the version that a file of the code has now, to compare runs with; None: they are not compared.
    `latex`: as of `write_files`.
    Raises RecordError if the record is missing, damaged, or of another format.
    """
    check_format(results)
    recorded = _read(results, study, code_now)
    study_dir = Paths(results).study(study)
    with new_report(study_dir) as new:
        description = write_files(new, recorded, latex=latex)
        names = sorted(path.name for path in new.iterdir())
    folder = study_dir / "report"
    files = tuple(folder / name for name in names)
    return Report(folder=folder, files=files, description=description, findings=recorded.findings)


def _read(results: Path, study: str, code_now: Now | None) -> Study:
    read = read_summary(results, study, FURTHER_COLUMNS)
    findings = [
        *check_sweep(read.summary, read.curves),
        *unequal_tuning(read.summary),
        *code_findings(read.wanted, read.runs, code_now),
        *inexact_findings(read.wanted, read.runs, read.summary),
    ]
    return replace(read, findings=problems_first(findings))


def write_files(folder: Path, study: Study, *, latex: bool = False) -> Description:
    """Write every file of a report, its page as `page.page_html` does, and return the report's description.

    `latex`: write `table.tex`, and the figures as PDF, too.
    """
    report = _Writer(folder, study, latex)
    description = Description(study.info.title, report.sections())
    report.write_numbers()
    content = json.dumps(description.as_json(), indent=1, ensure_ascii=False)
    texts = {
        "report.md": description.markdown(),
        "report.json": f"{content}\n",
        "index.html": page_html(description, report.chart()),
    }
    if latex:
        texts["table.tex"] = latex_text(study.info.study, report.results or report.by_rate)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return description


class _Writer:
    """Writes the figures and the CSV files of a report, and describes it section by section."""

    def __init__(self, folder: Path, study: Study, latex: bool) -> None:
        self.folder, self.study, self.latex = folder, study, latex
        self.info, self.summary, self.metric = study.info, study.summary, study.summary.metric
        self.findings = folded(study.findings, cell_names(self.summary.cells))
        self.tried = self.summary.runs["learning_rate"].unique()
        self.conditions = conditions_of(study.findings)
        self.panels = [] if self.metric.untuned else sweep_panels(self.summary, self.conditions)
        self.orders = orders(self.summary)
        self.ranked = results(self.summary, self.conditions) if self.metric.chosen_on else None
        self.results = [] if self.ranked is None else [results_table(self.summary, self.ranked)]
        self.by_rate = [
            tables.learning_rate_table(self.summary, task, model)
            for task, model in tuples_in(self.summary.runs[GROUP].drop_duplicates())
        ]

    def sections(self) -> list[Section]:
        """Return the report's sections."""
        study, summary = self.study, self.summary
        target, reached = self._target()
        optima, laws = self._optima()
        return [
            self._opening([*laws, *reached]),
            *self._rates(),
            *self._checks(),
            *target,
            *optima,
            *self._curves(),
            *self._pairs(),
            *self._options(),
            *made_sections(study),
            reading_section(study),
            *paper_sections(self.folder, self.info, summary, study.curves),
        ]

    def chart(self) -> Fields:
        """Return the data of the page's chart."""
        return chart_data(self.panels, self.orders, self.metric)

    def write_numbers(self) -> None:
        """Write the numbers of every run, learning rate and cell, and the findings."""
        summary = self.summary
        write_checks_json(self.folder, self.info.study, self.study.findings, self.tried)
        self._write("learning_rates", summary.learning_rates)
        name = file_stem(self.metric.name)
        named = {split: f"{split}_{name}" for split in ("validation", "test")}
        for stem, runs in {"runs": summary.runs, "fresh": summary.fresh_runs}.items():
            if runs is not None:
                self._write(stem, runs.rename(columns=named).assign(**self.metric.columns))
        if self.ranked is not None:
            self._write("cells", self.ranked)

    def _write(self, stem: str, rows: pd.DataFrame) -> None:
        write_csv(rows, self.folder / f"{stem}.csv")

    def _verdict(self) -> Verdict:
        if not self.metric.chosen_on:
            return Verdict(())
        judgements = verdicts(self.summary, self.conditions)
        return Verdict(verdict_items(judgements, self.summary), is_whole=self.metric.untuned)

    def _opening(self, sentences: Sequence[str]) -> Section:
        """Return the first screen: question, verdict, table, figure; `sentences` follow the verdict."""
        verdict = self._verdict()
        figures: list[Block] = []
        if not self.metric.untuned:
            images = sweep_figures(self.folder, self.summary, self.panels, pdf=self.latex)
            figures = [SweepChart(sweep_caption(self.summary), verdict), *images]
        is_long = any(len(table.rows) > MOST_ROWS_FIRST for table in self.results)
        texts = [question(self.summary), *self.info.about()]
        body: list[Block] = [*map(Paragraph, texts)]
        body += [verdict] if verdict.items else []
        body += map(Paragraph, sentences)
        body += [*figures, *self.results] if is_long else [*self.results, *figures]
        status = f"{status_text(self.study)} {checks_line(self.findings)}"
        body += map(Paragraph, [*self.study.left_out, status])
        return Section("", body, folded=False, in_terminal=True)

    def _checks(self) -> list[Section]:
        if not self.findings:
            return []
        meaning = (
            "A problem means that a number may change, or cannot carry a conclusion. "
            "A note is anything else worth knowing."
        )
        items = findings_list(self.findings, self.tried, self.info.from_table)
        is_folded = not count_problems(self.findings)
        return [Section("Checks", [Paragraph(meaning), items], is_folded, in_terminal=True)]

    def _rates(self) -> list[Section]:
        """Return the tables of every learning rate, and what each rate alone would have shown."""
        if self.metric.untuned:
            return []
        is_chosen = bool(self.metric.chosen_on)
        every = Section("Every learning rate", self.by_rate, is_chosen, in_terminal=True)
        if not is_chosen or not len(at_rates := comparisons_at_rates(self.summary)):
            return [every]
        self._write("comparisons-at-rates", at_rates)
        ordered = tables.order_texts(self.orders)
        self._write("orders", ordered)
        order = tables.order_table(ordered, self.metric, fresh=self.summary.fresh is not None)
        return [every, Section("Conclusions at each learning rate", [order])]

    def _target(self) -> tuple[list[Section], Sequence[str]]:
        steps = compare_steps(self.summary, self.study.curves)
        if steps is None:
            return [], []
        section, sentences = target_section(self.folder, self.metric, steps)
        return [section], sentences

    def _optima(self) -> tuple[list[Section], Sequence[str]]:
        if self.metric.untuned or not self.metric.chosen_on:
            return [], []
        return optima_section(self.folder, self.summary, self.study.axes(), pdf=self.latex)

    def _curves(self) -> list[Section]:
        figures = curve_figures(self.folder, self.summary, self.study.curves, pdf=self.latex)
        about = Paragraph(curve_caption(self.summary))
        return [Section("Training curves", [about, *figures])] if figures else []

    def _pairs(self) -> list[Section]:
        """Return the comparisons of every pair."""
        if self.ranked is None:
            return []
        pairs = with_conditions(self.summary, self.conditions)
        self._write("comparisons", pairs)
        if len(pairs) > 1:
            leaders = set(self.ranked.drop_duplicates(GROUP)["variant"])
            return [Section("Every pair", [tables.pair_table(pairs, self.summary, leaders)])]
        return []

    def _options(self) -> list[Section]:
        runs = self.summary.chosen_runs
        if "options" not in runs or runs["options"].isna().all():
            return []
        options = tables.options_at_chosen(runs)
        self._write("options", options)
        table, figures = tables.options_table(options), search_figures(self.folder, self.summary)
        return [Section("Options that were searched", [table, *figures])]
