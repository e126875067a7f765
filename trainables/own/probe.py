"""A training function before a sweep: can it be imported, is it deterministic, and does it resume exactly?

A probe takes a few steps three times: twice in one go, and once in two, the second part resumed from the state of the
first.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import threading
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lr_sweep.common.text import failure_kind
from lr_sweep.trainables.numerics import State
from lr_sweep.trainables.own.engine import OwnTraining
from lr_sweep.trainables.own.run import (
    FAILURE,
    OwnCodeError,
    OwnRun,
    TrainingFunctionError,
    import_function,
    own_traceback,
    unpacked,
)
from lr_sweep.trainables.own.state import by_rank, fingerprint, prints_of

HALF = 4
"""Steps after which the second part resumes; each half ends with an evaluation."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What a probe found."""

    random: tuple[str, ...]
    """What differed, by bits, between two trainings: things that the function saves, and the like; empty: nothing."""
    lost: tuple[str, ...]
    """What differed, by bits, between a training in one go and a resumed one."""

    def text(self) -> str:
        """Return what was found, for the terminal."""
        if self.random:
            return f"not deterministic: two equal trainings differ in {', '.join(self.random)}"
        if self.lost:
            return f"deterministic, but resumes inexactly: a resumed training differs in {', '.join(self.lost)}"
        return "deterministic, and resumes exactly"


def probe(run: OwnRun, device: str) -> Probe:
    """Train a run for a few steps, with an evaluation every `HALF`; `device` is `cpu` or `cuda`.

    Raises as `OwnTraining` does.
    """
    start = partial(OwnTraining, replace(run, evaluate_every=HALF), 2 * HALF, device)
    whole, again = _train(start(), 2 * HALF), _train(start(), 2 * HALF)
    resumed = _train(start(), 2 * HALF, _train(start(), HALF))
    return Probe(random=_differing(whole, again), lost=_differing(whole, resumed))


def _train(training: OwnTraining, to_step: int, state: State | None = None) -> State:
    """Train to a step, from a state if there is one; return the state there."""
    with closing(training), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        if state is not None:
            training.load_state(
                state[0], json.loads(json.dumps(state[1]))
            )  # as a checkpoint holds it
        while training.progress.step < to_step and not training.progress.diverged:
            training.advance(for_s=0.0)
        tensors, progress = training.state()
        return {name: tensor.clone() for name, tensor in tensors.items()}, progress


def _differing(one: State, other: State) -> tuple[str, ...]:
    prints = _prints(one), _prints(other)
    return tuple(name for name in prints[0] if prints[0][name] != prints[1].get(name))


def _prints(state: State) -> dict[str, str]:
    tensors, progress = state
    prints: dict[str, str] = {}
    for rank, (own, values) in enumerate(by_rank(tensors, progress["own"])):
        of = f" of rank {rank}" if rank else ""
        prints |= {f"{name}{of}": each for name, each in prints_of(own, values).items()}
        prints[f"the random generators{of}"] = fingerprint(values["generators"], own)
    varying = {"time_ms": 0, "elapsed_s": 0, "logged": None}  # a function may log times
    curve = [point | varying for point in progress["curve"]]
    return prints | {"the reported numbers": json.dumps(curve)}


TRIED_S = 20.0
"""Seconds that a trial may take after its imports."""
FOUND = "found by the trial:"
"""Begins what the trial found, as the last text of its process."""
FAILED = "failed in a trial"
"""Begins what a trial found of a function that failed."""


def tried(run: OwnRun, num_steps: int, device: str | None) -> str:
    """Import a run's function in a process of its own, and try it on a device (`probe`); None: do not try it.

    If it fails, it is tried again in another process, with its own budget of `num_steps` up to its first evaluation:
    a budget of a few steps may be too short for it, and so may a process in which it ran before.

    Returns what the trial found, as a sentence without its subject; empty: nothing. Raises DataError as `unpacked`, and
    TrainingFunctionError, with a sentence of the same form, if the function cannot be imported or fails twice alike.
    """
    with unpacked(run) as folder:
        finding = _tried_in_process(run, folder, device)
        if not finding.startswith(FAILED):
            return finding
        again = _tried_in_process(run, folder, device, num_steps)
    first_why, why = (text.partition("\n")[2] for text in (finding, again))
    if again.startswith(FAILED) and failure_kind(first_why) == failure_kind(why):
        raise TrainingFunctionError(f"failed twice alike in a trial:\n{why}")
    return finding


def _tried_in_process(
    run: OwnRun, folder: Path, device: str | None, num_steps: int | None = None
) -> str:
    ended = subprocess.run(
        (sys.executable, "-P", "-m", __name__),
        input=pickle.dumps((run, folder, device, num_steps)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    printed = ended.stderr.decode(errors="replace")
    if ended.returncode:
        _, marked, why = printed.rpartition(FAILURE)
        code = (
            "" if marked else f"the process that imported it ended with code {ended.returncode}\n"
        )
        raise TrainingFunctionError(f"cannot be imported: {code}{why.strip()}".strip())
    return printed.partition(FOUND)[2].strip()


def _main(run: OwnRun, folder: Path, device: str | None, num_steps: int | None) -> int:
    try:
        import_function(run.files.trainable, folder, run.files.code)
    except BaseException as error:
        why = (
            f" {error}" if isinstance(error, OwnCodeError) else f"\n{own_traceback(error, folder)}"
        )
        print(f"{FAILURE}{why}", file=sys.stderr)
        return 1
    if device is not None:
        found = [
            f"takes more than {TRIED_S:.0f} s for a few steps: `verify` says whether it resumes exactly"
        ]
        trial = threading.Thread(
            target=lambda: found.append(_try(run, device, num_steps)), daemon=True
        )
        trial.start()
        trial.join(TRIED_S)
        print(FOUND, found[-1], file=sys.__stderr__)  # a trial under way has redirected the other
    return 0


def _try(run: OwnRun, device: str, num_steps: int | None) -> str:
    try:
        if num_steps is not None:
            _train(OwnTraining(run, num_steps, device), min(run.evaluate_every, num_steps))
            return ""
        found = probe(run, device)
    except BaseException as error:
        why = str(error).removeprefix(FAILURE).strip() or repr(error)
        return f"{FAILED} of {2 * HALF} steps:\n{why}"
    return f"is {found.text()}" if found.random or found.lost else ""


if __name__ == "__main__":
    result = _main(*pickle.load(sys.stdin.buffer))  # noqa: S301 - from our own process
    assert sys.__stderr__ is not None
    sys.__stderr__.flush()
    os._exit(result)  # threads that the module started would keep it alive
