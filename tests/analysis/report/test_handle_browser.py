"""The handle in a real browser: dragged with the mouse and a finger, moved with keys; what stands beside it follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lr_sweep.analysis.study_report import write_report
from lr_sweep.tests.support.servers.headless_browser import Browser, executable
from lr_sweep.tests.support.synthetic import flip_record, page_record

pytestmark = [pytest.mark.slow, pytest.mark.skipif(executable() is None, reason="no chromium or google-chrome on PATH")]
HANDLE = ".handle"
GRIP = ".handle .grip"
OPEN = "; but the difference here is not significant."
AT = {
    "1e-5": ("At 1e-5 you would have concluded: a > b > c.", "At 1e-5: the tuned winner, but another order" + OPEN),
    "1e-4": ("At 1e-4 you would have concluded: b > a > c.", "At 1e-4: another winner than the tuned one" + OPEN),
    "1e-3": ("At 1e-3 you would have concluded: a > c > b.", "At 1e-3: the tuned order."),
    "1e-2": ("At 1e-2 you would have concluded: b > c > a.", "At 1e-2: another winner than the tuned one" + OPEN),
}
TUNED = "After tuning: a > c > b."


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(flip_record(tmp_path_factory.mktemp("results")).write(), "small").page


@pytest.fixture
def opened(window: Browser, page: Path) -> Browser:
    """The page with its handle at 1e-3."""
    window.open(page)
    window.evaluate(f"document.querySelector('{HANDLE}').focus()")
    window.press("ArrowRight")
    return window


def paragraphs(window: Browser) -> list[str]:
    return list(window.evaluate("[...document.querySelectorAll('#reading > p')].map(each => each.textContent)"))


def expected(rate: str) -> list[str]:
    return [AT[rate][0], TUNED, AT[rate][1]]


def attribute(window: Browser, name: str) -> Any:
    return window.evaluate(f"document.querySelector('{HANDLE}').getAttribute('{name}')")


def between_rates(window: Browser, rates: int = 1) -> float:
    """Pixels from a learning rate to the one so many further."""
    left, right = (
        window.evaluate(f"document.querySelector('[data-rate=\"{rate}\"] .halo').getBoundingClientRect().x")
        for rate in ("1e-5", "1e-4")
    )
    return float(right - left) * rates


def test_it_starts_where_another_variant_wins(window: Browser, page: Path) -> None:
    window.open(page)
    assert paragraphs(window) == expected("1e-4")
    assert attribute(window, "role") == "slider"
    assert window.evaluate(f"document.querySelector('{HANDLE} text').textContent") == "1e-4"


def test_the_mouse_drags_it_to_every_rate(opened: Browser) -> None:
    step = between_rates(opened)
    opened.drag(GRIP, step)
    assert paragraphs(opened) == expected("1e-2")
    opened.drag(GRIP, -2 * step)
    assert paragraphs(opened) == expected("1e-4")
    opened.drag(GRIP, -1.4 * step)  # beyond the axis: the first rate
    assert paragraphs(opened) == expected("1e-5")


@pytest.mark.parametrize("above", [-10, 60], ids=["on the axis", "on the figure"])
def test_a_click_moves_it_there(opened: Browser, above: int) -> None:
    opened.point_at(".axis-reach")
    box = "document.querySelector('.axis-reach').getBoundingClientRect()"
    x, y = opened.evaluate(f"(b => [b.x + 5, b.y - {above}])({box})")
    for kind in ("mousePressed", "mouseReleased"):
        opened.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    assert paragraphs(opened) == expected("1e-5")


def test_a_finger_drags_it_and_the_page_stays(window: Browser, page: Path) -> None:
    window.call("Emulation.setTouchEmulationEnabled", enabled=True)
    try:
        window.open(page, width=390, height=844, phone=True)
        window.drag(GRIP, between_rates(window), touch=True)
        assert paragraphs(window) == expected("1e-3")
        window.drag(GRIP, between_rates(window), touch=True)
        assert paragraphs(window) == expected("1e-2")
        assert window.evaluate("document.documentElement.scrollWidth") == 390
    finally:
        window.call("Emulation.setTouchEmulationEnabled", enabled=False)


def test_keys_move_it_and_say_where_it_is(opened: Browser) -> None:
    opened.evaluate(f"document.querySelector('{HANDLE}').focus()")
    assert (attribute(opened, "aria-valuemin"), attribute(opened, "aria-valuemax")) == ("0", "3")
    keys = {
        "ArrowLeft": "1e-4",
        "ArrowDown": "1e-5",
        "Home": "1e-5",
        "ArrowRight": "1e-4",
        "End": "1e-2",
        "ArrowUp": "1e-2",
    }
    for key, rate in keys.items():
        opened.press(key)
        assert paragraphs(opened) == expected(rate)
        assert attribute(opened, "aria-valuetext") == f"{AT[rate][0]} {TUNED} This is {AT[rate][1].split(': ')[1]}"
        assert attribute(opened, "aria-valuenow") == str(list(AT).index(rate))


def test_the_orders_stand_side_by_side_with_their_values(opened: Browser) -> None:
    opened.drag(GRIP, between_rates(opened))
    columns = opened.evaluate(
        "[...document.querySelectorAll('.orders > div')].map(each => each.innerText.split('\\n'))"
    )
    assert columns == [
        ["At 1e-2", "b", "40.0 ± 1.0 %", "c", "35.0 ± 1.0 %", "a", "30.0 ± 1.0 %"],
        ["After tuning", "a", "90.0 ± 1.0 %, at 1e-3", "c", "80.0 ± 1.0 %, at 1e-3", "b", "70.0 ± 1.0 %, at 1e-3"],
    ]


def test_the_shading_lies_around_the_rates_whose_conclusion_flips(opened: Browser) -> None:
    """Bands end halfway to the next rate; the line at 1e-3 is in none."""
    sides = "(each => (box => [each.classList[1], box.left, box.right])(each.getBoundingClientRect()))"
    bands = opened.evaluate(f"[...document.querySelectorAll('#plot .flip')].map({sides})")
    assert [kind for kind, _, _ in bands] == ["order", "winner", "winner"]
    (_, _, first_end), (_, left, right), (_, last_start, _) = bands
    assert left == pytest.approx(first_end, abs=1.5)
    assert right - left == pytest.approx(between_rates(opened), abs=1.5)
    assert last_start - right == pytest.approx(between_rates(opened), abs=1.5)


def test_the_rate_stays_where_the_next_panel_has_it(window: Browser, tmp_path: Path) -> None:
    window.open(write_report(page_record(tmp_path).write(), "small").page)
    window.evaluate(f"document.querySelector('{HANDLE}').focus()")
    window.press("End")
    assert paragraphs(window)[0].startswith(
        "At 1e-2 you would have concluded: frozen-random (unfrozen-pretrained: 2 diverged)."
    )
    window.choose("#task", "cifar10")
    assert paragraphs(window)[0].startswith("At 1e-2")
