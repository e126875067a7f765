"""What every Parquet column of the record means, and what `content` and `code` say of a run.

`python -m analysis.record.columns` prints it as Markdown, for docs/record.md. Imports no pandas, for `plan`.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from textwrap import fill
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.common.files import Fields, ReadFields

if TYPE_CHECKING:
    import pandas as pd

MOST_VALUE = 1e100
"""A value beyond it is as good as infinite, and one below its inverse as 0: so would their squares be."""


@dataclass(frozen=True)
class Column:
    """One column of a table of the record."""

    name: str
    type: pa.DataType
    unit: str
    """Empty: text, or a number without a unit."""
    doc: str
    nullable: bool = False
    later: bool = False
    """Files written before it came lack it, and read as null."""


def _later(name: str, type_: pa.DataType, unit: str, doc: str) -> Column:
    return Column(name, type_, unit, doc, nullable=True, later=True)


Columns = tuple[Column, ...]
Row = Mapping[Any, Any]
"""A row of a table, value by column."""

SPLITS = ("train", "validation", "test")
"""Columns of a curve that hold the study's metric. In format 1 they were called `train_accuracy` and so on."""
STATUSES = ("complete", "diverged", "failed", "stopped")
"""How a run can have ended."""
DOUBTFUL = INEXACTLY, UNCHECKED = "inexactly", "unchecked"
"""Values of `resumed` for runs whose numbers may differ from those of a run without interruption."""
NOT_MADE_OF = frozenset(
    {"learning_rate", "seed", "protocol_version", "weights_checksum", "task", "schedule_steps"}
)
"""What differs within a cell, follows from the rest, or is a name."""
ENGINE = "trainables/"
"""Code below it may change without changing numbers; where it changes them, `protocol_version` is raised."""
MAX_FILES = 3
"""Files named in a message; the rest are counted."""

Now = Callable[[str], str | None]
"""Returns the version that a file has now; None: not known."""

_STR, _F64, _I64, _I32, _BOOL = pa.string(), pa.float64(), pa.int64(), pa.int32(), pa.bool_()
_LOGGED = pa.struct([("step", _I64), ("name", _STR), ("value", _F64)])
_STEPS = "gradient steps"
_METRIC = "study's metric"
_TIME = pa.timestamp("ms", tz="UTC")

RUNS: Columns = (
    Column("run_id", _STR, "", "16 hex digits, hashed from `content`"),
    Column("protocol_version", _I32, "", "raised when the code changes the numbers of a run"),
    Column(
        "status",
        _STR,
        "",
        "`complete`, `diverged`, `failed` or `stopped` (by `stop_early`)",
    ),
    Column("num_steps", _I64, _STEPS, "steps trained"),
    Column(
        "diverged_at_step",
        _I64,
        _STEPS,
        "first step with a non-finite loss or gradient; null: none",
        True,
    ),
    Column("failure", _STR, "", "why the run failed; null: it did not", True),
    Column("task", _STR, "", "its name when the run was first trained"),
    Column("model", _STR, "", "its name when the run was first trained"),
    Column("variant", _STR, "", "its name when the run was first trained"),
    Column("learning_rate", _F64, "", "of the optimizer, at the schedule's highest"),
    Column("seed", _I64, "", "keys every random choice of the run"),
    Column("content", _STR, "", "JSON of everything that can change the run's numbers"),
    Column(
        "pretrained_on", _STR, "", "what the initial weights were trained on; null: random", True
    ),
    Column("weights_checksum", _STR, "", "sha256 of the initial weights; null: random", True),
    Column("data_checksum", _STR, "", "identifies the task's examples"),
    Column("data_origin", _STR, "", "where the examples came from"),
    Column("device", _STR, "", "what the run trained on"),
    Column(
        "wall_s",
        _F64,
        "s",
        "time trained, without pauses, shared out over the runs that train together",
    ),
    Column("device_s", _F64, "s", "the run's share of its cohort's device time"),
    Column("started_at", _TIME, "UTC", "when training started"),
    Column("finished_at", _TIME, "UTC", "when training ended"),
    Column("attempts", _I32, "", "times the run was started"),
    Column(
        "git_commit",
        _STR,
        "",
        "commit of the user's own code, else of this program; null: no git checkout",
        True,
    ),
    Column(
        "git_dirty",
        _BOOL,
        "",
        "whether that code had uncommitted changes; null: no git checkout",
        True,
    ),
    Column("versions", _STR, "", "JSON object, package to version"),
    _later("lost_steps", _I64, _STEPS, "lost and trained again, at least; null: not counted"),
    _later("engine", _STR, "", "`stacked`, `plain` or `own`; null: not known"),
    _later("code", _STR, "", "JSON list: which versions of the code trained it; null: not known"),
    _later(
        "best_step",
        _I64,
        _STEPS,
        "step of the best validation value, the earliest of equals; null: none, or not known",
    ),
    _later("validation_at_best", _F64, _METRIC, "validation value at `best_step`"),
    _later("test_at_best", _F64, _METRIC, "test value at `best_step`; selects nothing"),
    _later(
        "stopped_at_step", _I64, _STEPS, "rung at which `stop_early` stopped the run; null: none"
    ),
    _later(
        "last_printed",
        _I64,
        "",
        "number or step of the last evaluation of a command, if it alone counts",
    ),
    _later(
        "resumed",
        _STR,
        "",
        "`never`, `exactly`, `unchecked` or `inexactly`, the worst that happened; null: not known",
    ),
    _later("not_saved", _STR, "", "names of what an inexact resume had not saved; null: nothing"),
)

