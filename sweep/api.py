"""The Python API: what the commands do, for scripts and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from traceback import walk_stack
from types import MappingProxyType
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from lr_sweep.analysis.judge.judge import judged, write_judged
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.record.paths import RecordError
from lr_sweep.analysis.record.read import logged_values, read_curves, read_wanted
from lr_sweep.analysis.report.chart import sweep_panels
from lr_sweep.analysis.report.figure_frame import drawn
from lr_sweep.analysis.report.figures import sweep_figure
from lr_sweep.analysis.statistics.comparisons.pairs import comparisons
from lr_sweep.analysis.statistics.rates.laws import laws
from lr_sweep.analysis.statistics.rates.optimum import optima
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.analysis.study_report import Report, write_report
from lr_sweep.analysis.study_summary import Study as Summarised
from lr_sweep.analysis.study_summary import read_summary
from lr_sweep.common.errors import UserError, unknown
from lr_sweep.common.source_code import version_here
from lr_sweep.datasets.files import default_data_dir
from lr_sweep.sweep.plan.placement import Placement, devices_here
from lr_sweep.sweep.plan.plan import Plan, plan_on
from lr_sweep.sweep.results.directory import storage_problems
from lr_sweep.sweep.store.results import results_here
from lr_sweep.sweep.study.file import load_study, study_of, study_of_function
from lr_sweep.sweep.study.only import ALL_RUNS, parse_only
from lr_sweep.sweep.study.study import Study
from lr_sweep.sweep.tune.run_study import Outcome, run_study
from lr_sweep.sweep.tune.work import Options
from lr_sweep.trainables.own.run import import_function

__all__ = [
    "Judged",
    "Outcome",
    "RecordError",
    "Report",
    "Study",
    "StudySummary",
    "Sweep",
    "UserError",
    "judge",
]


class Sweep:
    """A study beside a results directory.

    Args:
        study: the name of a shipped study, the path of a study file, or what such a file holds, as a mapping; or a
            training function that is defined in a file. A script that defines it starts the sweep below
            `if __name__ == "__main__":`, as workers import it.
        results: a folder, or `s3://BUCKET/PREFIX`.
        data_dir: folder of data sets; None: `$SWEEP_DATA_DIR`, else a cache folder.
        only: a part of the study's runs, as of `--only`: `variant=frozen-random,learning_rate=1e-3`.
        fields: beside a function, what a study file holds: `variants`, `learning_rates`, `seeds`, `protocol` and more.

    Raises:
        UserError: mistakes in the study. All methods raise it for what the user can put right.
    """

    def __init__(
        self,
        study: str | Path | Mapping[str, Any] | Callable[..., Any],
        results: str | Path = "results",
        *,
        data_dir: str | Path | None = None,
        only: str = "",
        **fields: Any,
    ) -> None:
        if any(frame.f_code is import_function.__code__ for frame, _ in walk_stack(None)):
            raise UserError(
                'workers import this file: put what starts a sweep below `if __name__ == "__main__":`'
            )
        self.study = _study(study, fields)
        self.results = results_here(str(results))
        self._only = parse_only(only) if only else ALL_RUNS
        self.data_dir = Path(data_dir or default_data_dir()).expanduser().resolve()

    def plan(self) -> str:
        """Return what `run` would train here, and what that costs, as text."""
        placement = Placement(resources=self.study.resources)
        self.results.check()
        plan = Plan(self.study, placement, self.results, self.data_dir, self._only)
        return plan_on(plan, devices_here(None, None if placement.device == "cuda" else 0))

    def run(
        self,
        *,
        cpus: int | None = None,
        address: str | None = None,
        retry_failed: bool = False,
        restart_inexact: bool = False,
        checkpoint_every_s: float = 60.0,
        say: Callable[[str], None] = print,
    ) -> Outcome:
        """Train what the record lacks, here or on a running Ray cluster, and write the report.

        An interrupt (Ctrl-C, a notebook's stop button) saves all runs and returns; the next call resumes them.
        Call it in the main thread.

        Args:
            cpus: CPUs that a Ray started here may use; None: all.
            address: a running Ray cluster (`auto`, `HOST:PORT`); None: start Ray here.
            retry_failed: train failed runs again.
            restart_inexact: train runs anew that resumed inexactly.
            checkpoint_every_s: seconds between checkpoints.
            say: receives a line about what happens; the progress is printed.
        """
        options = Options(
            results=self.results,
            data_dir=self.data_dir,
            placement=Placement(resources=self.study.resources, address=address, cpus=cpus),
            retry_failed=retry_failed,
            restart_inexact=restart_inexact,
            checkpoint_every_s=checkpoint_every_s,
            only=self._only,
        )
        return run_study(self.study, options, say)

    def summary(self) -> StudySummary:
        """Return the study's numbers as tables: `.runs`, `.learning_rates`, `.cells`."""
        return read_summary(self.results.root, self.study.study).summary

    def optima(self) -> pd.DataFrame:
        """Return each cell's best learning rate between those tried, with its 95% interval.

        Columns: `optimum`, `low`, `high` (learning rates), and `note`, why there is none.
        """
        return optima(self.summary())

    def laws(self) -> pd.DataFrame:
        """Return how the best learning rate moves along each numeric axis on which cells differ.

        Columns: `axis`, `slope` (of log rate on log size) with `low` and `high`, its 95% interval, and `next_rate` with
        `next_low` and `next_high`, to start with at `next_size`.
        """
        read = read_summary(self.results.root, self.study.study, ("content",))
        return laws(optima(read.summary), read.axes())

    def curves(self) -> pd.DataFrame:
        """Return every evaluation of the study's runs, by `run_id` and `step`."""
        return read_curves(
            self.results.root, read_wanted(self.results.root, self.study.study)["run_id"]
        )

    def logged(self) -> pd.DataFrame:
        """Return what the training function logged, a row a value: `run_id`, `step`, `name` and `value`."""
        return logged_values(self.curves(), ["run_id"])

    def figure(self, model: str | None = None) -> Figure:
        """Draw the metric against the learning rate, a panel a task; of several models by default the first."""
        return _figure(read_summary(self.results.root, self.study.study), model)

    def report(self, *, latex: bool = False) -> Report:
        """Write the report of what is recorded so far; `.page` is the file for a browser, `.text` the tables."""
        with storage_problems(self.results.root):
            return write_report(self.results.root, self.study.study, version_here, latex=latex)


class Judged:
    """What `judge` read: `.summary` has the numbers as tables, `.read_as` says how the table was read."""

    def __init__(self, study: Summarised) -> None:
        self._study, self.summary = study, study.summary
        self.read_as = list(study.about_table)

    def comparisons(self) -> pd.DataFrame:
        """Return a row a pair of variants: `difference` (`low` to `high`), `corrected_p`, `distinguishable`."""
        return comparisons(self.summary)

    def figure(self, model: str | None = None) -> Figure:
        """Draw the figure, as of `Sweep.figure`."""
        return _figure(self._study, model)

    def report(self, folder: str | Path, *, latex: bool = False) -> Report:
        """Write the report; a folder that holds an earlier one, and nothing else, is replaced."""
        return write_judged(self._study, Path(folder), latex=latex)


def judge(
    *tables: str | Path | pd.DataFrame,
    columns: Mapping[str, str] = MappingProxyType({}),
    **how: Any,
) -> Judged:
    """Read runs that any program made, as the command does.

    Args:
        tables: files, folders, databases, and pandas' frames, in which NaN is nothing.
        columns: the column of a meaning, as `{"learning_rate": "lr"}`, where names leave it open; see docs/judge.md.
        how: `where`, `higher_is_better`, `select_on_test`, `equal_within`, `target`, as its options.

    Raises:
        UserError: a table that cannot be read or, as `ListingError`, one whose columns names leave open; its text, and
            its `listing`, have the columns and what is in doubt.
    """
    if not tables:
        raise UserError("got no table, want a path or a pandas DataFrame")
    return Judged(judged(tables, Reading(columns=columns, **how)).study)


def _study(given: Any, fields: Mapping[str, Any]) -> Study:
    if callable(given):
        return study_of_function(given, fields)
    if fields:
        raise UserError(
            f"got {', '.join(fields)} beside a study, want them in it; they go beside a training function"
        )
    if isinstance(given, Mapping):
        return study_of(given, Path.cwd())
    return load_study(given)


def _figure(study: Summarised, model: str | None) -> Figure:
    models = list(study.summary.runs["model"].unique())
    if model not in (None, *models):
        raise UserError(unknown("model", str(model), models))
    shown = study.summary.of(model=model or models[0])
    return drawn(partial(sweep_figure, shown, sweep_panels(shown)))
