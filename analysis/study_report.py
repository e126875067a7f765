"""The report of a study: reads its record and writes a page, tables and figures that say what they rest on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from lr_sweep.analysis.paper.paper import paper_sections
from lr_sweep.analysis.record.columns import Now
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.record.read import check_format
from lr_sweep.analysis.report import tables
from lr_sweep.analysis.report.blocks import (
    Block,
    Bullets,
    Description,
    Paragraph,
    Section,
    SweepChart,
    Table,
    Verdict,
    file_stem,
    file_stems,
    write_csv,
)
from lr_sweep.analysis.report.cells import facts, grouped_text, has_steps
from lr_sweep.analysis.report.chart import chart_caption, chart_data
from lr_sweep.analysis.report.figures import curve_figures, sweep_figures
from lr_sweep.analysis.report.findings import (
    cell_names,
    checks_line,
    count_problems,
    findings_list,
    folded,
    write_checks_json,
)
from lr_sweep.analysis.report.folder import new_report
from lr_sweep.analysis.report.latex import latex_text
from lr_sweep.analysis.report.laws import optima_section
from lr_sweep.analysis.report.made import made_sections
from lr_sweep.analysis.report.page import page_html
from lr_sweep.analysis.report.question import question
from lr_sweep.analysis.report.results import RESULTS, results, results_table
from lr_sweep.analysis.report.search_figures import search_figures
from lr_sweep.analysis.report.targets import target_section
from lr_sweep.analysis.report.verdict import verdict_block
from lr_sweep.analysis.statistics.checks.code import code_findings
from lr_sweep.analysis.statistics.checks.finding import CheckFinding, conditions_of, problems_first
from lr_sweep.analysis.statistics.checks.resumes import inexact_findings, resume_texts
from lr_sweep.analysis.statistics.checks.sweep import check_sweep
from lr_sweep.analysis.statistics.checks.variants import unequal_tuning
from lr_sweep.analysis.statistics.comparisons.conditions import with_conditions
from lr_sweep.analysis.statistics.comparisons.orders import comparisons_at_rates, orders
from lr_sweep.analysis.statistics.comparisons.target import compare_steps
from lr_sweep.analysis.statistics.comparisons.uncertainty import overall
from lr_sweep.analysis.statistics.comparisons.verdicts import verdicts
from lr_sweep.analysis.statistics.selection.best import CELL, tuples_in
from lr_sweep.analysis.statistics.selection.summary import GROUP, OUTCOMES, SELDOM
from lr_sweep.analysis.study_summary import Study, read_summary
from lr_sweep.common.files import Fields
from lr_sweep.common.text import counted

FURTHER_COLUMNS = (
    *("git_commit", "git_dirty", "versions", "device", "device_s"),
    *("started_at", "finished_at", "lost_steps", "resumed", "not_saved", "code", "content"),
)
"""What the report reads of runs beside what the summary does."""
INTERVAL_SEED = 0
"""The seed of the generator that draws resamples for the intervals over several tasks."""
MOST_ROWS_FIRST = 4
"""Rows of a table that is shown above the figure; a longer one is below it."""
DIVERGED = {
    "best": "A run that diverged counts with its best model before that; without an evaluation it has no value.",
    "final": "A run that diverged has no value.",
}
"""What becomes of diverged runs, by `Metric.model`."""


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
    (folder / "report.md").write_text(description.markdown(), encoding="utf-8")
    content = json.dumps(description.as_json(), indent=1, ensure_ascii=False)
    (folder / "report.json").write_text(f"{content}\n", encoding="utf-8")
    page = page_html(description, report.chart())
    (folder / "index.html").write_text(page, encoding="utf-8")
    if latex:
        text = latex_text(study.info.study, report.results or report.by_rate)
        (folder / "table.tex").write_text(text, encoding="utf-8")
    return description


def chart_and_verdict(results: Path, study: str) -> tuple[Fields, Verdict]:
    """Return what the report's chart draws of the runs that have ended, and the report's verdict.

    Raises RecordError as `write_report`.
    """
    recorded = _read(results, study, None)
    return _chart(recorded), _verdict(recorded)


def _chart(study: Study) -> Fields:
    summary = study.summary
    return chart_data(summary, orders(summary), conditions_of(study.findings))


def _verdict(study: Study) -> Verdict:
    summary = study.summary
    if not summary.metric.chosen_on:
        return Verdict(())
    improving = {
        finding.cell
        for finding in study.findings
        if finding.check == "improving" and finding.level == "problem"
    }
    found = verdicts(summary, conditions_of(study.findings))
    return verdict_block(found, summary, improving)


class _Writer:
    """Writes the files of a report, and describes it section by section."""

    def __init__(self, folder: Path, study: Study, latex: bool) -> None:
        self.folder, self.study, self.latex = folder, study, latex
        self.info, self.summary, self.metric = study.info, study.summary, study.summary.metric
        self.by_rate = self._by_rate()
        conditions = conditions_of(study.findings)
        self.ranked = results(self.summary, conditions) if self.metric.chosen_on else None
        self.results = self._results()

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
            *self._made(),
            Section("How to read and check it", [Bullets([*_limits(study), *_to_check(study)])]),
            *paper_sections(self.folder, self.info, summary, study.curves),
        ]

    def chart(self) -> Fields:
        """Return the data of the page's chart."""
        return {"panels": []} if self.metric.untuned else _chart(self.study)

    def _opening(self, sentences: Sequence[str]) -> Section:
        """Return the first screen: question, verdict, table, figure; `sentences` follow the verdict."""
        verdict = replace(_verdict(self.study), is_whole=self.metric.untuned)
        figures: list[Block] = []
        if not self.metric.untuned:
            images = sweep_figures(self.folder, self.summary, pdf=self.latex)
            figures = [SweepChart(chart_caption(self.metric), verdict), *images]
        is_long = any(len(table.rows) > MOST_ROWS_FIRST for table in self.results)
        body: list[Block] = [Paragraph(question(self.summary))]
        body += map(Paragraph, self.info.about())
        body += [verdict] if verdict.items else []
        body += map(Paragraph, sentences)
        body += [*figures, *self.results] if is_long else [*self.results, *figures]
        body += map(Paragraph, self.study.left_out)
        body.append(Paragraph(f"{_status(self.study)} {checks_line(self._folded)}"))
        return Section("", body, folded=False, in_terminal=True)

    def _results(self) -> list[Table]:
        if self.ranked is None:
            return []
        table = results_table(self.summary, self.ranked)
        return [table.write(self.folder, "results", self.ranked[RESULTS])]

    @cached_property
    def _folded(self) -> Mapping[CheckFinding, str]:
        return folded(self.study.findings, cell_names(self.summary.cells))

    def _checks(self) -> list[Section]:
        tried = self.summary.runs["learning_rate"].unique()
        write_checks_json(self.folder, self.info.study, self.study.findings, tried)
        if not self._folded:
            return []
        meaning = (
            "A problem means that a number may change, or cannot carry a conclusion. "
            "A note is anything else worth knowing."
        )
        listed = findings_list(self._folded, tried, self.info.from_table)
        is_folded = not count_problems(self._folded)
        return [Section("Checks", [Paragraph(meaning), listed], is_folded, in_terminal=True)]

    def _by_rate(self) -> list[Table]:
        """Write every number by learning rate and by run, and return the tables by learning rate."""
        folder, summary = self.folder, self.summary
        write_csv(summary.learning_rates, folder / "learning_rates.csv")
        fresh = {} if summary.fresh_runs is None else {"fresh": summary.fresh_runs}
        name = file_stem(self.metric.name)
        named = {f"{split}_accuracy": f"{split}_{name}" for split in ("validation", "test")}
        for stem, rows in ({"runs": summary.runs} | fresh).items():
            runs = rows.rename(columns=named).drop(columns=_unknown(summary.runs))
            write_csv(runs.assign(**self.metric.columns), folder / f"{stem}.csv")
        groups = list(tuples_in(summary.runs[GROUP].drop_duplicates()))
        return [
            tables.learning_rate_table(summary, task, model).write(folder, f"rates-{stem}")
            for (task, model), stem in file_stems(groups).items()
        ]

    def _rates(self) -> list[Section]:
        """Return the tables of every learning rate, and what each rate alone would have shown."""
        if self.metric.untuned:
            return []
        is_chosen = bool(self.metric.chosen_on)
        every = Section("Every learning rate", self.by_rate, is_chosen, in_terminal=True)
        if not is_chosen or not len(at_rates := comparisons_at_rates(self.summary)):
            return [every]
        write_csv(at_rates, self.folder / "comparisons-at-rates.csv")
        ordered = orders(self.summary)
        order = tables.order_table(ordered, self.metric, fresh=self.summary.fresh is not None)
        order.write(self.folder, "orders", tables.order_texts(ordered))
        return [every, Section("Conclusions at each learning rate", [order])]

    def _target(self) -> tuple[list[Section], Sequence[str]]:
        study = self.study
        steps = compare_steps(self.summary, study.curves, study.per_step)
        if steps is None:
            return [], []
        unit = "steps" if study.per_step is None else str(study.per_step.name)
        timed = None if self.info.from_table else study.runs
        section, sentences = target_section(
            self.folder, self.summary, steps, unit, timed, pdf=self.latex
        )
        return [section], sentences

    def _optima(self) -> tuple[list[Section], Sequence[str]]:
        if self.metric.untuned or not self.metric.chosen_on:
            return [], []
        return optima_section(self.folder, self.summary, self.study.axes(), pdf=self.latex)

    def _curves(self) -> list[Section]:
        figures = curve_figures(self.folder, self.summary, self.study.curves, pdf=self.latex)
        return [Section("Training curves", figures)] if figures else []

    def _pairs(self) -> list[Section]:
        """Return the comparisons of every pair; also write the numbers of every cell."""
        if self.ranked is None:
            return []
        summary, study = self.summary, self.study
        write_csv(_cell_numbers(study), self.folder / "cells.csv")
        pairs = with_conditions(summary, conditions_of(study.findings))
        leaders = set(self.ranked.drop_duplicates(GROUP)["variant"])
        write_csv(pairs, self.folder / "comparisons.csv")
        shown: list[Block] = []
        if len(pairs) > 1:
            shown.append(tables.pair_table(pairs, summary, leaders))
        ratings = overall(summary, np.random.default_rng(INTERVAL_SEED))
        if len(ratings):
            rated = tables.overall_table(ratings, self.metric)
            shown.append(rated.write(self.folder, "overall", ratings))
        return [Section("Every pair", shown)] if shown else []

    def _options(self) -> list[Section]:
        runs = self.summary.chosen_runs
        if "options" not in runs or runs["options"].isna().all():
            return []
        options = tables.options_at_chosen(runs)
        table = tables.options_table(options).write(self.folder, "options", options)
        figures = search_figures(self.folder, self.summary)
        return [Section("Options that were searched", [table, *figures])]

    def _made(self) -> list[Section]:
        study, summary = self.study, self.summary
        if self.info.from_table:
            return [Section("How the table was read", [Bullets(study.about_table)])]
        runs = pd.concat([summary.runs, summary.fresh_runs])
        rests_on = [*facts(self.info, summary), *_weights(runs)]
        return made_sections(rests_on, runs, study.runs)


