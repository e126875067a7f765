"""A results directory made by hand, through the record's own schemas."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from analysis.columns import CURVES, RUNS, WANTED, Columns, best_of, table
from analysis.record import FORMAT, curve_path, run_path, study_dir

Point = tuple[int, float, float]
"""step, validation accuracy, test accuracy"""

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


class SyntheticRecord:
    """Runs are wanted by one study as they are added; `write` writes what the study wants."""

    def __init__(self, results: Path, study: str = "small") -> None:
        self.results, self.study = results, study
        self.wanted: list[dict[str, Any]] = []
        results.mkdir(parents=True, exist_ok=True)
        (results / "format.json").write_text(json.dumps({"format": FORMAT}))

    def want(self, rate: float, seed: int, budget: int = 300, **labels: str) -> str:
        """Add a wanted run to the study, untrained; return its id."""
        named = {"task": "mnist", "model": "gpt2", "variant": "frozen-random"} | labels
        run_id = hashlib.sha256(repr((sorted(named.items()), rate, seed)).encode()).hexdigest()[:16]
        pretrained = "English web text" if named["variant"].endswith("pretrained") else None
        rest = {"pretrained_on": pretrained, "data_origin": "torchvision"}
        self.wanted.append(
            {"run_id": run_id, **named, "learning_rate": rate, "seed": seed, "num_steps": budget, **rest}
        )
        return run_id

    def add(
        self,
        rate: float,
        seed: int,
        curve: Sequence[Point],
        status: str = "complete",
        trained: int | None = None,
        diverged_at: int | None = None,
        failure: str | None = None,
        budget: int = 300,
        **labels: str,
    ) -> str:
        """Add a wanted run that has ended."""
        run_id = self.want(rate, seed, budget, **labels)
        self.end(self.wanted[-1], curve, status, budget if trained is None else trained, diverged_at, failure)
        return run_id

    def end(
        self,
        wanted: Mapping[str, Any],
        curve: Sequence[Point],
        status: str,
        trained: int,
        diverged_at: int | None = None,
        failure: str | None = None,
        **changed: Any,
    ) -> None:
        """Write a run's row and its evaluations; `changed` are columns with other values."""
        run_id = wanted["run_id"]
        self.write_curve(run_id, curve)
        row = ended_row(wanted, curve, status, trained, diverged_at, failure)
        _write(run_path(self.results, run_id), [row | changed], RUNS)

    def write_curve(self, run_id: str, curve: Sequence[Point]) -> None:
        """Write evaluations; none: no file."""
        fixed = {"train_loss": 1.0, "train_accuracy": 0.5, "validation_loss": 1.0, "test_loss": 1.0, "time_ms": 0}
        rows = [
            {"run_id": run_id, "step": s, "validation_accuracy": v, "test_accuracy": t, "elapsed_s": s / 10} | fixed
            for s, v, t in curve
        ]
        if rows:
            _write(curve_path(self.results, run_id), rows, CURVES)

    def write(self) -> Path:
        """Write the study; return the results directory."""
        folder = study_dir(self.results, self.study)
        _write(folder / "wanted.parquet", self.wanted, WANTED)
        (folder / "study.json").write_text(
            json.dumps({"study": self.study, "title": "A small study", "format": FORMAT})
        )
        return self.results


def ended_row(
    wanted: Mapping[str, Any],
    curve: Sequence[Point],
    status: str = "complete",
    trained: int = 300,
    diverged_at: int | None = None,
    failure: str | None = None,
) -> dict[str, Any]:
    """The row of a run that has ended."""
    shared = {key: wanted[key] for key in wanted if key != "num_steps"}
    return shared | {
        **{"protocol_version": 1, "status": status, "num_steps": trained},
        **{"diverged_at_step": diverged_at, "failure": failure, "content": "{}"},
        **{"weights_checksum": None, "data_checksum": "d", "device": "CPU", "wall_s": 60.0, "device_s": 30.0},
        **{"started_at": NOON, "finished_at": NOON, "attempts": 1, "git_commit": "abc", "git_dirty": False},
        **{"versions": '{"torch": "2.15.0"}', "lost_steps": 0, "engine": "stacked", "code": None},
        **best_of({"step": s, "validation_accuracy": v, "test_accuracy": t} for s, v, t in curve),
    }


def _write(path: Path, rows: Sequence[Mapping[str, Any]], columns: Columns) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table(rows, columns), path)
