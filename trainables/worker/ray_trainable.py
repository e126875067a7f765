"""The Ray Tune trainable: one trial trains one cohort, its runs together, or by the plain engine in turn."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator

from lr_sweep.trainables.worker import hide_checkout

hide_checkout()  # before any library looks for Hugging Face's `datasets`

import ray
import torch
from ray import tune

from lr_sweep.common.files import FULL, Fields
from lr_sweep.trainables.own.run import FAILURE, MisusedSessionError
from lr_sweep.trainables.own.supervisor import outlive_signals

from .job_secrets import take_secrets
from .memory import share_memory
from .messages import Cohort, Finished, Report
from .ray_internals import leaving_nodes
from .session import Session

MACHINE_CHECK_EVERY_S = 5.0
"""Seconds between two looks for a notice that this machine leaves; a spot machine's comes two minutes before."""

STORAGE_ERRORS = (
    *FULL,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EHOSTUNREACH,
    errno.ESTALE,
    errno.ELOOP,
)
"""Failures to write that a retry will not mend; they stop the sweep instead of failing run after run."""


class MachineLeavesError(Exception):
    """Runs were saved and resume elsewhere."""


class CohortTrainable(tune.Trainable):
    """Trains `config["trial"]["cohort"]`, a `Cohort`. Each step returns `events` for the driver.

    Checkpoints are the runs' own, found again by run id after any kind of death; Tune's are by trial, and not used.
    """

    _num_own = 0
    """Runs of training functions that this process has trained, one after the other."""

    def setup(self, config: Fields) -> None:
        """Take a cohort on; Tune calls this once a trial, or `reset_config` when it reuses the process."""
        take_secrets()
        outlive_signals()
        self._session: Session | None = None
        self._machine_checked_at = time.monotonic()
        cohort: Cohort = config["trial"]["cohort"]
        # Else it comes back with each result, and the driver keeps it for each trial.
        self.config: Fields = {}
        self._events = self._train(cohort)

    def reset_config(self, new_config: Fields) -> bool:
        """Take another cohort on in the same process: everything of the last one is replaced."""
        self.setup(new_config)
        return True

    def step(self) -> Fields:
        """Train until there is something to report; raises MachineLeavesError once the runs are saved."""
        if self._session is not None and self._machine_leaves():
            self._session.leave()
            self._session = None
            raise MachineLeavesError(
                "this machine is about to be taken away; runs are saved and resume elsewhere"
            )
        try:
            events = next(self._events, None)
        except (MemoryError, torch.OutOfMemoryError) as error:
            self._session = None  # a step was broken off: what is saved is what is whole
            if self._num_own:
                raise  # earlier runs may have left too little: a retry has a new process
            return {"events": [], "failed": f"{type(error).__name__}: {error}", "done": True}
        except MisusedSessionError as error:
            self._session = None
            return {"events": [], "failed": str(error).removeprefix(FAILURE).strip(), "done": True}
        except OSError as error:
            if error.errno not in STORAGE_ERRORS:
                raise
            return {"events": [], "storage_problem": str(error), "done": True}
        return {"events": events or [], "done": events is None}

    def _machine_leaves(self) -> bool:
        if time.monotonic() - self._machine_checked_at < MACHINE_CHECK_EVERY_S:
            return False
        self._machine_checked_at = time.monotonic()
        return ray.get_runtime_context().get_node_id() in leaving_nodes()

    def cleanup(self) -> None:
        """Save the runs: Tune stops the trial, at Ctrl-C for one."""
        if self._session is not None:
            self._session.leave()

    def _train(self, cohort: Cohort) -> Iterator[list[Report]]:
        memory = (
            share_memory(cohort.device, cohort.device_share) if cohort.engine == "stacked" else None
        )
        self._session = Session(cohort, memory_bytes=None if cohort.size_given else memory)
        for events in self._session.reports(cohort.report_every_s):
            yield events
            if cohort.engine == "own":
                self._num_own += sum(isinstance(event, Finished) for event in events)
        self._session = None
