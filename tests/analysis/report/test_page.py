"""The page as text: what is in it, that nothing in it can do harm. In a browser: `test_page_browser`."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lr_sweep.analysis.report.blocks import Bullets, Description, Image, Paragraph, Section, SweepChart, Table
from lr_sweep.analysis.report.chart import handle_data
from lr_sweep.analysis.report.page import page_html
from lr_sweep.analysis.statistics.comparisons.orders import Order, orders
from lr_sweep.analysis.study_report import write_report
from lr_sweep.tests.support.records import SyntheticRecord, summary_of
from lr_sweep.tests.support.synthetic import HOSTILE, flip_record, hostile_record, page_record

VOID = {"meta", "link", "img", "input", "br"}
REFERENCES = {"src", "href", "action", "srcset", "data", "poster", "formaction", "xlink:href"}
EMPTY: dict[str, Any] = {"panels": []}


class Reader(HTMLParser):
    """Holds a page to closing what it opens; collects elements, ids and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.text.setdefault(self.open[-1], []).append(data)

    def of(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text["script"][0])
        return found


def page_of(made: SyntheticRecord, title: str = "A small study") -> tuple[str, Reader]:
    text = (write_report(made.write(title=title), made.study).folder / "index.html").read_text()
    return text, Reader(text)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Reader, str]:
    made = page_record(tmp_path_factory.mktemp("page"))
    text, page = page_of(made)
    return text, page, (made.results / "studies" / "small" / "report" / "report.md").read_text()


