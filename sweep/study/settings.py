"""The settings of a study beside its grid: when runs stop early, what fresh seeds decide, what a trial holds."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Interval
from pydantic import AfterValidator, Tag, ValidationInfo, field_validator

from lr_sweep.analysis.record.study import Deciding
from lr_sweep.common.errors import unknown
from lr_sweep.common.limits import Count, NotNegative
from lr_sweep.sweep.study.validation import Mistakes, Strict, or_list, shown, some_distinct

FIRST_RUNG = 9
"""By default, a budget has this many times the steps before the first rung."""


class StopEarly(Strict):
    """Stops the runs of learning rates that are behind the others of their cell; off unless a study asks for it."""

    rule: Literal["median"] = "median"
    """Median stopping is the only rule."""
    first: Count | None = None
    """Steps before the first rung, rounded up to an evaluation; null: a ninth of the budget."""

    gone: ClassVar[Mapping[str, Any]] = MappingProxyType({"eta": 3})
    """Options of earlier versions, with the values that changed nothing."""

    def rungs(self, num_steps: int, every: int) -> range:
        """Return the steps of the rungs below a budget; `every`: steps between evaluations."""
        first = self.first or num_steps / FIRST_RUNG
        return range(every * math.ceil(first / every), num_steps, every)


def _two(pair: tuple[str, ...]) -> tuple[str, ...]:
    if len(pair) != 2:
        raise ValueError(f"got {shown(pair)}, want the two variants of a pair")
    return some_distinct(pair)


def _different(pairs: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    some_distinct(tuple(tuple(sorted(pair)) for pair in pairs))
    return pairs


Pair = Annotated[tuple[str, ...], AfterValidator(_two)]
Pairs = Annotated[
    Annotated[Literal["all"], Tag("(one)")]
    | Annotated[tuple[Pair, ...], AfterValidator(_different), Tag("(list)")],
    or_list((str,), "all, or a list of pairs of variants, [[a, b], [a, c]]"),
]


class Decide(Strict):
    """Compares variants at their chosen learning rates on seeds that chose nothing, until each pair is decided."""

    pairs: Pairs = "all"
    """Variants to compare: `all`, or a list of pairs of names."""
    min_difference: NotNegative
    """Below it variants are equal, in points or the metric's unit; 0: none are called equal."""
    max_seeds: Annotated[int, Interval(ge=2, le=200)] = 20
    """Fresh seeds of a cell, at most."""
    error: Annotated[float, Interval(ge=1e-6, le=0.5)] = 0.05
    """Probability of a wrong decision, over all pairs and looks."""

    @property
    def recorded(self) -> Deciding:
        """What reports read of it."""
        return Deciding(**dict(self))

    def facts(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return self.model_dump(mode="json")

    def check(
        self, cells: Iterable[tuple[str, str, str]], seeds: Collection[int], space: Collection[str]
    ) -> None:
        """Raise what does not go together with a study's cells, its seeds, and the options that its search chooses."""
        cells = list(cells)
        variants = list(dict.fromkeys(variant for _, _, variant in cells))
        with Mistakes() as mistakes:
            for index, pair in enumerate(() if isinstance(self.pairs, str) else self.pairs):
                for place, name in enumerate(pair):
                    if name not in variants:
                        mistakes.add(
                            unknown("variant", name, variants), "decide", "pairs", index, place
                        )
        with Mistakes() as mistakes:
            if not self.recorded.pairs_among(cells):
                mistakes.add(
                    "no task and model has both variants of a pair: nothing to decide", "decide"
                )
            if len(seeds) < 2:  # without it the first two fresh seeds may seem to have no noise
                mistakes.add(
                    "got 1, want at least 2 with `decide`: they say how noisy each variant is",
                    "seeds",
                )
            if space:
                text = (
                    "rates beside the chosen one have other options, and say nothing of its noise"
                )
                mistakes.add(
                    f"does not go with `search.space`: {text}; fix the options, or leave this out",
                    "decide",
                )


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

    gone: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"compile": False, "rank_timeout_s": 600.0}
    )
    """Options of earlier versions, with the values that changed nothing: recorded studies have every option."""

    @field_validator("processes_per_run")
    @classmethod
    def _check_processes(cls, processes: int, info: ValidationInfo) -> int:
        if (
            processes > 1 and 0 < info.data.get("gpus_per_trial", 0) < 1
        ):  # NCCL refuses two ranks on one GPU
            gpus = info.data["gpus_per_trial"]
            raise ValueError(
                f"got {processes} with gpus_per_trial: {gpus:g}, want gpus_per_trial: 1, or 0"
            )
        return processes
