"""Two records of one run: whether they agree, and what of each to keep. Pure but for `read_run`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.columns import CURVES, RUNS
from analysis.record import RecordError, read_curves, read_rows, run_path

NUMBERS = [column.name for column in CURVES if column.name not in ("run_id", "step", "time_ms", "elapsed_s")]
"""What two trainings of one run must agree in at every step."""
IN_CONTENT = ("protocol_version", "task", "learning_rate", "seed", "weights_checksum", "data_checksum")
"""Columns of a row that are in the run's `content`, too."""


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """What a results directory holds of a run."""

    run_id: str
    row: dict[str, Any] | None
    """By the columns of `RUNS`, None for what is null; None: the run has not ended."""
    curve: pd.DataFrame
    """With the columns of `CURVES`, ordered by step; no rows: not evaluated yet."""

    @property
    def status(self) -> str | None:
        """`complete`, `diverged`, `failed`; None: not ended."""
        return None if self.row is None else self.row["status"]

    @property
    def last_step(self) -> int:
        """Step of the last evaluation; 0: none."""
        return max(self.curve["step"], default=0)

    @property
    def trained_to(self) -> int:
        """Steps that went well for certain: to the last evaluation, to the end of a complete run."""
        return max(self.last_step, self.row["num_steps"] if self.row and self.status == "complete" else 0)

    @property
    def diverged_at(self) -> int | None:
        """First step that did not go well; None: none."""
        return self.row["diverged_at_step"] if self.row else None


def read_run(results: Path, run_id: str) -> RecordedRun | None:
    """Read what a results directory holds of a run; None: nothing.

    Raises:
        RecordError: a file is damaged.
    """
    rows, curve = read_rows(run_path(results, run_id), RUNS) or [], read_curves(results, [run_id])
    if not rows and curve.empty:
        return None
    if len(rows) > 1:
        raise RecordError(f"{run_path(results, run_id)} has {len(rows)} rows, want one: delete it")
    return RecordedRun(run_id=run_id, row=rows[0] if rows else None, curve=curve)


def mistakes(run: RecordedRun) -> list[str]:
    """Return what is wrong in the record of a run, as phrases; none: it is one that this program writes."""
    return [*_row_mistakes(run), *_curve_mistakes(run)]


def _row_mistakes(run: RecordedRun) -> list[str]:
    row = run.row
    if row is None:
        return []
    empty = [column.name for column in RUNS if not column.nullable and row[column.name] is None]
    if empty:
        return [f"{', '.join(empty)} is null"]
    if run.run_id != row["run_id"] or run.run_id != hashlib.sha256(row["content"].encode()).hexdigest()[:16]:
        return ["its id is not hashed from its content"]
    content = json.loads(row["content"])
    if not isinstance(content, dict):
        return ["its content is no JSON object"]
    differs = [name for name in IN_CONTENT if content.get(name) != row[name]]
    found = [f"{name} is not the one in its content" for name in differs]
    if row["status"] not in ("complete", "diverged", "failed"):
        found.append(f"its status is {row['status']!r}")
    if (row["status"] == "diverged") != (row["diverged_at_step"] is not None):
        found.append("only a diverged run has diverged_at_step")
    if row["status"] == "complete" and run.last_step < row["num_steps"]:
        found.append(f"its curve ends at step {run.last_step}, before its end at {row['num_steps']}")
    if run.diverged_at is not None and run.last_step >= run.diverged_at:
        found.append("its curve goes on after it diverged")
    return found


def _curve_mistakes(run: RecordedRun) -> list[str]:
    curve = run.curve
    if not (curve["run_id"] == run.run_id).all():
        return ["its curve is another run's"]
    if not np.isfinite(curve[["step", *NUMBERS]].to_numpy(float)).all():
        return ["its curve has gaps or numbers that are not finite"]
    if not (np.diff(curve["step"], prepend=0) > 0).all():
        return ["the steps of its curve do not rise"]
    return []


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first place where two records of a run cannot both be right."""

    where: str
    here: str
    there: str


def difference(ours: RecordedRun, theirs: RecordedRun) -> Difference | None:
    """Compare two records of one run: content, every number of shared steps bit for bit, and divergence.

    Times, devices, versions, attempts and names are not compared: they may differ between equal runs.
    """
    if ours.row and theirs.row and ours.row["content"] != theirs.row["content"]:
        return Difference(where="content", here=ours.row["content"], there=theirs.row["content"])
    return _curves_differ(ours, theirs) or _ends_differ(ours, theirs)


def _curves_differ(ours: RecordedRun, theirs: RecordedRun) -> Difference | None:
    shared_to = min(ours.last_step, theirs.last_step)
    a, b = (run.curve[run.curve["step"] <= shared_to] for run in (ours, theirs))
    if only_one := sorted(set(a["step"]) ^ set(b["step"])):
        step = only_one[0]
        told = [("no ", "an ")[step in set(curve["step"])] + "evaluation" for curve in (a, b)]
        return Difference(where=f"step {step}", here=told[0], there=told[1])
    x, y = (np.ascontiguousarray(curve[NUMBERS].to_numpy(np.float64)) for curve in (a, b))
    places = np.argwhere(x.view(np.int64) != y.view(np.int64))
    if not len(places):
        return None
    row, column = places[0]
    where = f"{NUMBERS[column]} at step {a['step'].iloc[row]}"
    return Difference(where=where, here=repr(float(x[row, column])), there=repr(float(y[row, column])))


def _ends_differ(ours: RecordedRun, theirs: RecordedRun) -> Difference | None:
    """A run that diverged at a step can neither pass that step elsewhere nor diverge at another."""
    for one, other in ((ours, theirs), (theirs, ours)):
        step = one.diverged_at
        if step is not None and (other.trained_to >= step or other.diverged_at not in (None, step)):
            return Difference(where="diverged_at_step", here=_end(ours), there=_end(theirs))
    return None


def _end(run: RecordedRun) -> str:
    return f"trained to step {run.trained_to}" if run.diverged_at is None else str(run.diverged_at)


class Keep(Enum):
    """Whose file of a run stays."""

    OURS = "ours"
    THEIRS = "theirs"
    NEITHER = "neither"
    """There is no such file afterwards."""


@dataclass(frozen=True, kw_only=True)
class Merge:
    """What to keep of two records that agree."""

    row: Keep
    curve: Keep

    @property
    def changes(self) -> bool:
        """Whether anything of ours changes."""
        return self.row is not Keep.OURS or self.curve is not Keep.OURS


def merge(ours: RecordedRun, theirs: RecordedRun) -> Merge:
    """Return what to keep of two records that agree: whatever is further, ours if neither is."""
    curve = Keep.THEIRS if theirs.last_step > ours.last_step else Keep.OURS
    return Merge(row=_further_row(ours, theirs), curve=curve)


def _further_row(ours: RecordedRun, theirs: RecordedRun) -> Keep:
    ended = [(run, keep) for run, keep in ((ours, Keep.OURS), (theirs, Keep.THEIRS)) if run.row]
    if not ended:
        return Keep.OURS
    best, keep = max(ended, key=lambda entry: _reach(entry[0]))  # the first of equals
    other = theirs if best is ours else ours
    if best.status == "failed" and other.row is None and other.last_step > best.last_step:
        return Keep.NEITHER if keep is Keep.OURS else Keep.OURS  # the other goes on where this one failed
    return keep


def _reach(run: RecordedRun) -> tuple[int, bool, int]:
    """Order ended runs: by how far they came, then results before failures."""
    assert run.row
    steps = run.trained_to if run.diverged_at is None else run.diverged_at
    return steps, run.status != "failed", run.row["num_steps"]
