"""A training function before a sweep: can it be imported, is it deterministic, and does it resume exactly?

A probe takes a few steps three times: twice in one go, and once resumed from a step of the first time.
"""

from __future__ import annotations

import io
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from lr_sweep.common.text import failure_kind
from lr_sweep.trainables.numerics import State

from .answering import AnsweringProcess
from .engine import OwnTraining
from .exactness import EVALUATE_EVERY, RANDOM_GENERATORS, STEPS, STOP, Probe
from .run import (
    FAILURE,
    OwnCodeError,
    OwnFiles,
    OwnRun,
    TrainingFunctionError,
    import_function,
    own_traceback,
    unpacked,
)
from .saved import ATTRIBUTES
from .state import by_rank, fingerprint
from .variables import NOT_PASSED, Variables


@dataclass
class _Trace:
    """What a training of a probe left to compare."""

    variables: dict[int, Variables] = field(default_factory=dict)
    """Variables after each step, by step."""
    stopped: State | None = None
    """The state after step `STOP`; None: the training did not reach it."""
    prints: dict[str, str] = field(default_factory=dict)
    """Fingerprints of the last state, by name."""


def probe(run: OwnRun, device: str) -> Probe:
    """Train a run for `STEPS` steps; `device` is `cpu` or `cuda`. Raises as `OwnTraining` does."""
    start = partial(OwnTraining, replace(run, evaluate_every=EVALUATE_EVERY), STEPS, device)
    whole, again = _train(start()), _train(start())
    if whole.stopped is None:
        return Probe(unchecked=f"diverges before step {STOP}, where a trial would stop")
    resumed = _train(start(), state=whole.stopped)
    changed, random = _changed(whole), _differing(whole, again)
    lost = _differing(whole, resumed) - random
    differs = [name for name in whole.prints if name in lost]
    not_saved = lost & changed
    if differs:  # then what is computed from the results differs, too
        not_saved = _causes(not_saved, whole, resumed) or not_saved
    return Probe(
        random=tuple(name for name in whole.prints if name in random),
        differs=tuple(differs),
        not_saved=tuple(sorted(not_saved)),
        judged=tuple(sorted(changed)),
    )


def _train(training: OwnTraining, to_step: int = STEPS, state: State | None = None) -> _Trace:
    """Train to a step, from a state if there is one."""
    trace = _Trace()
    with closing(training), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        if state is not None:
            tensors, progress = state
            training.load_state(tensors, json.loads(json.dumps(progress)))  # as a checkpoint has it
        while training.progress.step < to_step and not training.progress.diverged:
            training.advance(for_s=0.0)
            trace.variables[training.progress.step] = training.variables()
            if training.progress.step == STOP:
                tensors, progress = training.state()
                trace.stopped = {name: tensor.clone() for name, tensor in tensors.items()}, progress
        trace.prints = _prints(training.state())
    return trace


def _changed(trace: _Trace) -> set[str]:
    """Return the names of variables that changed from step to step."""
    steps = trace.variables.values()
    names = set().union(*steps)
    return {name for name in names if len({variables.get(name) for variables in steps}) > 1}


def _differing(first: _Trace, second: _Trace) -> set[str]:
    """Return the names of what differs between two trainings: results, and variables after a step of both."""
    steps = first.variables.keys() & second.variables.keys()
    pairs: list[tuple[Variables, Variables]] = [(first.prints, second.prints)]
    pairs += [(first.variables[step], second.variables[step]) for step in steps if step > STOP]
    names: set[str] = set()
    for here, there in pairs:
        both = here.keys() | there.keys()
        names |= {name for name in both if here.get(name) != there.get(name)}
    return names


def _causes(lost: set[str], whole: _Trace, resumed: _Trace) -> set[str]:
    """Return what was lost and has its first value again after the resume's first step, and loaders without a state."""
    first, after = whole.variables[1], resumed.variables[STOP + 1]
    reset = {name for name in lost if after.get(name) == first.get(name)}
    return reset | {name for name, print_ in after.items() if print_ == NOT_PASSED}


