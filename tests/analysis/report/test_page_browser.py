"""The page as a reader has it: opened from a file by a real browser, pointed at, clicked, read without a network.

On a wide screen, on a phone, in the dark and on paper nothing that matters is out of view.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from lr_sweep.analysis.report.blocks import Description, Paragraph, Section, SweepChart
from lr_sweep.analysis.report.chart import chart_data, sweep_panels
from lr_sweep.analysis.report.page import page_html
from lr_sweep.analysis.statistics.comparisons.orders import orders
from lr_sweep.analysis.study_report import write_report
from lr_sweep.tests.support.records import SyntheticRecord, add_fresh, summary_of
from lr_sweep.tests.support.servers.headless_browser import Browser, executable
from lr_sweep.tests.support.synthetic import HOSTILE, hostile_record, page_record

pytestmark = pytest.mark.skipif(executable() is None, reason="no chromium or google-chrome on PATH")
FROZEN, UNFROZEN = '[data-variant="frozen-random"]', '[data-variant="unfrozen-pretrained"]'
TOOLTIP = "document.querySelector('#tooltip')"
VARIANTS = ("frozen-random", "frozen-pretrained", "unfrozen-random", "unfrozen-pretrained")
OPEN_ALL = "document.querySelectorAll('details').forEach(each => each.open = true)"
TITLES_CUT_OFF = """[...document.querySelectorAll('.scroll')].filter(each => each.scrollWidth > each.clientWidth)
    .map(each => each.querySelector('caption').textContent)"""

BROKEN_NAMES = r"""(() => {
    const broken = [], walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
    for (let node; (node = walker.nextNode());)
        for (const name of node.data.matchAll(/\w+-(random|pretrained)/g)) {
            const range = document.createRange();
            range.setStart(node, name.index);
            range.setEnd(node, name.index + name[0].length);
            const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
            if (lines.size > 1) broken.push(node.data);
        }
    return broken;
})()"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(page_record(tmp_path_factory.mktemp("results")).write(), "small").folder / "index.html"


@pytest.fixture
def opened(window: Browser, page: Path) -> Browser:
    window.open(page)
    return window


def written(folder: Path, title: str, section: Section, data: dict[str, Any]) -> Path:
    path = folder / "index.html"
    path.write_text(page_html(Description(title, [section]), data))
    return path


