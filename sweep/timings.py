"""How long runs take: from the record, and from what `plan --measure` timed. Needs no torch."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from analysis.record import read_run_rows
from datasets import TASKS
from sweep.errors import UserError
from sweep.reconcile import Reconciled
from sweep.results import Results, write_json
from sweep.runs import WantedRun
from sweep.standing import Row, State

Cell = tuple[str, str, str]

MOST_OF_A_CELL = 20
"""Runs of a cell that are looked at, the latest; more would make `plan` slow and the range no better."""
MOST_OTHERS = 300
"""Runs of other studies that are looked at for cells that have none of their own, the latest."""
NO_MATTER = ("learning_rate", "seed", "weights_checksum", "data_checksum", "protocol_version")
"""Fields of a run's content in which runs that take the same time may differ."""
BUSY = 0.1
"""Share of the machine's CPUs; where other processes use more, what was measured is no measure of the machine."""
COLUMNS = ("run_id", "status", "num_steps", "content", "device", "engine", "wall_s")
"""Without times of day: to make them plain values, pyarrow imports pandas."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """A number with a range."""

    low: float
    middle: float
    high: float

    def times(self, factor: float) -> Span:
        """Return it multiplied."""
        return Span(low=self.low * factor, middle=self.middle * factor, high=self.high * factor)

    def plus(self, other: Span) -> Span:
        """Return the sum of both."""
        return Span(low=self.low + other.low, middle=self.middle + other.middle, high=self.high + other.high)

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Span:
        """Return lowest, median and highest."""
        return cls(low=min(numbers), middle=statistics.median(numbers), high=max(numbers))


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long runs of a cell take."""

    step_s: Span
    """Seconds of a trial for one gradient step of one run, its evaluations included; over what was timed."""
    device: str
    """What it was timed on."""
    source: str
    """What was timed, for people."""
    written_at: float
    """Unix time of the file that says so."""
    others_share: float | None
    """Share of the machine that other processes used while `--measure` took it; None: recorded, or not known."""


@dataclass(frozen=True, kw_only=True)
class _Known:
    timing: Timing
    cell: str
    """What runs of the timed cell have in common."""
    kind: str
    """The same without the task, but for its shape."""


def find_timings(
    wanted: Sequence[WantedRun], reconciled: Reconciled, results: Results, device: str, engine: str
) -> dict[Cell, Timing]:
    """Return the timings of cells that have runs to train; those that are not known are left out.

    Timings of the same cell count before those of another task of the same shape, later ones before earlier ones.

    Args:
        wanted: the study's runs.
        reconciled: which of them are to be trained.
        results: where timings are.
        device: that trials get, `cpu` or `cuda`: timings on the other are of no use.
        engine: that trains them.

    Raises:
        RecordError: a file of the record is damaged.
    """
    if not reconciled.to_train or not results.exists():
        return {}
    examples = {run.cell: run for run in reconciled.to_train}
    done: dict[Cell, list[str]] = {cell: [] for cell in examples}
    for run in wanted:
        if run.cell in done and reconciled.states[run.run_id] is State.COMPLETE:
            done[run.cell].append(run.run_id)
    own = [run_id for ids in done.values() for run_id in _latest(results, ids, MOST_OF_A_CELL)]
    known = [*_measured(results, engine), *_recorded(results, own, engine)]
    found = _chosen(examples, known, device)
    if len(found) < len(examples):
        others = {path.stem for path in (results.root / "runs").glob("[!.]*.parquet")}.difference(*done.values())
        known += _recorded(results, _latest(results, others, MOST_OTHERS), engine)
        found = _chosen(examples, known, device)
    return found


def _latest(results: Results, run_ids: Iterable[str], number: int) -> list[str]:
    """Return the runs whose rows were written last."""
    return sorted(run_ids, key=lambda run_id: _written_at(results.run(run_id)), reverse=True)[:number]


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # `gc` has just removed it
        return 0.0


def _chosen(examples: Mapping[Cell, WantedRun], known: Sequence[_Known], device: str) -> dict[Cell, Timing]:
    usable = [each for each in known if each.timing.device.lower().startswith("cpu") == (device == "cpu")]
    found = {}
    for cell, run in examples.items():
        content = run.run.content()
        cell_key, kind_key = _keys(content)
        timings = [each.timing for each in usable if each.cell == cell_key]
        timings = timings or [each.timing for each in usable if each.kind == kind_key]
        if timings:
            found[cell] = max(timings, key=lambda timing: timing.written_at)
    return found


