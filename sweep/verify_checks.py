"""What must hold in a run's row and in its curve, told from their values alone; for `sweep.verify`."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from analysis.columns import CURVES, RUNS, Columns

Row = Mapping[str, Any]
"""A row of a table of the record, by column."""

STATUSES = ("complete", "diverged", "failed")
SHARED_WITH_CONTENT = ("task", "learning_rate", "seed", "protocol_version", "weights_checksum", "data_checksum")
"""Columns of a row that say what its `content` says too."""
CLOCK_NOTE = (
    "the clock was set back, or a part was trained again; elapsed_s, measured by a clock that nobody sets, holds"
)


def row_problems(run_id: str, rows: Sequence[Row]) -> list[str]:
    """Return what is wrong with the content of `runs/<run_id>.parquet`."""
    if gap := _gap(rows):
        return [gap]
    return [*_identity_problems(run_id, rows[0]), *_end_problems(rows[0])]


def end_problems(rows: Sequence[Row]) -> list[str]:
    """Return what is wrong with what a file of `runs` says of how its run ended."""
    if gap := _gap(rows):
        return [gap]
    return list(_end_problems(rows[0]))


def _gap(rows: Sequence[Row]) -> str | None:
    return f"got {len(rows)} rows, want 1" if len(rows) != 1 else _nulls(rows, RUNS)


def _nulls(rows: Sequence[Row], columns: Columns) -> str | None:
    names = [c.name for c in columns if not c.nullable and any(row[c.name] is None for row in rows)]
    return f"nothing in columns {', '.join(names)}, which are never empty" if names else None


def _identity_problems(run_id: str, row: Row) -> Iterator[str]:
    if row["run_id"] != run_id:
        yield f"got the row of run {row['run_id']}, want that of the file's name"
    # Hashed as text: it holds for every protocol version, whatever a run was made of in it.
    hashed = hashlib.sha256(row["content"].encode()).hexdigest()[:16]
    if hashed != row["run_id"]:
        yield f"its content is that of run {hashed}, not of {row['run_id']}"
    content = content_of(row)
    if wrong := [
        f"{k}: got {row[k]}, content has {content.get(k)}" for k in SHARED_WITH_CONTENT if row[k] != content.get(k)
    ]:
        yield "; ".join(wrong)


def _end_problems(row: Row) -> Iterator[str]:
    status, diverged_at = row["status"], row["diverged_at_step"]
    if status not in STATUSES:
        yield f"got status {status!r}, want one of {', '.join(STATUSES)}"
    if row["num_steps"] < 0 or (status == "complete" and row["num_steps"] == 0):
        yield f"{status} after {row['num_steps']} steps"
    if (status == "diverged") != (diverged_at is not None):
        yield f"{status}, and diverged_at_step is {diverged_at}"


def content_of(row: Row) -> Mapping[str, Any]:
    """Return a row's `content`; empty if it is not JSON of an object."""
    try:
        content = json.loads(row["content"])
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def curve_problems(run_id: str, points: Sequence[Row], row: Row | None) -> list[str]:
    """Return what is wrong with the content of `curves/<run_id>.parquet`.

    Args:
        run_id: the run.
        points: the file's rows.
        row: the run's row, if it has ended and its row is sound.
    """
    if not points:
        return ["got no evaluations, want one at least"]
    if nulls := _nulls(points, CURVES):
        return [nulls]
    every = evaluate_every(row) or points[0]["step"]
    wrong_steps = list(_step_problems([point["step"] for point in points], every))
    return [*_point_problems(run_id, points), *(wrong_steps or _length_problems(points, row, every))]


def evaluate_every(row: Row | None) -> int | None:
    """Return the gradient steps between a run's evaluations; None if they are not known."""
    protocol = content_of(row).get("protocol") if row else None
    every = protocol.get("evaluate_every") if isinstance(protocol, dict) else None
    return every if isinstance(every, int) and every > 0 else None


def _point_problems(run_id: str, points: Sequence[Row]) -> Iterator[str]:
    if others := sorted({str(point["run_id"]) for point in points} - {run_id}):
        yield f"got evaluations of run {', '.join(others)}, want those of the file's name alone"
    for name in (column.name for column in CURVES if column.type == pa.float64()):
        most = 1.0 if name.endswith("_accuracy") else sys.float_info.max
        for point in points:
            if not 0 <= point[name] <= most:
                yield f"{name} is {point[name]} at step {point['step']}"
                break


def _step_problems(steps: Sequence[int], every: int) -> Iterator[str]:
    for index, step in enumerate(steps, start=1):
        if step != every * index or every < 1:
            yield f"evaluation {index} is at step {step}, want {every * index}"
            return


def _length_problems(points: Sequence[Row], row: Row | None, every: int) -> Iterator[str]:
    """A curve that goes on beyond a complete or failed run's row is of training that was not ended yet."""
    if row is None or row["status"] == "failed":
        return
    last, wanted = points[-1]["step"], last_evaluation(row, every)
    if last < wanted or (row["status"] == "diverged" and last > wanted):
        end = f"{row['status']} at step {row['num_steps']}"
        yield f"its last evaluation is at step {last}, want {wanted}: its row says {end}"


def last_evaluation(row: Row, every: int) -> int:
    """Return the last step that a run evaluated before it ended; 0: it ended before any.

    A diverged run has none at the step it diverged at.
    """
    num_steps: int = row["num_steps"] - (row["status"] == "diverged")
    return num_steps // every * every


def clock_notes(row: Row | None, points: Sequence[Row]) -> list[str]:
    """Return where times of day run backwards: odd, and of no consequence."""
    notes = []
    if row and row["finished_at"] < row["started_at"]:
        notes.append(f"finished at {row['finished_at']}, before it started: {CLOCK_NOTE}")
    back = [later for earlier, later in pairwise(points) if later["time_ms"] < earlier["time_ms"]]
    if back:
        notes.append(f"time_ms goes backwards at step {back[0]['step']}: {CLOCK_NOTE}")
    return notes
