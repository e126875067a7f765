"""Training by a function of the user's own: one run, its function in a thread that waits between two steps."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, fields
from typing import Any

import torch
from torch import Tensor

from lr_sweep.trainables.curve import Evaluation, Progress
from lr_sweep.trainables.engine import Pace
from lr_sweep.trainables.own.code import FAILURE, TrainingFunctionError, import_function, own_traceback, unpacked
from lr_sweep.trainables.own.output import Output
from lr_sweep.trainables.own.run import OwnRun
from lr_sweep.trainables.own.session import MisuseError, OwnSession, RunToTrain
from lr_sweep.trainables.own.state import generator_states, restore, restore_generators, seed_generators, state_of
from lr_sweep.trainables.plain import CPU_THREADS


class SessionClosedError(BaseException):
    """Raised inside a training function whose run ends here; not an Exception, so that no `except` of its stops it."""


class Handoff:
    """Calls a function in a thread of its own, which runs only inside `resume`, until it calls `pause` or ends."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._closing = False
        self.error: BaseException | None = None
        """What the function raised."""
        self.ended = False
        # A daemon: a process that saved its runs and exits does not wait for the function.
        self._thread = threading.Thread(target=self._run, name="training-function", daemon=True)

    def resume(self) -> None:
        """Let the function run until it pauses or ends; the calling thread waits."""
        assert not self.ended, "there is nothing left to run"
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._go.release()
        self._back.acquire()

    def pause(self) -> None:
        """Hand back to the thread that called `resume`, until it does so again; called by the function.

        Raises:
            SessionClosedError: by `close`.
        """
        self._back.release()
        self._go.acquire()
        if self._closing:
            raise SessionClosedError

    def close(self) -> None:
        """End the function where it pauses; its `finally` blocks run."""
        if self._thread.ident is not None and not self.ended:
            self._closing = True
            self.resume()

    def _run(self) -> None:
        try:
            self._work()
        except SessionClosedError:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.ended = True
            self._back.release()


class OwnTraining:
    """One run of a training function between step 0 and its end."""

    def __init__(
        self,
        run: OwnRun,
        num_steps: int,
        device: str,
        wall_clock: Callable[[], float] = time.time,
        output: Output | None = None,
    ) -> None:
        """Call the function, up to the beginning of its first step; `output` keeps what it prints.

        Raises:
            OwnCodeError, DataError: its files are not here, or not those of the run.
            TrainingFunctionError: it raised.
        """
        self.run, self.wall_clock = run, wall_clock
        self._output = output or Output()
        self.progress, self.pace = Progress(), Pace(steps_per_evaluation=1)
        self._opened = ExitStack()
        self._folder = self._opened.enter_context(unpacked(run))
        self._handoff = Handoff(self._call)
        names = [field.name for field in fields(RunToTrain) if field.name != "num_steps"]
        to_train = RunToTrain(**{name: getattr(run, name) for name in names}, num_steps=num_steps)
        self._session = OwnSession(to_train, device, self._folder, self._pause)
        self._pause_at = 0.0
        seed_generators(run.seed)
        self._generators = generator_states()
        self._resume()

    def _call(self) -> None:
        if self._session.device == "cpu":
            torch.set_num_threads(CPU_THREADS)  # of this thread: the order of a sum follows their number
        function = import_function(self.run.files.trainable, self._folder, self.run.files.code)
        seed_generators(self.run.seed)  # again: some libraries draw when a process imports them for the first time
        function(self._session.run, self._session)
        if self._session.step < self._session.run.num_steps:
            raise MisuseError(
                f"the function returned after step {self._session.step} of {self._session.run.num_steps}, want it to "
                f"loop over session.steps to its end"
            )

    def _pause(self) -> None:
        """Wait for the session where there is something to save or to report; called by the function between steps."""
        at_start = not self._session.step or self._session.reported is not None
        if at_start or self._session.step >= self._session.run.num_steps or time.monotonic() >= self._pause_at:
            self._handoff.pause()

    def _resume(self) -> None:
        """Let the function run to its next pause, with its own random numbers."""
        restore_generators(self._generators)
        with self._output.kept_for(self.run.run_id):
            self._handoff.resume()
        self._generators = generator_states()
        if error := self._handoff.error:
            if isinstance(error, MemoryError | torch.OutOfMemoryError):
                raise error
            text = own_traceback(error, self._folder)
            raise TrainingFunctionError(f"{FAILURE}\n{text}") from None

    def advance(self, *, for_s: float = math.inf) -> Evaluation | None:
        """Train to the next evaluation, to divergence, or for `for_s` seconds; return the evaluation, if reached."""
        first, started = self.progress.step, time.monotonic()
        self._pause_at = started + for_s
        self._session.reported = None
        self._resume()
        elapsed_s = time.monotonic() - started
        self.progress.elapsed_s += elapsed_s
        self.progress.step = self._session.step
        scores = self._session.reported
        self._time(elapsed_s, self.progress.step - first, evaluated=scores is not None)
        return self._record(scores) if scores is not None else None

    def _time(self, elapsed_s: float, num_steps: int, *, evaluated: bool) -> None:
        """Count time as that of steps; where it ended in an evaluation, what is beyond their pace is the evaluation's.

        Before a pace is known, an evaluation counts as a part of its steps.
        """
        step_s, evaluation_s = self.pace.steps.value, 0.0
        if evaluated and step_s is not None:
            evaluation_s = max(0.0, elapsed_s - num_steps * step_s)
            self.pace.evaluations.add(evaluation_s, 1)
        self.pace.steps.add(elapsed_s - evaluation_s, num_steps)

    def _record(self, scores: dict[str, float]) -> Evaluation | None:
        progress = self.progress
        if not math.isfinite(scores["validation"] + scores["test"]) or any(map(math.isinf, scores.values())):
            progress.diverged_at_step = progress.step
            return None
        evaluation = Evaluation(
            step=progress.step,
            **{name: value for name, value in scores.items() if name.endswith("_loss")},
            **{f"{split}_accuracy": scores[split] for split in ("train", "validation", "test")},
            time_ms=int(self.wall_clock() * 1000),
            elapsed_s=progress.elapsed_s,
        )
        progress.curve.append(evaluation)
        return evaluation

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what is needed to resume: tensors by name, plain JSON values; raises StateError."""
        assert self._session.saved is not None, "the function pauses first where it says what is saved"
        tensors, values = state_of(self._session.saved, self._session.generators or self._generators)
        return tensors, asdict(self.progress) | {"own": values}

    def load_state(self, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
        """Resume from what `state` returned."""
        assert self._session.saved is not None, "as of `state`"
        known = dict(progress)
        self._session.generators = restore(self._session.saved, tensors, known.pop("own"))
        self.progress = Progress.from_dict(known)
        self._session.step = self.progress.step

    def close(self) -> None:
        """Let the function end: by itself after its last step, else where it pauses.

        Raises:
            TrainingFunctionError: it raised after its last step.
        """
        try:
            if self._session.step >= self._session.run.num_steps and not self.progress.diverged:
                self._resume()
        finally:
            self._handoff.close()
            self._opened.close()