def errors(window: Browser) -> list[Any]:
    """Exceptions, console messages and the browser's own errors, such as those of the page's security policy."""
    said = window.events_of("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
    return [*said, *window.events_of("Page.javascriptDialogOpening")]


def requested(window: Browser) -> list[str]:
    """Addresses asked for; pictures inside the page are `data:` addresses."""
    urls = [event["request"]["url"] for event in window.events_of("Network.requestWillBeSent")]
    return [url for url in urls if not url.startswith("data:")]


def count(window: Browser, selector: str) -> int:
    return int(window.evaluate(f"document.querySelectorAll('{selector}').length"))


def tooltip(window: Browser) -> list[str]:
    """Lines of the tooltip; none where it is hidden."""
    return [line for line in window.evaluate(f"{TOOLTIP}.hidden ? '' : {TOOLTIP}.innerText").split("\n") if line]


def values(window: Browser) -> list[str]:
    """What a screen reader says of each point."""
    script = "[...document.querySelectorAll('#plot .point')].map(point => point.getAttribute('aria-label'))"
    return list(window.evaluate(script))


def test_it_opens_without_error_and_asks_nothing_of_the_network(opened: Browser, page: Path) -> None:
    assert errors(opened) == []
    assert requested(opened) == [page.as_uri()]
    assert opened.evaluate("document.title") == "A small study"


def test_its_figures_are_there(opened: Browser) -> None:
    assert count(opened, "#plot svg .point") == 6
    assert count(opened, "#plot svg polyline") == 2
    assert count(opened, "#plot svg .sem") == 4  # the fifth value has one seed
    assert count(opened, "#plot svg .chosen") == 2
    assert opened.evaluate("[...document.images].every(image => image.decode && image.naturalWidth > 300)")
    assert count(opened, "img") == 3


def test_a_hover_shows_the_value_as_the_tables_write_it(opened: Browser) -> None:
    assert tooltip(opened) == []
    opened.point_at(f'{FROZEN} [data-rate="1e-3"]')
    assert tooltip(opened) == [
        *("mnist, gpt2, learning rate 1e-3", "frozen-random", "60.0 ± 1.0 % (mean ± SEM)"),
        *("2 of 2 seeds have a value", "0 diverged, 0 failed, 0 missing", "chosen on validation"),
    ]
    opened.point_at("h1")
    assert tooltip(opened) == []


def test_a_switch_takes_a_variant_s_line_away_and_brings_it_back(opened: Browser) -> None:
    assert count(opened, FROZEN) == 1
    opened.click('#variants input[value="frozen-random"]')
    assert count(opened, FROZEN) == 0
    assert [value.split(",")[0] for value in values(opened)] == ["unfrozen-pretrained"] * 3
    opened.choose("#task", "cifar10")  # it stays off on another task
    assert count(opened, FROZEN) == 0
    opened.click('#variants input[value="frozen-random"]')
    assert count(opened, FROZEN) == 1


def test_choosing_the_task_changes_the_points(opened: Browser) -> None:
    percent = ("60.0 ± 1.0", "70.0 ± 1.0", "50.0 ± 1.0")
    opened.choose("#task", "cifar10")
    assert opened.evaluate("document.querySelector('#plot svg').getAttribute('aria-label')").endswith("cifar10, gpt2")
    assert [value.split(", ")[4] for value in values(opened)[:3]] == [f"{x} % (mean ± SEM)" for x in percent]
    opened.point_at(f'{UNFROZEN} [data-rate="1e-3"]')
    assert "– (2 of 2 missing)" in tooltip(opened)


def test_choosing_the_model_changes_the_points(opened: Browser) -> None:
    models = "[...document.querySelectorAll('#model option')].map(option => option.value)"
    assert opened.evaluate(models) == ["gpt2", "tiny"]
    opened.choose("#model", "tiny")
    (value,) = values(opened)
    assert value.startswith("frozen-random, mnist, tiny, learning rate 1e-3, 30.0 ± 1.0 % (mean ± SEM)")
    opened.choose("#task", "cifar10")  # which tiny was not trained on
    assert opened.evaluate(models) == ["gpt2"]
    assert len(values(opened)) == 4


def test_the_keyboard_alone_reads_every_value(opened: Browser) -> None:
    opened.evaluate("document.querySelector('#variants label:last-child input').focus()")
    opened.press("Tab")
    assert tooltip(opened)[0:2] == ["mnist, gpt2, learning rate 1e-4", "frozen-random"]
    opened.press("ArrowRight")
    assert tooltip(opened)[0:3] == ["mnist, gpt2, learning rate 1e-3", "frozen-random", "60.0 ± 1.0 % (mean ± SEM)"]
    opened.press("ArrowDown")
    assert tooltip(opened)[1:3] == ["unfrozen-pretrained", "71.0 %, one seed: no SEM"]
    opened.press("ArrowLeft")
    assert tooltip(opened)[0] == "mnist, gpt2, learning rate 1e-4"
    opened.press("Escape")
    assert tooltip(opened) == []
    assert errors(opened) == []


def test_it_fits_a_phone(window: Browser, page: Path) -> None:
    window.open(page, width=360, height=740, phone=True)
    assert window.evaluate("document.documentElement.scrollWidth") == 360
    assert window.evaluate("document.querySelector('#plot svg').getBoundingClientRect().width") > 300
    window.point_at(f'{UNFROZEN} [data-rate="1e-2"]')
    left, right = window.evaluate(f"(b => [b.left, b.right])({TOOLTIP}.getBoundingClientRect())")
    assert left >= 0
    assert right <= 360


@pytest.mark.parametrize("rate", ["1e-4", "1e-3", "1e-2"])
def test_a_tooltip_never_hides_its_point(window: Browser, page: Path, rate: str) -> None:
    window.open(page, width=360, height=740, phone=True)
    point = f'{FROZEN} [data-rate="{rate}"]'
    window.point_at(point)
    boxes = f"[{TOOLTIP}, document.querySelector('{point}')].map(each => each.getBoundingClientRect())"
    tooltip_box, pointed = window.evaluate(f"{boxes}.map(box => [box.left, box.right, box.top, box.bottom])")
    middle = (sum(pointed[:2]) / 2, sum(pointed[2:]) / 2)
    assert not (tooltip_box[0] < middle[0] < tooltip_box[1] and tooltip_box[2] < middle[1] < tooltip_box[3])


def test_a_finger_on_a_point_shows_its_value(window: Browser, page: Path) -> None:
    window.call("Emulation.setTouchEmulationEnabled", enabled=True)
    try:
        window.open(page, width=360, height=740, phone=True)
        window.tap(f'{FROZEN} [data-rate="1e-4"]')
        assert tooltip(window)[1:3] == ["frozen-random", "50.0 ± 1.0 % (mean ± SEM)"]
    finally:
        window.call("Emulation.setTouchEmulationEnabled", enabled=False)


def test_it_is_whole_without_scripts(window: Browser, page: Path) -> None:
    window.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        window.open(page)
        drawn = window.call("Page.captureSnapshot")["data"]
        assert "A small study" in drawn
        window.call("DOM.enable")
        root = window.call("DOM.getDocument")["root"]["nodeId"]
        found = window.call("DOM.querySelectorAll", nodeId=root, selector="details[open] img")["nodeIds"]
        tall = [window.call("DOM.getBoxModel", nodeId=node)["model"]["height"] for node in found]
        assert len(tall) == 3
        assert min(tall) > 200
        assert window.call("DOM.querySelectorAll", nodeId=root, selector="#sweep[hidden]")["nodeIds"] != []
    finally:
        window.call("Emulation.setScriptExecutionDisabled", value=False)


def test_on_paper_the_pictures_stand_for_the_figure(opened: Browser) -> None:
    opened.evaluate("dispatchEvent(new Event('beforeprint'))")
    opened.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert opened.evaluate("[...document.images].every(image => image.getBoundingClientRect().height > 200)")
        assert opened.evaluate("getComputedStyle(document.querySelector('#sweep')).display") == "none"
    finally:
        opened.call("Emulation.setEmulatedMedia", media="")


def test_hostile_names_are_shown_and_do_nothing(window: Browser, tmp_path: Path) -> None:
    results = hostile_record(tmp_path).write(title=HOSTILE)
    page = write_report(results, "small").folder / "index.html"
    window.open(page)
    window.point_at("#plot .point")
    assert HOSTILE in window.evaluate(f"{TOOLTIP}.textContent")
    assert window.evaluate("document.querySelector('h1').textContent") == HOSTILE
    assert errors(window) == []
    assert requested(window) == [page.as_uri()]


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (768, 1024), (390, 844)])
def test_the_first_screen_is_the_first_sentence_and_the_figure(
    window: Browser, page: Path, width: int, height: int
) -> None:
    window.open(page, width=width, height=height)
    box = "document.querySelector('{}').getBoundingClientRect()"
    top, bottom = window.evaluate(f"(s => [s.top, s.bottom])({box.format('.verdict li')})")
    start, end = window.evaluate(f"(s => [s.top, s.bottom])({box.format('#plot svg')})")
    assert 0 < top < bottom < start < end <= height


