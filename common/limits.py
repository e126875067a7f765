"""Types of numbers with limits, for fields that a study file may give; checked where the file is read."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval

SEEDS_BELOW = 2**63
"""Bound of seeds, which records hold as int64."""
MOST_COUNTED = 1_000_000_000
"""Bound of counts, such as that of CPUs."""
LARGEST = 1e30
"""Bound of other numbers: computations are in float32, which ends at 3e38."""

Count = Annotated[int, Interval(ge=1, le=MOST_COUNTED)]
Steps = Annotated[int, Interval(ge=1, le=1_000_000_000_000)]
"""Gradient steps; sums of them fit into int64."""
Seed = Annotated[int, Interval(ge=0, lt=SEEDS_BELOW)]
Dimension = Annotated[int, Interval(ge=1, le=1_000_000)]
Fraction = Annotated[float, Interval(ge=0, lt=1)]
Positive = Annotated[float, Interval(gt=0, le=LARGEST)]
NotNegative = Annotated[float, Interval(ge=0, le=LARGEST)]
LearningRate = Annotated[float, Interval(gt=0, le=10)]
