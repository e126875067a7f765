"""What the record says of a study: its metric, search and limits (`study.json`), and what early stopping decided."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Interval

if TYPE_CHECKING:
    import pandas as pd

from lr_sweep.analysis.metric import ACCURACY, Metric

Rate = Annotated[float, Interval(gt=0, lt=math.inf)]
RateKey = tuple[str, str, str, float]
"""Task, model, variant and learning rate: the runs that are stopped together."""
StoppedRates = Mapping[RateKey, int]
"""Learning rates that were stopped, with the step of the rung."""
NOTHING_STOPPED: StoppedRates = {}


@dataclass(frozen=True, kw_only=True)
class SearchRange:
    """Where a study's learning rates were searched, key `search` of `study.json`."""

    sampler: str
    low: Rate
    high: Rate
    rates: int
    """Learning rates that each cell is to try."""
    space: Sequence[str] = ()
    """Options that are chosen with each learning rate."""


@dataclass(frozen=True, kw_only=True)
class Refinement:
    """What a study adds to its grid once that has ended, key `refine` of `study.json`."""

    rates: int
    """Learning rates that each cell is to get."""
    proposed: Mapping[tuple[str, str, str], int]
    """How many each cell has so far, by task, model and variant."""


@dataclass(frozen=True, kw_only=True)
class Fresh:
    """New seeds at the chosen learning rates, which chose nothing; key `fresh` of `study.json`."""

    max: Annotated[int, Interval(ge=2, le=1000)]
    """Largest number of fresh seeds of a cell; without `until_decided`, the number."""
    until_decided: bool = False
    """Whether a cell gets no further fresh seeds once its pairs are decided."""
    equal_within: Annotated[float, Interval(gt=0, lt=math.inf)] | None = None
    """Largest difference that counts as equal, in points or the metric's unit; None: no variants are called equal."""


def without_decide(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the content of `study.json` with `fresh` where earlier versions wrote `decide`."""
    if not isinstance(decide := facts.get("decide"), Mapping):
        return facts
    equal_within = decide.get("min_difference") or None
    fresh = {
        "max": decide.get("max_seeds"),
        "until_decided": True,
        "equal_within": equal_within,
    }
    return {"equal_within": equal_within, **facts, "fresh": fresh}


@dataclass(frozen=True, kw_only=True)
class StudyInfo:
    """`studies/<study>/study.json`; of a table, what `judge` knows of it."""

    study: str
    title: str
    tags: Mapping[str, str] = field(default_factory=dict)
    """Values by key; a word without a value has an empty one."""
    notes: str = ""
    metric: Metric = ACCURACY
    selection: Literal["best", "final"] = "best"
    """As of `Metric.model`, which `read_study` sets."""
    search: SearchRange | None = None
    """None: the learning rates are a grid or a list."""
    refine: int | None = None
    """Learning rates that a cell is to have once its grid is refined; None: the study adds no rates by itself."""
    refinement: Refinement | None = None
    winners: int | None = None
    """How many learning rates of a cell get all seeds, the best by the first one; None: all."""
    stop_early: Any = None
    """None: every run is to train to its budget."""
    fresh: Fresh | None = None
    """None: the runs that choose the learning rates also compare the variants."""
    equal_within: float | None = None
    """In points of percent, or in the metric's unit; None: no variants are called equal."""
    target: float | dict[str, float] | None = None
    """In percent or in the metric's unit, or by task; None: steps are not counted."""
    from_table: bool = False
    """Whether its runs are those of a user's table; nothing published is shown beside them."""

    def about(self) -> list[str]:
        """Return lines with the tags and the notes, if the study has any."""
        tags = [f"{key}={text}" if text else key for key, text in self.tags.items()]
        return [f"tags: {', '.join(tags)}"] * bool(tags) + self.notes.splitlines()

    @property
    def kind(self) -> str:
        """Return what its name is the name of, as captions say it."""
        return "Table" if self.from_table else "Study"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A row of `rungs.parquet`."""

    task: str
    model: str
    variant: str
    learning_rate: float
    step: int
    value: float | None
    """What was compared, in the metric's own direction; None: not finite."""
    num_compared: int
    """Learning rates at the rung by then, this one among them."""
    kept: bool

    @property
    def key(self) -> RateKey:
        """The learning rate that was judged."""
        return self.task, self.model, self.variant, self.learning_rate


def key_of(row: Mapping[Any, Any]) -> RateKey:
    """Return the learning rate that a row of `WANTED` belongs to."""
    return row["task"], row["model"], row["variant"], row["learning_rate"]


def with_stops(wanted: pd.DataFrame, stopped: StoppedRates) -> pd.DataFrame:
    """Add the column `stopped_at_step` to rows of `WANTED`: the rung at which a rule stopped them, null for none."""
    import pandas as pd

    steps = [stopped.get(key_of(row)) for row in wanted.to_dict("records")]
    return wanted.assign(stopped_at_step=pd.Series(steps, wanted.index, dtype="Int64"))
