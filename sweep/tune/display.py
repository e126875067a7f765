"""Shows a study's progress while it trains: a live display on a terminal, elsewhere a plain line now and then."""

from __future__ import annotations

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lr_sweep.common.text import duration, rate_text
from lr_sweep.sweep.results.sink import Sink
from lr_sweep.sweep.tune.progress import UNFINISHED, StudyProgress, Summary
from lr_sweep.trainables.worker.events import Report, Started

REFRESH_S = 0.5
"""Shortest time between two drawings of the live display."""
PLAIN_EVERY_S = 30.0
"""Seconds between two plain lines where the console is no terminal."""
LONG_SILENCE_S = 30.0
"""Time without a report after which the display says so, whatever the reason."""
_TABLE_FRAME_LINES = 7
"""Lines of the display that are no row of the table: its borders and heads, one for hidden rows, two of summary."""


class Display(Sink):
    """Shows progress; a context manager. It draws only when `tick` is called: call it often.

    The clock is that of `progress`.
    """

    def __init__(self, progress: StudyProgress, console: Console) -> None:
        self._progress, self._console, self._clock = progress, console, progress.clock
        self._drawn_at = self._clock()
        self._interval_s = REFRESH_S if console.is_terminal else PLAIN_EVERY_S
        self._live = Live(
            console=console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            get_renderable=self._render,
        )

    def __enter__(self) -> Display:
        if self._console.is_terminal:
            self._live.start(refresh=True)
        return self

    def __exit__(self, *exception: object) -> None:
        statuses = [status for cell in self._progress.statuses().values() for status in cell]
        nothing = not self._progress.best and set(statuses) <= set(UNFINISHED)
        if self._console.is_terminal:
            self._live.transient = nothing
            self._live.stop()
        elif not nothing:
            self._print_line()

    def note(self, message: str) -> None:
        """Print a message above the live display; may be called from any thread."""
        self._console.print(Text(message), soft_wrap=True)

    def event(self, event: Report) -> None:
        """Print which checkpoints of a run that starts were damaged."""
        if isinstance(event, Started):
            for path in event.damaged:
                self.note(f"{path} is damaged (its checksum differs); the run resumes from step {event.step}")

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

    def _print_line(self) -> None:
        self._console.print(Text(summary_line(self._progress.summary())), soft_wrap=True)

    def _render(self) -> Group:
        summary = summary_line(self._progress.summary()).split(" | ", maxsplit=1)
        lines = [Text(part, no_wrap=True, overflow="ellipsis") for part in summary]
        room = self._console.height - _TABLE_FRAME_LINES
        return Group(*_cells_table(self._progress, room), *lines) if room > 0 else Group(*lines)


def summary_line(summary: Summary) -> str:
    """Return `3/8 runs done, 2 running, ... | 40.0 steps/s | elapsed 0:01:00 | left 0:10:00`.

    While no run reports, it adds why: `... | 2 evaluating, last report 0:01:20 ago`.
    """
    counts = summary.counts
    runs = ", ".join(f"{counts[status]} {status}" for status in ("running", "diverged", "failed", "waiting"))
    left = "unknown" if summary.time_left_s is None else duration(summary.time_left_s)
    parts = [f"{counts['done']}/{summary.total_runs} runs done, {runs}", f"{summary.steps_per_s:.1f} steps/s"]
    parts += [f"elapsed {duration(summary.elapsed_s)}", f"left {left}"]
    if summary.evaluating or summary.silent_s >= LONG_SILENCE_S:
        evaluating = f"{summary.evaluating} evaluating, " if summary.evaluating else ""
        parts.append(f"{evaluating}last report {duration(summary.silent_s)} ago")
    return " | ".join(parts)


def _cells_table(progress: StudyProgress, max_rows: int) -> list[Table | Text]:
    """Return the best of each cell; where not all fit, cells that train now come first, then those with a result."""
    cells = progress.statuses()
    ranked = sorted(cells, key=lambda cell: ("running" not in cells[cell], cell not in progress.best))
    shown = set(ranked[:max_rows])
    table = Table("task", "model", "variant", "ended", "best validation", "at rate", "at step")
    for cell in (cell for cell in cells if cell in shown):
        ended = sum(status not in UNFINISHED for status in cells[cell])
        best = progress.best.get(cell)
        result = [best.metric.score_text(best.accuracy), rate_text(best.learning_rate), str(best.step)] if best else []
        table.add_row(*cell, f"{ended}/{len(cells[cell])}", *result)
    for column in table.columns:
        column.no_wrap = True
    hidden = len(cells) - len(shown)
    return [table, Text(f"and {hidden} more cells")] if hidden else [table]
