"""The report of a study: reads its record and writes tables, figures and a page that says what they rest on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from lr_sweep.analysis.paper.paper import best_published, write_paper
from lr_sweep.analysis.paper.published import table_of
from lr_sweep.analysis.record.columns import Now
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.record.read import check_format
from lr_sweep.analysis.record.study import StudyInfo
from lr_sweep.analysis.report import tables
from lr_sweep.analysis.report.blocks import (
    Block,
    Bullets,
    Paragraph,
    Section,
    SweepChart,
    Table,
    Verdict,
    file_stem,
    file_stems,
    report_markdown,
    write_csv,
)
from lr_sweep.analysis.report.figure_frame import also_pdf
from lr_sweep.analysis.report.findings import (
    checks_line,
    count_problems,
    findings_table,
    findings_text,
    folded,
    write_checks_json,
)
from lr_sweep.analysis.report.folder import new_report
from lr_sweep.analysis.report.latex import latex_text
from lr_sweep.analysis.report.laws import optima_section
from lr_sweep.analysis.report.made import made_sections
from lr_sweep.analysis.report.page import chart_data, page_html
from lr_sweep.analysis.report.ranking import write_rankings
from lr_sweep.analysis.report.targets import target_section
from lr_sweep.analysis.report.texts import laid_out, say
from lr_sweep.analysis.report.verdict import verdict_block
from lr_sweep.analysis.statistics.checks.code import code_findings
from lr_sweep.analysis.statistics.checks.finding import CheckFinding, conditions_of, problems_first
from lr_sweep.analysis.statistics.checks.sweep import check_sweep
from lr_sweep.analysis.statistics.checks.variants import unequal_tuning
from lr_sweep.analysis.statistics.comparisons.conditions import with_conditions
from lr_sweep.analysis.statistics.comparisons.orders import comparisons_at_rates, orders
from lr_sweep.analysis.statistics.comparisons.pairs import comparisons
from lr_sweep.analysis.statistics.comparisons.target import compare_steps
from lr_sweep.analysis.statistics.comparisons.uncertainty import NUM_DRAWS, intervals, overall
from lr_sweep.analysis.statistics.comparisons.verdicts import ranked, verdicts
from lr_sweep.analysis.statistics.selection.best import CELL, tuples_in
from lr_sweep.analysis.statistics.selection.summary import GROUP, OUTCOMES, SELDOM, StudySummary
from lr_sweep.analysis.study_summary import Study, read_summary
from lr_sweep.common.files import Fields

FURTHER_COLUMNS = (
    *("git_commit", "git_dirty", "versions", "device", "device_s"),
    *("started_at", "finished_at", "lost_steps", "code", "content"),
)
"""What the report reads of runs beside what the summary does."""
INTERVAL_SEED = 0
"""The seed of the generator that draws resamples for the intervals over several tasks."""
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
    text: str
    """For the terminal: status line, tables, findings."""
    findings: tuple[CheckFinding, ...]

    @property
    def page(self) -> Path:
        """The file to open in a browser."""
        return self.folder / "index.html"

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
    found = _read(results, study, code_now)
    study_dir = Paths(results).study(study)
    with new_report(study_dir) as new:
        text = write_files(new, found, latex=latex)
        names = sorted(path.name for path in new.iterdir())
    folder = study_dir / "report"
    return Report(
        folder=folder,
        files=tuple(folder / name for name in names),
        text=text,
        findings=found.findings,
    )


def _read(results: Path, study: str, code_now: Now | None) -> Study:
    read = read_summary(results, study, FURTHER_COLUMNS)
    found = [
        *check_sweep(read.summary, read.curves),
        *unequal_tuning(read.summary),
        *code_findings(read.wanted, read.runs, code_now),
    ]
    return replace(read, findings=problems_first(found))


def _status_line(runs: pd.DataFrame, what: str = "wanted") -> str:
    counts = runs["status"].value_counts()
    shown = [status for status in OUTCOMES if status not in SELDOM or status in counts]
    parts = [f"{counts.get(status, 0)} {status}" for status in shown]
    return f"{len(runs)} runs {what}: {', '.join(parts)}."


def _status(study: Study) -> str:
    """Count the runs of a record; or of a table, and the seeds that it lacks beside other learning rates."""
    runs, rates = study.summary.runs, study.summary.learning_rates
    if not study.info.from_table:
        return _status_line(runs)
    what = (
        "in the table"
        if study.num_table_runs is None
        else f"of {study.num_table_runs} in the table, at the best of the tuned settings"
    )
    absent = int((rates["num_seeds"] - rates["num_wanted"]).sum())
    text = f" Not in the table: {absent} runs with seeds that their cells have at other learning rates."
    return _status_line(runs, what) + (text if absent else "")


def _limits(study: Study) -> Sequence[str]:
    metric, table = study.summary.metric, study.info.from_table
    if not metric.chosen_on:
        return (
            f"No learning rate is chosen: there is no validation data, and {metric.test} selects nothing.",
        )
    is_tested = metric.chosen_on != metric.reported_on
    read = "at the step that validation chose" if metric.model == "best" else "at its last step"
    read = read if tables.has_steps(study.summary.runs) else "as the table has it"
    grounds = (
        "of the table"
        if table
        else "for the step budgets, the pretrained weights and the data named above"
    )
    shown = "The figure shows it at every learning rate, for reading, not for choosing."
    measured = f"The {metric.test} was read once for each run, {read}. {shown}"
    return (
        f"A learning rate where a seed has no value is chosen only if every learning rate "
        f"lacks one.{f' {metric.title} selects nothing.' if is_tested else ''}",
        *([measured] if is_tested else []),
        f"The SEM is over seeds{'' if table else ': initialisation, data order and dropout'}. Mean ± SEM is no 95% "
        'interval; those are under "How sure". None accounts for the choice of the learning rate or for the finite '
        "test set.",
        f"{DIVERGED[metric.model]} Failed and missing runs are never counted as zero.",
        f"Numbers hold {grounds}, and for the learning rates tried.",
    )


def write_files(folder: Path, study: Study, *, latex: bool = False) -> str:
    """Write every file of the report, its page as `page.page_html` does; return the text for the terminal.

    `latex`: write `table.tex`, and the figures as PDF, too.
    """
    also_pdf.set(latex)
    info, summary, metric = study.info, study.summary, study.summary.metric
    main, sweeps, further = write_paper(folder, info, summary, study.curves)
    conditions = conditions_of(study.findings)
    by_rate, found_best = _write_rates(folder, summary), verdicts(summary, conditions)
    tried = summary.runs["learning_rate"].unique()
    if latex:
        (folder / "table.tex").write_text(
            latex_text(info, summary, found_best, by_rate), encoding="utf-8"
        )
    status = _status(study)
    of_study = not info.from_table
    if summary.fresh_runs is not None:
        status += f" {_status_line(summary.fresh_runs, 'with fresh seeds, which choose nothing')}"
    write_checks_json(folder, info.study, study.findings, tried)
    found = folded(study.findings, summary.cells)
    checks = findings_table(found, tried, of_study).write(folder, "checks")
    opening = _opening(study, found_best)
    rests_on = tables.facts(info, summary)
    optimal, laws = optima_section(folder, summary, study.axes()) if metric.chosen_on else ([], [])
    rankings = write_rankings(folder, summary) if metric.chosen_on else []
    when: Sequence[str] = ()
    if (steps := compare_steps(summary, study.curves, study.per_step)) is not None:
        unit = "steps" if study.per_step is None else str(study.per_step.name)
        reached, when = target_section(
            folder, summary, steps, unit, study.runs if of_study else None
        )
        optimal = [reached, *optimal]
    about = f"{info.kind} `{info.study}`. {status} {checks_line(found)}"
    chart = SweepChart(say("measured", metric=metric, fresh=summary.fresh is not None), opening)
    top: list[Block] = [*map(Paragraph, laws), opening, chart, *rankings, *sweeps]
    top += map(Paragraph, [*study.left_out, *when, about])
    several = len(by_rate) > 1
    sections = [
        Section("", [*top, *([] if several else by_rate)], folded=False),
        *([Section(metric.title, main, folded=not several)] if main else []),
        *([Section(f"{metric.title} by learning rate", by_rate)] if several else []),
        *([Section("Checks", [checks], folded=not count_problems(found))] if found else []),
        *optimal,
        *(_conclusive(folder, study, further) if metric.chosen_on else []),
        Section("What this is and is not", [Bullets([rests_on, *_limits(study)])]),
        *(
            made_sections(folder, pd.concat([summary.runs, summary.fresh_runs]), study.runs)
            if of_study
            else [Section("How the table was read", [Bullets(study.about_table)])]
        ),
    ]
    sections.sort(key=lambda section: section.folded)
    (folder / "report.md").write_text(report_markdown(info.title, sections), encoding="utf-8")
    data = chart_data(summary, best_published(info, summary.cells), orders(summary), conditions)
    (folder / "index.html").write_text(page_html(info.title, sections, data), encoding="utf-8")
    checked = findings_text(found, tried, of_study)
    first = [*laws, *filter(None, [opening.text()]), *study.left_out, *when]
    if info.from_table:  # the answer; the page has the rest
        shown = [*rankings, *by_rate]
        return "\n".join([*first, status, "", *(table.text() for table in shown), checked])
    unpublished = (
        tables.main_table(info, summary, model) for model in summary.runs["model"].unique()
    )
    shown = main if table_of(info.study) else [*(rankings or unpublished), *by_rate]
    heading = info.study if info.title == info.study else f"{info.title} ({info.study})"
    listed = [*(table.text() for table in shown), rests_on, ""]
    return "\n".join([heading, *first, status, "", *listed, checked])


def chart_and_verdict(results: Path, study: str) -> tuple[Fields, Verdict]:
    """Return what the report's chart draws of the runs that have ended, and what the report opens with.

    Raises RecordError as `write_report`.
    """
    found = _read(results, study, None)
    summary, conditions = found.summary, conditions_of(found.findings)
    data = chart_data(
        summary, best_published(found.info, summary.cells), orders(summary), conditions
    )
    return data, _opening(found, verdicts(summary, conditions))


def _opening(study: Study, found_best: pd.DataFrame) -> Verdict:
    if not study.summary.metric.chosen_on:
        return Verdict(())
    improving = {
        finding.cell
        for finding in study.findings
        if finding.check == "improving" and finding.level == "problem"
    }
    return verdict_block(found_best, study.summary, improving)


def _write_rates(folder: Path, summary: StudySummary) -> list[Table]:
    """Write every number by learning rate and by run, and return the tables by learning rate."""
    named = {
        f"{split}_accuracy": f"{split}_{file_stem(summary.metric.name)}"
        for split in ("validation", "test")
    }
    write_csv(summary.learning_rates, folder / "learning_rates.csv")
    fresh = {} if summary.fresh_runs is None else {"fresh": summary.fresh_runs}
    for name, rows in ({"runs": summary.runs} | fresh).items():
        runs = rows.rename(columns=named).drop(columns=_unknown(summary.runs))
        write_csv(runs.assign(**summary.metric.columns), folder / f"{name}.csv")
    pairs = list(tuples_in(summary.runs[GROUP].drop_duplicates()))
    return [
        tables.learning_rate_table(summary, task, model).write(folder, f"rates-{stem}")
        for (task, model), stem in file_stems(pairs).items()
    ]


def _unknown(runs: pd.DataFrame) -> list[str]:
    """Return the columns that have nothing in them and need not: `options`, and for a table's runs what it lacks."""
    from_table = runs["data_origin"].isna().all()
    names = ["options", *(("pretrained_on", "data_origin", "failure") if from_table else ())]
    return [name for name in names if name in runs and runs[name].isna().all()]


