"""Colours of the page against its grounds, light and dark: contrast ratios of WCAG 2.1, computed from its styles."""

from __future__ import annotations

import re
from itertools import product

import pytest

from lr_sweep.analysis.report.figure_frame import MARKS, variant_styles
from lr_sweep.analysis.report.page import WEB

LINES = [colour for colour, _ in MARKS]
GROUNDS = ("ground", "winner", "order")
"""What lines are drawn on: the page, and the shading of either kind."""


def palettes() -> dict[str, dict[str, str]]:
    """Return the colours that the style sheet names, of the light and the dark mode."""
    css = (WEB / "page.css").read_text()
    light, dark = re.findall(r":root \{(.*?)\}", css, re.S)[:2]
    found = [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block)) for block in (light, dark)]
    return dict(zip(("light", "dark"), found, strict=True))


def contrast(one: str, other: str) -> float:
    """Return the ratio of relative luminances, 1 to 21 (WCAG 2.1, section 1.4.3)."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_contrast_by_hand() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize(("mode", "ground"), list(product(("light", "dark"), GROUNDS)))
def test_every_line_is_legible_on_every_ground(mode: str, ground: str) -> None:
    colours = palettes()[mode]
    drawn = {*LINES, colours["handle"]}
    assert {line: ratio for line in drawn if (ratio := contrast(line, colours[ground])) < 3} == {}


@pytest.mark.parametrize(("mode", "text"), list(product(("light", "dark"), ("ink", "quiet", "link", "bad"))))
def test_every_text_is_legible(mode: str, text: str) -> None:
    colours = palettes()[mode]
    assert min(contrast(colours[text], colours[ground]) for ground in ("ground", "band")) >= 4.5


def test_lines_differ_without_colour() -> None:
    """Forty variants differ in marker or dash, and the first five in both."""
    styles = list(variant_styles([*map(str, range(40))]).values())
    assert len({(style.marker, style.dash) for style in styles}) == 40
    assert len({style.marker for style in styles[:5]}) == len({style.dash for style in styles[:5]}) == 5
