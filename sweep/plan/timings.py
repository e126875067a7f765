"""How long a gradient step takes, by the recorded runs of the same cell."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lr_sweep.analysis.record.read import read_run_rows
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.search.state import Reconciled
from lr_sweep.sweep.study.runs import Cell
from lr_sweep.trainables.run import engine_of

MAX_RUNS = 300
"""Recorded runs that are read, the study's own and the latest first; more would make `plan` slow."""
UNTIMED_FIELDS = ("learning_rate", "seed", "weights_checksum", "data_checksum", "protocol_version", "code", "data")
"""Fields of a run's content that do not change how long it takes; changed code takes about as long as before."""
COLUMNS = ("run_id", "status", "num_steps", "content", "device", "engine", "wall_s")
"""Without times of day: pyarrow imports pandas to convert them to Python values."""


def find_timings(reconciled: Reconciled, results: Results, placement: Placement) -> dict[Cell, float]:
    """Return the seconds of a trial for one step of one run, evaluations included, of cells that have runs to train.

    A median over the complete runs of the same cell, in any study, on such a device (`cpu` or `cuda`) and by the same
    engine. A cell without such a run is left out.
    """
    if not reconciled.to_train or not results.exists():
        return {}
    one_of_each = {run.cell: run.run for run in reconciled.to_train}
    wanted = {
        cell: (_timed_content(run.content()), engine_of(run, placement.resources.engine))
        for cell, run in one_of_each.items()
    }
    step_s: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in read_run_rows(results.root, _latest(reconciled, results), COLUMNS):
        is_alike = row["device"].lower().startswith("cpu") == (placement.device == "cpu")
        if row["status"] == "complete" and row["wall_s"] and is_alike:
            content = _timed_content(json.loads(row["content"]))
            engines = [row["engine"]] if row["engine"] else ["stacked", "plain", "own"]  # earlier rows name none
            for engine in engines:
                step_s[content, engine].append(row["wall_s"] / row["num_steps"])
    return {cell: statistics.median(step_s[key]) for cell, key in wanted.items() if key in step_s}


def _latest(reconciled: Reconciled, results: Results) -> list[str]:
    own = {run.run_id for run in reconciled.wanted}
    written = [(path.stem in own, _written_at(path), path.stem) for path in results.runs.glob("[!.]*.parquet")]
    return [run_id for *_, run_id in sorted(written, reverse=True)[:MAX_RUNS]]


def _written_at(path: Path) -> float:
    with suppress(FileNotFoundError):  # removed by `gc` since it was listed
        return path.stat().st_mtime
    return 0.0


def _timed_content(content: Mapping[str, Any]) -> str:
    return json.dumps({name: value for name, value in content.items() if name not in UNTIMED_FIELDS}, sort_keys=True)