def _conclusive(folder: Path, study: Study, further: Sequence[Block]) -> list[Section]:
    """Write what needs a chosen learning rate; the table of orders is shown if there are variants to compare."""
    info, summary, ordered = study.info, study.summary, orders(study.summary)
    detail = tables.detail_table(info, summary).write(folder, "cells", _cell_numbers(info, summary))
    order = tables.order_table(ordered, summary.metric, fresh=summary.fresh is not None)
    order.write(folder, "orders", tables.order_texts(ordered))
    write_csv(comparisons_at_rates(summary), folder / "comparisons-at-rates.csv")
    of_paper = "Further figures" if info.from_table else "Further tables and figures of the paper"
    return [
        Section("Cells", [*_options(folder, summary), detail]),
        Section("How sure", _uncertainty(folder, study)),
        *(
            [Section("Conclusions over the learning rate", [order])]
            if len(comparisons(summary))
            else []
        ),
        *([Section(of_paper, further)] if further else []),
    ]


def _options(folder: Path, summary: StudySummary) -> list[Block]:
    if "options" not in summary.runs or summary.chosen_runs["options"].isna().all():
        return []
    found = tables.options_at_chosen(summary.chosen_runs)
    return [tables.options_table(found).write(folder, "options", found)]


def _uncertainty(folder: Path, study: Study) -> list[Block]:
    summary = study.summary
    compared = with_conditions(summary, conditions_of(study.findings))
    leaders = {(of["task"], of["model"]): next(iter(best), "") for of, best, *_ in ranked(summary)}
    cells = intervals(summary)
    shown = tables.interval_table(cells, summary.metric).write(folder, "intervals", cells)
    differences = tables.comparison_table(compared, summary, leaders)
    differences.write(folder, "comparisons", compared)
    tasks = overall(summary, np.random.default_rng(INTERVAL_SEED))
    rated = laid_out("overall", tasks, metric=summary.metric, draws=NUM_DRAWS)
    pairs = differences if len(compared) else Paragraph("One variant: nothing to compare.")
    return [shown, pairs, *([rated.write(folder, "overall", tasks)] if len(tasks) else [])]


def _cell_numbers(info: StudyInfo, summary: StudySummary) -> pd.DataFrame:
    """Return `StudySummary.cells` with what its numbers rest on."""
    facts = summary.runs.groupby(CELL, sort=False).agg(
        num_steps=("num_steps", "max"),
        pretrained_on=("pretrained_on", "first"),
        data_origin=("data_origin", "first"),
    )
    cells = summary.cells.merge(facts.reset_index(), on=CELL)
    cells.insert(0, info.kind.lower(), info.study)
    cells = cells.drop(columns=_unknown(cells))
    return cells.assign(best_steps=cells["best_steps"].map(tables.steps_text))
