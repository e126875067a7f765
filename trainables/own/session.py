"""What a training function is called with, its run and the session that it trains in, and what it prints.

def train(run, session):
    model, optimizer = build(run)
    for step in session.steps(model=model, optimizer=optimizer):
        ...
        if session.due:
            session.report(validation=..., test=...)
"""

from __future__ import annotations

import io
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from lr_sweep.common.files import Fields, ReadFields
from lr_sweep.trainables.worker.messages import Printed

from .loader import follow
from .saved import Saved
from .state import restore_generators

REPORTED = ("validation", "test", "train", "validation_loss", "test_loss", "train_loss")
"""Names of what `session.report` takes, in their order."""
LOGGABLE = re.compile(r"(?=.{1,100}$)[\w-][\w.-]*(/[\w-][\w.-]*)*", re.ASCII)
"""A name that MLflow takes, too; `/` makes groups there."""
MAX_LOGGED = 1000
"""Largest number of values that a run logs between two evaluations."""


class Advance(NamedTuple):
    """What a training function did up to its next pause."""

    step: int
    """The step that was reached."""
    scores: dict[str, float] | None = None
    """What was reported there."""
    logged: Sequence[Fields] = ()
    not_saved: Sequence[str] = ()
    """Names of variables that a resume has lost."""
    last_printed: int | None = None
    """As of `Progress`."""


class MisuseError(Exception):
    """A training function calls its session in a way that makes no curve; the message says what is wanted."""


@dataclass(frozen=True, kw_only=True)
class RunToTrain:
    """The run, as a training function sees it."""

    run_id: str
    learning_rate: float
    seed: int
    """torch, numpy and `random` are seeded with it already."""
    task: str
    model: str
    variant: str
    options: ReadFields
    """Those of the task, of the model and of the variant, as the study has them."""
    num_steps: int
    """The step budget. It is not in the run's id, so nothing that the function computes should depend on it."""
    evaluate_every: int
    """Gradient steps between two evaluations."""
    metric: ReadFields
    """What is reported of each split: `name`, `higher_is_better`, `is_fraction`."""


class OwnSession:
    """Drives a training function step by step: it waits where the session saves or reports, and where the run ends."""

    def __init__(
        self, run: RunToTrain, device: str, files: Path, pause: Callable[[], None], rank: int = 0
    ) -> None:
        """Take what is fixed; `pause` returns once the run's next step is to be taken. Only rank 0's reports count."""
        self.run = run
        self.device = device
        """`cpu` or `cuda`; of several processes each has its own, as `cuda:1`."""
        self.files = files
        """Folder with the study's code and data files, by their names in the study."""
        self.step = 0
        """Gradient steps taken."""
        self.saved: Saved | None = None
        """What is saved with each checkpoint; None: the function has not said so yet."""
        self.stepped: list[Any] = []
        """Optimizers that have taken a step in the gradient step under way."""
        self.reported: dict[str, float] | None = None
        """What was reported in the step under way, by the names of `report`; NaN: not reported."""
        self.logged: dict[tuple[int, str], Fields] = {}
        """What was logged since the last pause, by step and name."""
        self.generators: Fields | None = None
        """States of the random generators to restore at the first step or batch: a loop may draw before it."""
        self._pause, self._rank = pause, rank
        self._in_step = False
        self._num_logged = 0

    def steps(self, **saved: Any) -> Iterator[int]:
        """Restore what is saved, and iterate over the numbers of the gradient steps to take, from 1 or the resume's.

        `saved` is what changes from step to step (`own.saved`). It is restored at once, and the random generators of
        torch, numpy and `random` before the first step, or before a loader that is passed yields its next batch.
        """
        self.start(**saved)
        return self._steps()

    def _steps(self) -> Iterator[int]:
        while self.step < self.run.num_steps:
            self.begin_step()
            yield self.step + 1
            self.end_step()

    def start(self, **saved: Any) -> None:
        """Restore what is saved; `step` is then where the run resumes. `steps` does it, for a loop of its own."""
        if self.saved is not None:
            raise MisuseError("session.steps was called twice, want one loop over it")
        self.saved = Saved(
            {name: follow(thing, self.restore_generators) for name, thing in saved.items()}
        )
        self._pause()

    def begin_step(self) -> None:
        """Begin the next gradient step; `steps` does it."""
        if self.saved is None:
            raise MisuseError("begin_step was called before start")
        self.restore_generators()
        self._in_step, self.reported = True, None
        self.stepped.clear()

    def restore_generators(self) -> None:
        """Restore the random generators that a resumed run was saved with, once."""
        if self.generators is not None:
            restore_generators(self.generators)
            self.generators = None

    @property
    def due(self) -> bool:
        """Whether this step ends with an evaluation, which is to be reported."""
        return self._in_step and (self.step + 1) % self.run.evaluate_every == 0

    def report(
        self,
        *,
        validation: float,
        test: float,
        train: float = math.nan,
        validation_loss: float = math.nan,
        test_loss: float = math.nan,
        train_loss: float = math.nan,
    ) -> None:
        """Report the study's metric after this step, and the rest if it is known; validation alone selects.

        A run that reports a number which is not finite has diverged, and ends.
        """
        if not self.due:
            every = self.run.evaluate_every
            at = f"step {self.step + 1}" if self._in_step else "no step"
            raise MisuseError(
                f"session.report was called in {at}, want it where session.due, every {every} steps"
            )
        if self._rank:
            return
        if self.reported is not None:
            raise MisuseError(
                f"session.report was called twice in step {self.step + 1}, want one call"
            )
        self._num_logged = 0
        values = validation, test, train, validation_loss, test_loss, train_loss
        self.reported = {
            name: number_of(name, value, self.run.metric)
            for name, value in zip(REPORTED, values, strict=True)
        }

    def log(self, /, **values: Any) -> None:
        """Log numbers of this step, finite or not; they are recorded with the next evaluation, and never choose.

        A name that is logged again in a step keeps its last value. Only rank 0's values count.
        """
        if not self._in_step:
            raise MisuseError(
                "session.log was called in no step, want it in the loop over its steps"
            )
        if self._rank:
            return
        if wrong := [name for name in values if name in REPORTED or not LOGGABLE.fullmatch(name)]:
            raise MisuseError(
                f"session.log got {', '.join(map(repr, wrong))}, want names of at most 100 letters, digits, `_`, `-`, "
                f"`.` and `/`; session.report takes {', '.join(REPORTED)}"
            )
        self._num_logged += len(values)
        if self._num_logged > MAX_LOGGED:
            raise MisuseError(
                f"session.log got more than {MAX_LOGGED} values since the last evaluation: log in fewer steps"
            )
        step = self.step + 1
        for name, value in values.items():
            number = number_of(name, value, {"is_fraction": False}, "session.log")
            self.logged[step, name] = {"step": step, "name": name, "value": number}

    def end_step(self) -> None:
        """End the step under way; `steps` does it."""
        if self.due and self.reported is None and not self._rank:
            raise MisuseError(
                f"step {self.step + 1} ended without an evaluation: call session.report(validation=..., test=...) "
                f"where session.due, every {self.run.evaluate_every} steps"
            )
        self._in_step = False
        self.step += 1
        self._pause()


