"""Trials that train nothing and report when runs with a GPU each would: what `driver_events` has Tune run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from ray import tune

from lr_sweep.trainables.engine import Evaluation
from lr_sweep.trainables.worker.messages import Advanced, Event, Finished, Started

EVALUATE_EVERY, EVALUATE_EVERY_S = 2000, 20
"""Steps and seconds between a run's evaluations: GPT-2, frozen, at 10 ms a step, the fastest of the paper's mix."""
LOSSES = (
    "train_loss",
    "train",
    "validation_loss",
    "validation",
    "test_loss",
    "test",
)


class StubTrainable(tune.Trainable):
    """Stands for `CohortTrainable`: each run of the cohort reports as a trial of its own would."""

    def setup(self, config: dict[str, Any]) -> None:
        """Take a cohort on."""
        cohort = config["trial"]["cohort"]
        self.config: dict[str, Any] = {}  # else it comes back with each result
        self._reports = reports(
            cohort.run_ids, cohort.num_steps // EVALUATE_EVERY, cohort.report_every_s
        )

    def step(self) -> dict[str, Any]:
        """Wait for the next report."""
        events = next(self._reports, None)
        return {"events": events or [], "done": events is None}


def reports(run_ids: Sequence[str], num_evaluations: int, every_s: float) -> Iterator[list[Event]]:
    """Yield each report when it is due, then all runs' ends; a reader that is too slow gets fewer in that time.

    An evaluation's `time_ms` is when it was due.
    """
    yield [Started(run_id=run_id, step=0) for run_id in run_ids]
    began, between_s = time.monotonic(), every_s / len(run_ids)
    per_evaluation = max(1, round(EVALUATE_EVERY_S / every_s))
    for number in range(num_evaluations * per_evaluation * len(run_ids)):
        turn, index = divmod(number, len(run_ids))
        late_s = time.monotonic() - began - number * between_s
        if number * between_s + late_s >= num_evaluations * EVALUATE_EVERY_S + every_s:
            break
        time.sleep(max(0.0, -late_s))
        since, due = divmod(
            turn + index % per_evaluation + 1, per_evaluation
        )  # not all in the same seconds
        point = (
            _point(since * EVALUATE_EVERY, late_s)
            if due == 0 and since <= num_evaluations
            else None
        )
        yield [
            Advanced(
                run_id=run_ids[index], step=turn, evaluation=point, step_s=0.01, evaluation_s=1.0
            )
        ]
    step, last = num_evaluations * EVALUATE_EVERY, _point(num_evaluations * EVALUATE_EVERY, 0.0)
    ends: dict[str, Any] = {
        "step": step,
        "status": "complete",
        "elapsed_s": 1.0,
        "engine": "plain",
        "device": "none",
    }
    for run_id in run_ids:
        yield [Advanced(run_id=run_id, step=step, evaluation=last), Finished(run_id=run_id, **ends)]


def _point(step: int, late_s: float) -> Evaluation:
    due_ms = int(1000 * (time.time() - max(0.0, late_s)))
    return Evaluation(step=step, time_ms=due_ms, elapsed_s=step / 100, **dict.fromkeys(LOSSES, 0.5))
