"""How numbers are written."""

from __future__ import annotations

import math

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.common.text import NO_VALUE, rate_texts


def test_a_difference_that_is_equal_but_for_rounding_errors_is_written_alike() -> None:
    one, other = 0.1585, 0.1585 + 1e-16
    assert f"{100 * one:+.1f}" != f"{100 * other:+.1f}"  # which is why
    assert (
        ACCURACY.difference_text(one)
        == ACCURACY.difference_text(other)
        == ACCURACY.difference_text(-one).replace("-", "+")
    )
    assert ACCURACY.difference_text(0.0) == "+0.0"
    assert ACCURACY.difference_text(math.nan) == NO_VALUE


def test_learning_rates_that_are_alike_to_six_digits_are_written_in_full() -> None:
    assert rate_texts([1e-3, 0.0010000000001, 1e-2]) == ["0.001", "0.0010000000001", "1e-2"]
