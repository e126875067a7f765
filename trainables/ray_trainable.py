"""The Ray Tune trainable: one trial trains one cohort, its runs together, or by the plain engine in turn."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import torch
from ray import tune

from trainables.cohort import Assignment, Event, RunSession
from trainables.device_memory import share_memory
from trainables.leaving import MachineLeavesError, MachineWatch
from trainables.stacked_session import StackedSession

REPORT_EVERY_S = 2.0
"""Seconds of training between reports to the driver, between evaluations."""

STORAGE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EHOSTUNREACH)
"""Failures to write that a retry will not mend; they stop the sweep instead of failing run after run."""


class CohortTrainable(tune.Trainable):
    """Trains `config["trial"]["cohort"]`, a list of `Assignment.as_dict()`, by `config["trial"]["engine"]`.

    The stacked engine trains `config["trial"]["num_places"]` of them at once, or as many as fit into the trial's
    `share` of its device, unless the study gives their number (`size_given`); its steps may be `compiled`. Each step
    returns `events` for the driver. Checkpoints are the runs' own, found again by run id after any kind of death;
    Tune's, which are by trial, are not used.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Take a cohort on; Tune calls this once a trial, or `reset_config` when it reuses the process."""
        trial = config["trial"]
        self._assignments = [Assignment(**assignment) for assignment in trial["cohort"]]
        self._session: RunSession | StackedSession | None = None
        self._machine = MachineWatch()
        self._events = self._train_stacked(trial) if trial["engine"] == "stacked" else self._train_plain()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take another cohort on in the same process: everything of the last one is replaced."""
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Train until there is something to report.

        Raises:
            MachineLeavesError: this machine is about to be taken away; runs are saved.
        """
        if self._session is not None and self._machine.leaves():
            self._session.leave()
            self._session = None
            raise MachineLeavesError("this machine is about to be taken away; runs are saved and go on elsewhere")
        try:
            events = next(self._events, None)
        except (MemoryError, torch.OutOfMemoryError) as error:
            self._session = None  # a step was broken off: what is saved is what is whole
            return {"events": [], "out_of_memory": f"{type(error).__name__}: {error}", "done": True}
        except OSError as error:
            if error.errno not in STORAGE_ERRORS:
                raise
            return {"events": [], "storage_problem": str(error), "done": True}
        return {"events": events or [], "done": events is None}

    def cleanup(self) -> None:
        """Save where the runs are: Tune stops the trial, at Ctrl-C for one."""
        if self._session is not None:
            self._session.leave()

    def _train_plain(self) -> Iterator[list[Event]]:
        for assignment in self._assignments:
            self._session = RunSession(assignment)
            yield from ([event] for event in self._session.events(REPORT_EVERY_S))
            self._session = None

    def _train_stacked(self, trial: dict[str, Any]) -> Iterator[list[Event]]:
        available = share_memory(self._assignments[0].device, trial["share"])
        self._session = StackedSession(
            self._assignments,
            trial["num_places"],
            memory_bytes=None if trial["size_given"] else available,
            compiled=trial["compiled"],
        )
        yield from self._session.events(REPORT_EVERY_S)
        self._session = None
