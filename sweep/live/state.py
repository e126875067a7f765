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
from lr_sweep.analysis.record.parquet import row_stamps
from lr_sweep.analysis.record.paths import RecordError
from lr_sweep.analysis.record.study import StudyInfo
from lr_sweep.common.text import command, counted, duration
from lr_sweep.sweep.inspection.show import evenly
from lr_sweep.sweep.inspection.status import activity
from lr_sweep.sweep.results.directory import Results, read_state
from lr_sweep.sweep.results.run_state import read_ends, recorded_states, run_title, shown_states

REFRESH_S = 2.0
"""Seconds for which what was read counts as new; a running sweep reports as often."""
MOST_OF_A_CORE = 0.1
"""Most of a core that reading takes: a large record is read less often."""
MOST_RUNS = 24
"""Most training runs of a study that are shown, and most failed ones."""
MOST_NAMED = 3
DEVICES = (("cpus", "CPU"), ("gpus", "GPU"))
MOST_POINTS = 60
STARTED = {"data-dir": "data_dir", "cpus": "cpus"}
"""Options of `run`, by what `started.json` calls them."""
WIDTH, HEIGHT = 120, 28
WANTED_COLUMNS = ("run_id", "task", "model", "variant", "learning_rate", "seed", "num_steps", "fresh")


@dataclass(frozen=True, kw_only=True)
class StudyView:
    """What is shown of a study; `problem` alone, where its record cannot be read."""

    name: str
    title: str = ""
    problem: str = ""
    num_wanted: int = 0
    num_ended: int = 0
    counts: tuple[tuple[str, int], ...] = ()
    cost: str = ""
    decided: str = ""
    """How many pairs fresh seeds have decided; empty: the study has no `decide`."""
    num_training: int = 0
    training: Sequence[Row] = ()
    """The first ones that train: `run_id`, `title`, `step`, `num_steps`, `latest` (its last validation value),
    `points` (of its curve, as SVG's `polyline` takes them) and `stop_asked`."""
    machines: Sequence[Row] = ()
    """`address`, `devices`, `num_training` and `training` (titles of the first runs)."""
    num_failed: int = 0
    failed: Sequence[tuple[str, str, str]] = ()
    """Ids, titles and reasons of the first ones."""
    resume: str = ""
    """The command that trains what is left; empty: nothing is."""
    retry: str = ""
    """The command that also trains runs that failed or were stopped; empty: there are none."""
    spread: str = ""
    """The validation values between which the curves are drawn."""


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

    stamp: tuple[object, ...]
    info: StudyInfo
    wanted: Sequence[Row]
    ends: Mapping[str, Row]
    decided: str


def rows_stamp(results: Results) -> int:
    """Return a number that changes with the rows of ended runs."""
    return hash(frozenset(row_stamps(results.root).items()))


