"""A training function called in this process, in a thread of its own, which waits between two steps.

In a run of several processes, `Ranks` in the process of the trial asks each of them for what `Rank` does.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from lr_sweep.common.files import Fields
from lr_sweep.trainables.numerics import State
from lr_sweep.trainables.plain.engine import CPU_THREADS

from .answering import OUTPUT
from .run import (
    FAILURE,
    MisusedSessionError,
    OwnRun,
    TrainingFunctionError,
    import_function,
    own_traceback,
)
from .session import (
    Advance,
    MisuseError,
    Output,
    OwnSession,
    RunToTrain,
)
from .state import (
    StateError,
    decode,
    fingerprint,
    generator_states,
    restore_generators,
    saved_values,
    seed_generators,
    state_of,
)
from .variables import Variables, variables_of


class SessionClosedError(BaseException):
    """Raised inside a training function whose run ends here; not an Exception, so that no `except` of its stops it."""


class Handoff:
    """Calls a function in a thread of its own, which runs only inside `resume`, until it calls `pause` or ends."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._closing = False
        self.error: BaseException | None = None
        self.ended = False
        # A daemon: a process that saved its runs and exits does not wait for the function.
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def frame(self) -> FrameType | None:
        """Where the function pauses."""
        return sys._current_frames().get(self._thread.ident or 0)

    def resume(self) -> None:
        """Let the function run until it pauses or ends; the calling thread waits."""
        assert not self.ended, "there is nothing left to run"
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._go.release()
        self._back.acquire()

    def pause(self) -> None:
        """Hand back to the thread that called `resume`, until it is called again; raises SessionClosedError."""
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


