"""Two records of one run: whether they agree, and what to keep of them."""

from __future__ import annotations

from dataclasses import replace

from lr_sweep.analysis.record.columns import CURVES
from lr_sweep.sweep.results.run_state import CUT_SHORT, RecordedRun

NUMBERS = [column.name for column in CURVES if column.name not in ("run_id", "step", "time_ms", "elapsed_s")]
"""What two trainings of one run must agree in at every step."""


def last_step(run: RecordedRun) -> int:
    """Return the step of the last evaluation; 0: there is none."""
    return run.curve[-1]["step"] if run.curve else 0


def _trained_to(run: RecordedRun) -> int:
    """Return the steps that certainly went well: to the last evaluation, or to the end of a complete run."""
    return max(last_step(run), run.row["num_steps"] if run.row and run.row["status"] == "complete" else 0)


def _diverged_at(run: RecordedRun) -> int | None:
    return run.row["diverged_at_step"] if run.row else None


def contradiction(ours: RecordedRun, theirs: RecordedRun) -> str | None:
    """Compare two records of one run: content, every number at shared steps bit for bit, and divergence.

    Times, devices, versions, attempts and names are not compared: they may differ between equal runs. Returns the first
    difference that cannot be, with both values; None: the records agree.
    """
    if ours.row and theirs.row and ours.row["content"] != theirs.row["content"]:
        return _differ("content", ours.row["content"], theirs.row["content"])
    shared_to = min(last_step(ours), last_step(theirs))
    here, there = ({p["step"]: p for p in run.curve if p["step"] <= shared_to} for run in (ours, theirs))
    for step in sorted(here.keys() | there.keys()):
        if step not in here or step not in there:
            evaluated = [("no " if step not in points else "an ") + "evaluation" for points in (here, there)]
            return _differ(f"step {step}", *evaluated)
        for name in NUMBERS:
            if repr(here[step][name]) != repr(there[step][name]):  # equal only for equal bits, of 0.0 and -0.0 too
                return _differ(f"{name} at step {step}", here[step][name], there[step][name])
    for one, other in ((ours, theirs), (theirs, ours)):
        step = _diverged_at(one)  # elsewhere, the run can neither pass this step nor diverge at another
        if step is not None and (_trained_to(other) >= step or _diverged_at(other) not in (None, step)):
            ends = [_diverged_at(run) or f"trained to step {_trained_to(run)}" for run in (ours, theirs)]
            return _differ("diverged_at_step", *ends)
    return None


def _differ(where: str, here: object, there: object) -> str:
    return f"{where}: {here} here, {there} there"


def merge(ours: RecordedRun, theirs: RecordedRun) -> RecordedRun:
    """Return the row and the evaluations to keep of two records that agree: those that are further, else ours."""
    curve = theirs.curve if last_step(theirs) > last_step(ours) else ours.curve
    best, other = sorted((ours, theirs), key=_reach, reverse=True)  # ours first of equals
    row = best.row
    if row and row["status"] in CUT_SHORT and other.row is None and last_step(other) > last_step(best):
        row = None  # the other trained past the step at which this one ended
    return replace(ours, row=row, curve=curve)


def _reach(run: RecordedRun) -> tuple[int, bool, int]:
    """Order runs: by how far they came before they ended, if they have, then results before failures."""
    if run.row is None:
        return -1, False, 0
    diverged_at = _diverged_at(run)
    return (
        _trained_to(run) if diverged_at is None else diverged_at,
        run.row["status"] not in CUT_SHORT,
        run.row["num_steps"],
    )
