"""The verdict in words, from frames made by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.report.verdict import Few, _sentences, verdict_block
from lr_sweep.analysis.statistics.comparisons import comparisons
from lr_sweep.analysis.statistics.orders import orders
from lr_sweep.analysis.statistics.verdicts import Lead, verdicts
from lr_sweep.analysis.study_report import write_report
from lr_sweep.tests.support.page_record import flip_record
from lr_sweep.tests.support.records import SyntheticRecord, summary_of

LOSS = Metric(name="loss", higher_is_better=False, is_fraction=False)
FIXED = {"fixed_rate": 1e-3, "fixed_best": "b", "fixed_difference": -0.1, "flips": True}
WINS = Lead("b", 0.048, 0.02, 0.076, distinguishable=True)
LEADS = Lead("b", 0.048, -0.01, 0.106, distinguishable=False)


def said(*leads: Lead, metric: Metric = ACCURACY, few: Few | None = None, **changed: Any) -> str:
    best = ("a", *(lead.over for lead in leads if not lead.distinguishable))
    row = {"best": best, "leads": leads} | FIXED | changed
    return " ".join(_sentences(row, metric, ["same", "winner", "order"], few or {}))


OTHERS = "Another variant has the highest mean at 1 of the 3 learning rates."


@pytest.mark.parametrize(
    ("leads", "changed", "text"),
    [
        (
            [WINS],
            {},
            "Tuned, a wins by 4.8 points over b (95% interval 2.0 to 7.6). At 1e-3 alone you would have concluded that "
            "b wins, by 10.0 points over a.",
        ),
        (
            [LEADS],
            {"flips": False},
            "Tuned, a leads by 4.8 points over b (95% interval −1.0 to 10.6), which cannot be distinguished from no "
            "difference. At 1e-3 alone, b leads by 10.0 points over a.",
        ),
        (
            [LEADS._replace(low=-0.0001, high=0.0961)],
            {"flips": False, "fixed_best": "a"},
            "Tuned, a leads by 4.8 points over b (95% interval −0.01 to 9.6), which cannot be distinguished from no "
            "difference. At 1e-3 alone, a leads, too.",
        ),
        (
            [LEADS, Lead("c", 0.137, 0.052, 0.221, distinguishable=False)],
            {"fixed_best": ""},
            "Tuned, a leads by 4.8 points over b (95% interval −1.0 to 10.6), which cannot be distinguished from no "
            "difference. The lead of 13.7 points over c (5.2 to 22.1), corrected for all pairs of the study, cannot be "
            "distinguished from no difference.",
        ),
        (
            [WINS, Lead("c", 0.1, -0.05, 0.25, distinguishable=False)],
            {"fixed_best": ""},
            "Tuned, a wins by 4.8 points over b (95% interval 2.0 to 7.6). The lead of 10.0 points over c (−5.0 to "
            "25.0) cannot be distinguished from no difference.",
        ),
        (
            [WINS._replace(distinguishable=False)],
            {"fixed_best": ""},
            "Tuned, a leads by 4.8 points over b (95% interval 2.0 to 7.6), which, corrected for all pairs of the "
            "study, cannot be distinguished from no difference.",
        ),
        (
            [WINS],
            {"fixed_difference": math.nan},
            "Tuned, a wins by 4.8 points over b (95% interval 2.0 to 7.6). At 1e-3 alone you would have concluded that "
            "b wins, as a has no value.",
        ),
        (
            [Lead("b", 0.048, math.nan, math.nan, distinguishable=False)],
            {"fixed_best": ""},
            "Tuned, a leads by 4.8 points over b; without an interval the two cannot be distinguished.",
        ),
        (
            [
                Lead("b", 0.0, -0.0004, 0.0004, distinguishable=False),
                *(Lead(name, 0.0003, -0.0001, 0.0007, distinguishable=False) for name in "cd"),
                Lead("e", 0.01, math.nan, math.nan, distinguishable=False),
                Lead("f", 0.02, -0.01, 0.05, distinguishable=False),
            ],
            {"fixed_best": ""},
            "Tuned, a and b have the same mean. The leads of 0.030 points over c (−0.010 to 0.070), 0.030 points over "
            "d (−0.010 to 0.070), 1.0 points over e (no interval) and up to 2.0 points over 1 more cannot be "
            "distinguished from no difference.",
        ),
    ],
)
def test_sentences(leads: list[Lead], changed: dict[str, Any], text: str) -> None:
    assert said(*leads, **changed) == f"{text} {OTHERS}"


def test_a_mean_over_fewer_seeds_is_marked_where_it_is_named() -> None:
    found = said(WINS, few={("b", 1e-3): " (1 of 3 seeds)"})
    assert "you would have concluded that b (1 of 3 seeds) wins, by 10.0 points over a." in found


def test_of_a_metric_to_minimise_leads_are_positive_too() -> None:
    found = said(Lead("b", -0.5, -0.7, -0.3, distinguishable=True), metric=LOSS, fixed_difference=0.25)
    assert found.startswith("Tuned, a wins by 0.50 over b (95% interval 0.30 to 0.70). At 1e-3 alone")
    assert "b wins, by 0.25 over a. Another variant has the lowest mean" in found


def test_nothing_to_compare() -> None:
    assert said(best=()) == "no variant has a value."
    assert said() == "Tuned, a has a value, and nothing to compare it with."


def test_of_a_study_with_the_chosen_rates(tmp_path: Path) -> None:
    """SEM of both 1 point, so that of the difference is 1.41; two degrees of freedom: 4.30 x 1.41 = 6.1."""
    summary = summary_of(flip_record(tmp_path).write())
    compared = comparisons(summary)
    ((name, text, chosen),) = verdict_block(verdicts(summary, compared), summary, orders(summary)).items
    assert name == "mnist"
    assert text.startswith(
        "Tuned, a wins by 10.0 points over c (95% interval 3.9 to 16.1). At 1e-3 alone, a leads, too."
    )
    assert text.endswith("Another variant has the highest mean at 2 of the 4 learning rates.")
    assert chosen == "Chosen on validation: a 1e-3, b 1e-3, c 1e-3."


def test_every_form_of_the_report_opens_with_the_verdict(tmp_path: Path) -> None:
    report = write_report(flip_record(tmp_path).write(), "small")
    verdict = "Tuned, a wins by 10.0 points over c"
    assert report.text.splitlines()[1].startswith(f"mnist: {verdict}")
    assert (report.folder / "report.md").read_text().splitlines()[2].startswith(f"- **mnist**: {verdict}")
    page = report.page.read_text()
    assert page.index(verdict) < page.index("<nav") < page.index('id="sweep"') < page.index("<table")


def test_one_learning_rate_has_no_tuning(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for seed in (0, 1):
        made.add(1e-2, seed, [(300, 0.5, 0.5)], variant="a")
        made.add(1e-2, seed, [(300, 0.4, 0.39 + 0.02 * seed)], variant="b")
    text = write_report(made.write(), "small").text
    assert "At the one learning rate that was tried, a leads by 10.0 points over b" in text
    assert "alone" not in text


def test_what_tables_share_is_said_once(tmp_path: Path) -> None:
    report = write_report(flip_record(tmp_path).write(), "small")
    assert (report.folder / "report.md").read_text().count("Selection: in each run") == 1
    assert report.text.count("Selection: in each run") == 1
    assert "Selection: in each run" in (report.folder / "cells.md").read_text()
