"""What a trial holds and how it trains: the `resources` of a study."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Interval
from pydantic import ValidationInfo, field_validator

from lr_sweep.common.limits import Count, Positive
from lr_sweep.sweep.study.validation import Strict
from lr_sweep.trainables.own.run import RANK_TIMEOUT_S


class Resources(Strict):
    """What a trial holds and how it trains. Only `processes_per_run` changes a run's numbers."""

    cpus_per_trial: Count = 1
    """CPU cores, of each process."""
    gpus_per_trial: Annotated[float, Interval(ge=0, le=1)] = 0
    """GPUs of each process, one at most; with a fraction, trials share one, and its memory is not divided among them.
    """
    processes_per_run: Annotated[int, Interval(ge=1, le=64)] = 1
    """Processes of one node that train a run of your function."""
    rank_timeout_s: Positive = RANK_TIMEOUT_S
    """Most seconds of a process's start, or of a step with its evaluation."""
    engine: Literal["stacked", "plain"] = "stacked"
    """`stacked` trains the runs of a trial together; `plain`, the reference, one after the other."""
    compile: bool = False
    """`torch.compile` in the stacked engine: minutes for each cell, needs a C++ compiler."""
    runs_per_trial: Count | None = None
    """Most runs of a trial; null: what keeps all devices busy and fits into memory."""
    retries: Annotated[int, Interval(ge=0, le=1000)] = 2
    """Restarts of a trial after a crash."""

    @field_validator("gpus_per_trial")
    @classmethod
    def _check_share(cls, gpus: float) -> float:
        if 0 < gpus < 0.001:  # a trial takes hundreds of megabytes, and Ray counts in steps of 0.0001
            raise ValueError(f"got {gpus:g}, want 0, or from 0.001 to 1")
        return gpus

    @field_validator("processes_per_run")
    @classmethod
    def _check_processes(cls, processes: int, info: ValidationInfo) -> int:
        if processes > 1 and 0 < info.data.get("gpus_per_trial", 0) < 1:  # NCCL refuses two ranks on one GPU
            gpus = info.data["gpus_per_trial"]
            raise ValueError(f"got {processes} with gpus_per_trial: {gpus:g}, want gpus_per_trial: 1, or 0")
        return processes

    @field_validator("compile")
    @classmethod
    def _check_compile(cls, compiled: bool, info: ValidationInfo) -> bool:
        if compiled and info.data.get("engine") == "plain":
            raise ValueError("got true with engine: plain, which is never compiled; want engine: stacked")
        return compiled
