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
            training.load_state(state[0], json.loads(json.dumps(state[1])))  # as a checkpoint holds it
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
    curve = [point | {"time_ms": 0, "elapsed_s": 0} for point in progress["curve"]]
    return prints | {"the reported numbers": json.dumps(curve)}


TRIED_S = 20.0
FOUND = "found by the trial:"
"""Begins what the trial found, as the last text of its process."""


def tried(run: OwnRun, num_steps: int, device: str | None) -> str:
    """Import a run's function in a process of its own, and try it on a device (`probe`); None: do not try it.

    Returns what the trial found, as a sentence without its subject; empty: nothing. Raises DataError as `unpacked`, and
    TrainingFunctionError, with a sentence of the same form, if the function cannot be imported or fails twice alike.
    """
    with unpacked(run) as folder:
        ended = subprocess.run(
            (sys.executable, "-P", "-m", __name__),
            input=pickle.dumps((run, num_steps, folder, device)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
    printed = ended.stderr.decode(errors="replace")
    if ended.returncode:
        _, marked, why = printed.rpartition(FAILURE)
        code = f"cannot be imported: the process that imported it ended with code {ended.returncode}\n"
        raise TrainingFunctionError(why.strip() if marked else f"{code}{why.strip()}".strip())
    return printed.partition(FOUND)[2].strip()


def _main(run: OwnRun, num_steps: int, folder: Path, device: str | None) -> int:
    try:
        import_function(run.files.trainable, folder, run.files.code)
    except BaseException as error:
        why = str(error) if isinstance(error, OwnCodeError) else own_traceback(error, folder)
        print(f"{FAILURE} cannot be imported:\n{why}", file=sys.stderr)
        return 1
    if device is None:
        return 0
    trial = _Trial(run, num_steps, device)
    thread = threading.Thread(target=trial.run, daemon=True)
    thread.start()
    thread.join(TRIED_S)
    mark = FAILURE if trial.fails_alike else FOUND
    print(mark, trial.text, file=sys.__stderr__)  # a trial under way has redirected the other
    return int(trial.fails_alike)


class _Trial:
    """A run that is tried in a thread, and what is known of it so far."""

    def __init__(self, run: OwnRun, num_steps: int, device: str) -> None:
        self._run, self._num_steps, self._device = run, num_steps, device
        self.text = f"takes more than {TRIED_S:.0f} s for a few steps: `verify` says whether it resumes exactly"
        """What is known, as a sentence without its subject; empty: nothing to say."""
        self.fails_alike = False
        """Whether it fails by itself, too, as it did in the short trial."""

    def run(self) -> None:
        """Try it with a budget of a few steps; if it fails, try it with its own, up to its first evaluation."""
        try:
            result = probe(self._run, self._device)
        except BaseException as error:
            why = _reason(error)
            self.text = f"failed in a trial of {2 * HALF} steps:\n{why}"
            self._try_again(failure_kind(why))
        else:
            self.text = f"is {result.text()}" if result.random or result.lost else ""

    def _try_again(self, first_kind: str) -> None:
        # A short budget alone may be too short for the function, such as for one that counts epochs.
        try:
            first_evaluation = min(self._run.evaluate_every, self._num_steps)
            _train(OwnTraining(self._run, self._num_steps, self._device), first_evaluation)
        except BaseException as error:
            why = _reason(error)
            if failure_kind(why) == first_kind:
                self.text, self.fails_alike = f"failed twice alike in a trial:\n{why}", True


def _reason(error: BaseException) -> str:
    return str(error).removeprefix(FAILURE).strip() or repr(error)


if __name__ == "__main__":
    result = _main(*pickle.load(sys.stdin.buffer))  # noqa: S301 - from our own process
    assert sys.__stderr__ is not None
    sys.__stderr__.flush()
    os._exit(result)  # threads that the module started would keep it alive
