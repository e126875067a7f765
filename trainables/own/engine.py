"""Training by a function of the user's own: one run, its curve, and its function in one process or in several."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lr_sweep.trainables.engine import Evaluation, Pace, Progress, worst
from lr_sweep.trainables.numerics import State, Tensors

from .command import Command
from .command_line import KEPT
from .exactness import NOT_TRIED, Probe
from .function import Function
from .ranks import Ranks
from .run import OwnRun, unpacked
from .session import Output
from .variables import Variables


class OwnTraining:
    """One run of a training function between step 0 and its end."""

    def __init__(
        self,
        run: OwnRun,
        num_steps: int,
        device: str,
        wall_clock: Callable[[], float] = time.time,
        output: Output | None = None,
        checkpoints: Path = Path(),
    ) -> None:
        """Call the function, up to the beginning of its first step; `output` keeps what it prints.

        `checkpoints` has a folder for each run, by id; a command that resumes has its own folder there.

        Raises OwnCodeError or DataError if its files are not those of the run, TrainingFunctionError if it raised.
        """
        self.run, self.wall_clock = run, wall_clock
        self.progress, self.pace = Progress(), Pace()
        self._num_steps = num_steps
        self._opened = ExitStack()
        folder, output = self._opened.enter_context(unpacked(run)), output or Output()
        self.probe: Probe | None = None
        """What a trial of this function found, known before the state is loaded; None: it was not tried."""
        self._function: Function | Ranks | Command
        if run.files.command:
            self._function = Command(
                run, num_steps, folder, checkpoints / run.run_id / KEPT, output
            )
        elif run.processes > 1:
            self._function = Ranks(run, num_steps, device, folder, output)
        else:
            self._function = Function(run, num_steps, device, folder, output)

    def advance(self, *, for_s: float = math.inf) -> Evaluation | None:
        """Train to the next evaluation, to divergence, or for `for_s` seconds; return the evaluation, if reached."""
        first, started = self.progress.step, time.monotonic()
        advance, progress = self._function.advance(for_s=for_s), self.progress
        progress.step = advance.step
        progress.logged += advance.logged
        if advance.not_saved:
            self._lose(advance.not_saved)
        elapsed_s = time.monotonic() - started
        progress.elapsed_s += elapsed_s
        # Evaluations are a part of their steps.
        self.pace.steps.add(elapsed_s, progress.step - first)
        if advance.scores is None:
            return None
        progress.last_printed = advance.last_printed
        return self._record(advance.scores)

    def _record(self, scores: dict[str, float]) -> Evaluation | None:
        progress = self.progress
        if not math.isfinite(scores["validation"] + scores["test"]) or any(
            map(math.isinf, scores.values())
        ):
            progress.diverged_at_step = progress.step
            return None
        evaluation = Evaluation(
            step=progress.step,
            **{name: value for name, value in scores.items() if name.endswith("_loss")},
            **{split: scores[split] for split in ("train", "validation", "test")},
            time_ms=int(self.wall_clock() * 1000),
            elapsed_s=progress.elapsed_s,
            logged=progress.logged or None,
        )
        progress.logged = []
        progress.curve.append(evaluation)
        return evaluation

    def variables(self) -> Variables:
        """Return the variables of a function where it pauses."""
        assert not isinstance(self._function, Command), "a command's variables cannot be seen"
        return self._function.variables(everywhere=True)

    def state(self) -> State:
        """Return what is needed to resume: tensors by name, plain JSON values; raises StateError."""
        tensors, values = self._function.state()
        return tensors, self.progress.as_dict() | {"own": values}

    def load_state(self, tensors: Tensors, progress: dict[str, Any]) -> None:
        """Resume from what `state` returned."""
        known = dict(progress)
        own = known.pop("own")
        saved, probe = Progress.from_dict(known), self.probe or NOT_TRIED
        if not isinstance(self._function, Command):
            judged = None if probe.unchecked else probe.judged
            self._function.load_state(saved.step, tensors, own, judged)
        elif not self._function.resumes_at(saved.step):
            return
        self.progress = saved
        if 0 < saved.step < self._num_steps:
            saved.resumed = worst(saved.resumed, probe.resumed)
            if probe.lost:
                self._lose(probe.lost)

    def _lose(self, names: Iterable[str]) -> None:
        """Note that a resume has lost variables."""
        self.progress.resumed = "inexactly"
        self.progress.not_saved = sorted({*self.progress.not_saved, *names})

    def leave(self) -> None:
        """Let a command save and end: another process may resume it. A function is left where it pauses."""
        if isinstance(self._function, Command):
            self._function.leave()

    def close(self) -> None:
        """Let the function end as `Function.close` does, and remove its files."""
        try:
            self._function.close(
                at_end=self.progress.step >= self._num_steps and not self.progress.diverged
            )
        finally:
            self._opened.close()
