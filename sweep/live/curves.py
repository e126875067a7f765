"""The learning curves of runs, with as many points as a screen shows."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.record.columns import Row
from lr_sweep.common.text import rate_text
from lr_sweep.sweep.inspection.show import evenly
from lr_sweep.sweep.results.directory import Results

MOST_CURVES = 400
"""Most curves of a study that the page gets: those of the lowest seeds."""
MOST_POINTS, ALL_POINTS = 100, 30_000
"""Most points of a curve, and of all curves of a study."""
LABELS = ("run_id", "task", "model", "variant", "seed", "num_steps")


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A run's validation values as of one version of its file."""

    stamp: int
    version: int
    points: Sequence[tuple[int, float]]
    """Steps and values, rising; empty: the run was not evaluated yet, or no value is finite."""


class Curves:
    """The curves of a results directory; a file is read again only once it has changed. Several threads may ask."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self._lock, self._version = (
            threading.Lock(),
            int(1000 * time.time()),
        )  # higher than before a restart
        self._kept: dict[str, Curve] = {}

    def read(self, run_ids: Iterable[str]) -> dict[str, Curve]:
        """Return the curves that runs have, by id; raises RecordError for a damaged file."""
        with self._lock:
            stamps = dict[str, int]()
            for run_id in run_ids:
                with suppress(FileNotFoundError):
                    stamps[run_id] = self.results.curve(run_id).stat().st_mtime_ns
            changed = [
                each
                for each in stamps
                if each not in self._kept or self._kept[each].stamp != stamps[each]
            ]
            if changed:
                self._version += 1
                rows = record.read_curves(
                    self.results.root, changed, ("run_id", "step", "validation_accuracy")
                )
                of_run = dict(
                    list(rows[np.isfinite(rows["validation_accuracy"])].groupby("run_id"))
                )
            for run_id in changed:
                found = of_run.get(run_id, rows.head(0))
                points = _thinned(
                    list(zip(found["step"], found["validation_accuracy"], strict=True)), MOST_POINTS
                )
                self._kept[run_id] = Curve(
                    stamp=stamps[run_id], version=self._version, points=points
                )
            return {run_id: self._kept[run_id] for run_id in stamps}

    def since(
        self, version: int, wanted: Sequence[Row], metric: Metric
    ) -> tuple[int, list[dict[str, Any]]]:
        """Return the newest version of a study's curves, and those that are newer than `version`, as JSON has them.

        `wanted` are the study's rows of `WANTED`; raises RecordError for a damaged file.
        """
        shown = sorted(wanted, key=lambda row: row["seed"])[:MOST_CURVES]
        most = min(MOST_POINTS, ALL_POINTS // len(shown))
        curves = self.read(row["run_id"] for row in shown)
        newer = [
            row
            for row in shown
            if row["run_id"] in curves and curves[row["run_id"]].version > version
        ]
        newest = max((each.version for each in curves.values()), default=version)
        return newest, [_drawn(row, curves[row["run_id"]].points, metric, most) for row in newer]


def _thinned(points: Sequence[tuple[int, float]], most: int) -> Sequence[tuple[int, float]]:
    return [points[index] for index in sorted(evenly(len(points), most))]


def _drawn(
    row: Row, points: Sequence[tuple[int, float]], metric: Metric, most: int
) -> dict[str, Any]:
    within = _thinned([(step, value) for step, value in points if step <= row["num_steps"]], most)
    return {name: row[name] for name in LABELS} | {
        "rate": row["learning_rate"],
        "rate_text": rate_text(row["learning_rate"]),
        "steps": [int(step) for step, _ in within],
        "values": [float(f"{metric.scale * value:.4g}") for _, value in within],
        "last": metric.score_text(within[-1][1], digits=1) if within else "",
    }