def study_stamp(results: Results, study: str, rows: int) -> tuple[int, int | None]:
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

    def holder(self) -> dict[str, Any]:
        """Return what the running sweep says of itself; empty: none runs."""
        return read_state(self.results.holder) if self.results.being_written() else {}

    def _read(self) -> View:
        self.results.refresh()
        holder = self.holder()
        rows = rows_stamp(self.results)
        studies = [self._study(name, rows, holder) for name in record.recorded_studies(self.results.root)]
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

    def _study_view(self, found: _Recorded, holder: Mapping[str, Any]) -> StudyView:
        name = found.info.study
        runs = recorded_states(self.results, name, found.wanted, found.ends)
        failed, counts = runs.failed(), runs.counts()
        progress = self.results.latest_progress(holder) if holder.get("study") == name else {}
        steps = progress.get("training", {})
        training = [row for row in found.wanted if row["run_id"] in steps]
        shown, spread = self._training(training[:MOST_RUNS], steps, found.info.metric)
        return StudyView(
            name=name,
            title=found.info.title,
            num_wanted=len(found.wanted),
            num_ended=sum(number for state, number in counts.items() if state.over or state.on_request),
            counts=tuple((state, counts[state]) for state in shown_states(counts)),
            cost=_device_time(found),
            decided=found.decided,
            num_training=len(training),
            training=shown,
            machines=_machines(progress.get("machines", []), training),
            num_failed=len(failed),
            failed=[(row["run_id"], run_title(row), why) for row, why in failed[:MOST_RUNS]],
            resume=_run_command(self.results, name) if not all(each.over or each.on_request for each in counts) else "",
            retry=_run_command(self.results, name, "--retry-failed") if any(each.on_request for each in counts) else "",
            spread=spread,
        )

    def _training(self, rows: Sequence[Row], steps: Mapping[str, int], metric: Metric) -> tuple[Sequence[Row], str]:
        ids = [row["run_id"] for row in rows]
        curves = record.read_curves(self.results.root, ids, ("run_id", "step", "validation_accuracy")).dropna()
        low, high = curves["validation_accuracy"].min(), curves["validation_accuracy"].max()
        asked = {path.name for path in self.results.stop_requests.glob("*")}
        shown = []
        for row in rows:
            curve = curves[curves["run_id"] == row["run_id"]]
            points = list(zip(curve["step"], curve["validation_accuracy"], strict=True))
            shown.append(
                {
                    "run_id": row["run_id"],
                    "title": run_title(row),
                    "step": steps[row["run_id"]],
                    "num_steps": row["num_steps"],
                    "latest": metric.score_text(points[-1][1], digits=1) if points else "",
                    "points": _polyline(points, row["num_steps"], low, high),
                    "stop_asked": row["run_id"] in asked,
                }
            )
        spread = f"{metric.validation}, drawn from {metric.score_text(low)} to {metric.score_text(high)}"
        return shown, spread if high > low else ""


def _run_command(results: Results, study: str, *options: str) -> str:
    """Return the command that resumes a study, with the data directory and CPUs with which it was started last.

    It reads the study's file beside the user's own function, if that is here, else the study as it is recorded.
    """
    started = read_state(results.started(study))
    given = [f"--{option}={started[key]}" for option, key in STARTED.items() if started.get(key) is not None]
    files = [Path(str(started.get("folder")), f"{study}{ending}") for ending in (".yaml", ".yml")]
    file = next((file for file in files if "\0" not in str(file) and file.is_file()), results.options(study))
    return command("run", str(file), *given, "--results", results.location, *options)


def _read_recorded(results: Results, study: str, stamp: tuple[object, ...]) -> _Recorded:
    info, wanted = record.read_study(results.root, study), record.read_wanted_rows(results.root, study, WANTED_COLUMNS)
    decided = ""
    if info.decide is not None:
        from lr_sweep.analysis.study_summary import read_summary  # imported late: other studies need none

        decision = read_summary(results.root, study).decision
        decided = decision.progress() if decision else ""
    return _Recorded(
        stamp=stamp,
        info=info,
        wanted=wanted,
        ends=read_ends(results, [row["run_id"] for row in wanted], ("failure", "device_s")),
        decided=decided,
    )


def _device_time(found: _Recorded) -> str:
    used_s = sum(found.ends[row["run_id"]]["device_s"] for row in found.wanted if row["run_id"] in found.ends)
    return f"device time {duration(used_s)} so far"


def _machines(described: Sequence[Mapping[str, Any]], training: Sequence[Row]) -> list[Row]:
    titles = {row["run_id"]: run_title(row) for row in training}
    return [
        {
            "address": node["address"],
            "devices": ", ".join(counted(int(node[key]), unit) for key, unit in DEVICES if node[key]) or "no devices",
            "num_training": len(node["runs"]),
            "training": [titles[run_id] for run_id in node["runs"] if run_id in titles][:MOST_NAMED],
        }
        for node in sorted(described, key=lambda node: not node["runs"])
    ]


def _polyline(points: Sequence[tuple[int, float]], num_steps: int, low: float, high: float) -> str:
    kept = [points[index] for index in sorted(evenly(len(points), MOST_POINTS))]
    height = (HEIGHT - 4) / (high - low) if high > low else 0.0
    return " ".join(
        f"{WIDTH * min(1.0, step / num_steps):.1f},{HEIGHT - 2 - height * (value - low):.1f}" for step, value in kept
    )
