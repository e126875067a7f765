from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import Literal

import pytest
from rich.console import Console
from rich.text import Text

from lr_sweep.datasets.task import TaskShape
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.sweep.tune.progress import Display, StudyProgress, summary_line
from lr_sweep.tests.support.scripted_trials import evaluation
from lr_sweep.tests.support.small_runs import run_of
from lr_sweep.trainables.worker.messages import Advanced, Finished, Started


class FakeClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Progress(StudyProgress):
    """Takes events in by a few arguments each."""

    def started(self, run_id: str, step: int = 0) -> None:
        self.event(Started(run_id=run_id, step=step))

    def advanced(self, run_id: str, step: int, step_s: float | None, evaluation_s: float | None) -> None:
        self.event(Advanced(run_id=run_id, step=step, step_s=step_s, evaluation_s=evaluation_s))

    def evaluated(self, run_id: str, step: int, validation: float) -> None:
        self.event(Advanced(run_id=run_id, step=step, evaluation=evaluation(step, validation)))

    def finished(self, run_id: str, status: Literal["complete", "diverged"]) -> None:
        self.event(Finished(run_id=run_id, step=0, status=status, elapsed_s=1.0, engine="stacked", device="none"))


def at(progress: Progress, now: float) -> Progress:
    """Set its clock."""
    assert isinstance(progress.clock, FakeClock)
    progress.clock.now = now
    return progress


def wanted(run_id: str, variant: str = "frozen-random", learning_rate: float = 1e-3) -> WantedRun:
    """A run of 100 steps, evaluated every 50."""
    return WantedRun(
        run=run_of(variant, learning_rate=learning_rate, evaluate_every=50),
        run_id=run_id,
        model="tiny",
        variant=variant,
        num_steps=100,
        shape=TaskShape(num_tokens=16, num_classes=10, token_dim=4),
        weights=None,
        pretrained_on=None,
        data_origin="test",
    )


def four_runs() -> Progress:
    """Ten runs, six of them done before we started at 1000 s; the other four of 100 steps each."""
    runs = [wanted(name, learning_rate=rate) for name, rate in zip("abcd", (1e-4, 1e-3, 1e-2, 1e-1), strict=True)]
    return Progress(runs=runs, total_runs=10, clock=FakeClock())


def runs_of_two_cells() -> list[WantedRun]:
    """a and b of one cell, c and d of another."""
    return [
        wanted(name, f"{which}-random") for name, which in zip("abcd", ("frozen",) * 2 + ("unfrozen",) * 2, strict=True)
    ]


def shown(width: int, height: int, *, terminal: bool, cells: int = 1) -> tuple[Display, Progress, StringIO]:
    stream = StringIO()
    console = Console(file=stream, force_terminal=terminal, width=width, height=height, _environ={"TERM": "xterm"})
    runs = [replace(wanted(f"run{n}"), variant=f"variant-{n}") for n in range(cells)]
    progress = Progress(runs=runs, total_runs=cells, clock=FakeClock())
    return Display(progress, console), progress, stream


def test_nothing_started_and_one_evaluation_later() -> None:
    """A run of 100 steps is evaluated every 50: an evaluation of 100 s adds 2 s to each of its steps."""
    state = four_runs()
    summary = state.summary()
    assert summary.counts == {"done": 6, "running": 0, "diverged": 0, "failed": 0, "waiting": 4}
    assert (summary.steps_per_s, summary.elapsed_s, summary.time_left_s) == (0.0, 0.0, None)
    state.packed([["a"]], 1)
    state.advanced("a", 0, 1.0, 100.0)
    assert state.summary().time_left_s == 100 + 200
    state.advanced("a", 50, 1.0, 100.0)
    summary = at(state, 1061.0).summary()
    assert summary.counts == {"done": 6, "running": 1, "diverged": 0, "failed": 0, "waiting": 3}
    assert (summary.steps_per_s, summary.time_left_s, summary.failed_attempts) == (1 / 3, 50 + 100, 0)
    assert summary_line(summary) == (
        "6/10 runs done, 1 running, 0 diverged, 0 failed, 3 waiting | 0.3 steps/s | elapsed 0:01:01 | left 0:02:30"
    )


def test_time_left_counts_steps_to_go_at_the_running_pace() -> None:
    """a at 40 of 100, b at 20 of 100, 0.5 and 0.25 s a step: 30 s and 20 s; then c and d, 100 steps of 0.375 s.

    Two trials at once: b's slot is free after 20 s; d, which then takes a's slot, ends after 30 + 37.5 s.
    """
    state = four_runs()
    state.packed([["a"], ["b"], ["c"], ["d"]], 2)
    state.started("a")
    state.started("b")
    at(state, 1020.0).advanced("a", 40, 0.5, 0.0)
    at(state, 1020.0).advanced("b", 20, 0.25, 0.0)
    summary = at(state, 1020.0).summary()
    assert summary.counts == {"done": 6, "running": 2, "diverged": 0, "failed": 0, "waiting": 2}
    assert (summary.steps_per_s, summary.elapsed_s, summary.time_left_s) == (6.0, 20.0, 67.5)


def test_runs_of_a_trial_share_its_time() -> None:
    """a and b together at 40 of 100, then c and d: 0.5 s of the trial a step, and 25 s an evaluation, every 50th."""
    state = four_runs()
    state.packed([["a", "b"], ["c", "d"]], 1)
    for name in "ab":
        state.advanced(name, 40, 0.5, 25.0)
    summary = state.summary()
    assert (summary.steps_per_s, summary.time_left_s) == (1.0, (60 + 60 + 200) * (0.5 + 25.0 / 50))


