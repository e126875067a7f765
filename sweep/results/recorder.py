"""What a study wants, and events of trials -> the record and the runs' logs. The one writer of runs and curves."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from lr_sweep.analysis.record.columns import CURVES, RUNS, WANTED, best_of
from lr_sweep.analysis.record.parquet import FORMAT
from lr_sweep.analysis.record.paths import RecordError
from lr_sweep.analysis.record.read import read_rows, read_run_rows
from lr_sweep.common.files import (
    Fields,
    ReadFields,
    make_folder,
    open_no_link,
    sealed,
    sealed_text,
    write_bytes,
    write_json,
)
from lr_sweep.sweep.study.file import study_to_yaml
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.sweep.study.study import Study
from lr_sweep.trainables.engine import Evaluation
from lr_sweep.trainables.own.run import OwnFiles
from lr_sweep.trainables.run import PROTOCOL_VERSION
from lr_sweep.trainables.worker.messages import (
    Advanced,
    Event,
    Finished,
    Printed,
    Report,
    Started,
)

from .directory import Results, write_parquet
from .provenance import provenance


def write_wanted(results: Results, study: Study, wanted: Sequence[WantedRun]) -> None:
    """Write what the study wants, for `status`, `report` and the mirror, and the study with all defaults."""
    write_bytes(results.options(study.study), sealed_text(study_to_yaml(study)))
    write_parquet(results.wanted(study.study), [run.row() for run in wanted], WANTED)
    facts = {"study": study.study, "title": study.title, "format": FORMAT} | study.facts()
    write_json(results.facts(study.study), sealed(facts))


def write_started(results: Results, study: Study, **options: str | int | None) -> None:
    """Write what the live page shows in the command that resumes the study on this machine, such as `data_dir`."""
    folder = str(study.files.folders[0]) if study.files is not None else None  # of its own code
    write_json(results.started(study.study), {"folder": folder, **options})


@dataclass
class _Open:
    """A run that this process has seen start."""

    started_at: float
    attempts: int
    """Times it was tried, by earlier processes too."""
    recorded_step: int
    """Last step of the curve that the record holds; 0: it holds none."""
    seen_step: int
    """How far it is known to have been trained; what lies beyond the step that it starts from again is lost."""
    lost_steps: int | None
    """Trained again after a death, counted as `attempts`; None: an earlier row does not say."""
    code: str | None
    """Which code trained it, as the record has it; None: not known."""
    has_started: bool = False
    """Whether it has started in the attempt under way."""
    step: int = 0
    curve: dict[int, Evaluation] = field(default_factory=dict)
    """Evaluations by step: one that comes twice, from a checkpoint, is there once."""


class Recorder:
    """Writes what trials of the `wanted` runs report, to the record and to each run's log.

    `devices_per_trial`: devices a trial holds (GPUs, else CPUs), for device seconds. `clock`: Unix time in seconds.
    `reached`: steps to which an earlier process, if it was killed, had trained runs, by id.
    `files`: the user's own code.
    """

    def __init__(
        self,
        results: Results,
        wanted: Sequence[WantedRun],
        devices_per_trial: float,
        clock: Callable[[], float] = time.time,
        reached: Mapping[str, int] | None = None,
        files: OwnFiles | None = None,
    ) -> None:
        self._reached = dict(reached or {})
        self.results, self.devices_per_trial, self.clock = results, devices_per_trial, clock
        self.wanted = {run.run_id: run for run in wanted}
        self.provenance = provenance(files)
        self._open: dict[str, _Open] = {}

    def add(self, runs: Iterable[WantedRun]) -> None:
        """Record further runs, too."""
        self.wanted |= {run.run_id: run for run in runs}

    def event(self, event: Report) -> None:
        """Take one event in, writing what it adds; raises OSError if the disk is full or not writable."""
        if not isinstance(event, Printed):
            self._record(event)
        self.log(event.run_id, _lines(event))

    def _record(self, event: Event) -> None:
        run_id = event.run_id
        run = self._opened(run_id)
        seen_step, run.step, run.seen_step = run.seen_step, event.step, event.step
        match event:
            case Started():
                run.attempts, run.has_started = run.attempts + 1, True
                if run.lost_steps is not None:
                    run.lost_steps += max(0, seen_step - event.step)
                run.code = json.dumps(event.code) if event.code else None
                self._add(run_id, run, event.curve)
            case Advanced(evaluation=Evaluation() as evaluation):
                self._add(run_id, run, [evaluation])
            case Finished():
                self._finish(run_id, run, event)

    def interrupted(self, run_ids: Iterable[str], why: str, *, is_failure: bool) -> None:
        """Note that runs do not train at the moment; a failure before a run started is an attempt, too."""
        for run_id in run_ids:
            run = self._opened(run_id)
            run.attempts += is_failure and not run.has_started
            run.has_started = False
            self.log(run_id, why.splitlines())

    def log(self, run_id: str, lines: Iterable[str]) -> None:
        """Append lines to a run's log with the time of now, in UTC."""
        now = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self.clock()))
        if text := "".join(f"{now}  {line}\n" for line in lines):
            path = self.results.log(run_id)
            make_folder(path.parent)
            with open(path, "a", encoding="utf-8", errors="replace", opener=open_no_link) as log:
                log.write(text)

    def failed(self, run_id: str, reason: str) -> None:
        """Record that a run ended by an error; what an earlier process trained of it stays."""
        run = self._opened(run_id)
        run.attempts = max(run.attempts, 1)
        run.step = max(run.step, run.recorded_step)
        elapsed_s = run.curve[max(run.curve)].elapsed_s if run.curve else 0.0
        self._write_row(
            run, {"run_id": run_id, "status": "failed", "failure": reason, "elapsed_s": elapsed_s}
        )

    def _opened(self, run_id: str) -> _Open:
        if run_id not in self._open:
            step = max((row["step"] for row in self._recorded_curve(run_id)), default=0)
            before: Fields = {"attempts": 0, "num_steps": 0, "lost_steps": 0, "code": None}
            for row in read_run_rows(self.results.root, [run_id], before.keys()):
                before = row
            self._open[run_id] = _Open(
                started_at=self.clock(),
                attempts=max(before["attempts"], _starts_in(self.results.log(run_id))),
                recorded_step=step,
                seen_step=max(step, before["num_steps"], self._reached.pop(run_id, 0)),
                lost_steps=before["lost_steps"],
                code=before["code"],
            )
        return self._open[run_id]

    def _add(self, run_id: str, run: _Open, evaluations: Sequence[Evaluation]) -> None:
        if not evaluations:
            return
        if not run.curve:  # resumed from a checkpoint: it started before this process did
            run.started_at = min(
                run.started_at, evaluations[0].time_ms / 1000 - evaluations[0].elapsed_s
            )
        run.curve |= {evaluation.step: evaluation for evaluation in evaluations}
        # A run whose checkpoints are lost starts over; until it is as far again, the longer curve stays.
        if max(run.curve) >= run.recorded_step:
            self._write_curve(run_id, run)

    def _write_curve(self, run_id: str, run: _Open) -> None:
        rows = [{"run_id": run_id, **vars(run.curve[step])} for step in sorted(run.curve)]
        write_parquet(self.results.curve(run_id), rows, CURVES)
        run.recorded_step = max(run.curve)

    def _finish(self, run_id: str, run: _Open, end: Finished) -> None:
        if run.recorded_step > max(
            run.curve, default=0
        ):  # started over, it ended before it was as far again
            self.results.run(run_id).unlink(
                missing_ok=True
            )  # first: a row never speaks of a curve that is not there
            self.results.curve(run_id).unlink()
            if run.curve:
                self._write_curve(run_id, run)
        self._write_row(run, vars(end))

    def _write_row(self, run: _Open, facts: ReadFields) -> None:
        wanted = self.wanted[facts["run_id"]]
        known = {
            **wanted.row(),
            **facts,
            "protocol_version": PROTOCOL_VERSION,
            "num_steps": facts.get("diverged_at_step") or run.step,
            "content": wanted.run.canonical_json(),
            "weights_checksum": wanted.run.weights_checksum,
            "data_checksum": wanted.run.data_checksum,
            "device": facts.get("device", "unknown"),
            "wall_s": facts["elapsed_s"],
            "device_s": facts["elapsed_s"] * self.devices_per_trial,
            "started_at": datetime.fromtimestamp(run.started_at, UTC),
            "finished_at": datetime.fromtimestamp(self.clock(), UTC),
            "attempts": run.attempts,
            "lost_steps": run.lost_steps,
            "code": run.code,
            "not_saved": ", ".join(facts.get("not_saved", ())) or None,
            **self.provenance,
            **best_of(self._whole_curve(wanted.run_id, run), wanted.metric),
        }
        row = {column.name: known.get(column.name) for column in RUNS}
        write_parquet(self.results.run(wanted.run_id), [row], RUNS)
        del self._open[wanted.run_id]

    def _whole_curve(self, run_id: str, run: _Open) -> Iterable[ReadFields]:
        if run.recorded_step <= max(run.curve, default=0):
            return [vars(evaluation) for evaluation in run.curve.values()]
        return self._recorded_curve(run_id)  # it failed before it was as far again

    def _recorded_curve(self, run_id: str) -> Sequence[ReadFields]:
        try:
            return read_rows(self.results.curve(run_id), CURVES) or ()
        except RecordError:  # damaged: what is trained now replaces it
            return ()


def _starts_in(log: Path) -> int:
    """Return how often a run was started, by its log; 0 where there is none."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return len(re.findall(r"^\S+ \S+  (?:started|resumed from step \d+)$", text, re.MULTILINE))


def _lines(event: Report) -> list[str]:
    match event:
        case Started():
            damaged = [f"{path} is damaged (its checksum differs)" for path in event.damaged]
            return [*damaged, f"resumed from step {event.step}" if event.step else "started"]
        case Advanced(evaluation=Evaluation() as evaluation):
            return [_evaluated(evaluation)]
        case Printed():
            return [f"| {line}" for line in event.text.splitlines()]
        case Finished():
            return [
                f"{event.status} at step {event.step}, {event.elapsed_s:.1f} s of training, on {event.device}"
            ]
        case _:
            return []


def _evaluated(evaluation: Evaluation) -> str:
    names = ("train_loss", "train", "validation", "test")
    numbers = {name.replace("_", " "): getattr(evaluation, name) for name in names}
    numbers |= {logged["name"]: logged["value"] for logged in evaluation.logged or ()}
    shown = ", ".join(f"{name} {value:.6g}" for name, value in numbers.items() if value == value)
    return f"step {evaluation.step}: {shown}"
