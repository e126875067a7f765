from __future__ import annotations

import json
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from sweep.progress import Progress, summary_line
from sweep.progress_state import ProgressState, RunLabel


class FakeClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def label(variant: str = "frozen-random", learning_rate: float = 1e-3, seed: int = 0, num_steps: int = 100) -> RunLabel:
    return RunLabel(
        task="mnist", model="tiny", variant=variant, learning_rate=learning_rate, seed=seed, num_steps=num_steps
    )


def four_runs() -> ProgressState:
    """Ten runs, six of them done before we started at 1000 s; the other four of 100 steps each."""
    cells = {name: label(learning_rate=rate) for name, rate in zip("abcd", (1e-4, 1e-3, 1e-2, 1e-1), strict=True)}
    return ProgressState(total_runs=10, done_before=6, cells=cells, started_at=1000.0)


def progress(width: int, height: int, *, terminal: bool, cells: int = 1) -> tuple[Progress, FakeClock, StringIO]:
    stream, clock = StringIO(), FakeClock()
    console = Console(file=stream, force_terminal=terminal, width=width, height=height, _environ={"TERM": "xterm"})
    labels = {f"run{n}": label(variant=f"variant-{n}") for n in range(cells)}
    return Progress(cells, 0, labels, console=console, clock=clock), clock, stream


def test_nothing_started() -> None:
    summary = four_runs().summary(1000.0)
    assert summary.counts == {"done": 6, "running": 0, "diverged": 0, "failed": 0, "waiting": 4}
    assert (summary.steps_per_s, summary.elapsed_s, summary.time_left_s) == (0.0, 0.0, None)


def test_time_left_counts_steps_to_go_at_the_running_speed() -> None:
    """a at 40 of 100 and b at 20 of 100, 2 and 3 steps/s, c and d waiting: (60 + 80 + 200) / 5 = 68 s."""
    state = four_runs()
    state.started("a")
    state.started("b")
    state.advanced("a", 40, 2.0)
    state.advanced("b", 20, 3.0)
    summary = state.summary(1020.0)
    assert summary.counts == {"done": 6, "running": 2, "diverged": 0, "failed": 0, "waiting": 2}
    assert (summary.steps_per_s, summary.elapsed_s, summary.time_left_s) == (5.0, 20.0, 68.0)


def test_run_that_has_not_reported_counts_at_the_mean_speed() -> None:
    """a at 2 steps/s; b started from its checkpoint at 50: 4 steps/s for 60 + 50 + 200 steps."""
    state = four_runs()
    state.advanced("a", 40, 2.0)
    state.started("b", step=50)
    assert state.summary(1000.0).steps_per_s == 4.0
    assert state.summary(1000.0).time_left_s == 77.5


def test_ended_runs_have_no_steps_left_and_speed_is_known_from_them() -> None:
    """a complete, b diverged, c failed; only d (100 steps) is left, started, at the mean of what a and b did."""
    state = four_runs()
    for name, speed, status in (("a", 2.0, "complete"), ("b", 6.0, "diverged")):
        state.advanced(name, 30, speed)
        state.finished(name, status)
    state.finished("c", "failed")
    assert state.summary(1000.0).time_left_s is None
    state.started("d")
    summary = state.summary(1000.0)
    assert summary.counts == {"done": 7, "running": 1, "diverged": 1, "failed": 1, "waiting": 0}
    assert (summary.steps_per_s, summary.time_left_s) == (4.0, 25.0)
    state.finished("d", "complete")
    assert state.summary(1000.0).time_left_s == 0.0


def test_a_failed_run_may_start_again() -> None:
    state = four_runs()
    state.finished("a", "failed")
    state.started("a", step=50)
    assert state.summary(1000.0).counts["failed"] == 0
    assert state.summary(1000.0).counts["running"] == 1


def test_a_run_whose_worker_died_waits_until_it_starts_again() -> None:
    state = four_runs()
    state.started("a")
    state.finished("b", "complete")
    state.interrupted(["a", "b", "c"])
    assert state.summary(1000.0).counts == {"done": 7, "running": 0, "diverged": 0, "failed": 0, "waiting": 3}
    state.started("a")
    assert state.summary(1000.0).counts["running"] == 1


