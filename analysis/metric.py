"""The metric of a study: which way is better, and how its numbers are written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lr_sweep.common.text import SIGNIFICANT, decimals_text, digits_text


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What is measured on validation and test data."""

    name: str = "accuracy"
    higher_is_better: bool = True
    is_fraction: bool = True
    """Values are from 0 to 1, and are written in percent; otherwise as they are."""
    chosen_on: str = "validation"
    """The data that select: other than `validation` only for a table without it, and empty if nothing selects."""
    reported_on: str = "test"
    """The data whose numbers are shown; other than `test` only where a table has none."""
    untuned: bool = False
    """Whether its runs are those of a table without learning rates, in which nothing was chosen among them."""
    model: Literal["best", "final"] = "best"
    """Which model of a run is measured: the best one on the data that select, or the one at the step budget."""

    def as_json(self) -> Mapping[str, Any]:
        """Return what `study.json` has of it."""
        return {name: getattr(self, name) for name in ("name", "higher_is_better", "is_fraction")}

    @property
    def columns(self) -> Mapping[str, Any]:
        """Return the columns by which a table of ours says what its values are: `metric_name` and the others."""
        return {f"metric_{name}": value for name, value in self.as_json().items()}

    @property
    def validation(self) -> str:
        """Name the numbers that select: `validation accuracy`."""
        return f"{self.chosen_on} {self.name}"

    @property
    def test(self) -> str:
        """Name the numbers that are shown: `test accuracy`."""
        return f"{self.reported_on} {self.name}"

    @property
    def title(self) -> str:
        """Name the numbers that are shown as a title begins: `Test accuracy`."""
        return self.test[0].upper() + self.test[1:]

    @property
    def best(self) -> str:
        """Say which extreme is best: `highest` or `lowest`."""
        return "highest" if self.higher_is_better else "lowest"

    @property
    def better(self) -> str:
        """Compare towards the best: `higher` or `lower`."""
        return "higher" if self.higher_is_better else "lower"

    @property
    def improves(self) -> str:
        """Name a change for the better: `rises` or `falls`."""
        return "rises" if self.higher_is_better else "falls"

    @property
    def perfect(self) -> float:
        """Return the best value there can be; infinite: there is none."""
        if not self.is_fraction:
            return self.sign * math.inf
        return 1.0 if self.higher_is_better else 0.0

    @property
    def sign(self) -> int:
        """Return what values are multiplied with so that more is better: 1 or -1."""
        return 1 if self.higher_is_better else -1

    @property
    def scale(self) -> int:
        """Return what values are multiplied with to be drawn: 100, for percent, or 1."""
        return 100 if self.is_fraction else 1

    @property
    def axis(self) -> str:
        """Label the axis of a figure."""
        return f"{self.test} (%)" if self.is_fraction else self.test

    def text(
        self, value: float, unsure: float = math.nan, sign: str = "", digits: int = SIGNIFICANT
    ) -> str:
        """Write a value, or a difference, so that `digits` of its uncertainty are seen; a fraction in percent."""
        if self.is_fraction:
            return decimals_text(100 * value, 100 * unsure, digits, sign)
        return digits_text(value, unsure, sign)

    def score_text(self, value: float, digits: int = 2) -> str:
        """Write a value as the terminal shows it: a fraction in percent, with so many decimals."""
        return f"{value:.{digits}%}" if self.is_fraction else self.text(value)

    def mean_text(self, mean: float, sem: float) -> str:
        """Write a mean ± its standard error: in percent with one decimal, as papers do; one seed has no error."""
        text = self.text(mean, sem, digits=1)
        return text if math.isnan(sem) else f"{text} ± {self.text(sem, sem, digits=1)}"

    def ends_text(self, low: float, high: float) -> tuple[str, str]:
        """Write the ends of an interval, with the digits that half its width shows."""
        half = (high - low) / 2
        return self.text(low, half), self.text(high, half)

    def difference_text(self, difference: float, unsure: float = math.nan) -> str:
        """Write a difference with its sign, in points of percent or as it is."""
        return self.text(difference, unsure, "+")

    def amount_text(self, difference: float, unsure: float = math.nan, sign: str = "") -> str:
        """Write a difference with its unit, for a sentence: `2.5 points` or `0.025`; `+`: with its sign."""
        return self.text(difference, unsure, sign) + (" points" if self.is_fraction else "")


ACCURACY = Metric()
"""The metric of a study that names no other."""
