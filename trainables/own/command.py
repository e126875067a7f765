"""A command that trains a run, such as a script with options: started, read while it runs, and ended with its children.

Its evaluations are in what it prints, or in a file that it writes. A part of a command is filled in for each run, as
`{learning_rate}`.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import shlex
import subprocess
import sys
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lr_sweep.common.files import Fields, ReadFields, make_folder
from lr_sweep.common.text import counted, without_escapes
from lr_sweep.trainables.own import supervisor

from .command_line import filled
from .run import FAILURE, MisusedSessionError, OwnRun, TrainingFunctionError
from .session import Advance, MisuseError, Output, number_of

if TYPE_CHECKING:
    from lr_sweep.trainables.numerics import State

NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?(\s?%)?|[-+]?(nan|inf)", re.IGNORECASE)
NOT_FINITE = re.compile(r"[-+]?\b(nan|inf(inity)?)\b", re.IGNORECASE)
NOT_KEPT = ".command"
"""Folder in that of a run whose command takes no checkpoint, in place of one that outlives the process."""
LAST_LINES = 8
"""Lines of output in the reason of a failure."""
UNKNOWN = dict.fromkeys(("train", "train_loss", "validation_loss", "test_loss"), math.nan)
"""Scores of an evaluation that a command does not give."""
TICK_S = 0.05
MAX_READ = 2**20
"""Bytes of output that are read at once."""


def environment() -> dict[str, str]:
    """Return the variables of a command: `python` is found where the PATH has none, and prints without a delay."""
    path = f"{os.environ.get('PATH', os.defpath)}{os.pathsep}{Path(sys.executable).parent}"
    return os.environ | {"PATH": path, "PYTHONUNBUFFERED": "1"}


class Command:
    """The command of one run, used as a `Function` is. It starts with the first step."""

    def __init__(
        self, run: OwnRun, num_steps: int, folder: Path, kept: Path, output: Output
    ) -> None:
        """Take what is fixed; the command runs in `folder`, and has `kept` for its checkpoints if it resumes."""
        assert run.files.command
        self._run, self._num_steps, self._folder, self._output = run, num_steps, folder, output
        self._line, self._step = run.files.command, 0
        self._kept = kept if self._line.resumes else folder / NOT_KEPT
        make_folder(self._kept / "checkpoint")
        self._log = self._kept / "output.log"
        self._log.touch()
        names = ("learning_rate", "seed", "task", "model", "variant")
        self._values = {**run.options, **{name: getattr(run, name) for name in names}}
        self._values |= {"num_steps": num_steps, "folder": str(folder)}
        self._values["checkpoint"] = str(self._kept / "checkpoint")
        self._metrics = dict(self._line.metrics)
        (self._file,) = filled([self._metrics.pop("file", "")], self._values)
        self._rows: list[dict[str, str]] = []
        self._partial: dict[str, str] = {}
        self._printed, self._tail, self._stamp = 0, list[str](), (0, 0)
        self._began = self._log.stat().st_size
        self._processes: list[subprocess.Popen[bytes]] = []
        # Python itself would keep the pipe of a process that runs.
        weakref.finalize(self, _end, self._processes, supervisor.ENDING_S)

    def advance(self, *, for_s: float = math.inf) -> Advance:
        """Let it run to its next evaluation, or for `for_s` seconds; it logs nothing.

        The last evaluation counts once the command has ended. Raises TrainingFunctionError if it failed, and
        MisusedSessionError if its evaluations are not those that the study wants.
        """
        process = self._started()
        until = time.monotonic() + for_s
        while True:
            ended = process.poll() is not None  # then all that it printed is there
            self._read(at_end=ended)
            evaluations = list(self._evaluations(at_end=ended))  # raises for one after the last
            for step, scores in evaluations:
                if self._step < step and (step < self._num_steps or process.returncode == 0):
                    self._step = step
                    return Advance(step, scores, last_printed=self._last_printed())
            if ended and process.returncode:
                last = f": {self._tail[-1].strip()[:200]}" if self._tail else ""
                # A retry would fail like it.
                misused = not supervisor.signal_of(process.returncode) and not self._rows
                raise self._failure(supervisor.ending(process.returncode) + last, misused=misused)
            if ended:
                raise self._failure(f"ended, and {self._missing()}", misused=True)
            if time.monotonic() >= until:
                return Advance(self._step)
            time.sleep(TICK_S)

    def _started(self) -> subprocess.Popen[bytes]:
        if not self._processes:
            words = filled(self._line.words, self._values)
            self._output.show(self._run.run_id, f"$ {shlex.join(words)}\n")
            with self._log.open("ab") as log:
                options: Any = {"cwd": self._folder, "env": environment()}
                options |= {"stdout": log, "stderr": log}
                process = supervisor.start(words, self._kept / "lock", **options)
            self._processes.append(process)
        return self._processes[0]

    def _read(self, *, at_end: bool) -> None:
        """Take in whole lines of the output, at the end all of it, or the file with evaluations."""
        while data := self._newest_output():
            end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
            end = end or (len(data) if at_end or len(data) == MAX_READ else 0)
            if not end:
                break
            text = without_escapes(data[:end].decode(errors="replace"))
            if self._printed >= self._began:  # else an earlier process has shown it
                self._output.show(self._run.run_id, text)
            self._printed += end
            lines = [line for line in re.split("[\r\n]", text) if line.strip()]
            self._tail = [*self._tail, *lines][-LAST_LINES:]
            if not self._file:
                self._rows += self._complete(values_in(line, self._metrics) for line in lines)
        if self._file and (stamp := _stamp(self._folder / self._file)) != self._stamp:
            self._stamp, self._partial = stamp, {}
            metrics = self._metrics.items()
            rows = rows_of(self._folder / self._file)
            named = [{name: str(row[key]) for name, key in metrics if key in row} for row in rows]
            self._rows = list(self._complete(named))

    def _newest_output(self) -> bytes:
        with self._log.open("rb") as log:
            log.seek(self._printed)
            return log.read(MAX_READ)

    def _complete(self, rows: Iterable[Mapping[str, str]]) -> Iterator[dict[str, str]]:
        """Yield an evaluation each time that every metric has a new value."""
        for row in rows:
            self._partial |= row
            if len(self._partial) == len(self._metrics):
                yield self._partial
                self._partial = {}

    def _evaluations(self, *, at_end: bool) -> Iterator[tuple[int, dict[str, float]]]:
        """Yield steps and scores of the evaluations up to now; of a run of one, the last."""
        every, rows = self._run.evaluate_every, self._rows
        if every == self._num_steps:
            rows = [row | {"step": str(every)} for row in rows[-1:]] if at_end else []
        for number, row in enumerate(rows, start=1):
            step = int(self._number("step", row)) if "step" in row else number * every
            if step > self._num_steps:
                problem = f"has printed an evaluation of step {step}, want {self._num_steps} at most, the `num_steps`"
                raise self._failure(problem, misused=True)
            if step % every == 0:
                scores = {name: self._number(name, row) for name in ("validation", "test")}
                yield step, UNKNOWN | scores

    def _last_printed(self) -> int | None:
        """Number, or step, of the last evaluation, of a run of one; None: others count too, or some came twice."""
        if self._run.evaluate_every < self._num_steps:
            return None
        if "step" in self._metrics:
            return int(self._number("step", self._rows[-1]))
        return None if self._began else len(self._rows)

    def _number(self, name: str, row: Mapping[str, str]) -> float:
        try:
            metric = self._run.metric if name != "step" else {"is_fraction": False}
            return number_of(name, row[name], metric, "the evaluation")
        except MisuseError as error:
            raise self._failure(f"has printed a wrong number: {error}", misused=True) from None

    def _missing(self) -> str:
        every, where = self._run.evaluate_every, self._file or "what it printed"
        missing = [
            f"`{name}: {pattern}`"
            for name, pattern in self._metrics.items()
            if name not in self._partial
        ]
        if not self._rows:
            return f"{where} has nothing for {', '.join(missing)}"
        number = counted(len(self._rows), "evaluation")
        return f"{where} has {number}, the last at step {self._step}; want one every {every} steps to {self._num_steps}"

    def _failure(self, problem: str, *, misused: bool) -> TrainingFunctionError:
        """Return the error of a command: the last lines of its output, then what it did."""
        lines = "\n".join(f"  {line[:200]}" for line in self._tail) or "  (it printed nothing)"
        where = f"Last lines of its output; `show {self._run.run_id} --log` has all of them:"
        kind = MisusedSessionError if misused else TrainingFunctionError
        return kind(f"{FAILURE}\n{where}\n{lines}\nthe command {problem}")

    def state(self) -> State:
        """Return nothing: a command that resumes keeps its own checkpoints."""
        return {}, {}

    def resumes_at(self, step: int) -> bool:
        """Note where a run resumes; False: its command takes no checkpoint, so it trains anew, unless it has ended."""
        resumes = self._line.resumes or not 0 < step < self._num_steps
        if resumes:
            self._step = step
        else:
            self._output.show(
                self._run.run_id,
                f"trained anew, not from step {step}: the command has no {{checkpoint}}\n",
            )
        return resumes

    def leave(self) -> None:
        """End the command, if it runs, and what it has started: it gets SIGTERM, and `SAVING_S` to save."""
        _end(self._processes, supervisor.SAVING_S)

    def close(self, *, at_end: bool) -> None:
        """End it as `leave` does, but within `ENDING_S`: its run has ended."""
        _end(self._processes, supervisor.ENDING_S)


def _end(processes: list[subprocess.Popen[bytes]], saving_s: float) -> None:
    while processes:
        supervisor.end(processes.pop(), saving_s)


def _stamp(path: Path) -> tuple[int, int]:
    """Return what changes when a file is written; zeros: it is not there."""
    with suppress(OSError):
        status = path.stat()
        return status.st_mtime_ns, status.st_size
    return 0, 0


def values_in(line: str, patterns: ReadFields) -> dict[str, str]:
    """Return what a line has of the metrics: the number at the beginning of a pattern's group, the last in the line.

    A pattern such as `acc=([0-9.]+)` would miss `acc=nan` of a run that diverged: it matches there, too.
    """
    finite, values = NOT_FINITE.sub("0", line), dict[str, str]()
    for name, pattern in patterns.items():
        if matches := list(re.finditer(pattern, line)):
            number = NUMBER.match(line, matches[-1].start(1))
            values[name] = number[0] if number else matches[-1][1]
        elif finite != line and re.search(pattern, finite):
            values[name] = "nan"
    return values


def rows_of(path: Path) -> list[Fields]:
    """Return the rows of a file as they are now, without its empty fields; none: it is not there, or half written."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        rows = _parsed(text, path.suffix)
    except (OSError, ValueError, csv.Error):
        return []
    return [
        {key: row[key] for key in row if row[key] not in (None, "")}
        for row in rows
        if isinstance(row, dict)
    ]


def _parsed(text: str, ending: str) -> Sequence[Any]:
    if ending == ".json":
        content = json.loads(text)
        return content if isinstance(content, list) else [content]
    whole_lines = text[: text.rfind("\n") + 1]
    if ending == ".csv":
        return list(csv.DictReader(io.StringIO(whole_lines)))
    return [json.loads(line) for line in whole_lines.splitlines()]
