"""How long a gradient step takes, by the recorded runs of the same cell, or by what `plan --measure` timed."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from heapq import nlargest
from pathlib import Path

from lr_sweep.analysis.record.read import MAX_JSON, read_run_rows
from lr_sweep.common.files import Fields, ReadFields, read_plain, write_json
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.search.state import Reconciled
from lr_sweep.sweep.study.runs import Cell, WantedRun
from lr_sweep.trainables.run import AnyRun, engine_of

from .placement import Placement

MAX_RUNS = 300
"""Recorded runs that are read, the latest ones; more would make `plan` slow."""
UNTIMED_FIELDS = (
    "learning_rate",
    "seed",
    "weights_checksum",
    "data_checksum",
    "protocol_version",
    "code",
    "data",
)
"""Fields of a run's content that do not change how long it takes; changed code takes about as long as before."""
COLUMNS = ("run_id", "status", "num_steps", "content", "device", "engine", "wall_s")
"""Without times of day: pyarrow imports pandas to convert them to Python values."""


def find_timings(
    reconciled: Reconciled, results: Results, placement: Placement
) -> dict[Cell, float]:
    """Return the seconds of a trial for one step of one run, evaluations included, of cells that have runs to train.

    A median over the complete runs of the same cell, in any study, on such a device (`cpu` or `cuda`) and by the same
    engine; without such a run, what was measured. A cell with neither is left out.
    """
    if not reconciled.to_train or not results.exists():
        return {}
    wanted = timing_keys(reconciled.to_train, placement)
    step_s: dict[str, list[float]] = defaultdict(list)
    latest = nlargest(MAX_RUNS, results.runs.glob("[!.]*.parquet"), key=_written_at)
    for row in read_run_rows(results.root, [path.stem for path in latest], COLUMNS):
        if row["status"] == "complete" and row["wall_s"]:
            content = json.loads(row["content"])
            # Rows of earlier versions name no engine.
            engines = [row["engine"]] if row["engine"] else ["stacked", "plain", "own"]
            for engine in engines:
                key = _key(content, engine, row["device"])
                step_s[key].append(row["wall_s"] / row["num_steps"])
    with suppress(ValueError):  # `plan` names the damaged file
        for key, measured in read_measured(results).items():
            step_s.setdefault(key, [measured["step_s"]])
    return {cell: statistics.median(step_s[key]) for cell, key in wanted.items() if key in step_s}


def timing_keys(to_train: Sequence[WantedRun], placement: Placement) -> dict[Cell, str]:
    """Return the key of each cell: that of one of its runs, where a search gives them options of their own."""
    return {
        cell: timing_key(run, placement)
        for cell, run in {run.cell: run.run for run in to_train}.items()
    }


def timing_key(run: AnyRun, placement: Placement) -> str:
    """Return what decides how long a step of a run takes, as text."""
    return _key(run.content(), engine_of(run, placement.resources.engine), placement.device)


def read_measured(results: Results) -> dict[str, Fields]:
    """Return `step_s` and `device` by key; raises ValueError, with the reason, for a damaged file."""
    if not results.timings.exists():
        return {}
    try:
        content = json.loads(read_plain(results.timings, MAX_JSON))
        return {
            key: {**row, "step_s": float(row["step_s"])} for key, row in content["timings"].items()
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{results.timings} is ignored ({error}): `plan --measure` writes it again"
        ) from error


def keep_measured(results: Results, key: str, step_s: float, device: str) -> None:
    """Add what was timed on a device, named by its model; a damaged file is replaced."""
    known: dict[str, Fields] = {}
    with suppress(ValueError):
        known = read_measured(results)
    timings = {**known, key: {"step_s": step_s, "device": device}}
    write_json(results.timings, {"timings": timings})


def _written_at(path: Path) -> float:
    with suppress(FileNotFoundError):  # removed by `gc` since it was listed
        return path.stat().st_mtime
    return 0.0


def _key(content: ReadFields, engine: str, device: str) -> str:
    timed = {name: value for name, value in content.items() if name not in UNTIMED_FIELDS}
    return json.dumps(
        [timed, engine, "cpu" if device.lower().startswith("cpu") else "cuda"], sort_keys=True
    )
