"""How numbers are written."""

from __future__ import annotations

import math

import pytest

from lr_sweep.analysis.report.numbers import (
    about_text,
    ends_text,
    p_text,
    p_value,
    range_text,
    seconds_text,
    slope_text,
)

NAN, INFINITE = math.nan, math.inf


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (about_text(0.00234), "2.3e-3"),
        (slope_text(-0.456), "−0.46"),
        (seconds_text(1234.5), "1,234"),
        (seconds_text(-99.96), "−100"),
        (p_text(0.0004), "< 0.001"),
        (p_text(0.0432), "0.043"),
        (p_value(0.0004), "0.0004"),
        (ends_text(3, 250), "3 to 250"),
        (ends_text(-4, INFINITE), "at least −4"),
        (ends_text(0, 250), "at most 250"),
        (ends_text(NAN, NAN), "–"),
        (range_text("-1.0", "2.0"), "−1.0 to 2.0"),
        (range_text("–", "2.0"), "–"),
    ],
)
def test_numbers_are_written_as_reports_do(written: str, expected: str) -> None:
    assert written == expected


@pytest.mark.parametrize("write", [about_text, slope_text, seconds_text, p_value])
def test_nan_is_no_value(write: object) -> None:
    assert callable(write)
    assert write(NAN) == "–"
