"""The settings of a study beside its grid: when runs stop early, how many fresh seeds there are, what a trial holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Interval
from pydantic import (
    BeforeValidator,
    PlainSerializer,
    PlainValidator,
    Tag,
    TypeAdapter,
    ValidationInfo,
    field_validator,
)

from lr_sweep.analysis.record.study import Fresh
from lr_sweep.common.limits import Count

from .validation import STRICT, Strict, by_type, shown

FIRST_RUNG = 9
"""A budget has this many times the steps before the first rung."""


MEDIAN = "median"
"""The rule of `stop_early`."""
EARLIER_OPTIONS = {"rule": MEDIAN, "eta": 3, "first": None}
"""Options of `stop_early` in earlier versions, with the values that changed nothing."""


def rungs(num_steps: int, every: int) -> range:
    """Return the steps of the rungs below a budget; `every`: steps between evaluations."""
    first = math.ceil(num_steps / FIRST_RUNG / every)
    return range(every * first, num_steps, every)


def _stopping(value: Any) -> str:
    is_earlier = isinstance(value, Mapping) and value.items() <= EARLIER_OPTIONS.items()
    if value != MEDIAN and not is_earlier:
        raise ValueError(f"got {shown(value)}, want {MEDIAN}, which has no options")
    return MEDIAN


StoppingRule = Annotated[Literal["median"], BeforeValidator(_stopping)]


class AsManyAsItTakes(Strict):
    """Adds fresh seeds until each pair of variants is decided, four of each cell at first."""

    max: Annotated[int, Interval(ge=4, le=200)]
    """Largest number of fresh seeds of a cell."""

    gone: ClassVar = {"equal_within": None}


_FRESH: TypeAdapter[int | AsManyAsItTakes] = TypeAdapter(
    Annotated[
        Annotated[int, Interval(ge=2, le=200), Tag("(int)")]
        | Annotated[AsManyAsItTakes, Tag("(dict)")],
        by_type("a number of seeds, or as many as it takes, {max: 20}"),
    ],
    config=STRICT,
)


def _fresh(value: Any) -> Fresh:
    given = _FRESH.validate_python(value)
    if isinstance(given, int):
        return Fresh(max=given, until_decided=False)
    return Fresh(max=given.max, until_decided=True)


def _as_written(fresh: Fresh) -> Any:
    return {"max": fresh.max} if fresh.until_decided else fresh.max


FreshSeeds = Annotated[Fresh, PlainValidator(_fresh), PlainSerializer(_as_written)]


class Resources(Strict):
    """What a trial holds and how it trains. Only `processes_per_run` changes a run's numbers."""

    cpus_per_trial: Count = 1
    """CPU cores, of each process."""
    gpus_per_trial: Annotated[float, Interval(ge=0, le=1)] = 0
    """GPUs of each process, one at most; with a fraction, trials share one, and its memory is not divided among them.
    """
    processes_per_run: Annotated[int, Interval(ge=1, le=64)] = 1
    """Processes of one node that train a run of your function."""
    engine: Literal["stacked", "plain"] = "stacked"
    """`stacked` trains the runs of a trial together; `plain`, the reference, one after the other."""
    runs_per_trial: Count | None = None
    """Most runs of a trial; null: what keeps all devices busy and fits into memory."""
    retries: Annotated[int, Interval(ge=0, le=1000)] = 2
    """Restarts of a trial after a crash."""

    gone: ClassVar = {"compile": False, "rank_timeout_s": 600.0}
    """Options of earlier versions, with the values that changed nothing: recorded studies have every option."""

    @field_validator("processes_per_run")
    @classmethod
    def _check_processes(cls, processes: int, info: ValidationInfo) -> int:
        gpus = info.data.get("gpus_per_trial", 0)
        if processes > 1 and 0 < gpus < 1:  # NCCL refuses two ranks on one GPU
            raise ValueError(
                f"got {processes} with gpus_per_trial: {gpus:g}, want gpus_per_trial: 1, or 0"
            )
        return processes
