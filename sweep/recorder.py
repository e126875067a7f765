"""Events of trials -> the record. The one writer of runs and curves."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from analysis.columns import CURVES, RUNS, best_of
from analysis.record import RecordError, read_curves, read_rows, read_run_rows
from sweep.provenance import git_state, package_versions
from sweep.results import Results, write_parquet
from sweep.runs import WantedRun
from trainables.cohort import Event
from trainables.run import PROTOCOL_VERSION


@dataclass
class _Open:
    """A run that this process has seen start."""

    started_at: float
    attempts: int
    """Times it was started, by earlier processes too if they saw it end."""
    recorded_step: int
    """Last step of the curve that the record holds; 0: it holds none."""
    seen_step: int
    """How far it is known to have been trained; what lies beyond the step that it starts from again is lost."""
    lost_steps: int | None
    """Trained again after a death, counted as `attempts`; None: an earlier row does not say."""
    code: str | None
    """Which code trained it, as the record has it; None: not known."""
    step: int = 0
    curve: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Evaluations by step: one that comes twice, from a checkpoint, is there once."""

    def start_at(self, step: int) -> None:
        """Count a start, and what was trained beyond the step that it starts from."""
        self.attempts += 1
        if self.lost_steps is not None:
            self.lost_steps += max(0, self.seen_step - step)


class Recorder:
    """Writes what trials report.

    Args:
        results: where to.
        wanted: the runs that may report.
        devices_per_trial: devices a trial holds (GPUs, else CPUs), for device seconds.
        clock: unix time in seconds.
    """

    def __init__(
        self,
        results: Results,
        wanted: Sequence[WantedRun],
        devices_per_trial: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.results, self.devices_per_trial, self.clock = results, devices_per_trial, clock
        self.wanted = {run.run_id: run for run in wanted}
        self.git_commit, self.git_dirty = git_state()
        self.versions = package_versions()
        self._open: dict[str, _Open] = {}

    def event(self, event: Event) -> None:
        """Take one event in, writing what it adds.

        Raises:
            OSError: the disk is full or not writable; what was recorded before is intact.
        """
        run_id = event["run_id"]
        run = self._opened(run_id)
        if event["kind"] == "started":
            run.start_at(event["step"])
            run.code = json.dumps(event["code"]) if event.get("code") else None
        run.step = run.seen_step = event["step"]
        if event.get("evaluations"):
            self._add(run_id, run, event["evaluations"])
        if event["kind"] == "finished":
            self._finish(run_id, run, event)

    def failed(self, run_id: str, reason: str) -> None:
        """Record that a run ended by an error; what an earlier process trained of it stays."""
        started_here = run_id in self._open
        run = self._opened(run_id)
        run.attempts += not started_here  # its trial could not even start it
        run.step = max(run.step, run.recorded_step)
        last = max(run.curve.values(), key=lambda e: e["step"], default={"elapsed_s": 0.0})
        facts = {"elapsed_s": last["elapsed_s"], "device": "unknown", "diverged_at_step": None}
        self._write_row(run_id, run, facts | {"status": "failed", "failure": reason})

    def _opened(self, run_id: str) -> _Open:
        if run_id not in self._open:
            step = self._recorded_step(run_id)
            before: dict[str, Any] = {"attempts": 0, "num_steps": 0, "lost_steps": 0, "code": None}
            for row in read_run_rows(self.results.root, [run_id], before.keys()):
                before = row
            self._open[run_id] = _Open(
                started_at=self.clock(),
                attempts=before["attempts"],
                recorded_step=step,
                seen_step=max(step, before["num_steps"]),
                lost_steps=before["lost_steps"],
                code=before["code"],
            )
        return self._open[run_id]

    def _recorded_step(self, run_id: str) -> int:
        try:
            return max(read_curves(self.results.root, [run_id])["step"], default=0)
        except RecordError:  # damaged: what is trained now replaces it
            return 0

    def _add(self, run_id: str, run: _Open, evaluations: Sequence[dict[str, Any]]) -> None:
        first = evaluations[0]
        if not run.curve:  # taken up from a checkpoint: it started before this process did
            run.started_at = min(run.started_at, first["time_ms"] / 1000 - first["elapsed_s"])
        run.curve |= {evaluation["step"]: {"run_id": run_id, **evaluation} for evaluation in evaluations}
        # A run whose checkpoints are lost starts over; until it is as far again, the longer curve stays.
        if max(run.curve) >= run.recorded_step:
            self._write_curve(run_id, run)

    def _write_curve(self, run_id: str, run: _Open) -> None:
        rows = [run.curve[step] for step in sorted(run.curve)]
        write_parquet(self.results.curve(run_id), rows, CURVES)
        run.recorded_step = max(run.curve)

    def _finish(self, run_id: str, run: _Open, facts: dict[str, Any]) -> None:
        if run.recorded_step > max(run.curve, default=0):  # started over, it ended before it was as far again
            self.results.run(run_id).unlink(missing_ok=True)  # first: a row never speaks of a curve that is not there
            self.results.curve(run_id).unlink()
            if run.curve:
                self._write_curve(run_id, run)
        self._write_row(run_id, run, facts)

    def _write_row(self, run_id: str, run: _Open, facts: dict[str, Any]) -> None:
        write_parquet(self.results.run(run_id), [self._row(self.wanted[run_id], run, facts)], RUNS)
        del self._open[run_id]

    def _row(self, wanted: WantedRun, run: _Open, facts: dict[str, Any]) -> dict[str, Any]:
        return {
            "run_id": wanted.run_id,
            "protocol_version": PROTOCOL_VERSION,
            "status": facts["status"],
            "num_steps": facts["diverged_at_step"] or run.step,
            "diverged_at_step": facts["diverged_at_step"],
            "failure": facts.get("failure"),
            "task": wanted.run.task,
            "model": wanted.model,
            "variant": wanted.variant,
            "learning_rate": wanted.run.learning_rate,
            "seed": wanted.run.seed,
            "content": wanted.run.canonical_json(),
            "pretrained_on": wanted.pretrained_on,
            "weights_checksum": wanted.run.weights_checksum,
            "data_checksum": wanted.run.data_checksum,
            "data_origin": wanted.data_origin,
            "device": facts["device"],
            "wall_s": facts["elapsed_s"],
            "device_s": facts["elapsed_s"] * self.devices_per_trial,
            "started_at": datetime.fromtimestamp(run.started_at, UTC),
            "finished_at": datetime.fromtimestamp(self.clock(), UTC),
            "attempts": run.attempts,
            "git_commit": self.git_commit,
            "git_dirty": self.git_dirty,
            "versions": self.versions,
            "lost_steps": run.lost_steps,
            "engine": facts.get("engine"),
            "code": run.code,
            **best_of(self._whole_curve(wanted.run_id, run)),
        }

    def _whole_curve(self, run_id: str, run: _Open) -> Iterable[Mapping[str, Any]]:
        """Return the evaluations that the record holds of a run."""
        if run.recorded_step <= max(run.curve, default=0):
            return run.curve.values()
        try:  # it failed before it was as far again as an earlier process got it
            return read_rows(self.results.curve(run_id), CURVES) or []
        except RecordError:
            return []
