"""The log of a run: a line an event, with its time."""

from __future__ import annotations

import math
from pathlib import Path

from lr_sweep.sweep.results.recorder import RunLogs
from lr_sweep.trainables.curve import Evaluation
from lr_sweep.trainables.worker.events import Advanced, Finished, Printed, Started

EVALUATION = Evaluation(
    step=20,
    train_loss=1.25,
    train_accuracy=math.nan,
    validation_loss=math.nan,
    validation_accuracy=0.5,
    test_loss=math.nan,
    test_accuracy=0.75,
    time_ms=0,
    elapsed_s=3.0,
)


def test_each_event_is_a_line_with_its_time(tmp_path: Path) -> None:
    times = iter([0.0, 1.0, 2.0, 3.0, 60.0, 86_400.0])
    logs = RunLogs(lambda run_id: tmp_path / "logs" / run_id, lambda: next(times))
    logs.event(Started(run_id="a1", step=0))
    logs.event(Started(run_id="a1", step=10, damaged=("step-20.safetensors",)))
    logs.event(Advanced(run_id="a1", step=15))
    logs.event(Advanced(run_id="a1", step=20, evaluation=EVALUATION))
    logs.event(Printed(run_id="a1", text="loss 1.25\nloss 1.2"))
    logs.event(Finished(run_id="a1", step=40, status="complete", elapsed_s=6.0, engine="own", device="cpu (x)"))
    assert (tmp_path / "logs" / "a1").read_text().splitlines() == [
        "1970-01-01 00:00:00  started",
        "1970-01-01 00:00:01  step-20.safetensors is damaged (its checksum differs)",
        "1970-01-01 00:00:01  resumed from step 10",
        "1970-01-01 00:00:03  step 20: train loss 1.25, validation 0.5, test 0.75",
        "1970-01-01 00:01:00  | loss 1.25",
        "1970-01-01 00:01:00  | loss 1.2",
        "1970-01-02 00:00:00  complete at step 40, 6.0 s of training, on cpu (x)",
    ]