def test_best_is_the_highest_and_of_equals_the_first() -> None:
    state = four_runs()
    for name, step, accuracy in (("a", 10, 0.5), ("b", 10, 0.7), ("b", 20, 0.7), ("c", 10, float("nan"))):
        state.evaluation(name, step, accuracy)
    (best,) = state.best.values()
    assert (best.validation_accuracy, best.learning_rate, best.step) == (0.7, 1e-3, 10)


def test_summary_line_and_json() -> None:
    state = four_runs()
    state.advanced("a", 50, 0.1)
    assert summary_line(state.summary(1061.0)) == (
        "6/10 runs done, 1 running, 0 diverged, 0 failed, 3 waiting | 0.1 steps/s | elapsed 0:01:01 | left 0:58:20"
    )


events = st.lists(
    st.tuples(st.sampled_from(["started", "advanced", "finished"]), st.sampled_from("abcd"), st.floats(0, 1e4))
)


@given(events)
def test_counts_always_add_up_and_time_left_is_never_negative(happened: list[tuple[str, str, float]]) -> None:
    state = four_runs()
    for kind, name, number in happened:
        if kind == "advanced":
            state.advanced(name, int(number), number)
        elif kind == "started":
            state.started(name)
        else:
            state.finished(name, "complete")
    summary = state.summary(0.0)
    assert sum(summary.counts.values()) == 10
    assert summary.time_left_s is None or summary.time_left_s >= 0
    assert summary.elapsed_s == 0.0


def test_plain_lines_come_every_30_s_and_at_the_end() -> None:
    shown, clock, stream = progress(40, 25, terminal=False)
    with shown:
        for clock.now in (1000.0, 1010.0, 1029.0, 1030.0, 1045.0, 1060.0, 1061.0):
            shown.advanced("run0", 10, 1.0)
        shown.note("a [message] that is much longer than the forty columns of this console")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert [line.split("elapsed ")[1][:7] for line in (lines[0], lines[1], lines[3])] == [
        "0:00:30",
        "0:01:00",
        "0:01:01",
    ]
    assert lines[2] == "a [message] that is much longer than the forty columns of this console"
    assert "\x1b" not in stream.getvalue()


def test_as_dict_is_json() -> None:
    shown, clock, _ = progress(80, 25, terminal=False)
    shown.advanced("run0", 75, 5.0)
    clock.now = 1002.0
    assert json.loads(json.dumps(shown.as_dict())) == {
        "counts": {"done": 0, "running": 1, "diverged": 0, "failed": 0, "waiting": 0},
        "steps_per_s": 5.0,
        "time_left_s": 5.0,
    }


def test_terminal_shows_one_live_display_with_the_best_of_each_cell() -> None:
    shown, clock, stream = progress(120, 25, terminal=True, cells=2)
    with shown:
        shown.started("run0")
        shown.evaluation("run0", 50, 0.875)
        drawn = stream.getvalue()
        shown.tick()
        assert stream.getvalue() == drawn, "drawn twice within the same moment"
        clock.now += 1.0
        shown.finished("run0", "complete")
    last = stream.getvalue()
    assert "87.50%" in last
    assert "0.001" in last
    assert "1/2 runs done" in last


@pytest.mark.parametrize(("height", "rows"), [(25, 18), (10, 3), (8, 1), (7, 0), (3, 0)])
def test_display_never_is_higher_than_the_terminal(height: int, rows: int) -> None:
    """Of 30 cells those that train now come first."""
    shown, _, stream = progress(120, height, terminal=True, cells=30)
    shown.started("run20")
    with shown:
        pass
    text = stream.getvalue()
    assert text.count("variant-") == 2 * rows, "drawn at the start and at the end"
    assert ("variant-20" in text) == (rows > 0)
    assert (f"and {30 - rows} more cells" in text) == (rows > 0)
    drawing = text[: text.index("left unknown")]
    assert len(drawing.splitlines()) <= height