def _status_line(runs: pd.DataFrame, what: str) -> str:
    counts = runs["status"].value_counts()
    if counts.get("complete", 0) == len(runs):
        return f"{counted(len(runs), 'run')} {what}: all complete."
    shown = [status for status in OUTCOMES if status not in SELDOM or status in counts]
    parts = [f"{counts.get(status, 0)} {status}" for status in shown]
    return f"{len(runs)} runs {what}: {', '.join(parts)}."


def _status(study: Study) -> str:
    """Count the runs of a record; or of a table, and the seeds that it lacks beside other learning rates."""
    runs, rates = study.summary.runs, study.summary.learning_rates
    if not study.info.from_table:
        choosing = "that choose the learning rates" if study.info.fresh else "wanted"
        lines = [_status_line(runs, choosing)]
        if study.summary.fresh_runs is not None:
            lines.append(_status_line(study.summary.fresh_runs, "on fresh seeds"))
        resumed = [f"{text}." for _, text in resume_texts(study.wanted, study.runs)]
        return " ".join([*lines, *resumed])
    what = "in the table"
    if study.num_table_runs is not None:
        what = f"of {study.num_table_runs} in the table, at the best of the tuned settings"
    absent = int((rates["num_seeds"] - rates["num_wanted"]).sum())
    lacking = f"{absent} runs with seeds that their cells have at other learning rates"
    return _status_line(runs, what) + (f" Not in the table: {lacking}." if absent else "")


