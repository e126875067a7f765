"""Two records of one run: whether they agree, and what to keep of them. Pure, but for `read_run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lr_sweep.analysis.record.columns import CURVES, RUNS
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.record.read import RecordError, read_rows
from lr_sweep.sweep.results.run_state import CUT_SHORT, Row
from lr_sweep.sweep.results.validation import curve_problems, row_problems

NUMBERS = [column.name for column in CURVES if column.name not in ("run_id", "step", "time_ms", "elapsed_s")]
"""What two trainings of one run must agree in at every step."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What a results directory holds of a run."""

    run_id: str
    row: Row | None
    """With the columns of `RUNS`; None: the run has not ended."""
    points: Sequence[Row]
    """Evaluations with the columns of `CURVES`, ordered by step; none: not evaluated yet."""

    @property
    def last_step(self) -> int:
        """Step of the last evaluation; 0: none."""
        return self.points[-1]["step"] if self.points else 0

    @property
    def trained_to(self) -> int:
        """Steps that certainly went well: to the last evaluation, or to the end of a complete run."""
        return max(self.last_step, self.row["num_steps"] if self.row and self.row["status"] == "complete" else 0)

    @property
    def diverged_at(self) -> int | None:
        """First step that did not go well; None: none."""
        return self.row["diverged_at_step"] if self.row else None

    def problems(self) -> list[str]:
        """Return in what it is not as this program writes it."""
        found = row_problems(self.run_id, [self.row]) if self.row else []
        return found or curve_problems(self.run_id, self.points or None, self.row)


def read_run(results: Path, run_id: str) -> RunRecord | None:
    """Read what a results directory holds of a run (None: nothing); raises RecordError for a damaged file."""
    rows, points = read_rows(Paths(results).run(run_id), RUNS), read_rows(Paths(results).curve(run_id), CURVES)
    if rows is None and not points:
        return None
    if rows is not None and len(rows) != 1:
        raise RecordError(f"{Paths(results).run(run_id)}: got {len(rows)} rows, want 1: delete it")
    return RunRecord(run_id=run_id, row=rows[0] if rows else None, points=points or [])


def contradiction(ours: RunRecord, theirs: RunRecord) -> str | None:
    """Compare two records of one run: content, every number at shared steps bit for bit, and divergence.

    Times, devices, versions, attempts and names are not compared: they may differ between equal runs. Returns the first
    difference that cannot be, with both values; None: the records agree.
    """
    if ours.row and theirs.row and ours.row["content"] != theirs.row["content"]:
        return _differ("content", ours.row["content"], theirs.row["content"])
    shared_to = min(ours.last_step, theirs.last_step)
    here, there = ({p["step"]: p for p in run.points if p["step"] <= shared_to} for run in (ours, theirs))
    for step in sorted(here.keys() | there.keys()):
        if step not in here or step not in there:
            evaluated = [("no " if step not in points else "an ") + "evaluation" for points in (here, there)]
            return _differ(f"step {step}", *evaluated)
        for name in NUMBERS:
            if repr(here[step][name]) != repr(there[step][name]):  # equal only for equal bits, of 0.0 and -0.0 too
                return _differ(f"{name} at step {step}", here[step][name], there[step][name])
    for one, other in ((ours, theirs), (theirs, ours)):
        step = one.diverged_at  # elsewhere, the run can neither pass this step nor diverge at another
        if step is not None and (other.trained_to >= step or other.diverged_at not in (None, step)):
            ends = [run.diverged_at or f"trained to step {run.trained_to}" for run in (ours, theirs)]
            return _differ("diverged_at_step", *ends)
    return None


def _differ(where: str, here: object, there: object) -> str:
    return f"{where}: {here} here, {there} there"


def merge(ours: RunRecord, theirs: RunRecord) -> RunRecord:
    """Return the row and the evaluations to keep of two records that agree: those that are further, else ours."""
    points = theirs.points if theirs.last_step > ours.last_step else ours.points
    best, other = sorted((ours, theirs), key=_reach, reverse=True)  # ours first of equals
    row = best.row
    if row and row["status"] in CUT_SHORT and other.row is None and other.last_step > best.last_step:
        row = None  # the other trained past the step at which this one ended
    return RunRecord(run_id=ours.run_id, row=row, points=points)


def _reach(run: RunRecord) -> tuple[int, bool, int]:
    """Order runs: by how far they came before they ended, if they have, then results before failures."""
    if run.row is None:
        return -1, False, 0
    steps = run.trained_to if run.diverged_at is None else run.diverged_at
    return steps, run.row["status"] not in CUT_SHORT, run.row["num_steps"]
