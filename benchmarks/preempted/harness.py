"""Trains a planted loop undisturbed, and with a kill and a resume; compares the two bit by bit."""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from lr_sweep.benchmarks.preempted.table import Loop
from lr_sweep.tests.support.small_runs import same_bits
from lr_sweep.trainables.checkpoint import checkpoints, read_checkpoint
from lr_sweep.trainables.numerics import State
from lr_sweep.trainables.own.exactness import Probe
from lr_sweep.trainables.own.probe import tried_once
from lr_sweep.trainables.own.run import OwnRun
from lr_sweep.trainables.own.saved import ATTRIBUTES
from lr_sweep.trainables.worker.messages import Cohort
from lr_sweep.trainables.worker.session import Session

Outcome = Literal["equal", "named", "unchecked", "silent"]
KILLS = 5
LIBRARIES = ("torch._dynamo", "accelerate", "pytorch_lightning", "transformers", "sklearn.datasets")
"""Modules that the server of processes imports once: a process then starts at once."""
MAX_LOST = 5
"""Largest number of steps that a killed process takes after its last checkpoint."""
TIMEOUT_S = 120.0
"""Longest time that a process may take."""
LEFT = 75
"""Exit code of a process that saves and leaves."""
VARYING = {"elapsed_s": 0, "resumed": 0, "not_saved": 0}
"""Fields of a run's progress that a resume may change."""


@dataclass(frozen=True, kw_only=True)
class Kill:
    """The end of a process in the middle of its run."""

    saved_at: int
    """Step of the last checkpoint."""
    lost: int | None
    """Steps between that checkpoint and SIGKILL; None: the process saves and leaves instead."""

    @property
    def text(self) -> str:
        """The kill in a line of the output."""
        if self.lost is None:
            return f"left after step {self.saved_at}"
        return f"killed {self.lost} steps after the checkpoint of step {self.saved_at}"


@dataclass(frozen=True, kw_only=True)
class Result:
    """Effect of a kill on a loop's numbers."""

    kill: Kill
    equal: bool
    resumed: str
    """`Progress.resumed` of the resumed run."""
    not_saved: tuple[str, ...]

    @property
    def outcome(self) -> Outcome:
        """How the program dealt with the kill."""
        if self.equal:
            return "equal"
        if self.resumed == "inexactly" and self.not_saved:
            return "named"
        return "unchecked" if self.resumed == "unchecked" else "silent"

    @property
    def false_alarm(self) -> bool:
        """Whether equal numbers were called inexact."""
        return self.equal and self.resumed == "inexactly"


def kills_of(loop: Loop, seed: int) -> Iterator[Kill]:
    """Draw the kills of a loop: after a random step each, by SIGKILL and by leaving in turn."""
    drawn = random.Random(f"{loop.name} {seed}")
    for number in range(KILLS):
        saved_at = drawn.randrange(1, loop.num_steps - MAX_LOST)
        lost = drawn.randint(1, MAX_LOST) if number % 2 == 0 else None
        yield Kill(saved_at=saved_at, lost=lost)


def results_of(loop: Loop, folder: Path, seed: int) -> Iterator[Result]:
    """Train a loop undisturbed, then once with each kill; yield what each kill did.

    Raises RuntimeError if a process does not end as it should.
    """
    run = loop.run()
    trial = tried_once(run, loop.num_steps, "cpu")
    undisturbed = _trained(run, loop.num_steps, folder / "undisturbed")
    for number, kill in enumerate(kills_of(loop, seed)):
        place = folder / f"kill-{number}"
        _trained(run, loop.num_steps, place, kill=kill)
        yield _compared(kill, undisturbed, _trained(run, loop.num_steps, place, probe=trial))


def _trained(
    run: OwnRun, num_steps: int, folder: Path, kill: Kill | None = None, probe: Probe | None = None
) -> State | None:
    """Train a run in a process, from its newest checkpoint; return its final state, None after a kill."""
    cohort = Cohort(
        name="planted",
        runs=(run,),
        num_steps=num_steps,
        runs_at_once=1,
        engine="own",
        device="cpu",
        checkpoints=folder,
        data_dir=folder,
        checkpoint_every_s=math.inf if kill is None else 0.0,
        report_every_s=0.0,
        probe=probe,
    )
    folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *LIBRARIES])
    process = context.Process(target=_live, args=(cohort, kill, folder / "output.log"))
    process.start()
    process.join(TIMEOUT_S)
    process.kill()
    process.join()
    wanted = 0 if kill is None else LEFT if kill.lost is None else -signal.SIGKILL
    if process.exitcode != wanted:
        printed = (folder / "output.log").read_text()[-2000:]
        raise RuntimeError(f"exit code {process.exitcode}, want {wanted}:\n{printed}")
    return read_checkpoint(checkpoints(folder / run.run_id)[0]) if kill is None else None


def _live(cohort: Cohort, kill: Kill | None, log: Path) -> None:
    """Train in this process, up to the kill if there is one."""
    multiprocessing.set_start_method("fork", force=True)  # of a loader's workers, as in a trial
    with log.open("a") as output:
        os.dup2(output.fileno(), sys.__stdout__.fileno())
        os.dup2(output.fileno(), sys.__stderr__.fileno())
    session = Session(cohort)
    for events in session.events(cohort.report_every_s):
        step = max(event.step for event in events)
        if kill is None or step < kill.saved_at:
            continue
        if kill.lost is None:
            session.leave()
            os._exit(LEFT)
        session.cohort = replace(cohort, checkpoint_every_s=math.inf)
        if step >= kill.saved_at + kill.lost:
            os.kill(os.getpid(), signal.SIGKILL)


def _compared(kill: Kill, undisturbed: State | None, resumed: State | None) -> Result:
    assert undisturbed is not None
    assert resumed is not None
    (tensors, values), (resumed_tensors, resumed_values) = undisturbed, resumed
    equal = repr(_comparable(values)) == repr(_comparable(resumed_values))
    return Result(
        kill=kill,
        equal=equal and same_bits(tensors, resumed_tensors),
        resumed=resumed_values["resumed"],
        not_saved=tuple(resumed_values["not_saved"]),
    )


def _comparable(values: dict[str, Any]) -> dict[str, Any]:
    """Return what must be equal: without times, and without notes that depend on where a process began."""
    curve = [point | {"time_ms": 0, "elapsed_s": 0} for point in values["curve"]]
    ranks = [values["own"], *values["own"].get("ranks", [])]
    saved = [
        {name: value for name, value in rank["saved"].items() if not name.endswith(ATTRIBUTES)}
        for rank in ranks
        if "saved" in rank
    ]
    generators = [rank.get("generators") for rank in ranks]
    return values | VARYING | {"curve": curve, "own": [saved, generators]}