def _limits(study: Study) -> Iterator[str]:
    """Yield sentences on what the numbers are and are not."""
    metric, table = study.summary.metric, study.info.from_table
    if not metric.chosen_on:
        yield f"No learning rate is chosen: there is no validation data, and {metric.test} selects nothing."
        return
    if metric.untuned:
        yield "Intervals are over seeds. They do not account for the finite data that were measured."
        return
    is_tested = metric.chosen_on != metric.reported_on
    selects = f" {metric.title} selects nothing." if is_tested else ""
    yield (
        "A learning rate where a seed has no value is chosen only if every learning rate "
        f"lacks one.{selects}"
    )
    if is_tested:
        read = "at the step that validation chose" if metric.model == "best" else "at its last step"
        read = read if has_steps(study.summary.runs) else "as the table has it"
        shown = "The figure shows it at every learning rate, for reading, not for choosing."
        yield f"The {metric.test} was read once for each run, {read}. {shown}"
    varied = "" if table else ": initialisation, data order and dropout"
    yield (
        f"Intervals are over seeds{varied}. They do not account for the choice of the learning rate "
        "or for the finite test set."
    )
    yield f"{DIVERGED[metric.model]} Failed and missing runs are never counted as zero."
    where = "the table" if table else "the step budgets and the data named above"
    yield f"The numbers hold for {where}, and for the learning rates that were tried."


