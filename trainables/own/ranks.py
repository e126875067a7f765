"""A run in several processes of one machine, each with a rank, as `torchrun` starts them.

All ranks stop after the same step, because each gets its number before it trains to it. What each then saves is one
consistent checkpoint. Ranks share a fate: when one raises, dies or hangs, all are ended.
"""

from __future__ import annotations

import math
import os
import re
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor
from torch.distributed import TCPStore

from lr_sweep.common.files import Fields
from lr_sweep.trainables.numerics import State
from lr_sweep.trainables.own import supervisor

from .function import START, Answer, Packed, Request
from .run import FAILURE, OwnRun, TrainingFunctionError
from .session import Advance, Output
from .state import by_rank, joined
from .variables import Variables

ADDRESS = "127.0.0.1"
LOOPBACK = "lo" if sys.platform == "linux" else "lo0"
START_S = 300.0
"""How long processes may take to import torch, on a busy machine."""
ANSWER_S = 1800.0
"""Longest wait for a rank's start, or for a step with its evaluation; torch.distributed waits as long by gloo."""
CHUNK_S = 2.0
"""Seconds of training between two answers, about; the first is after one step."""
LAST_WORDS_S = 1.0
"""After one rank has failed, how long the others may take to fail from it: not the first one need be the cause."""
TICK_S = 0.2
LOST_CONNECTION = re.compile(
    r"closed by peer|reset by peer|broken pipe|refused|NCCL|DistBackendError", re.IGNORECASE
)
"""What the ranks raise that have lost another one."""
MAIN = """\
from lr_sweep.trainables.worker import hide_checkout
hide_checkout()  # before any library looks for Hugging Face's `datasets`
from lr_sweep.trainables.own.supervisor import outlive_signals
outlive_signals()
from lr_sweep.trainables.own.function import main
main({})
"""


class LostError(Exception):
    """A rank's process has ended, or its connection does not work."""


