"""How reports write numbers: rates, slopes, amounts, intervals and p values."""

from __future__ import annotations

import math

from lr_sweep.common.text import NO_VALUE, rate_text

LEAST_P = 0.001
"""Smallest p value that a sentence writes as a number."""
MINUS = "\N{MINUS SIGN}"


def about_text(rate: float) -> str:
    """Write a learning rate with two digits; NaN: no value."""
    return NO_VALUE if math.isnan(rate) else rate_text(float(f"{rate:.2g}"))


def slope_text(slope: float) -> str:
    """Write the slope of a law with two decimals; NaN: no value."""
    return NO_VALUE if math.isnan(slope) else with_minus(f"{slope:.2f}")


def seconds_text(amount: float) -> str:
    """Write seconds, steps or another amount, from 100 on as a whole number; NaN: no value."""
    if math.isnan(amount):
        return NO_VALUE
    return with_minus(f"{amount:,.0f}" if abs(amount) >= 100 else f"{amount:.3g}")


def ends_text(low: float, high: float) -> str:
    """Write the ends of an interval of amounts; an end that is 0, infinite or NaN is open."""
    is_low, is_high = (math.isfinite(end) and end != 0 for end in (low, high))
    if is_low and is_high:
        return f"{seconds_text(low)} to {seconds_text(high)}"
    if is_low:
        return f"at least {seconds_text(low)}"
    return f"at most {seconds_text(high)}" if is_high else NO_VALUE


def p_text(p: float) -> str:
    """Write a p value for a sentence, the very small ones as `< 0.001`."""
    return f"< {LEAST_P:g}" if p < LEAST_P else f"{p:.2g}"


def p_value(p: float) -> str:
    """Write a p value for a table; NaN: no value."""
    return NO_VALUE if math.isnan(p) else f"{p:.2g}"


def range_text(low: str, high: str) -> str:
    """Write an interval of two written ends; one without a value: no value."""
    return NO_VALUE if NO_VALUE in (low, high) else f"{with_minus(low)} to {with_minus(high)}"


def with_minus(number: str) -> str:
    """Return a number with the sign of minus in place of its hyphen."""
    return MINUS + number[1:] if number.startswith("-") else number