def number_of(name: str, value: Any, metric: ReadFields, where: str = "session.report") -> float:
    """Return a reported value as a number; raises MisuseError for what is none, or cannot be one of the metric.

    The text `56%` is 0.56 for a metric that is a fraction, and 56 for another one.
    """
    # A loss, of which torch would warn.
    value = value.detach() if hasattr(value, "detach") else value
    is_fraction = metric["is_fraction"] and not name.endswith("_loss")
    percents = isinstance(value, str) and value.endswith("%")
    try:
        number = float(value.rstrip("% ") if percents else value)
    except (TypeError, ValueError, OverflowError) as error:
        raise MisuseError(f"{where} got {name}={value!r:.60}, want a number") from error
    number /= 100 if percents and is_fraction else 1
    if is_fraction and math.isfinite(number) and not 0 <= number <= 1:
        name_and_way = f"name: {json.dumps(metric['name'])}, higher_is_better: {json.dumps(metric['higher_is_better'])}"
        raise MisuseError(
            f"{where} got {name}={number}, want a fraction from 0 to 1, which {metric['name']} is. If it is in "
            f"percent, write `metric: {{{name_and_way}}}` into the study file; if it is a loss, "
            f"`metric: {{name: loss, higher_is_better: false}}`"
        )
    return number


MAX_CHARACTERS = 20_000
"""Kept between two reports, the newest: all that a loop prints at each step would outgrow the record."""


class Output:
    """Keeps what is printed within `kept_for`, until it is taken."""

    def __init__(self) -> None:
        self._run_id = ""
        self._text = ""

    @contextmanager
    def kept_for(self, run_id: str) -> Iterator[None]:
        """Keep what this process prints by `sys.stdout` and `sys.stderr`, and print it, too."""
        self._run_id = run_id
        with redirect_stdout(_Tee(sys.stdout, self)), redirect_stderr(_Tee(sys.stderr, self)):
            yield

    def show(self, run_id: str, text: str) -> None:
        """Print a text for a run, and keep it."""
        with self.kept_for(run_id):
            print(text, end="")

    def add(self, text: str) -> None:
        """Keep some text, and as much of the text before it as fits."""
        self._text = (self._text + text)[-MAX_CHARACTERS:]

    def take(self, *, whole_lines: bool = True) -> list[Printed]:
        """Return what was kept as one event, or none; an unfinished line stays, if only whole lines are wanted."""
        lines, end, self._text = (
            self._text.rpartition("\n") if whole_lines else (self._text, "", "")
        )
        # Of a progress bar the last state.
        shown = [line.rstrip("\r").rpartition("\r")[2] for line in lines.split("\n")]
        return [Printed(run_id=self._run_id, text="\n".join(shown))] if lines or end else []


class _Tee(io.TextIOBase):
    def __init__(self, stream: TextIO, output: Output) -> None:
        self._stream, self._output = stream, output

    def write(self, text: str) -> int:
        self._output.add(text)
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()
