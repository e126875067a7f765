"""Mirrors in the background, so that MLflow, however slow or unreachable, never slows or stops training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lr_sweep.common.background import BackgroundWorker
from lr_sweep.common.text import counted
from lr_sweep.sweep.mirror.client import MirrorError
from lr_sweep.sweep.mirror.mirror import Mirror
from lr_sweep.sweep.results.recorder import Sink
from lr_sweep.trainables.worker.events import Finished, Report, evaluations

REST = 3.0
"""Ratio of a pause to the work before it: the thread takes a quarter of the driver's time at most. Several points of a
run that arrive in a pause are mirrored together, which costs little more than one point."""
_STUDY = "the study's own run"
"""The key, among run ids, that closes the study once all its runs are mirrored."""


class MirrorThread(Sink):
    """Brings MLflow in line with the record, run by run, as runs change; waits as `BackgroundWorker` does.

    Only the thread uses `mirror`, until it is closed. It calls `on_problem` with one message when mirroring begins to
    fail, not again until it works.
    """

    def __init__(
        self, mirror: Mirror, on_problem: Callable[[str], None], *, retry_s: float = 5.0, max_retry_s: float = 300.0
    ) -> None:
        self._mirror, self._on_problem = mirror, on_problem
        self._used = False
        self._lacks: list[str] = []
        self._worker: BackgroundWorker[str | Path] = BackgroundWorker(
            "mlflow-mirror", self._sync, self._report, retry_s=retry_s, max_retry_s=max_retry_s, rest=REST
        )

    def changed(self, *run_ids: str) -> None:
        """Have runs mirrored of which the record holds more now; returns at once."""
        self._used = self._used or bool(run_ids)
        self._worker.submit(*run_ids)

    def event(self, event: Report) -> None:
        """Have a run mirrored if the event added to its record."""
        if evaluations(event) or isinstance(event, Finished):
            self.changed(event.run_id)

    def failed(self, run_id: str, reason: str) -> None:
        """Have a failed run mirrored."""
        self.changed(run_id)

    def close(self, timeout_s: float) -> list[str]:
        """Try what is left once more, for at most `timeout_s` seconds; return the ids of runs not mirrored fully."""
        if self._used:
            self._worker.close(0)  # from now on, what fails is not tried again after the study
            self._worker.submit(_STUDY)
            self._used = False
        return [key for key in self._worker.close(timeout_s) if isinstance(key, str) and key != _STUDY]

    def finish(self, report: Path, timeout_s: float) -> list[str]:
        """Close, then put the report into MLflow, each within `timeout_s` seconds; return lines about what it lacks."""
        if late := self.close(timeout_s):
            return [f"not in MLflow yet: {counted(len(late), 'run')}; the next `run` of this study mirrors the rest"]
        self._worker.submit(report)
        if self._worker.close(timeout_s):
            return [f"the report is not in MLflow: no answer within {timeout_s:.0f} s"]
        return self._lacks

    def _sync(self, key: str | Path) -> None:
        """Mirror a run by its id, the study, or a report by its folder."""
        if isinstance(key, Path):
            try:
                self._mirror.log_report(key)
            except MirrorError as error:
                self._lacks = [f"the report is not in MLflow: {error}"]
        elif key != _STUDY:
            self._mirror.sync_run(key)
        elif not self._worker.failing:
            self._mirror.close_study()

    def _report(self, problem: Exception) -> None:
        self._on_problem(f"{str(problem) or type(problem).__name__}; training continues, and mirroring is tried again")
