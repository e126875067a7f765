"""One log a run, for `show --log`: when it started, each evaluation, what its training function printed, its end."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from lr_sweep.sweep.results.sink import Sink
from lr_sweep.trainables.curve import Evaluation
from lr_sweep.trainables.worker.events import Advanced, Finished, Printed, Report, Started


class RunLogs(Sink):
    """Appends what is reported of a run to the file `log_of(run_id)`, in the driver's process alone."""

    def __init__(self, log_of: Callable[[str], Path], clock: Callable[[], float] = time.time) -> None:
        self.log_of, self.clock = log_of, clock

    def event(self, event: Report) -> None:
        """Append what is reported; raises OSError if the disk is full or not writable."""
        self.write(event.run_id, _lines(event))

    def write(self, run_id: str, lines: Iterable[str]) -> None:
        """Append lines with the time of now, in UTC."""
        now = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self.clock()))
        text = "".join(f"{now}  {line}\n" for line in lines)
        if text:
            path = self.log_of(run_id)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8", errors="replace") as log:
                log.write(text)

    def interrupted(self, run_ids: Sequence[str], text: str) -> None:
        """Append the lines of the reason to the logs of several runs."""
        for run_id in run_ids:
            self.write(run_id, text.splitlines())


def starts_in(log: Path) -> int:
    """Return how often a run was started, by its log; 0 where there is none."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return len(re.findall(r"^\S+ \S+  (?:started|resumed from step \d+)$", text, re.MULTILINE))


def _lines(event: Report) -> list[str]:
    match event:
        case Started():
            damaged = [f"{path} is damaged (its checksum differs)" for path in event.damaged]
            return [*damaged, f"resumed from step {event.step}" if event.step else "started"]
        case Advanced(evaluation=Evaluation() as evaluation):
            return [_evaluated(evaluation)]
        case Printed():
            return [f"| {line}" for line in event.text.splitlines()]
        case Finished():
            return [f"{event.status} at step {event.step}, {event.elapsed_s:.1f} s of training, on {event.device}"]
        case _:
            return []


def _evaluated(evaluation: Evaluation) -> str:
    names = ("train_loss", "train_accuracy", "validation_accuracy", "test_accuracy")
    numbers = {name.removesuffix("_accuracy").replace("_", " "): getattr(evaluation, name) for name in names}
    shown = ", ".join(f"{name} {value:.6g}" for name, value in numbers.items() if value == value)
    return f"step {evaluation.step}: {shown}"
