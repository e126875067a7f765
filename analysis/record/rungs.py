"""What early stopping decided: `studies/<study>/rungs.parquet`, a row a learning rate of a cell at a rung."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lr_sweep.analysis.record.columns import RUNGS
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.record.read import read_rows, read_study

if TYPE_CHECKING:
    import pandas as pd

RateKey = tuple[str, str, str, float]
"""Task, model, variant and learning rate: the runs that are stopped together."""
StoppedRates = Mapping[RateKey, int]
"""Learning rates that were stopped, with the step of the rung."""
NOTHING_STOPPED: StoppedRates = {}


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A row of `rungs.parquet`."""

    task: str
    model: str
    variant: str
    learning_rate: float
    step: int
    """The step of the rung."""
    value: float | None
    """What was compared, in the metric's own direction; None: not finite."""
    num_compared: int
    """Learning rates at the rung by then, this one among them."""
    kept: bool

    @property
    def key(self) -> RateKey:
        """The learning rate that was judged."""
        return self.task, self.model, self.variant, self.learning_rate


def read_judgements(results: Path, study: str) -> list[Judgement]:
    """Return a study's judgements, in the order in which they were made; raises RecordError if they are damaged."""
    return [Judgement(**row) for row in read_rows(Paths(results).rungs(study), RUNGS) or []]


def read_stopped(results: Path, study: str) -> dict[RateKey, int]:
    """Return the learning rates that a study stopped; raises RecordError if the file is damaged."""
    return {each.key: each.step for each in read_judgements(results, study) if not each.kept}


def stopped_of(results: Path, study: str) -> StoppedRates:
    """Return what a recorded study holds as stopped: nothing if it has no rule now. Raises RecordError."""
    return read_stopped(results, study) if read_study(results, study).stop_early is not None else NOTHING_STOPPED


def key_of(row: Mapping[Any, Any]) -> RateKey:
    """Return the learning rate that a row of `WANTED` belongs to."""
    return row["task"], row["model"], row["variant"], row["learning_rate"]


def with_stops(wanted: pd.DataFrame, stopped: StoppedRates) -> pd.DataFrame:
    """Add the column `stopped_at_step` to rows of `WANTED`: the rung at which a rule stopped them, null for none."""
    import pandas as pd

    steps = [stopped.get(key_of(row)) for row in wanted.to_dict("records")]
    return wanted.assign(stopped_at_step=pd.Series(steps, wanted.index, dtype="Int64"))
