"""The Ray Tune trainable: one trial trains one cohort, its runs one after the other."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

from ray import tune

from trainables.cohort import Assignment, Event, RunSession

REPORT_EVERY_S = 2.0
"""Seconds of training between reports to the driver, between evaluations."""

STORAGE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
"""Failures to write that a retry will not mend; they stop the sweep instead of failing run after run."""


class CohortTrainable(tune.Trainable):
    """Trains `config["trial"]["cohort"]`, a list of `Assignment.as_dict()`.

    Each step returns `events` for the driver. Checkpoints are the runs' own (`RunSession`), found again by run id after
    any kind of death; Tune's, which are by trial, are not used.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Take a cohort on; Tune calls this once a trial, or `reset_config` when it reuses the process."""
        self._assignments = [Assignment(**assignment) for assignment in config["trial"]["cohort"]]
        self._session: RunSession | None = None
        self._events = self._train()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take another cohort on in the same process: everything of the last one is replaced."""
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Train until there is something to report."""
        try:
            event = next(self._events, None)
        except OSError as error:
            if error.errno not in STORAGE_ERRORS:
                raise
            return {"events": [], "storage_problem": str(error), "done": True}
        return {"events": [event] if event else [], "done": event is None}

    def cleanup(self) -> None:
        """Save where the run is: Tune stops the trial, at Ctrl-C for one."""
        if self._session is not None:
            self._session.save()

    def _train(self) -> Iterator[Event]:
        for assignment in self._assignments:
            self._session = RunSession(assignment)
            yield from self._session.events(REPORT_EVERY_S)
            self._session = None