CURVES: Columns = (
    Column("run_id", _STR, "", "as in `runs`"),
    Column("step", _I64, _STEPS, "steps taken before this evaluation"),
    Column("train_loss", _F64, "nats", "mean since the last evaluation, in training mode"),
    Column("train", _F64, _METRIC, "on a fixed part of the training split, in evaluation mode"),
    Column("validation_loss", _F64, "nats", "on the whole validation split"),
    Column(
        "validation", _F64, _METRIC, "on the whole validation split; the only column that selects"
    ),
    Column("test_loss", _F64, "nats", "on the whole test split"),
    Column("test", _F64, _METRIC, "on the whole test split; never selects anything"),
    Column("time_ms", _I64, "ms", "Unix time of the evaluation"),
    Column("elapsed_s", _F64, "s", "time trained so far, shared out as `wall_s`"),
    _later(
        "logged",
        pa.list_(_LOGGED),
        "",
        "`session.log` since the last evaluation; selects nothing; null: none",
    ),
)

WANTED: Columns = (
    Column("run_id", _STR, "", "as in `runs`"),
    Column("task", _STR, "", "the study's name for it"),
    Column("model", _STR, "", "the study's name for it"),
    Column("variant", _STR, "", "the study's name for it"),
    Column("learning_rate", _F64, "", "as in `runs`"),
    Column("seed", _I64, "", "as in `runs`"),
    Column("num_steps", _I64, _STEPS, "the study's step budget for this run"),
    Column("pretrained_on", _STR, "", "as in `runs`; null: random", True),
    Column("data_origin", _STR, "", "where the examples come from"),
    _later("trained_parameters", _I64, "", "how many numbers the run trains; null: not known"),
    _later("options", _STR, "", "JSON object of options chosen with the learning rate; null: none"),
    _later("fresh", _BOOL, "", "whether its seed is fresh, which chose nothing; null: no"),
)


_CELL = [
    Column(name, _STR, "", "the cell's, as in `wanted`") for name in ("task", "model", "variant")
]

PROPOSALS: Columns = (
    *_CELL,
    Column(
        "number", _I64, "", "of the proposals by `search`, `winners`, `refine` or `fresh`, from 0"
    ),
    Column("round", _I64, "", "from 1; stored before its runs train"),
    Column("learning_rate", _F64, "", "proposed; 3 significant digits"),
    Column(
        "sampler",
        _STR,
        "",
        "`tpe`, `gp`, `quasi-random`, `random`, `refine`; `winner`: all seeds; `fresh`: the chosen rate, one more seed",
    ),
    _later("options", _STR, "", "JSON object of options chosen with the learning rate; null: none"),
    _later("seed", _I64, "", "the fresh seed; null: the study's own"),
)

RUNGS: Columns = (
    *_CELL,
    Column("learning_rate", _F64, "", "of the judged runs, all seeds together"),
    Column("step", _I64, _STEPS, "of the rung"),
    Column(
        "value",
        _F64,
        _METRIC,
        "validation, mean over the seeds at the rung; null: not finite",
        True,
    ),
    Column(
        "num_compared", _I64, "", "learning rates of the cell at the rung by then, with this one"
    ),
    Column("kept", _BOOL, "", "whether its runs continue"),
)


def best_of(curve: Iterable[ReadFields], metric: Metric = ACCURACY) -> Fields:
    """Return what a run's row says of the best evaluation of its curve, for those columns of `RUNS`."""
    known = [point for point in curve if math.isfinite(point["validation"])]
    best = max(
        known,
        key=lambda point: (metric.sign * point["validation"], -point["step"]),
        default={},
    )
    columns = {
        "best_step": "step",
        "validation_at_best": "validation",
        "test_at_best": "test",
    }
    return {name: best.get(source) for name, source in columns.items()}