class RankProcess:
    """A rank's process, and the connection to it."""

    def __init__(self, number: int, variables: Mapping[str, str]) -> None:
        """Start it with some environment variables; it then imports torch, and answers once without a request."""
        ours, theirs = socket.socketpair()
        code = MAIN.format(theirs.fileno())
        with theirs:
            options: Any = {"env": os.environ | variables, "pass_fds": [theirs.fileno()]}
            self.process = supervisor.start([sys.executable, "-P", "-c", code], **options)
        self.number, self.connection = number, Connection(ours.detach())

    def send(self, request: Request) -> None:
        """Send a request; that the process has died shows where its answer is received."""
        with suppress(OSError):
            self.connection.send(request)

    def receive(self) -> Answer:
        """Return an answer, which is there or under way, or that the rank is lost."""
        with suppress(EOFError, OSError):
            if not self.is_dead:
                answer: Answer = self.connection.recv()
                return answer
        return Answer(self._end(), LostError)

    @property
    def is_dead(self) -> bool:
        """Whether it has ended, and has sent nothing before."""
        return self.process.poll() is not None and not self.connection.poll()

    def _end(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            return supervisor.ending(self.process.wait(LAST_WORDS_S))
        return "does not answer"

    def kill(self) -> None:
        """End the process and those that it started."""
        supervisor.end(self.process)
        self.connection.close()


class Ranks:
    """A training function in several processes, used as a `Function` is."""

    def __init__(
        self, run: OwnRun, num_steps: int, device: str, folder: Path, output: Output
    ) -> None:
        """Call the function in each process; raises as `Function`, also for a rank that dies or does not answer."""
        self._run, self._num_steps, self._output = run, num_steps, output
        self._step, self._step_s = 0, math.inf
        self._ranks: list[RankProcess] = []
        weakref.finalize(self, _kill_all, self._ranks)
        self._store, port = _rendezvous()
        with self._all_or_none():
            for number in range(run.processes):
                self._ranks.append(
                    RankProcess(number, _rank_variables(number, run.processes, port))
                )
            self._answers(START_S)
        common: Fields = {"run": run, "num_steps": num_steps, "folder": folder}
        self._ask(
            [
                (START, common | {"rank": rank, "device": _device_of(rank, device)})
                for rank in range(run.processes)
            ]
        )

    def advance(self, *, for_s: float = math.inf) -> Advance:
        """Train to the next report, or for `for_s` seconds; rank 0 reports and logs."""
        until, logged, not_saved = time.monotonic() + for_s, list[Fields](), list[str]()
        while True:
            began, first = time.monotonic(), self._step
            due = (first // self._run.evaluate_every + 1) * self._run.evaluate_every
            wanted = int(max(0.0, min(CHUNK_S, until - began)) / self._step_s)
            self._step = min(due, self._num_steps, first + max(1, wanted))
            rank_0, *_ = self._ask_all("advance", to_step=self._step)
            logged += rank_0.logged
            not_saved += rank_0.not_saved
            if rank_0.scores is None:
                self._step_s = (time.monotonic() - began) / (self._step - first)
            is_over = rank_0.scores is not None or self._step >= self._num_steps
            if is_over or time.monotonic() >= until:
                return Advance(self._step, rank_0.scores, logged, not_saved)

    def state(self) -> State:
        """Return what is needed to resume: of rank 0 all, of another rank what has other bits there."""
        first, *others = self._ask_all("take_state")
        same = [[name for name in rank if rank[name] == first.get(name)] for rank in others]
        packed: list[Packed] = self._ask([("send_state", {"same": names}) for names in ([], *same)])
        return joined([(load(tensors), dict(values)) for tensors, values in packed])

    def variables(self, *, everywhere: bool) -> Variables:
        """Return the variables of the function in rank 0; argument as of `Function.variables`."""
        variables: Variables = self._ask_all("variables", everywhere=everywhere)[0]
        return variables

    def load_state(
        self,
        step: int,
        tensors: Mapping[str, Tensor],
        values: Mapping[str, Any],
        judged: Collection[str] | None,
    ) -> None:
        """Resume after a step from what `state` returned."""
        packed = [(save(each), of_rank) for each, of_rank in by_rank(tensors, values)]
        common: Fields = {"step": step, "judged": judged, "first": packed[0]}
        self._ask([("load_packed", common | {"own": own}) for own in packed])
        self._step = step

    def close(self, *, at_end: bool) -> None:
        """Let the function end in every rank; raises TrainingFunctionError if it raises after its last step."""
        try:
            with suppress(*() if at_end else (TrainingFunctionError,)):
                self._ask_all("close", at_end=at_end)
        finally:
            _kill_all(self._ranks)

    def _ask_all(self, method: str, **arguments: Any) -> list[Any]:
        return self._ask([(method, arguments)] * len(self._ranks))

    def _ask(self, requests: Sequence[Request]) -> list[Any]:
        """Send each rank its request; return what they answer, or end all ranks and raise why one of them failed."""
        with self._all_or_none():
            for rank, request in zip(self._ranks, requests, strict=True):
                rank.send(request)
            return self._answers(ANSWER_S)

    @contextmanager
    def _all_or_none(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            _kill_all(self._ranks)
            raise

    def _answers(self, timeout_s: float) -> list[Any]:
        answers: dict[int, Answer] = {}
        until = time.monotonic() + timeout_s
        while missing := [rank for rank in self._ranks if rank.number not in answers]:
            if (left_s := until - time.monotonic()) <= 0:
                break
            for rank in _ready(missing, min(left_s, TICK_S)):
                answers[rank.number] = answer = rank.receive()
                self._print(rank.number, answer.printed)
                if answer.error:
                    until = min(until, time.monotonic() + LAST_WORDS_S)
        if failed := {number: answer for number, answer in answers.items() if answer.error}:
            raise self._failure(failed)
        if missing:
            names = ", ".join(str(rank.number) for rank in missing)
            problem = f"no answer in {timeout_s:g} s on the way to step {self._step} from these ranks: {names}"
            raise TrainingFunctionError(
                f"{FAILURE}\n{problem}. One of them hangs, or waits for another one"
            )
        return [answers[rank.number].value for rank in self._ranks]

    def _print(self, rank: int, text: str) -> None:
        """Keep what a rank printed for the log of its run; the process itself printed it, too."""
        begin = f"[rank {rank}] " if rank else ""
        with self._output.kept_for(self._run.run_id):
            self._output.add("".join(f"{begin}{line}\n" for line in text.splitlines()))

    def _failure(self, failed: Mapping[int, Answer]) -> BaseException:
        """Return the error of the rank that failed by itself: one that died, or the first that did not lose another."""

        def is_effect(number: int) -> int:
            if failed[number].error is LostError:
                return 0
            return 2 if LOST_CONNECTION.search(failed[number].value) else 1

        number = min(failed, key=is_effect)
        answer = failed[number]
        name = f"rank {number} of {self._run.processes}"
        if answer.error is None or answer.error is LostError:
            return TrainingFunctionError(f"{FAILURE}\n{name} {answer.value}")
        if issubclass(answer.error, TrainingFunctionError):  # its message has a traceback
            begin, of_rank = (
                "Most recent call last:",
                f"{name.capitalize()}, most recent call last:",
            )
            return answer.error(answer.value.replace(begin, of_rank, 1))
        return answer.error(f"{name}: {answer.value}")


def _ready(ranks: Sequence[RankProcess], timeout_s: float) -> list[RankProcess]:
    """Return the ranks that have answered, or have died, within some seconds."""
    answering = wait([rank.connection for rank in ranks], timeout_s)
    return [rank for rank in ranks if rank.connection in answering or rank.is_dead]


def _kill_all(ranks: list[RankProcess]) -> None:
    while ranks:
        ranks.pop().kill()


def _device_of(rank: int, device: str) -> str:
    return device if device == "cpu" else f"{device}:{rank}"


def _rendezvous() -> tuple[TCPStore, int]:
    """Return the store by which ranks find each other, and its port; this machine alone can reach it."""
    listening = socket.create_server((ADDRESS, 0))
    port: int = listening.getsockname()[1]
    store = TCPStore(
        ADDRESS, port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach()
    )
    return store, port


def _rank_variables(rank: int, num_ranks: int, port: int) -> dict[str, str]:
    """Return the environment variables of a rank, as `torchrun` sets them on one machine."""
    variables = {
        "RANK": f"{rank}",
        "LOCAL_RANK": f"{rank}",
        "WORLD_SIZE": f"{num_ranks}",
        "LOCAL_WORLD_SIZE": f"{num_ranks}",
        "MASTER_ADDR": ADDRESS,
        "MASTER_PORT": f"{port}",
        # Our process has the store, as torchrun's has: a port that rank 0 opens may be taken meanwhile.
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        variables[name] = os.environ.get(name, LOOPBACK)
    return variables
