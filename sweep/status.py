"""`status`: how far a study is, from the record and from what a running sweep last wrote down."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.record import read_study, read_wanted_rows
from analysis.text import study_heading
from sweep.known_runs import run_title
from sweep.results import Results
from sweep.standing import NEEDED, SHOWN, Row, State, read_ends, states_of
from sweep.text import aligned, counted, duration


def status_text(results: Results, study: str, now: float | None = None) -> str:
    """Return where a study's runs stand, cell by cell, and whether a sweep is going on.

    Raises:
        RecordError: no `run` of the study was ever started here, or the record is damaged.
    """
    if pretrains_first(results, study):
        activity = _activity(results, time.time() if now is None else now)
        return "\n".join([f"{study}: no run yet", activity, f"results: {results.location}"])
    info = read_study(results.root, study)
    wanted = read_wanted_rows(results.root, study)
    ends = read_ends(results, [row["run_id"] for row in wanted], (*NEEDED, "failure"))
    states = states_of([(row["run_id"], row["num_steps"]) for row in wanted], ends, results)
    lines = [study_heading(info.study, info.title), _activity(results, time.time() if now is None else now), ""]
    lines += _cell_lines(wanted, states)
    for row, state in zip(wanted, states, strict=True):
        if state is State.FAILED:
            lines.append(f"failed: {run_title(row)}: {ends[row['run_id']]['failure']}")
    return "\n".join([*lines, f"results: {results.location}"])


def pretrains_first(results: Results, study: str) -> bool:
    """Return whether a sweep pretrains for a study that was never run here; it is recorded only after that."""
    if (results.study(study) / "study.json").exists() or not results.being_written():
        return False
    return results.pretraining_progress.exists() and _read(results.holder).get("study") == study


def _read(path: Path) -> dict[str, Any]:
    """Read a file of a running sweep; nothing, if it is not there."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found


def _cell_lines(wanted: Sequence[Row], states: list[State]) -> list[str]:
    rows: list[tuple[str, ...]] = [("task", "model", "variant", *SHOWN.values())]
    cells: dict[tuple[str, ...], Counter[State]] = {}
    for row, state in zip(wanted, states, strict=True):
        cells.setdefault((row["task"], row["model"], row["variant"]), Counter())[state] += 1
    for labels, counts in (cells | {("all", "", ""): Counter(states)}).items():
        rows.append((*labels, *(str(counts[state]) for state in SHOWN)))
    return aligned(rows, right=range(3, 3 + len(SHOWN)))


def _activity(results: Results, now: float) -> str:
    """Tell who writes here, and how far it was when it last said so: it may train another study than the one asked."""
    if not results.being_written():
        return "no sweep is running; `run` trains what is left"
    holder = _read(results.holder)
    if not holder:
        return "a sweep has just started"
    who = f"process {holder['pid']} on {holder['host']}"
    if progress := _read(results.pretraining_progress):
        doing = (
            f"pretrains {progress['model']} for {holder['study']}: step {progress['step']} of {progress['num_steps']}"
        )
        return f"{who} {doing}, {_remaining(progress)} ({_age(now - progress['updated_at'])})"
    progress = _read(results.progress(holder["study"]))
    if not progress:
        return f"{who} is writing here ({holder['study']}); it has trained nothing yet"
    return (
        f"{who} trains study {holder['study']}: {progress['steps_per_s']:.0f} steps/s, {_remaining(progress)} "
        f"({_age(now - progress['updated_at'])})"
    )


def _remaining(progress: dict[str, Any]) -> str:
    left = progress["time_left_s"]
    remaining = "time left not known yet" if left is None else f"about {duration(left)} left"
    if evaluating := progress.get("evaluating"):
        remaining += f", {counted(evaluating, 'run')} evaluating"
    return remaining


def _age(seconds: float) -> str:
    if round(seconds) < 0:  # the sweep runs on another machine, or the clock was set back since
        return f"as of its last word; this machine's clock is {-seconds:.0f} s behind the sweep's"
    return f"as of {abs(seconds):.0f} s ago"