def _to_check(study: Study) -> Iterator[str]:
    """Yield how a reader checks the numbers of a record."""
    if study.info.from_table:
        yield "`lr-sweep judge TABLE` writes this report again from the same table."
        return
    yield (
        "`runs.csv` has the value of every run. A run's id is a hash of everything that can change its numbers, "
        "so changed code or options make other ids."
    )
    yield (
        f"`lr-sweep verify` reads every file of the results, and `lr-sweep report {study.info.study}` writes this "
        "report again from them. `lr-sweep run` with the study's file and `--results` of an empty folder trains every "
        "run again; deterministic training gives equal values on the same kind of machine with the same versions."
    )


def _weights(runs: pd.DataFrame) -> Iterator[str]:
    """Yield which weights pretrained variants start from."""
    if runs["pretrained_on"].notna().any():
        yield f"Pretrained on: {grouped_text(runs.dropna(subset='pretrained_on'), 'pretrained_on', 'model')}."


def _unknown(runs: pd.DataFrame) -> list[str]:
    """Return the columns that have nothing in them and need not: `options`, and for a table's runs what it lacks."""
    from_table = runs["data_origin"].isna().all()
    names = ["options", *(("pretrained_on", "data_origin", "failure") if from_table else ())]
    return [name for name in names if name in runs and runs[name].isna().all()]


def _cell_numbers(study: Study) -> pd.DataFrame:
    """Return `StudySummary.cells` with what its numbers rest on."""
    info, summary = study.info, study.summary
    rests_on = summary.runs.groupby(CELL, sort=False).agg(
        num_steps=("num_steps", "max"),
        pretrained_on=("pretrained_on", "first"),
        data_origin=("data_origin", "first"),
    )
    cells = summary.cells.merge(rests_on.reset_index(), on=CELL)
    cells.insert(0, info.kind.lower(), info.study)
    steps = [
        " ".join(map(str, best)) if isinstance(best, tuple) else "" for best in cells["best_steps"]
    ]
    return cells.assign(best_steps=steps).drop(columns=_unknown(cells))
