"""What a study shows while it trains: one live display on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from analysis.text import rate_text
from sweep.progress_state import Cell, ProgressState, RunLabel, Summary
from sweep.text import duration
from sweep.time_left import RunPace

Clock = Callable[[], float]
"""Returns seconds since some moment; one that nobody sets, so that a jump of the system's time changes nothing."""

REFRESH_S = 0.5
"""Shortest time between two drawings of the live display."""
LONG_SILENCE_S = 30.0
"""Time without a report after which the display says so, whatever the reason."""
_TABLE_FRAME_LINES = 7
"""Lines of the display that are no row of the table: its borders and heads, one for hidden rows, two of summary."""


class Progress:
    """Shows a study's progress, fed with events; a context manager. It draws only when called: call `tick` often.

    Args:
        total_runs: runs that the study wants.
        done_before: of those, how many were done when we started.
        cells: labels of the other runs, by run id.
        console: where to write.
        clock: seconds since some moment.
        interval_s: seconds between plain lines, where the console is no terminal.
        expected: the pace of cells until one of their runs reports it.
    """

    def __init__(
        self,
        total_runs: int,
        done_before: int,
        cells: Mapping[str, RunLabel],
        *,
        console: Console,
        clock: Clock = time.monotonic,
        interval_s: float = 30.0,
        expected: Mapping[Cell, RunPace] | None = None,
    ) -> None:
        self.state = ProgressState(
            total_runs=total_runs,
            done_before=done_before,
            cells=cells,
            started_at=clock(),
            expected=expected or {},
        )
        self._console = console
        self._clock = clock
        self._drawn_at = clock()
        self._interval_s = REFRESH_S if console.is_terminal else interval_s
        self._live = Live(
            console=console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            get_renderable=self._render,
        )

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()
        else:
            self._print_line()

    def packed(self, trials: Sequence[Sequence[str]], at_once: int) -> None:
        """From here on these runs train together, in trials that start in this order, so many at once."""
        self.state.packed(trials, at_once)

    def started(self, run_id: str, step: int = 0) -> None:
        """A run trains now, from this step on."""
        self.state.started(run_id, self._clock(), step)
        self.tick()

    def advanced(self, run_id: str, step: int, step_s: float | None, evaluation_s: float | None) -> None:
        """A run has taken so many steps in all; lately it takes so many seconds of its trial; None: not known yet."""
        pace = None
        if step_s is not None and evaluation_s is not None:
            pace = RunPace(step_s=step_s, evaluation_s=evaluation_s)
        self.state.advanced(run_id, self._clock(), step, pace)
        self.tick()

    def evaluation(self, run_id: str, step: int, validation_accuracy: float) -> None:
        """A run was evaluated; the accuracy is a fraction."""
        self.state.evaluation(run_id, step, validation_accuracy)
        self.tick()

    def finished(self, run_id: str, status: str) -> None:
        """A run ended as `complete`, `diverged` or `failed`."""
        self.state.finished(run_id, status)
        self.tick()

    def interrupted(self, run_ids: Iterable[str]) -> None:
        """These runs do not train at the moment, if they did: their worker died, or Ray."""
        self.state.interrupted(run_ids)
        self.tick()

    def note(self, message: str) -> None:
        """Print a message of its own, above the live display; may be called from any thread."""
        self._console.print(Text(message), soft_wrap=True)

    def tick(self) -> None:
        """Draw again if it is time to."""
        now = self._clock()
        if now - self._drawn_at < self._interval_s:
            return
        self._drawn_at = now
        if self._console.is_terminal:
            self._live.refresh()
        else:
            self._print_line()

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values for another process; time_left_s is None while it is not known."""
        summary = self.state.summary(self._clock())
        names = ("counts", "steps_per_s", "time_left_s", "evaluating")
        return {name: getattr(summary, name) for name in names}

    def _print_line(self) -> None:
        self._console.print(Text(summary_line(self.state.summary(self._clock()))), soft_wrap=True)

    def _render(self) -> Group:
        summary = summary_line(self.state.summary(self._clock())).split(" | ", maxsplit=1)
        lines = [Text(part, no_wrap=True, overflow="ellipsis") for part in summary]
        room = self._console.height - _TABLE_FRAME_LINES
        return Group(*_cells_table(self.state, room), *lines) if room > 0 and self.state.cells else Group(*lines)


def summary_line(summary: Summary) -> str:
    """Say it in one line: `3/8 runs done, 2 running, ... | 40.0 steps/s | elapsed 0:01:00 | left 0:10:00`.

    While nothing is reported it says so: `... | 2 evaluating, last report 0:01:20 ago`.
    """
    counts = summary.counts
    runs = ", ".join(f"{counts[status]} {status}" for status in ("running", "diverged", "failed", "waiting"))
    left = "unknown" if summary.time_left_s is None else duration(summary.time_left_s)
    return (
        f"{counts['done']}/{summary.total_runs} runs done, {runs} | {summary.steps_per_s:.1f} steps/s"
        f" | elapsed {duration(summary.elapsed_s)} | left {left}{_silence(summary)}"
    )


def _silence(summary: Summary) -> str:
    if not summary.evaluating and summary.silent_s < LONG_SILENCE_S:
        return ""
    evaluating = f"{summary.evaluating} evaluating, " if summary.evaluating else ""
    return f" | {evaluating}last report {duration(summary.silent_s)} ago"


def _cells_table(state: ProgressState, max_rows: int) -> list[Table | Text]:
    """Show the best of each cell; if there is no room for all, those that train now first, then those with a result."""
    counts = state.cell_counts()
    ranked = sorted(counts, key=lambda cell: (counts[cell][1] == 0, cell not in state.best))
    shown = set(ranked[:max_rows])
    table = Table("task", "model", "variant", "ended", "best validation", "at rate", "at step")
    for cell in (cell for cell in counts if cell in shown):
        ended, _, total = counts[cell]
        best = state.best.get(cell)
        result = (
            (f"{best.validation_accuracy:.2%}", rate_text(best.learning_rate), str(best.step)) if best else ("", "", "")
        )
        table.add_row(*cell, f"{ended}/{total}", *result)
    for column in table.columns:
        column.no_wrap = True
    hidden = len(counts) - len(shown)
    return [table, Text(f"and {hidden} more cells")] if hidden else [table]
