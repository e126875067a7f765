"""How long runs take, by the record and by what `plan --measure` timed."""

from __future__ import annotations

import json
import operator
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lr_sweep.analysis.record.read import read_run_rows
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import is_changed, sealed, write_json
from lr_sweep.datasets import TASKS
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.run_state import Row, State
from lr_sweep.sweep.search.state import Reconciled
from lr_sweep.sweep.study.runs import Cell, by_cell
from lr_sweep.trainables.run import needs_plain

MAX_RUNS_OF_A_CELL = 20
"""Latest runs of a cell that are read; more would make `plan` slow and the range no better."""
MAX_OTHER_RUNS = 300
"""Latest runs of other studies that are read for cells that have no complete run."""
UNTIMED_FIELDS = ("learning_rate", "seed", "weights_checksum", "data_checksum", "protocol_version")
"""Fields of a run's content that do not change how long it takes."""
COLUMNS = ("run_id", "status", "num_steps", "content", "device", "engine", "wall_s")
"""Without times of day: pyarrow imports pandas to convert them to Python values."""


class Span(NamedTuple):
    """A number with a range."""

    low: float
    middle: float
    high: float

    def __mul__(self, factor: float) -> Span:  # type: ignore[override]
        return Span(*(bound * factor for bound in self))

    def __add__(self, other: Span) -> Span:  # type: ignore[override]
        return Span(*map(operator.add, self, other))

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Span:
        """Return the lowest, the median and the highest."""
        return cls(low=min(numbers), middle=statistics.median(numbers), high=max(numbers))