def test_the_page_has_every_heading_table_and_figure_of_the_markdown(written: tuple[str, Reader, str]) -> None:
    _, page, markdown = written
    assert page.text["h1"] == re.findall("^# (.+)$", markdown, re.M) == ["A small study"]
    assert page.text["h2"] == re.findall("^## (.+)$", markdown, re.M)
    titles = re.findall(r"^\*\*(.+?)\.\*\* ", markdown, re.M)
    assert page.text["span"] == titles
    assert len(titles) == len(page.of("table")) > 8
    rows = [line for line in markdown.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    assert len(page.of("tr")) == len(rows)
    assert [image["alt"] for image in page.of("img")] == re.findall(r"^!\[(.+?)\]", markdown, re.M)


def test_ids_are_unique_and_what_is_folded_has_its_heading(written: tuple[str, Reader, str]) -> None:
    page = written[1]
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert len(page.of("h2")) > len([part for part in page.of("details") if part.get("class") == "fold"]) > 5
    assert page.of("a") == []  # the first Tab stop is the figure's


def test_the_page_refers_to_nothing_outside_itself(written: tuple[str, Reader, str]) -> None:
    text, page, _ = written
    referred = [value for _, found in page.elements for name, value in found.items() if name in REFERENCES]
    assert len(referred) >= 4
    assert [value[:40] for value in referred if not value.startswith(("data:", "#"))] == []
    assert not re.search(r"url\(|@import|<iframe|<object|<embed", text)
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|import)\s*\(", text)


def test_the_policy_allows_the_page_s_own_style_and_script_and_no_request(written: tuple[str, Reader, str]) -> None:
    page = written[1]
    (policy,) = (meta["content"] for meta in page.of("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    for rule, content in (("style-src", page.text["style"][0]), ("script-src", page.text["script"][1])):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    text, page = page_of(hostile_record(tmp_path), HOSTILE)
    assert page.text["h1"] == page.text["title"] == [HOSTILE]
    assert len(page.of("script")) == 2
    assert page.of("svg") == []
    assert all(image["src"].startswith("data:image/") for image in page.of("img"))
    assert not any(name.startswith("on") for _, found in page.elements for name in found)
    assert page.data()["panels"][0]["lines"][0]["variant"] == HOSTILE
    assert "<img src=x" not in text


def test_the_page_s_data_is_whole_and_cannot_end_its_element() -> None:
    data = {"text": "</script><!-- & ]]> \u2028 é ± 1 'a'", "numbers": [1e-3, None, True]}
    assert Reader(page_html(Description("T", []), data)).data() == data
    with pytest.raises(ValueError, match="not JSON compliant"):
        page_html(Description("T", []), {"mean": float("nan")})


def test_the_figure_s_numbers_are_the_tables(written: tuple[str, Reader, str]) -> None:
    panels = {(panel["task"], panel["model"]): panel for panel in written[1].data()["panels"]}
    assert list(panels) == [("mnist", "gpt2"), ("cifar10", "gpt2"), ("mnist", "tiny")]
    frozen, unfrozen = panels["mnist", "gpt2"]["lines"]
    assert (frozen["variant"], frozen["colour"], frozen["marker"]) == ("frozen-random", "#0A78BA", "D")
    assert [point["rate_text"] for point in frozen["points"]] == ["1e-4", "1e-3", "1e-2"]
    assert [point["text"] for point in frozen["points"]] == ["50.0 ± 1.0", "60.0 ± 1.0", "40.0 ± 1.0"]
    assert [point["chosen"] for point in frozen["points"]] == [False, True, False]
    assert frozen["points"][1] | {"chosen": 0} == {
        **{"rate": 1e-3, "rate_text": "1e-3", "mean": 60.0, "sem": 1.0, "text": "60.0 ± 1.0", "kind": "full"},
        **{"few": "", "seeds": "2 of 2", "lost": "0 diverged, 0 failed, 0 missing", "chosen": 0},
    }
    assert [point["kind"] for point in unfrozen["points"]] == ["full", "partial", "diverged"]
    assert unfrozen["points"][1]["text"] == "71.0"
    assert unfrozen["points"][1]["lost"] == "0 diverged, 1 failed, 0 missing"
    assert unfrozen["points"][2]["text"] == "– (2 of 2 diverged)"
    assert unfrozen["points"][2]["mean"] is None
    (_, waiting) = panels["cifar10", "gpt2"]["lines"]
    assert [(point["kind"], point["text"]) for point in waiting["points"]] == [("none", "– (2 of 2 missing)")]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("status", ["complete", "diverged", "failed", "missing"])
def test_one_run_of_any_fate_has_a_page_that_says_so(tmp_path: Path, status: str) -> None:
    """One seed, one variant, one learning rate; and where the run did not complete, no value at all."""
    made = SyntheticRecord(tmp_path)
    if status == "missing":
        made.want(1e-3, 0)
    else:
        made.add(1e-3, 0, [(300, 0.5, 0.5)] if status == "complete" else [], status, 9, 9, "node lost", budget=300)
    if status == "complete":
        made.end(made.wanted[0], [(300, 0.5, 0.5)], status, 300)
    text, page = page_of(made)
    (point,) = page.data()["panels"][0]["lines"][0]["points"]
    assert point["text"] == ("50.0" if status == "complete" else f"– (1 of 1 {status})")
    assert ("1 run wanted: all complete" if status == "complete" else f"1 {status}") in text
    assert point["kind"] == {"complete": "full", "diverged": "diverged"}.get(status, "none")
    assert "At which learning rate does" in text


def test_tables_keep_their_meaning_in_html() -> None:
    table = Table(
        title="T <1>",
        caption="About `code` & more.",
        header=("variant", "a"),
        rows=(("x", "1"), ("y", "2" * 50)),
        bold=frozenset({(0, 1)}),
    )
    page = Reader(page_html(Description("R", [Section("", [table])]), EMPTY))
    assert page.text["span"] == ["T <1>"]
    assert page.text["figcaption"] == ["About ", " & more."]
    assert page.text["code"] == ["code"]
    assert page.text["strong"] == ["1"]
    assert [head.get("scope") for head in page.of("th")] == ["col", "col", "row", "row"]
    assert [cell.get("class") for cell in page.of("td")] == ["list", "long"]


def test_prose_and_pictures_in_both_forms(tmp_path: Path) -> None:
    png = tmp_path / "a.png"
    png.write_bytes(b"p")
    section = Section(
        "Title", [Paragraph("One `two`."), Bullets(["a", "b"]), Image("Fig", png), SweepChart("About `it`.")]
    )
    description = Description("R", [section])
    assert description.markdown() == (
        "# R\n\n## Title\n\nOne `two`.\n\n- a\n- b\n\n![Fig](a.png)\n\nFig.\n\n"
        "About `it`. `index.html`, beside this file, has a figure that shows values under the pointer.\n"
    )
    text = page_html(description, EMPTY)
    assert "<p>One <code>two</code>.</p>" in text
    assert '<p class="caption">About <code>it</code>.</p>' in text
    assert "<li>a</li>" in text
    assert f'srcset="data:image/png;base64,{base64.b64encode(b"p").decode()} 2x"' in text


DIVERGED = {"diverged": 3, "failed": 0, "stopped": 0, "short": 0, "missing": 0}
MISSING = {"diverged": 2, "failed": 0, "stopped": 0, "short": 0, "missing": 1}


def row(order: Order, incomplete: Mapping[str, Any] | None = None, kind: str = "same") -> dict[str, Any]:
    return {"learning_rate": 1e-3, "order": order, "incomplete": incomplete or {}, "kind": kind, "sure": True}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    summary = summary_of(flip_record(tmp_path_factory.mktemp("results")).write())
    return handle_data(orders(summary), ["a", "b", "c"])


def test_every_learning_rate_has_its_order_and_what_it_means(found: dict[str, Any]) -> None:
    assert found["tuned"] == [[0], [2], [1]]
    assert [(rate["text"], rate["order"], rate["kind"]) for rate in found["rates"]] == [
        *(("1e-5", [[0], [1], [2]], "order"), ("1e-4", [[1], [0], [2]], "winner")),
        *(("1e-3", [[0], [2], [1]], "same"), ("1e-2", [[1], [2], [0]], "winner")),
    ]


def test_the_handle_starts_where_the_winner_changes(found: dict[str, Any]) -> None:
    assert found["start"] == 1


def test_variants_whose_runs_are_not_complete_are_named_with_the_reason() -> None:
    rows = pd.DataFrame(
        [row((("a",),), {"a": MISSING, "b": DIVERGED}), row((("a",), ("b",))) | {"learning_rate": math.nan}]
    )
    assert handle_data(rows, ["a", "b"])["rates"][0]["lost"] == "a: 1 missing, 2 diverged; b: 3 diverged"
