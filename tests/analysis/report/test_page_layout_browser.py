"""The page on a wide screen, on a phone, in the dark and on paper: nothing that matters is out of view."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lr_sweep.analysis.study_report import write_report
from lr_sweep.tests.support.page_record import page_record
from lr_sweep.tests.support.servers.headless_browser import Browser, browser, executable

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(executable() is None, reason="no chromium or google-chrome on PATH"),
]

OPEN_ALL = "document.querySelectorAll('details').forEach(each => each.open = true)"
TITLES_CUT_OFF = """[...document.querySelectorAll('.scroll')].filter(each => each.scrollWidth > each.clientWidth)
    .map(each => each.querySelector('caption').textContent)"""


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(page_record(tmp_path_factory.mktemp("results")).write(), "small").page


def test_no_column_is_cut_off_at_1280_pixels(window: Browser, page: Path) -> None:
    window.open(page, width=1280)
    window.evaluate(OPEN_ALL)
    assert window.evaluate(TITLES_CUT_OFF) == []


def test_on_a_phone_what_to_do_is_in_view(window: Browser, page: Path) -> None:
    window.open(page, width=390, height=844, phone=True)
    sides = "[...document.querySelectorAll('.stacked td')].map(each => each.getBoundingClientRect().right)"
    found = window.evaluate(sides)
    assert found
    assert max(found) <= 390
    assert "what to do" in window.evaluate("[...document.querySelectorAll('.stacked td')].map(e => e.dataset.name)")
    assert window.evaluate("document.documentElement.scrollWidth") == 390


def test_the_dark_mode_follows_the_system(window: Browser, page: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    window.open(page)
    assert window.evaluate(ground) == "rgb(255, 255, 255)"
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    window.call("Emulation.setEmulatedMedia", media="", features=dark)
    try:
        assert window.evaluate(ground) == "rgb(20, 23, 27)"
        window.call("Emulation.setEmulatedMedia", media="print", features=dark)
        assert window.evaluate(ground) == "rgb(255, 255, 255)"  # paper is white
    finally:
        window.call("Emulation.setEmulatedMedia", media="", features=[])


def test_printing_opens_what_is_folded(window: Browser, page: Path) -> None:
    window.open(page)
    assert window.evaluate("document.querySelectorAll('details:not([open])').length") > 3
    window.call("Page.printToPDF")
    assert window.evaluate("document.querySelectorAll('details:not([open])').length") == 0
