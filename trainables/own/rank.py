"""One of the processes of a run: calls the training function as `Ranks` in the trial's process asks for it."""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load, save

from lr_sweep.trainables.own.code import CODE_FOLDER
from lr_sweep.trainables.own.function import THREAD, Function, Handoff
from lr_sweep.trainables.own.output import Output
from lr_sweep.trainables.own.run import OwnRun
from lr_sweep.trainables.own.state import State, prints_of, without

COLLECTIVES = ("/torch/distributed/", "/torch/autograd/", "/torch/nn/parallel/")
"""Where a rank waits for others: gradients are averaged within `backward`."""
PR_SET_PDEATHSIG = 1

Request = tuple[Any, ...]
"""Name of a method of `Rank`, and its arguments."""
Packed = tuple[bytes, dict[str, Any]]
"""A state with its tensors as safetensors has them."""


class Answer(NamedTuple):
    """What a rank answers."""

    value: Any = None
    error: type[BaseException] | None = None
    """Class of what was raised; `value` is its message."""
    printed: str = ""
    where: bool = False
    """Whether it answers WHERE, besides the request under way."""


WHERE: Request = ("where",)


class Rank:
    """The training function in this process."""

    def __init__(self) -> None:
        self.output = Output()
        self.function: Function
        """The function, once `start` has called it."""
        self._state: State = {}, {}

    def start(self, run: OwnRun, num_steps: int, device: str, folder: Path, rank: int) -> None:
        """Call the function, up to the beginning of its first step."""
        self.function = Function(run, num_steps, device, folder, self.output, rank)

    def advance(self, to_step: int) -> dict[str, float] | None:
        """Train to a step; return what was reported there."""
        return self.function.advance(to_step=to_step)[1]

    def state(self) -> dict[str, str]:
        """Take the state, as all ranks do at the same time; return its fingerprints."""
        self._state = self.function.state()
        return prints_of(*self._state)

    def send_state(self, same: tuple[str, ...]) -> Packed:
        """Return the state without these things."""
        (tensors, values), self._state = without(same, *self._state), ({}, {})
        return save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}), values

    def load_state(self, step: int, own: Packed, first: Packed) -> None:
        """Resume after a step from this rank's state and that of rank 0."""
        self.function.load_state(step, load(own[0]), own[1], (load(first[0]), first[1]))

    def close(self, at_end: bool) -> None:
        """Let the function end."""
        self.function.close(at_end=at_end)


def main(descriptor: int) -> None:
    """Answer requests from a connection until it closes; then this process ends, whatever it does."""
    if sys.platform == "linux":  # elsewhere the connection alone says that the trial's process has died
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    connection, sending = Connection(descriptor), threading.Lock()

    def send(answer: Answer) -> None:
        with sending:
            connection.send(answer)

    threading.Thread(target=_listen, args=(connection, requests, send), daemon=True).start()
    rank = Rank()
    send(Answer())  # imports are done
    while True:
        send(_answer(rank, *requests.get()))


def _listen(connection: Connection, requests: queue.SimpleQueue[Request], send: Callable[[Answer], None]) -> None:
    try:
        while True:
            request = connection.recv()
            if request == WHERE:
                send(Answer(where_is(), where=True))
            else:
                requests.put(request)
    except (EOFError, OSError):
        os._exit(1)


def _answer(rank: Rank, method: str, *arguments: Any) -> Answer:
    try:
        answer = partial(Answer, getattr(rank, method)(*arguments))
    except BaseException as error:
        answer = partial(Answer, str(error) or traceback.format_exc(), type(error))
    printed = rank.output.take(whole_lines=False)
    return answer(printed="".join(each.text for each in printed))


def where_is() -> tuple[str, bool]:
    """Return what the training function does now, and whether it waits for other ranks there."""
    frames = sys._current_frames()
    stacks = {
        each.name: traceback.extract_stack(frames[each.ident]) for each in threading.enumerate() if each.ident in frames
    }
    stack = stacks.get(THREAD)
    if stack is None or stack[-1].name == Handoff.pause.__name__:  # its state is saved or restored
        stack = stacks[threading.main_thread().name]
    frame = [*stack[-1:], *(frame for frame in stack if f"/{CODE_FOLDER}" in frame.filename)][-1]
    inside = stack[-1].filename.replace(os.sep, "/")
    at = f"{Path(frame.filename).name}:{frame.lineno}, `{frame.line}`"
    return at, any(folder in inside for folder in COLLECTIVES)
