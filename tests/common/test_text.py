"""Numbers and names as the terminal shows them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lr_sweep.common.text import failure_line, percent, rate_text, study_heading


@given(st.floats(1e-9, 10).map(lambda rate: float(f"{rate:.5e}")))
def test_a_learning_rate_of_six_digits_reads_back(rate: float) -> None:
    text = rate_text(rate)
    assert float(text) == rate
    assert "e" in text
    assert "e-0" not in text
    assert ".0e" not in text


@pytest.mark.parametrize(("fraction", "text"), [(None, "-"), (0.98765, "98.8%"), (1.0, "100.0%")])
def test_percent(fraction: float | None, text: str) -> None:
    assert percent(fraction) == text


def test_a_study_that_has_no_title_is_named_once() -> None:
    assert study_heading("small", "A small study") == "small: A small study"
    assert study_heading("small", "small") == "small"


@pytest.mark.parametrize("failure", [None, "", float("nan")])
def test_a_failure_may_have_no_reason(failure: str | None) -> None:
    assert failure_line(failure) == "no reason given"
