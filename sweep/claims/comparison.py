"""Claimed curves beside those of a second training: to the bit, else as further seeds."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

from lr_sweep.analysis.record.columns import CURVES, RUNS
from lr_sweep.analysis.record.read import read_rows
from lr_sweep.analysis.statistics.comparisons.noise import (
    RUN,
    CellValues,
    Noise,
    sampled,
    welch,
)
from lr_sweep.analysis.statistics.selection.best import CELL, arrays_by_cell, tuples_in
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.common.files import Fields
from lr_sweep.sweep.results.directory import Results

from .draw import sides

UNCOMPARED = ("time_ms", "elapsed_s", "logged")
"""Columns of curves that depend on the clock, or that no report reads."""
REPRODUCIBLE = ("never", "exactly", None)
"""Values of `resumed` with which a run has the numbers of an undisturbed one."""
ERROR = 0.01
"""One-sided error of the test of values that are not equal to the bit."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A run that was trained again."""

    run_id: str
    parted_at: int | None
    """First step at which the two differ; None: they are equal to the bit."""
    reasons: tuple[str, ...]
    """Why equal bits cannot be expected; empty: they can."""

    @property
    def is_refuted(self) -> bool:
        """Whether equal bits were to be expected and are not there."""
        return self.parted_at is not None and not self.reasons


def compared(
    run_id: str, num_steps: int, claimed: Results, again: Results, threads: tuple[int, int]
) -> Comparison:
    """Compare a run of two results directories, up to its step budget.

    Args:
        run_id: the run.
        num_steps: its budget.
        claimed: the bundle's results directory.
        again: the directory of the second training.
        threads: CPUs of a trial in the first and in the second training.
    """
    before, now = _row(claimed, run_id), _row(again, run_id)
    parted_at = _parted_at(run_id, num_steps, (claimed, again), (before, now))
    reasons = tuple(_reasons(before, now, threads)) if parted_at is not None else ()
    return Comparison(run_id=run_id, parted_at=parted_at, reasons=reasons)


def _row(results: Results, run_id: str) -> Fields:
    return (read_rows(results.run(run_id), RUNS) or [{}])[0]


def _parted_at(
    run_id: str, num_steps: int, places: Sequence[Results], rows: Sequence[Fields]
) -> int | None:
    curves = [_curve(results, run_id, num_steps) for results in places]
    for step in sorted({*curves[0], *curves[1]}):
        if step not in curves[0] and rows[0]["status"] == "stopped":
            return None  # a rule of the study ended the claimed run before
        if curves[0].get(step) != curves[1].get(step):
            return step
    ends = {row.get("diverged_at_step") or math.inf for row in rows}
    return int(min(ends)) if len(ends) > 1 and min(ends) <= num_steps else None


def _curve(results: Results, run_id: str, num_steps: int) -> dict[int, str]:
    """Return the evaluations up to a step as texts, in which a missing number equals itself."""
    rows = read_rows(results.curve(run_id), CURVES) or []
    return {
        row["step"]: repr({name: row[name] for name in row if name not in UNCOMPARED})
        for row in rows
        if row["step"] <= num_steps
    }


def _reasons(claimed: Fields, again: Fields, threads: tuple[int, int]) -> Iterator[str]:
    if not again:
        return
    for name in ("device", "engine"):
        if claimed[name] != again[name]:
            yield f"{name} {claimed[name]!r}, here {again[name]!r}"
    before, here = (json.loads(row["versions"]) for row in (claimed, again))
    names = sorted(
        name for name in before.keys() | here.keys() if before.get(name) != here.get(name)
    )
    yield from (f"{name} {before.get(name)!r}, here {here.get(name)!r}" for name in names)
    if claimed["code"] != again["code"]:
        yield "another version of this program's code"
    if threads[0] != threads[1]:
        yield f"{threads[0]} CPUs a trial, here {threads[1]}"
    if not again["device"].startswith("cpu"):
        yield "GPUs add in no fixed order"
    if claimed["resumed"] not in REPRODUCIBLE:
        yield "the claimed run was interrupted and did not resume exactly"


class Plausibility(NamedTuple):
    """A one-sided Welch test of the claimed values against those of the second training."""

    p: float
    """Of no gain of the claim; NaN: the noise between seeds is not known."""
    findable: float
    """Smallest mean gain of the claim that would be found, in the metric's unit."""

    @property
    def is_refuted(self) -> bool:
        """Whether the claimed values are too good for further seeds."""
        return self.p < ERROR


def plausibility(
    summary: StudySummary, again: pd.Series[float], run_ids: Collection[str]
) -> Plausibility:
    """Test whether the values of runs favour the verdict more than further seeds would.

    A gain is a better value of a variant that the verdict puts first, and a worse one of a variant
    that it puts behind. The noise of each run is that of the claimed seeds at its rate.

    Args:
        summary: of the claimed runs.
        again: test values of the second training by run id.
        run_ids: the runs that are compared.
    """
    runs = pd.concat([summary.runs, summary.fresh_runs])
    values = arrays_by_cell(runs, *RUN)
    rows = runs[runs["run_id"].isin(run_ids)].merge(sides(summary), on=CELL, how="left")
    rates = rows["learning_rate"].to_numpy(float)
    cells = [CellValues.of(*values[cell]) for cell in tuples_in(rows[CELL])]
    noise = sampled(cells, rates).noise
    turns = summary.metric.sign * rows["side"].fillna(1.0).to_numpy(float)
    gains = turns * (rows["test"] - rows["run_id"].map(again)).to_numpy(float)
    is_known = np.isfinite(gains) & (noise.variance > 0)
    if not is_known.any():
        return Plausibility(math.nan, math.nan)
    sem, dof = _welch(Noise(noise.variance[is_known], noise.dof[is_known]))
    p = float(stdtr(dof, -gains[is_known].mean() / sem))
    return Plausibility(p, float(sem * stdtrit(dof, 1 - ERROR)))


def _welch(noise: Noise) -> tuple[float, float]:
    """Return the standard error of the mean difference of pairs of runs, and its degrees of freedom.

    The mean of the variances has the degrees of freedom of Satterthwaite (1946). Both sides rest on
    this one estimate, so each side has half of them.
    """
    squares = noise.variance.sum() ** 2
    dof = squares / (noise.variance**2 / noise.dof).sum() / 2
    shared = Noise(np.full(2, noise.variance.mean()), np.full(2, dof))
    counts = np.full(2, float(len(noise.variance)))
    sems, dofs = welch(shared, counts, np.array([0]), np.array([1]))
    return float(sems[0]), float(dofs[0])