class Function:
    """One call of a training function, by one process of its run."""

    def __init__(
        self, run: OwnRun, num_steps: int, device: str, folder: Path, output: Output, rank: int = 0
    ) -> None:
        """Call the function, up to the beginning of its first step; `folder` has its code and data (`unpacked`).

        Raises OwnCodeError if the files define no such function, and TrainingFunctionError if it raised.
        """
        self._run, self._folder, self._output = run, folder, output
        self._handoff = Handoff(self._call)
        names = [field.name for field in fields(RunToTrain) if field.name != "num_steps"]
        to_train = RunToTrain(**{name: getattr(run, name) for name in names}, num_steps=num_steps)
        self._session = OwnSession(to_train, device, folder, self._pause, rank)
        self._pause_at, self._pause_at_step = 0.0, math.inf
        self._judged: Collection[str] | None = None
        self._watched: dict[str, Variables] = {}
        self._is_first = True
        stepped = self._session.stepped
        self._hook = register_optimizer_step_post_hook(
            lambda optimizer, *_: stepped.append(optimizer)
        )
        seed_generators(run.seed)
        self._generators = generator_states()
        self._resume()

    def _call(self) -> None:
        device = self._session.device
        # Settings of this thread; the order of a sum follows the number of threads.
        if device == "cpu":
            torch.set_num_threads(CPU_THREADS)
        elif ":" in device:
            torch.cuda.set_device(device)
        function = import_function(self._run.files.trainable, self._folder, self._run.files.code)
        # Again: some libraries draw when a process imports them for the first time.
        seed_generators(self._run.seed)
        function(self._session.run, self._session)
        if self._session.step < self._session.run.num_steps:
            raise MisuseError(
                f"the function returned after step {self._session.step} of {self._session.run.num_steps}, want it to "
                f"loop over session.steps to its end"
            )

    def _pause(self) -> None:
        """Wait for the session where there is something to save or to report; called by the function between steps."""
        if self._is_first or self._is_due:
            self._handoff.pause()

    @property
    def _is_due(self) -> bool:
        session = self._session
        is_over = session.step >= min(session.run.num_steps, self._pause_at_step)
        return is_over or session.reported is not None or time.monotonic() >= self._pause_at

    def _resume(self) -> None:
        """Let the function run to its next pause, with its own random numbers."""
        restore_generators(self._generators)
        with self._output.kept_for(self._run.run_id):
            self._handoff.resume()
        self._generators = generator_states()
        if error := self._handoff.error:
            if isinstance(error, MemoryError | torch.OutOfMemoryError):
                raise error
            misused = isinstance(error, MisuseError | StateError)
            kind = MisusedSessionError if misused else TrainingFunctionError
            raise kind(f"{FAILURE}\n{own_traceback(error, self._folder)}") from None

    def advance(self, *, for_s: float = math.inf, to_step: float = math.inf) -> Advance:
        """Train to the next report, to a step, or for `for_s` seconds."""
        self._pause_at, self._pause_at_step = time.monotonic() + for_s, to_step
        self._session.reported, self._session.logged = None, {}
        self._resume()
        session, lost = self._session, list[str]()
        if self._is_first:
            self._is_first, lost = False, self._lost()
            if not self._is_due:
                self._resume()
        return Advance(session.step, session.reported, [*session.logged.values()], lost)

    def variables(self, *, everywhere: bool = False) -> Variables:
        """Return the variables of the function where it pauses (`variables_of`)."""
        passed = self._session.saved.things.values() if self._session.saved else ()
        return variables_of(
            self._handoff.frame, self._folder, {*map(id, passed)}, everywhere=everywhere
        )

    def _lost(self) -> list[str]:
        """Return the variables that have their first values again after the first step of a resumed run.

        Those that changed within a trial are left out: the trial has compared them.
        """
        now = self.variables()
        first, saved = self._watched.setdefault("first", now), self._watched.get("saved", {})
        if self._judged is None:
            return []
        names = (saved.keys() & first.keys()) - {*self._judged}
        return [name for name in names if saved[name] != first[name] == now.get(name)]

    def state(self) -> State:
        """Return what is needed to resume: tensors by name, plain JSON values; raises StateError."""
        session = self._session
        assert session.saved is not None, "the function pauses first where it says what is saved"
        groups = [group for optimizer in session.stepped for group in optimizer.param_groups]
        spent = [parameter for group in groups for parameter in group["params"]]
        if "first" in self._watched:
            self._watched["saved"] = self.variables()
        generators = session.generators or self._generators
        return state_of(session.saved.values(spent), generators, self._watched)

    def load_state(
        self,
        step: int,
        tensors: Mapping[str, Tensor],
        values: Mapping[str, Any],
        judged: Collection[str] | None,
    ) -> None:
        """Resume after a step from what `state` returned.

        `judged`: variables that a trial has compared; None: it has compared nothing.
        """
        assert self._session.saved is not None, "as of `state`"
        self._session.saved.load(saved_values(tensors, values))
        self._session.generators = decode(values["generators"], tensors)
        self._session.step, self._judged = step, judged
        self._watched = dict(values.get("watched", {}))

    def close(self, *, at_end: bool) -> None:
        """Let the function end: by itself after its last step, which may raise, else where it pauses."""
        try:
            if at_end:
                self._resume()
        finally:
            self._hook.remove()
            self._handoff.close()


Packed = tuple[bytes, dict[str, Any]]
"""A state with its tensors as safetensors has them."""


class Rank(Function):
    """The training function in a process of its own, whose state is sent to that of the trial."""

    _taken: State = {}, {}

    def take_state(self) -> dict[str, str]:
        """Take the state, as all ranks do at the same time; return the fingerprints of its tensors."""
        self._taken = self.state()
        tensors, _ = self._taken
        return {name: fingerprint({"tensor": name}, tensors) for name in tensors}

    def send_state(self, same: Collection[str]) -> Packed:
        """Return the state that was taken, without these tensors."""
        (tensors, values), self._taken = self._taken, ({}, {})
        own = {name: tensor for name, tensor in tensors.items() if name not in same}
        return save({name: tensor.cpu().contiguous() for name, tensor in own.items()}), values

    def load_packed(self, step: int, packed: Packed, judged: Collection[str] | None) -> None:
        """Resume after a step from this rank's state."""
        tensors, values = packed
        self.load_state(step, load(tensors), values, judged)


_ranks: list[Rank] = []
"""The rank of this process, once it has started."""


def start_rank(**arguments: Any) -> None:
    """Start the rank of this process; `arguments` are those of `Rank`."""
    _ranks.append(Rank(output=OUTPUT, **arguments))


def ask_rank(method: str, arguments: Fields) -> Any:
    """Call a method of the rank of this process."""
    (rank,) = _ranks
    return getattr(rank, method)(**arguments)