def test_run_that_has_not_reported_counts_at_the_mean_pace_of_its_cell() -> None:
    """a at 1 s a step, b from its checkpoint at 50, c of another cell at 3 s: b counts at 1 s, d at 3 s."""
    state = Progress(runs=runs_of_two_cells(), total_runs=4, clock=FakeClock())
    state.packed([["a"], ["b"], ["c"], ["d"]], 4)
    state.advanced("a", 40, 1.0, 0.0)
    state.started("b", step=50)
    assert state.summary().steps_per_s == 2.0
    assert state.summary().time_left_s == 100.0
    state.advanced("c", 90, 3.0, 0.0)
    assert state.summary().time_left_s == 300.0


def test_ended_runs_have_no_steps_left_and_the_pace_is_known_from_them() -> None:
    """a complete, b diverged, c failed; only d (100 steps) is left, at the mean of what a and b took: 0.25 s."""
    state = four_runs()
    state.packed([["a"], ["b"], ["c"], ["d"]], 1)
    for name, step_s, status in (("a", 0.4, "complete"), ("b", 0.1, "diverged")):
        state.advanced(name, 30, step_s, 0.0)
        state.finished(name, status)
    state.failed("c")
    assert state.summary().time_left_s == 25.0
    state.started("d")
    summary = state.summary()
    assert summary.counts == {"done": 7, "running": 1, "diverged": 1, "failed": 1, "waiting": 0}
    assert (summary.steps_per_s, summary.time_left_s) == (4.0, 25.0)
    state.finished("d", "complete")
    assert state.summary().time_left_s == 0.0


def test_a_run_that_failed_or_lost_its_worker_may_start_again() -> None:
    state = four_runs()
    state.started("a")
    state.finished("b", "complete")
    state.failed("d")
    state.interrupted(["a", "b", "c"])
    assert state.summary().counts == {"done": 7, "running": 0, "diverged": 0, "failed": 1, "waiting": 2}
    state.started("a")
    state.started("d", step=50)
    assert state.summary().counts == {"done": 7, "running": 2, "diverged": 0, "failed": 0, "waiting": 1}


def test_best_is_the_highest_and_of_equals_the_first() -> None:
    state = four_runs()
    for name, step, accuracy in (("a", 10, 0.5), ("b", 10, 0.7), ("b", 20, 0.7), ("c", 10, float("nan"))):
        state.evaluated(name, step, accuracy)
    ((run, best),) = state.best.values()
    assert (run.run_id, best.step, best.validation) == ("b", 10, 0.7)


def test_plain_lines_come_every_30_s_and_at_the_end() -> None:
    display, progress, stream = shown(40, 25, terminal=False)
    with display:
        for now in (1000.0, 1010.0, 1029.0, 1030.0, 1045.0, 1060.0, 1061.0):
            at(progress, now)
            display.tick()
        display.note("a [message] that is much longer than the forty columns of this console")
        progress.failed("run0")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert [line.split("elapsed ")[1][:7] for line in (lines[0], lines[1], lines[3])] == [
        "0:00:30",
        "0:01:00",
        "0:01:01",
    ]
    assert lines[2] == "a [message] that is much longer than the forty columns of this console"
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_what_is_stopped_before_anything_ended_leaves_no_empty_table(terminal: bool) -> None:
    display, _, stream = shown(100, 25, terminal=terminal)
    with display:
        stream.truncate(0)
    assert "waiting" not in stream.getvalue().rpartition("\x1b[2K")[2]


def test_terminal_shows_one_live_display_with_the_best_of_each_cell() -> None:
    display, progress, stream = shown(120, 25, terminal=True, cells=2)
    with display:
        progress.started("run0")
        progress.evaluated("run0", 50, 0.875)
        drawn = stream.getvalue()
        display.tick()
        assert stream.getvalue() == drawn, "drawn twice within the same moment"
        progress.finished("run0", "complete")
        at(progress, 1001.0)
        display.tick()
    last = stream.getvalue()
    assert "87.50%" in last
    assert "1e-3" in last
    assert "1/2 runs done" in last


def test_eighty_columns_show_what_tells_cells_apart_and_every_number() -> None:
    """The task is the same in all; the long names leave room for the other columns."""
    stream = StringIO()
    runs = [replace(wanted(f"{n}", learning_rate=3.2e-4), variant=f"{n}-{'x' * 90}", model="gpt2") for n in range(12)]
    progress = Progress([*runs, *(replace(run, model="tiny", run_id="b") for run in runs[:1])], 13, clock=FakeClock())
    progress.evaluated("0", 50, 0.875)
    progress.finished("0", "complete")
    console = Console(file=stream, force_terminal=True, width=80, height=25, _environ={"TERM": "xterm"})
    with Display(progress, console):
        pass
    lines = [line.rstrip() for line in Text.from_ansi(stream.getvalue()).plain.splitlines()]
    assert any(line.split() == ["model", "variant", "ended", "best", "rate", "step"] for line in lines)
    assert any(line.startswith(" gpt2") and line.split()[2:] == ["1/1", "87.50%", "3.2e-4", "50"] for line in lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(("height", "rows"), [(25, 18), (10, 3), (8, 1), (7, 0), (3, 0)])
def test_display_never_is_higher_than_the_terminal(height: int, rows: int) -> None:
    """Among 30 cells, those that train now come first."""
    display, progress, stream = shown(120, height, terminal=True, cells=30)
    progress.started("run20")
    with display:
        pass
    text = stream.getvalue()
    assert text.count("variant-") == 2 * rows, "drawn at the start and at the end"
    assert ("variant-20" in text) == (rows > 0)
    assert (f"and {30 - rows} more cells" in text) == (rows > 0)
    drawing = text[: text.index("left unknown")]
    assert len(drawing.splitlines()) <= height
