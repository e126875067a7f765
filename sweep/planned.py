"""What each run was planned to take, written down when a `run` begins, for the report's ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analysis.columns import PLANNED
from analysis.record import planned_path, read_rows
from sweep.placement import Placement
from sweep.reconcile import Reconciled
from sweep.results import Results, write_parquet
from sweep.runs import WantedRun
from sweep.timings import Cell, Timing, find_timings


def write_planned(
    study: str, wanted: Sequence[WantedRun], reconciled: Reconciled, placement: Placement, results: Results
) -> dict[Cell, Timing]:
    """Add what the runs that are about to be trained will take in all, as far as it is known; return how it is known.

    The first plan of a run for a step budget stands: a later one would know how it went.

    Raises:
        RecordError: a file of the record is damaged.
    """
    path = planned_path(results.root, study)
    before = read_rows(path, PLANNED) or []
    known = {(row["run_id"], row["num_steps"]) for row in before}
    timings = find_timings(wanted, reconciled, results, placement.device, placement.resources.engine)
    new: dict[str, dict[str, Any]] = {}
    for run in reconciled.to_train:
        if run.cell in timings and (run.run_id, run.num_steps) not in known:
            timing = timings[run.cell]
            device_s = timing.step_s.middle * run.num_steps * placement.devices_per_trial
            planned = {"run_id": run.run_id, "num_steps": run.num_steps, "device_s": device_s}
            new[run.run_id] = planned | {"timed_by": f"{timing.source} on {timing.device}"}
    if new:
        kept = [row for row in before if row["run_id"] not in new]
        write_parquet(path, [*kept, *new.values()], PLANNED)
    return timings