NO_TIME = Span(low=0.0, middle=0.0, high=0.0)


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long runs of a cell take."""

    step_s: Span
    """Seconds of a trial for one gradient step of one run, its evaluations included; over what was timed."""
    device: str
    source: str
    """What was timed, for the reader."""
    written_at: float
    is_measured: bool = False
    """Whether `--measure` timed it, alone on a machine."""


class _Known(NamedTuple):
    cell: str
    """What runs of the timed cell have in common."""
    kind: str
    """The same without the task, but with its shape."""
    timing: Timing


def find_timings(reconciled: Reconciled, results: Results, placement: Placement) -> dict[Cell, Timing]:
    """Return the timings of cells that have runs to train, where they are known.

    A timing of the same cell is preferred to one of another task of the same shape, then a later one to an earlier one.
    Timings on another device (`cpu` or `cuda`) and of another engine than the trials' are ignored.
    """
    if not reconciled.to_train or not results.exists():
        return {}
    engine, on_cpu = placement.resources.engine, placement.device == "cpu"
    one_of_each = {run.cell: run.run for run in reconciled.to_train}
    examples = {cell: _keys(run.content()) for cell, run in one_of_each.items()}

    states = reconciled.states
    complete = [run for run in reconciled.wanted if states[run.run_id] is State.COMPLETE and run.cell in examples]
    done = [[run.run_id for run in runs] for runs in by_cell(complete).values()]
    read = [run_id for ids in done for run_id in _latest(results, ids, MAX_RUNS_OF_A_CELL)]
    if len(done) < len(examples):
        others = {path.stem for path in results.runs.glob("[!.]*.parquet")}.difference(*done)
        read += _latest(results, others, MAX_OTHER_RUNS)
    known = [*_measured(results, engine), *_recorded(results, read, engine)]
    usable = [each for each in known if each.timing.device.lower().startswith("cpu") == on_cpu]
    found = {}
    for cell, (cell_key, kind_key) in examples.items():
        if fitting := [each for each in usable if each.kind == kind_key]:
            found[cell] = max(fitting, key=lambda each: (each.cell == cell_key, each.timing.written_at)).timing
    return found


def _latest(results: Results, run_ids: Iterable[str], number: int) -> list[str]:
    return sorted(run_ids, key=lambda run_id: _written_at(results.run(run_id)), reverse=True)[:number]


def _written_at(path: Path) -> float:
    with suppress(FileNotFoundError):  # removed by `gc` since it was listed
        return path.stat().st_mtime
    return 0.0


def _keys(content: Mapping[str, Any]) -> tuple[str, str]:
    """Return the two keys of `_Known`; raises KeyError or TypeError if this version lacks the task or an option."""
    if "trainable" in content:  # what it trained by may have been changed since, and still be a fair guess
        return _cell_key(content), json.dumps(_without(content, *UNTIMED_FIELDS, "code", "data"), sort_keys=True)
    task = TASKS[content["task"]]
    shape = asdict(task.shape(task.Options(**content["task_options"])))
    kind = _without(content, *UNTIMED_FIELDS, "task", "task_options")
    return _cell_key(content), json.dumps(kind | {"shape": shape}, sort_keys=True)


def _cell_key(content: Mapping[str, Any]) -> str:
    return json.dumps(_without(content, *UNTIMED_FIELDS), sort_keys=True)


def _without(content: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in content.items() if name not in names}


def _recorded(results: Results, run_ids: Iterable[str], engine: str) -> Iterator[_Known]:
    groups: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in read_run_rows(results.root, run_ids, COLUMNS):
        if row["status"] == "complete" and row["wall_s"]:
            content = json.loads(row["content"])
            with suppress(KeyError, TypeError):  # trained by a version with tasks or options that this one lacks
                if row["engine"] in (_engine(content, engine), None):
                    groups[*_keys(content), row["device"]].append(row)
    for (cell, kind, device), rows in groups.items():
        step_s = Span.of([row["wall_s"] / row["num_steps"] for row in rows])
        written_at = max(_written_at(results.run(row["run_id"])) for row in rows)
        source = f"{len(rows)} recorded"
        yield _Known(cell, kind, Timing(step_s=step_s, device=device, source=source, written_at=written_at))


def _engine(content: Mapping[str, Any], wanted: str) -> str:
    """Return the engine that trains such runs now; see `trainables.run.engine_of`."""
    if "trainable" in content:
        return "own"
    plain = "family" in content["model"] or needs_plain(content["trained"], content["protocol"])
    return "plain" if plain else wanted


def _measured(results: Results, engine: str) -> Iterator[_Known]:
    for entry in read_measured(results):
        content = entry["content"]
        if entry["engine"] != _engine(content, engine):
            continue
        together, every = entry["runs_together"], content["protocol"]["evaluate_every"]
        step_s = (Span.of(entry["step_s"]) + Span.of(entry["evaluation_s"]) * (1 / every)) * (1 / together)
        timing = Timing(
            step_s=step_s,
            device=entry["device"],
            source=f"measured, {together} together",
            is_measured=True,
            written_at=entry["measured_at"],
        )
        with suppress(KeyError, TypeError):  # as of recorded runs
            yield _Known(*_keys(content), timing)


def read_measured(results: Results) -> list[dict[str, Any]]:
    """Return what `keep_measured` kept: an entry for each cell, device, engine and number of runs together."""
    path = results.timings
    if not path.is_file():
        return []
    try:
        content = json.loads(path.read_text())
        entries: list[dict[str, Any]] = content["timings"]
        if is_changed(content):
            raise ValueError("its checksum is not that of its content")
        for entry in entries:
            _identity(entry)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"cannot read {path} ({error}): delete it; `plan --measure` times cells again") from error
    return entries


def keep_measured(results: Results, entry: Mapping[str, Any]) -> None:
    """Add a timing, or replace an earlier one of the same cell, device, engine and number of runs.

    An entry has `content` (of a run of the cell), `device`, `engine`, `runs_together`, `step_s` and `evaluation_s`
    (lists of seconds for all runs together) and `measured_at` (Unix time).
    """
    timed = _without(entry["content"], *UNTIMED_FIELDS)
    entry = {**entry, "content": timed}
    others = [other for other in read_measured(results) if _identity(other) != _identity(entry)]
    write_json(results.timings, sealed({"timings": [*others, entry]}))


def _identity(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return _cell_key(entry["content"]), entry["device"], entry["engine"], entry["runs_together"]