def in_range(curves: pd.DataFrame) -> pd.DataFrame:
    """Return evaluations without values beyond `MOST_VALUE`, which are NaN, and with 0 for those below its inverse.

    Sums of squares of all others neither overflow nor underflow.
    """
    measured = curves.filter(items=SPLITS)
    sizes = measured.abs()
    return curves.assign(**measured.where(sizes <= MOST_VALUE).mask(sizes < 1 / MOST_VALUE, 0.0))


def schema(columns: Columns) -> pa.Schema:
    """Return the Arrow schema of a table of the record."""
    return pa.schema([pa.field(column.name, column.type, column.nullable) for column in columns])


def table(rows: Sequence[ReadFields], columns: Columns) -> pa.Table:
    """Build a typed table from rows that have exactly the columns' keys.

    Raises ValueError for other keys, a null where none may be, or a time without a zone, and pyarrow.ArrowException for
    a value of another type.
    """
    names = {column.name for column in columns}
    required = {column.name for column in columns if not column.nullable}
    for row in rows:
        if row.keys() != names:
            raise ValueError(
                f"unknown keys {sorted(row.keys() - names)}, missing keys {sorted(names - row.keys())}"
            )
        if empty := sorted(name for name in required if row[name] is None):
            raise ValueError(f"columns {empty} may not be null")
        if naive := sorted(
            key for key, x in row.items() if isinstance(x, datetime) and x.tzinfo is None
        ):
            raise ValueError(f"times in columns {naive} have no time zone")
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema(columns))


def settings(content: str) -> Fields:
    """Return numbers and texts by name, without the names of what they are part of; lists as JSON."""
    return dict(_leaves(json.loads(content)))


def _leaves(content: ReadFields) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from _leaves(value)
        elif name not in NOT_MADE_OF:
            yield name, json.dumps(value) if isinstance(value, (list, bool, type(None))) else value


def other_versions(code: str, now: Now) -> set[str]:
    """Return the files of which a run was trained, at any step, by another version than the present one."""
    return {
        file
        for file, versions in versions_of(code).items()
        if now(file) is not None and versions != {now(file)}
    }


def versions_of(code: str, trained_steps: int | None = None) -> dict[str, set[str]]:
    """Return the versions of each file that a run's `code` names, up to step `trained_steps`; None: all."""
    by_file: dict[str, set[str]] = defaultdict(set)
    for version in json.loads(code):
        if (
            trained_steps is None
            or version["from_step"] < trained_steps
            or version["from_step"] == 0
        ):
            for file, text in (version["files"] or {}).items():
                by_file[file].add(text)
    return by_file


def files_text(files: Iterable[str]) -> str:
    """Name some files, those of the data first."""
    names = sorted(files, key=lambda file: (file.startswith(ENGINE), file))
    if len(names) > MAX_FILES:
        names = [*names[: MAX_FILES - 1], f"{len(names) - MAX_FILES + 1} more files"]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


TABLES: dict[str, tuple[Columns, str]] = {
    "runs/<run_id>.parquet": (
        RUNS,
        "One row a run, written when it ends, never changed but by training it further.",
    ),
    "curves/<run_id>.parquet": (
        CURVES,
        "One row an evaluation, ordered by step. No row in `runs`: not ended yet.",
    ),
    "studies/<study>/wanted.parquet": (
        WANTED,
        "One row a run that the study wants, under the study's names.",
    ),
    "studies/<study>/proposals.parquet": (
        PROPOSALS,
        "One row a learning rate proposed for a cell.",
    ),
    "studies/<study>/rungs.parquet": (
        RUNGS,
        "One row a learning rate that `stop_early` judged at a rung, in order.",
    ),
}


def markdown() -> str:
    """Return a section a table, with name, type, unit and meaning of every column, in lines of 100 characters."""
    lines = []
    for path, (columns, about) in TABLES.items():
        kinds = [
            f"{c.type}{' or null' if c.nullable else ''}{c.unit and f', {c.unit}'}" for c in columns
        ]
        alike = groupby(zip(columns, kinds, strict=True), key=lambda pair: (pair[1], pair[0].doc))
        rows = [
            f"- {', '.join(f'`{c.name}`' for c, _ in group)} ({kind}): {doc}"
            for (kind, doc), group in alike
        ]
        lines += [
            f"## `{path}`",
            "",
            about,
            "",
            *[fill(row, 100, subsequent_indent="  ", break_on_hyphens=False) for row in rows],
            "",
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown(), end="")
