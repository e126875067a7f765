"""Mirrors in the background, so that MLflow, however slow or unreachable, never slows or stops training."""

from __future__ import annotations

from collections.abc import Callable

from lr_sweep.datasets.storage.background import BackgroundWorker
from lr_sweep.sweep.mirror.mirror import Mirror

_STUDY = "the study's own run"
"""A key among run ids: close the study, once all its runs are mirrored."""


class MirrorThread:
    """Brings MLflow in line with the record, run by run, as runs change; waits as `BackgroundWorker` does.

    Only the thread uses `mirror`, until it is closed. It calls `on_problem` with one message when mirroring begins to
    fail, not again until it works.
    """

    def __init__(
        self, mirror: Mirror, on_problem: Callable[[str], None], *, retry_s: float = 5.0, max_retry_s: float = 300.0
    ) -> None:
        self._mirror, self._on_problem = mirror, on_problem
        self._used = False
        self._worker = BackgroundWorker(
            "mlflow-mirror", self._sync, self._report, retry_s=retry_s, max_retry_s=max_retry_s
        )

    def changed(self, *run_ids: str) -> None:
        """Have runs mirrored of which the record holds more now; returns at once."""
        self._used = self._used or bool(run_ids)
        self._worker.submit(*run_ids)

    def close(self, timeout_s: float) -> list[str]:
        """Try what is left once more, for at most `timeout_s` seconds; return the ids of runs not mirrored fully."""
        if self._used:
            self._worker.close(0)  # from now on, what fails is not tried again after the study
            self._worker.submit(_STUDY)
            self._used = False
        return [run_id for run_id in self._worker.close(timeout_s) if run_id != _STUDY]

    def _sync(self, run_id: str) -> None:
        if run_id != _STUDY:
            self._mirror.sync_run(run_id)
        elif not self._worker.failing:
            self._mirror.close_study()

    def _report(self, problem: Exception) -> None:
        self._on_problem(f"{str(problem) or type(problem).__name__}; training continues, and mirroring is tried again")
