"""What takes in what happens to the runs of a sweep: the record, the runs' logs, the display, MLflow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.trainables.worker.events import Report


class Sink:
    """Takes in what happens to runs, in the driver's process. A sink overrides what it has a use for."""

    def add(self, runs: Iterable[WantedRun]) -> None:
        """Expect further runs: the next round of a search."""

    def event(self, event: Report) -> None:
        """Take in what a worker reports of a run."""

    def interrupted(self, run_ids: Sequence[str], text: str) -> None:
        """Note that runs do not train at the moment, if they did; `text` is the reason, for their logs."""

    def failed(self, run_id: str, reason: str) -> None:
        """Note that a run has ended by an error."""
