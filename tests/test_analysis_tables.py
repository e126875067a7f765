"""How numbers are written."""

from __future__ import annotations

import math

from analysis.tables import signed_points
from analysis.text import NO_VALUE


def test_a_difference_that_is_equal_but_for_rounding_errors_is_written_alike() -> None:
    one, other = 0.1585, 0.1585 + 1e-16
    assert f"{100 * one:+.1f}" != f"{100 * other:+.1f}"  # which is why
    assert signed_points(one) == signed_points(other) == signed_points(-one).replace("-", "+")
    assert signed_points(0.0) == "+0.0"
    assert signed_points(math.nan) == NO_VALUE
