"""Records and names that other programs may write: what they end in."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.paper.paper import paper_tables
from lr_sweep.analysis.paper.published import TEST, published
from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.record.paths import RecordError
from lr_sweep.analysis.report import figures
from lr_sweep.analysis.report.blocks import Bullets, Paragraph, Table, Verdict, as_written, quoted_text
from lr_sweep.analysis.report.figures import sweep_caption
from lr_sweep.analysis.study_report import write_report
from lr_sweep.common.text import percent_text
from lr_sweep.sweep.inspection.status import status_text
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.figures import drawn_sweep
from lr_sweep.tests.support.records import SyntheticRecord, summary_of

RATES = (1e-4, 1e-3, 1e-2)


def sweep(folder: Path, rates: tuple[float, ...] = RATES, top: float = 0.6, **labels: str) -> SyntheticRecord:
    """Two seeds at each rate; the middle one is best."""
    made = SyntheticRecord(folder)
    for index, rate in enumerate(rates):
        for seed in (0, 1):
            accuracy = top if index == 1 else 0.59
            made.add(rate, seed, [(300, accuracy, accuracy)], **labels)
    return made


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("rate", [0.0, -1e-3, 1e300, 1e-320, math.inf, math.nan])
def test_a_learning_rate_that_is_none_is_refused(tmp_path: Path, rate: float) -> None:
    made = sweep(tmp_path, (1e-3, 1e-2, rate)).write()
    with pytest.raises(RecordError, match=r"wanted.parquet: got the learning rate .*, want a learning rate from 1e-30"):
        write_report(made, "small")


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_an_infinite_accuracy_is_no_value(tmp_path: Path, value: float) -> None:
    made = sweep(tmp_path, top=value).write()
    write_report(made, "small")
    rates = summary_of(made).learning_rates
    assert list(rates["num_values"]) == [2, 0, 2]


def test_titles_and_names_with_dollars_are_drawn(tmp_path: Path) -> None:
    made = sweep(tmp_path, task=r"cost $\frac$", variant="$a$")
    report = write_report(made.write(title=r"What is $\notacommand{$ worth?"), "small")
    assert any(path.suffix == ".png" for path in report.files)


@pytest.mark.usefixtures("undrawn")
def test_files_of_names_that_look_alike_are_all_written(tmp_path: Path) -> None:
    made = sweep(tmp_path, task="t", model="x y", variant="frozen-pretrained")
    made.wanted += sweep(tmp_path, task="t", model="x/y").wanted
    folder = write_report(made.write(), "small").folder
    for stem in ("1-x-y", "2-x-y"):
        assert (folder / f"learning-rates-{stem}.png").is_file()


def test_no_negative_zero() -> None:
    assert percent_text(-0.0001) == "0.0"
    assert ACCURACY.amount_text(-1e-13) == "0.0 points"
    assert ACCURACY.amount_text(-1e-13, sign="+") == ACCURACY.difference_text(-0.0) + " points" == "+0.0 points"
    assert ACCURACY.difference_text(-0.001) == "-0.1"


def test_markdown_holds_no_html_of_names() -> None:
    name = "<img src=x onerror=alert(1)>"
    table = Table(title=name, caption=name, header=("variant",), rows=((name,),))
    for text in (table.markdown(), Paragraph(name).markdown(), Bullets([name]).markdown()):
        assert "<img" not in text
        assert "&lt;img" in text
    assert Paragraph("a < b & c, `a<b`, &lt;").markdown() == "a &lt; b & c, `a<b`, &amp;lt;\n"


def test_table_1_of_distilgpt2_has_the_values_of_table_4(tmp_path: Path) -> None:
    results = sweep(tmp_path, model="distilgpt2", variant="frozen-random").write()
    summary = summary_of(results)
    curves = record.read_curves(results)
    table = paper_tables(summary, curves)[0]
    there = published(4, ("mnist", "distilgpt2", "frozen-random"), TEST)
    assert there is not None
    assert table.rows == (("frozen-random", "60.0 ± 0.0", f"{there.value} ± {there.sem} (−38.0)"),)
    assert "Rothermel et al. 2021, Table 4, 3 seeds" in table.caption


@pytest.mark.parametrize(
    "name", ["\\`<img>\\`", "`<img>``", "`a``b` <img>`", "\\\\`a` <img>`", "![x](http://x/a.png)", "[x](javascript:a)"]
)
def test_marks_of_code_and_links_in_names_make_none(name: str) -> None:
    """In CommonMark a backslash ends no code, and marks of another length neither."""
    text = Paragraph(name).markdown()
    assert "<img>" not in text
    assert "](" not in text
    assert "<img>" not in Verdict([("`", ["`<img>`"])]).markdown()  # the first two marks are a pair
    assert Paragraph("``a`<b>`` and [1, 2] (3)").markdown() == "``a`<b>`` and [1, 2] (3)\n"


@pytest.mark.usefixtures("undrawn")
def test_a_failure_without_a_reason_is_shown(tmp_path: Path) -> None:
    made = sweep(tmp_path)
    made.add(1e-1, 0, [], "failed", trained=10)
    report = write_report(made.write(), "small")
    assert "| no reason given |" in (report.folder / "report.md").read_text()
    assert "seed 0: no reason given" in status_text(Results(tmp_path), "small")


def test_of_very_many_tasks_a_figure_has_the_first(tmp_path: Path) -> None:
    made = sweep(tmp_path, task="t0")
    for number in range(1, figures.MOST_PANELS + 1):
        made.wanted += sweep(tmp_path, task=f"t{number}").wanted
    summary = summary_of(made.write())
    assert [panel.get_title() for panel in drawn_sweep(summary).axes] == [f"t{number}" for number in range(12)]
    assert sweep_caption(summary).endswith(" Images have the first 20 variants and 12 tasks; tables have all.")


def test_of_very_many_variants_a_figure_draws_the_first(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for number in range(figures.MOST_VARIANTS + 1):
        for rate in RATES:
            made.add(rate, 0, [(300, 0.5, 0.5)], variant=f"v{number}")
    summary = summary_of(made.write())
    names = {text.get_text() for legend in drawn_sweep(summary).legends for text in legend.get_texts()}
    assert names - {"chosen on validation"} == {f"v{number}" for number in range(20)}
    assert sweep_caption(summary).endswith(" Images have the first 20 variants and 12 tasks; tables have all.")


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-x", "@sum", "\tx", "-1.2 ± 0.3", "-", "--1", "＝1+1", "＠x"])
def test_formulas_are_quoted_and_read_back(text: str) -> None:
    assert quoted_text(text) == f"'{text}"
    assert as_written(f"'{text}") == text


@pytest.mark.parametrize("text", ["a=1", "-1.5", "+2e-3", "-40%", "", "'a", "–", "1e-3"])
def test_other_text_is_left(text: str) -> None:
    assert (quoted_text(text), as_written(text)) == (text, text)