def test_a_table_of_five_rates_fits_a_phone(window: Browser, tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for power in range(1, 6):
        for seed in (0, 1):
            for variant in VARIANTS:
                made.add(10.0**-power, seed, [(300, 0.5, 0.5 + 0.1 * seed)], variant=variant)
    window.open(write_report(made.write(), "small").page, width=390, height=844, phone=True)
    of_rates = "document.querySelectorAll('.scroll')[1]"
    assert window.evaluate(f"(t => [t.scrollWidth, t.clientWidth])({of_rates})") == [361, 361]


@pytest.mark.parametrize("width", [390, 1100])
def test_no_line_breaks_a_name_at_its_hyphen(window: Browser, page: Path, width: int) -> None:
    window.open(page, width=width, height=900)
    window.evaluate(OPEN_ALL)
    assert window.evaluate(BROKEN_NAMES) == []


def test_fresh_seeds_are_marked_beside_the_rates_that_they_compare(window: Browser, tmp_path: Path) -> None:
    """Test values are 0.70, 0.72 and 0.74: by Student's t of 2 the interval is 72 -+ 4.303 x 1.155."""
    made = SyntheticRecord(tmp_path)
    for seed in (0, 1):
        made.add(1e-3, seed, [(300, 0.5, 0.5)])
        made.add(1e-2, seed, [(300, 0.6, 0.6)])
    add_fresh(made, 1e-2, "frozen-random", [0.70, 0.72, 0.74])
    window.open(write_report(made.write(fresh={"max": 3}), "small").page)
    assert [count(window, f"#plot {mark}") for mark in (".dots", ".fresh")] == [1, 1]
    assert window.evaluate("document.querySelector('#plot .dots').getAttribute('d')").count("h0") == 3
    window.point_at(f'{FROZEN} [data-rate="1e-2"]')
    assert "72.0 ± 1.2 % on 3 fresh seeds, 95% interval 67.0 to 77.0" in tooltip(window)
    assert "72.0 ± 1.2 %, at 1e-2" in window.evaluate("document.querySelector('#reading').innerText")


def test_the_browser_itself_refuses_the_page_every_request(window: Browser, tmp_path: Path) -> None:
    """This includes requests of an injected script; the listener would accept them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.5)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        window.open(written(tmp_path, "Any", Section("", [Paragraph("Any.")]), {"panels": []}))
        refused = window.evaluate(
            f"Promise.all([fetch('{address}').then(() => 'asked', () => 'refused'), new Promise(done => {{"
            f"const image = new Image(); image.onload = () => done('asked'); image.onerror = () => done('refused');"
            f"image.src = '{address}'; }})])"
        )
        assert refused == ["refused", "refused"]
        with pytest.raises(TimeoutError):
            listener.accept()
    assert any("Content Security Policy" in event["entry"]["text"] for event in window.events_of("Log.entryAdded"))


def test_a_study_without_any_value_says_so(window: Browser, tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for rate in (1e-4, 1e-3):
        made.want(rate, 0)
    summary = summary_of(made.write())
    data = chart_data(sweep_panels(summary), orders(summary), summary.metric)
    window.open(written(tmp_path, "None yet", Section("", [SweepChart("")], folded=False), data))
    assert "no values yet" in window.evaluate("document.querySelector('#plot svg').textContent")
    window.point_at('#plot [data-rate="1e-4"]')
    assert "– (1 of 1 missing)" in tooltip(window)
    assert errors(window) == []


@pytest.mark.slow
def test_no_column_is_cut_off_at_1280_pixels(window: Browser, page: Path) -> None:
    window.open(page, width=1280)
    window.evaluate(OPEN_ALL)
    assert window.evaluate(TITLES_CUT_OFF) == []


@pytest.mark.slow
def test_on_a_phone_what_to_do_is_in_view(window: Browser, page: Path) -> None:
    window.open(page, width=390, height=844, phone=True)
    window.evaluate(OPEN_ALL)
    box = "document.querySelector('#checks').closest('section, details').getBoundingClientRect()"
    assert window.evaluate(f"{box}.right") <= 390
    assert window.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.slow
def test_the_dark_mode_follows_the_system(window: Browser, page: Path, tmp_path: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    window.open(page)
    assert window.evaluate(ground) == "rgb(255, 255, 255)"
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    window.call("Emulation.setEmulatedMedia", media="", features=dark)
    try:
        assert window.evaluate(ground) == "rgb(20, 23, 27)"
        window.evaluate(OPEN_ALL)
        window.point_at("img")  # scrolls there
        x, y = window.evaluate("(box => [box.x + 4, box.bottom - 4])(document.images[0].getBoundingClientRect())")
        window.screenshot(tmp_path / "dark.png")
        with Image.open(tmp_path / "dark.png") as seen:
            assert seen.convert("RGB").getpixel((int(x), int(y))) == (20, 23, 27)  # a figure's ground
        window.call("Emulation.setEmulatedMedia", media="print", features=dark)
        assert window.evaluate(ground) == "rgb(255, 255, 255)"  # paper is white
    finally:
        window.call("Emulation.setEmulatedMedia", media="", features=[])


@pytest.mark.slow
def test_printing_opens_what_is_folded(window: Browser, page: Path) -> None:
    window.open(page)
    assert window.evaluate("document.querySelectorAll('details:not([open])').length") > 3
    window.call("Page.printToPDF")
    assert window.evaluate("document.querySelectorAll('details:not([open])').length") == 0
