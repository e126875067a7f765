"""Published numbers, to compare ours with.

`rothermel2021.csv`: tables 1 to 5 of Rothermel et al. 2021, *Don't Sweep your Learning Rate under the Rug* (ICML 2021
workshop), copied by hand. Columns: `table`, `task`, `model`, `variant` (`all` in table 5), `metric` (names its unit),
`value` (empty: "-" in the paper, never reached) and `sem` (standard error of the mean over 3 seeds; empty: not given).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pandas as pd

TEST = "test_accuracy_percent"
STEPS_TO_MATCH = "gradient_steps_to_match_frozen_pretrained"
TRAIN_AT_END = "train_accuracy_percent_at_max_steps"
TEST_AT_END = "test_accuracy_percent_at_max_steps"
TRAIN_MINUS_TEST = "train_minus_test_percent_at_max_steps"
MAX_STEPS = "max_gradient_steps"


@dataclass(frozen=True)
class Published:
    """One published number, in the unit that its metric names."""

    value: float
    """NaN: the paper has "-", the variant never got there."""
    sem: float
    """Standard error of the mean over 3 seeds; NaN: not given."""


def published(table: int, task: str, model: str, variant: str, metric: str) -> Published | None:
    """Return what Rothermel et al. 2021 report for this entry; None: the paper has no such entry.

    Args:
        table: number of the paper's table.
        task: as in studies, for instance `cifar10-lra`.
        model: as in studies, for instance `gpt2`.
        variant: as in studies; `all` in table 5.
        metric: one of this module's constants.
    """
    return _rothermel2021().get((f"table{table}", task, model, variant, metric))


@cache
def _rothermel2021() -> dict[tuple[str, ...], Published]:
    rows = pd.read_csv(Path(__file__).with_name("rothermel2021.csv"))
    return {(*key, metric): Published(value, sem) for *key, metric, value, sem in rows.itertuples(index=False)}