def _keys(content: Mapping[str, Any]) -> tuple[str, str]:
    """Return what runs of the same cell have in common, and what those have of another task of the same shape.

    Raises:
        KeyError, TypeError: a task or options that this version has not.
    """
    task = TASKS[content["task"]]
    shape = asdict(task.shape(task.Options(**content["task_options"])))
    kind = {name: value for name, value in content.items() if name not in (*NO_MATTER, "task", "task_options")}
    return _cell_key(content), json.dumps(kind | {"shape": shape}, sort_keys=True)


def _cell_key(content: Mapping[str, Any]) -> str:
    return json.dumps({name: value for name, value in content.items() if name not in NO_MATTER}, sort_keys=True)


def _recorded(results: Results, run_ids: Iterable[str], engine: str) -> list[_Known]:
    """Return a timing a cell and device, over the runs that are complete."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in read_run_rows(results.root, run_ids, COLUMNS):
        if row["status"] != "complete" or not row["wall_s"] or row["engine"] not in (engine, None):
            continue
        with suppress(KeyError, TypeError):  # of a version that has tasks or options that this one has not
            groups.setdefault((*_keys(json.loads(row["content"])), row["device"]), []).append(row)
    return [
        _Known(
            cell=cell,
            kind=kind,
            timing=Timing(
                step_s=Span.of([row["wall_s"] / row["num_steps"] for row in rows]),
                device=device,
                source=f"{len(rows)} recorded",
                others_share=None,
                written_at=max(_written_at(results.run(row["run_id"])) for row in rows),
            ),
        )
        for (cell, kind, device), rows in groups.items()
    ]


def _measured(results: Results, engine: str) -> list[_Known]:
    known = []
    for entry in read_measured(results):
        with suppress(KeyError, TypeError):  # as of recorded runs
            cell, kind = _keys(entry["content"])
            if entry["engine"] == engine:
                known.append(_Known(cell=cell, kind=kind, timing=_measured_timing(entry)))
    return known


def _measured_timing(entry: Mapping[str, Any]) -> Timing:
    step, evaluation = Span.of(entry["step_s"]), Span.of(entry["evaluation_s"])
    every, together = entry["content"]["protocol"]["evaluate_every"], entry["runs_together"]
    share = entry.get("others_share")  # entries of earlier versions lack it
    step_s = step.plus(evaluation.times(1 / every)).times(1 / together)
    return Timing(
        step_s=step_s if share is None else _widened(step_s, share),
        device=entry["device"],
        source=f"measured, {together} together{busy_text(share)}",
        others_share=share,
        written_at=entry["measured_at"],
    )


def _widened(step_s: Span, others_share: float) -> Span:
    """Return the range from a machine without the others to one where they slow training down as much again."""
    if others_share < BUSY:
        return step_s
    left = 1 - others_share
    return Span(low=step_s.low * left, middle=step_s.middle, high=step_s.high / left)


def busy_text(others_share: float | None) -> str:
    """Say that the machine was busy, if it was."""
    if others_share is None or others_share < BUSY:
        return ""
    return f", other processes used {others_share:.0%} of the CPUs"


def read_measured(results: Results) -> list[dict[str, Any]]:
    """Return what `write_measured` wrote, an entry a cell, device, engine and number of runs together."""
    path = measured_path(results)
    if not path.is_file():
        return []
    try:
        entries: list[dict[str, Any]] = json.loads(path.read_text())["timings"]
        for entry in entries:
            _identity(entry)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"cannot read {path} ({error}): delete it; `plan --measure` times cells again") from error
    return entries


def write_measured(results: Results, entry: Mapping[str, Any]) -> None:
    """Add a timing; it replaces an earlier one of the same.

    Args:
        results: where to.
        entry: `content` (of a run of the cell), `device`, `engine`, `runs_together`, `step_s` and `evaluation_s`
            (lists of seconds for all runs together), `measured_at` (Unix time), `others_share` (as of `Timing`).
    """
    timed = {name: value for name, value in entry["content"].items() if name not in NO_MATTER}
    entry = {**entry, "content": timed}
    others = [other for other in read_measured(results) if _identity(other) != _identity(entry)]
    write_json(measured_path(results), {"timings": [*others, entry]})


def _identity(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return _cell_key(entry["content"]), entry["device"], entry["engine"], entry["runs_together"]


def measured_path(results: Results) -> Path:
    """Return where measured timings are kept."""
    return results.root / "timings.json"
