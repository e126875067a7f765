"""A run in several processes of one machine, each with a rank, as `torchrun` starts them.

All ranks stop after the same step, because each gets its number before it trains to it. What each then saves is one
consistent checkpoint. Ranks share a fate: when one raises, dies or hangs, all are ended.
"""

from __future__ import annotations

import math
import os
import re
import socket
import sys
import time
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor
from torch.distributed import TCPStore

from lr_sweep.common.files import Fields
from lr_sweep.trainables.numerics import State

from .answering import Answer, AnsweringProcess, LostError, Request
from .function import Packed, ask_rank, start_rank
from .run import FAILURE, OwnRun, TrainingFunctionError
from .session import Advance, Output
from .state import by_rank, joined
from .variables import Variables

ADDRESS = "127.0.0.1"
LOOPBACK = "lo" if sys.platform == "linux" else "lo0"
ANSWER_S = 1800.0
"""Longest wait for a rank's start, or for a step with its evaluation; torch.distributed waits as long by gloo."""
CHUNK_S = 2.0
"""Seconds of training between two answers, at most about; the first is after one step."""
LAST_WORDS_S = 1.0
"""After one rank has failed, how long the others may take to fail from it: not the first one need be the cause."""
LOST_CONNECTION = re.compile(
    r"closed by peer|reset by peer|broken pipe|refused|NCCL|DistBackendError", re.IGNORECASE
)
"""What the ranks raise that have lost another one."""


class Ranks:
    """A training function in several processes, used as a `Function` is."""

    def __init__(
        self, run: OwnRun, num_steps: int, device: str, folder: Path, output: Output
    ) -> None:
        """Call the function in each process; raises as `Function`, also for a rank that dies or does not answer."""
        self._run, self._num_steps, self._output = run, num_steps, output
        self._step, self._step_s = 0, math.inf
        self._ranks: list[AnsweringProcess] = []
        weakref.finalize(self, _close_all, self._ranks)
        self._store, port = _rendezvous()
        requests: list[Request] = []
        with self._all_or_none():
            for rank in range(run.processes):
                variables = _rank_variables(rank, run.processes, port)
                self._ranks.append(AnsweringProcess(variables))
                own_device = device if device == "cpu" else f"{device}:{rank}"
                given: Fields = {"rank": rank, "device": own_device}
                given |= {"run": run, "num_steps": num_steps, "folder": folder}
                requests.append(partial(start_rank, **given))
        self._ask(requests)

    def advance(self, *, for_s: float = math.inf) -> Advance:
        """Train to the next report, for `for_s` or about `CHUNK_S` seconds at most; rank 0 reports and logs."""
        began, first = time.monotonic(), self._step
        due = (first // self._run.evaluate_every + 1) * self._run.evaluate_every
        num_wanted = int(min(CHUNK_S, for_s) / self._step_s)
        self._step = min(due, self._num_steps, first + max(1, num_wanted))
        advance: Advance = self._ask_all("advance", to_step=self._step)[0]
        if advance.scores is None:
            self._step_s = (time.monotonic() - began) / (self._step - first)
        return advance

    def state(self) -> State:
        """Return what is needed to resume: of rank 0 all, of another rank the tensors that have other bits there."""
        first, *others = self._ask_all("take_state")
        same = [[name for name in prints if prints[name] == first.get(name)] for prints in others]
        packed: list[Packed] = self._ask(
            [partial(ask_rank, "send_state", {"same": names}) for names in ([], *same)]
        )
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
        requests: list[Request] = []
        for own_tensors, own_values in by_rank(tensors, values):
            packed: Packed = save(own_tensors), own_values
            arguments: Fields = {"step": step, "packed": packed, "judged": judged}
            requests.append(partial(ask_rank, "load_packed", arguments))
        self._ask(requests)
        self._step = step

    def close(self, *, at_end: bool) -> None:
        """Let the function end in every rank; raises TrainingFunctionError if it raises after its last step."""
        try:
            with suppress(*() if at_end else (TrainingFunctionError,)):
                self._ask_all("close", at_end=at_end)
        finally:
            _close_all(self._ranks)

    def _ask_all(self, method: str, **arguments: Any) -> list[Any]:
        return self._ask([partial(ask_rank, method, arguments)] * len(self._ranks))

    def _ask(self, requests: Sequence[Request]) -> list[Any]:
        """Send each rank its request; return what they answer, or end all ranks and raise why one of them failed."""
        with self._all_or_none():
            for rank, request in zip(self._ranks, requests, strict=True):
                rank.send(request)
            return self._answers()

    @contextmanager
    def _all_or_none(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            _close_all(self._ranks)
            raise

    def _answers(self) -> list[Any]:
        answers: dict[int, Answer] = {}
        missing = dict(enumerate(self._ranks))
        until = time.monotonic() + ANSWER_S
        while missing and (left_s := until - time.monotonic()) > 0:
            answering = wait([process.connection for process in missing.values()], left_s)
            for rank, process in [*missing.items()]:
                if process.connection in answering:
                    answers[rank] = answer = missing.pop(rank).receive()
                    self._print(rank, answer.printed)
                    if answer.error:
                        until = min(until, time.monotonic() + LAST_WORDS_S)
        if failed := {rank: answer for rank, answer in answers.items() if answer.error}:
            raise self._failure(failed)
        if missing:
            names = ", ".join(map(str, missing))
            problem = f"no answer in {ANSWER_S:g} s on the way to step {self._step} from these ranks: {names}"
            raise TrainingFunctionError(
                f"{FAILURE}\n{problem}. One of them hangs, or waits for another one"
            )
        return [answers[rank].value for rank in range(len(self._ranks))]

    def _print(self, rank: int, text: str) -> None:
        """Keep what a rank printed for the log of its run; the process itself printed it, too."""
        begin = f"[rank {rank}] " if rank else ""
        with self._output.kept_for(self._run.run_id):
            self._output.add("".join(f"{begin}{line}\n" for line in text.splitlines()))

    def _failure(self, failed: Mapping[int, Answer]) -> BaseException:
        """Return the error of the rank that failed by itself: one that died, or the first that did not lose another."""

        def is_effect(rank: int) -> int:
            if failed[rank].error is LostError:
                return 0
            return 2 if LOST_CONNECTION.search(failed[rank].value) else 1

        rank = min(failed, key=is_effect)
        text, error, _ = failed[rank]
        name = f"rank {rank} of {self._run.processes}"
        if error is None or error is LostError:
            return TrainingFunctionError(f"{FAILURE}\n{name} {text}")
        if issubclass(error, TrainingFunctionError):  # its message has a traceback
            begin = "Most recent call last:"
            return error(text.replace(begin, f"{name.capitalize()}, {begin.lower()}", 1))
        return error(f"{name}: {text}")


def _close_all(ranks: list[AnsweringProcess]) -> None:
    while ranks:
        ranks.pop().close()


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