def _prints(state: State) -> dict[str, str]:
    """Return fingerprints of results, without attributes: a library notes in them that it resumed."""
    tensors, progress = state
    prints: dict[str, str] = {}
    for rank, (own, values) in enumerate(by_rank(tensors, progress["own"])):
        of = f" of rank {rank}" if rank else ""
        for name, value in values["saved"].items():
            if not name.endswith(ATTRIBUTES):
                prints[name + of] = fingerprint(value, own)
        prints[RANDOM_GENERATORS + of] = fingerprint(values["generators"], own)
    varying = {"time_ms": 0, "elapsed_s": 0, "logged": None}  # a function may log times
    curve = [point | varying for point in progress["curve"]]
    return prints | {"the reported numbers": json.dumps(curve)}


TRIED_S = 20.0
"""Seconds that all trials of a study may take after their imports."""
SLOW = f"takes more than {TRIED_S:.0f} s for a trial of a few steps; `verify` waits for it"


class TrialError(TrainingFunctionError):
    """A function cannot be imported, or fails twice alike; a sentence without its subject."""

    def __init__(self, text: str, run: OwnRun) -> None:
        super().__init__(text)
        self.run = run


Trial = tuple[OwnRun, int]
"""A run, and its step budget."""


def tried(trials: Sequence[Trial], device: str | None) -> list[Probe]:
    """Import the function of some runs in a process of its own, and `probe` each; device None: only import it.

    A run that fails is tried again in another process, with its own budget up to its first evaluation: a budget of a
    few steps may be too short for it, and so may a process in which it ran before.

    Returns what was found of the first runs, as many as `TRIED_S` allows. Raises TrialError, and DataError as
    `unpacked`.
    """
    with unpacked(trials[0][0]) as folder:
        probes = _tried_in_process(trials, folder, device, own_budget=False)
        for trial, probe in zip(trials, probes, strict=False):
            if not probe.failure:
                continue
            (again,) = _tried_in_process([trial], folder, device, own_budget=True)
            if again.failure and failure_kind(probe.failure) == failure_kind(again.failure):
                raise TrialError(f"failed twice alike in a trial:\n{again.failure}", trial[0])
    return probes


def tried_once(run: OwnRun, num_steps: int, device: str) -> Probe:
    """Try a run's function as `tried` does, where it resumes; a command cannot be tried."""
    if run.files.command:
        return Probe(unchecked="resumes from its command's own checkpoints")
    try:
        return tried([(run, num_steps)], device)[0]
    except TrialError as error:
        return Probe(unchecked=str(error))


def _tried_in_process(
    trials: Sequence[Trial], folder: Path, device: str | None, *, own_budget: bool
) -> list[Probe]:
    probes: list[Probe] = []
    with (
        tempfile.TemporaryFile() as printed,
        closing(AnsweringProcess({}, stdout=subprocess.DEVNULL, stderr=printed)) as process,
    ):
        process.send(partial(_why_not_imported, trials[0][0].files, folder))
        answer = process.receive()
        why: str = answer.value
        if answer.error is not None:
            printed.seek(0)
            why = f"its process {why}\n{printed.read().decode(errors='replace')}"
        if why:
            raise TrialError(f"cannot be imported: {why.strip()}", trials[0][0])
        if device is None:
            return []
        until = time.monotonic() + TRIED_S
        for run, num_steps in trials:
            process.send(partial(_try, run, device, num_steps if own_budget else None))
            if not process.connection.poll(max(0.0, until - time.monotonic())):
                return [*probes, Probe(unchecked=SLOW)]
            answer = process.receive()
            lost = answer.error is not None
            probes.append(_failed(f"its process {answer.value}") if lost else answer.value)
    return probes


def _why_not_imported(files: OwnFiles, folder: Path) -> str:
    """Return why a function cannot be imported; empty: it can."""
    try:
        import_function(files.trainable, folder, files.code)
    except OwnCodeError as error:
        return str(error)
    except BaseException as error:
        return own_traceback(error, folder)
    return ""


def _try(run: OwnRun, device: str, num_steps: int | None) -> Probe:
    """Probe a run, or train it to the first evaluation of its own budget."""
    try:
        if num_steps is None:
            return probe(run, device)
        _train(OwnTraining(run, num_steps, device), min(run.evaluate_every, num_steps))
        return Probe()
    except BaseException as error:
        return _failed(str(error).removeprefix(FAILURE).strip() or repr(error))


def _failed(why: str) -> Probe:
    return Probe(unchecked=f"failed in a trial of {STEPS} steps:\n{why}", failure=why)
