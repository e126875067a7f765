"""What the live page shows of a results directory: rows are read again only once a run has ended."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.record.paths import RecordError
from lr_sweep.analysis.record.study import StudyInfo
from lr_sweep.common.text import command
from lr_sweep.sweep.inspection.status import activity, fresh_text
from lr_sweep.sweep.results.directory import Results, read_state
from lr_sweep.sweep.results.run_state import (
    RunStates,
    State,
    counts_json,
    read_ends,
    recorded_states,
    run_title,
    training_steps,
)

REFRESH_S = 2.0
"""Seconds for which what was read counts as new; a running sweep reports as often."""
MOST_OF_A_CORE = 0.1
"""Most of a core that reading takes: a large record is read less often."""
MOST_RUNS = 24
"""Most training runs of a study that are listed, most reasons of failures, and most runs that failed for one."""
STARTED = {"data-dir": "data_dir", "cpus": "cpus", "fresh": "fresh"}
"""Options of `run`, by what `started.json` calls them."""
Stamp = tuple[int, int | None]
NO_RUNS = RunStates[Row](wanted=(), states={}, ends={})


@dataclass(frozen=True, kw_only=True)
class StudyView:
    """What is shown of a study; `problem` alone, where its record cannot be read."""

    name: str
    title: str = ""
    problem: str = ""
    runs: RunStates[Row] = NO_RUNS
    is_training: bool = False
    fresh: str = ""
    """How far the fresh seeds are; empty: the study has none."""
    num_training: int = 0
    training: Sequence[Row] = ()
    """The first ones that train: `run_id`, `title`, `step`, `num_steps` and `latest` (its last validation value)."""
    failed: Sequence[tuple[str, str, str]] = ()
    """Ids, titles and reasons."""
    resume: str = ""
    """The command that trains what is left; empty: nothing is."""
    retry: str = ""
    """The command that also trains runs that failed or were stopped; empty: there are none."""

    @property
    def is_over(self) -> bool:
        """Whether all its runs have ended, and no sweep proposes more."""
        return bool(self.runs.wanted) and not (self.runs.are_left or self.is_training)

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of runs in each state."""
        return counts_json(self.runs.counts())


@dataclass(frozen=True, kw_only=True)
class View:
    """What the page shows."""

    activity: str
    is_running: bool
    studies: tuple[StudyView, ...]
    stop_asked: bool = False
    stop: str = ""
    """The command that ends the sweep as Ctrl-C does; empty: none runs."""


@dataclass(frozen=True, kw_only=True)
class _Recorded:
    """What was read of a study, until one of its files changes."""

    stamp: Stamp
    info: StudyInfo
    wanted: Sequence[Row]
    ends: Mapping[str, Row]
    fresh: str


def rows_stamp(results: Results) -> int:
    """Return a number that changes with the rows of ended runs, each of which is renamed into their folder."""
    runs = results.runs
    return hash((runs.stat().st_mtime_ns, len(list(runs.iterdir())))) if runs.exists() else 0


def study_stamp(results: Results, study: str, rows: int) -> Stamp:
    """Return what changes with what is recorded of a study; `rows` is what `rows_stamp` returned."""
    wanted = results.wanted(study)
    return rows, wanted.stat().st_mtime_ns if wanted.exists() else None


class Live:
    """A results directory as the page shows it; several threads may ask."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self._lock, self._read_until = threading.Lock(), -math.inf
        self._recorded: dict[str, _Recorded] = {}
        self._view = View(activity="", is_running=False, studies=())

    def view(self) -> View:
        """Return what is there now, or a moment ago."""
        with self._lock:
            began = time.monotonic()
            if began >= self._read_until:
                self._view = self._read()
                ended = time.monotonic()
                self._read_until = ended + max(REFRESH_S, (ended - began) / MOST_OF_A_CORE)
            return self._view

    def _read(self) -> View:
        self.results.refresh()
        holder = read_state(self.results.holder) if self.results.being_written() else {}
        rows = rows_stamp(self.results)
        studies = [
            self._study(name, rows, holder) for name in record.recorded_studies(self.results.root)
        ]
        return View(
            activity=activity(self.results, time.time()),
            is_running=bool(holder),
            # What trains comes first.
            studies=tuple(sorted(studies, key=lambda study: study.name != holder.get("study"))),
            stop_asked=bool(holder) and self.results.sweep_stop.exists(),
            stop=f"kill {holder['pid']}" if isinstance(holder.get("pid"), int) else "",
        )

    def _study(self, name: str, rows: int, holder: Mapping[str, Any]) -> StudyView:
        try:
            return self._study_view(self._recorded_study(name, rows), holder)
        except RecordError as error:
            return StudyView(name=name, problem=str(error))

    def _recorded_study(self, name: str, rows: int) -> _Recorded:
        stamp = study_stamp(self.results, name, rows)
        if (kept := self._recorded.get(name)) is None or kept.stamp != stamp:
            kept = self._recorded[name] = _read_recorded(self.results, name, stamp)
        return kept

    def _study_view(self, recorded: _Recorded, holder: Mapping[str, Any]) -> StudyView:
        name = recorded.info.study
        runs = recorded_states(self.results, name, recorded.wanted, recorded.ends)
        steps = training_steps(self.results, name)
        training = [row for row in recorded.wanted if row["run_id"] in steps]
        has_failed = State.FAILED in runs.states.values()
        return StudyView(
            name=name,
            title=recorded.info.title,
            runs=runs,
            is_training=holder.get("study") == name,
            fresh=recorded.fresh,
            num_training=len(training),
            training=self._training(training[:MOST_RUNS], steps, recorded.info.metric),
            failed=[(row["run_id"], run_title(row), why) for row, why in runs.failed()],
            resume=_run_command(self.results, name) if runs.are_left else "",
            retry=_run_command(self.results, name, "--retry-failed") if has_failed else "",
        )

    def _training(
        self, rows: Sequence[Row], steps: Mapping[str, int], metric: Metric
    ) -> Sequence[Row]:
        run_ids = [row["run_id"] for row in rows]
        columns = ("run_id", "step", "validation")
        evaluations = record.read_curves(self.results.root, run_ids, columns).groupby("run_id")
        latest = {
            run_id: metric.score_text(value, digits=1)
            for run_id, value in evaluations["validation"].last().dropna().items()
        }
        return [
            {
                "run_id": row["run_id"],
                "title": run_title(row),
                "step": steps[row["run_id"]],
                "num_steps": row["num_steps"],
                "latest": latest.get(row["run_id"], ""),
            }
            for row in rows
        ]


def _run_command(results: Results, study: str, *options: str) -> str:
    """Return the command that resumes a study, with the options with which it was started last.

    It reads the study's file beside the user's own function, if that is here, else the study as it is recorded.
    """
    started = read_state(results.started(study))
    given = [
        f"--{option}={started[key]}"
        for option, key in STARTED.items()
        if started.get(key) is not None
    ]
    files = [Path(str(started.get("folder")), f"{study}{ending}") for ending in (".yaml", ".yml")]
    file = next(
        (file for file in files if "\0" not in str(file) and file.is_file()), results.options(study)
    )
    return command("run", str(file), *given, "--results", results.location, *options)


def _read_recorded(results: Results, study: str, stamp: Stamp) -> _Recorded:
    info = record.read_study(results.root, study)
    wanted = record.read_wanted_rows(results.root, study)
    ends = read_ends(results, [row["run_id"] for row in wanted], ("failure",))
    fresh = fresh_text(results, info) or ""
    return _Recorded(stamp=stamp, info=info, wanted=wanted, ends=ends, fresh=fresh)
