"""The verdict in words, from frames made by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.report.verdict import Few, _figure, _sentences, decided_texts, verdict_block
from lr_sweep.analysis.statistics.comparisons.verdicts import Certain, Flip, Lead, verdicts
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.analysis.study_report import write_report
from lr_sweep.tests.support.records import SyntheticRecord, summary_of
from lr_sweep.tests.support.synthetic import flip_record

pytestmark = pytest.mark.usefixtures("undrawn")
LOSS = Metric(name="loss", higher_is_better=False, is_fraction=False)
FIXED = {"fixed_rate": 1e-3, "fixed_best": "b", "fixed_difference": -0.1, "flips": True}
NOTHING = {"strongest": None, "certain": None}
COUNTS = {"num_rates": 3, "num_others": 1, "num_sure": 0}
NO_FLIP = {"flips": False, "fixed_best": ""}


def lead(over: str, difference: float, low: float, high: float, more: float = math.nan, **changed: Any) -> Lead:
    """A lead with three seeds; certain if nothing is said of further seeds."""
    return Lead(over, difference, low, high, math.isnan(more), False, 3, more)._replace(**changed)


WINS, LEADS = lead("b", 0.048, 0.02, 0.076), lead("b", 0.048, -0.01, 0.106, 4)


def said(
    *leads: Lead, metric: Metric = ACCURACY, few: Few | None = None, within: float | None = None, **row: Any
) -> str:
    best = ("a", *(each.over for each in leads if not each.distinguishable))
    row = {"best": best, "leads": leads} | FIXED | NOTHING | COUNTS | row
    summary = replace(SUMMARY, metric=metric, equal_within=within)
    return " ".join(_sentences(row, summary, few or {}, COSTS, is_tuned=True))


COSTS = {"a": 1200.0, "b": 600.0}
"""Device seconds of a run; of other variants they are not known."""
SUMMARY = StudySummary(runs=pd.DataFrame(), learning_rates=pd.DataFrame(), cells=pd.DataFrame())
OTHERS = "At 1 of the 3 learning rates another variant has the highest mean, and its lead is not significant there."
WON = "After tuning, a beats b by 4.8 points (95% interval 2.0 to 7.6)."


@pytest.mark.parametrize(
    ("leads", "changed", "text"),
    [
        ([WINS], {}, f"{WON} At 1e-3 alone you would have concluded that b wins, by 10.0 points over a."),
        ([WINS], {"flips": False}, f"{WON} At 1e-3 alone, b leads a by 10.0 points, which is not significant there."),
        (
            [LEADS],
            {"flips": False},
            "After tuning, a leads b by 4.8 points (95% interval −1.0 to 10.6). This is not decided by 3 seeds of "
            "each; about 4 more of each would decide it (2 device hours). At 1e-3 alone, b leads a by 10.0 points.",
        ),
        (
            [LEADS._replace(low=-0.0001, high=0.0961, further_seeds=math.inf)],
            {"flips": False, "fixed_best": "a"},
            "After tuning, a leads b by 4.8 points (95% interval −0.01 to 9.6). This is not decided by 3 seeds of "
            "each; more seeds will hardly decide it. At 1e-3 alone, a has the best mean.",
        ),
        (
            [WINS, lead("c", 0.137, 0.052, 0.221, 4)],
            NO_FLIP,
            f"{WON} a leads c by 13.7 points (95% interval 5.2 to 22.1). This is not decided by 3 seeds of each; "
            "about 4 more of each would decide it.",
        ),
        (
            [lead("b", 0.003, -0.006, 0.012, 90, equal=True, further_seeds=math.nan)],
            {"within": 0.02} | NO_FLIP,
            "After tuning, a and b are equal within 2.0 points: a leads by 0.30 points (95% interval −0.60 to 1.20).",
        ),
        (
            [WINS],
            {"fixed_difference": math.nan},
            f"{WON} At 1e-3 alone you would have concluded that b wins, because a has no value there.",
        ),
        (
            [WINS],
            {"flips": False, "fixed_best": "a", "strongest": Flip(1e-2, "a", "b", 0.165, 0.12, 0.21)},
            f"{WON} At 1e-3 alone, a has the best mean. At 1e-2 alone you would have concluded that b wins, by "
            "16.5 points over a (95% interval 12.0 to 21.0).",
        ),
        (
            [lead("b", 0.048, math.nan, math.nan, distinguishable=False)],
            NO_FLIP,
            "After tuning, a leads b by 4.8 points. There is no interval, so this is not certain.",
        ),
        (
            [lead(name, 0.01, math.nan, math.nan, distinguishable=False) for name in "bcdef"],
            NO_FLIP,
            "After tuning, a leads b by 1.0 points, c by 1.0 points, d by 1.0 points and 2 others by up to 1.0 points. "
            "There is no interval, so these leads are not certain.",
        ),
        (
            [
                lead("b", 0.0, -0.0004, 0.0004, math.inf),
                *(lead(name, 0.0003, -0.0001, 0.0007, 5) for name in "cd"),
                lead("e", 0.01, math.nan, math.nan, distinguishable=False),
                lead("f", 0.02, -0.01, 0.05, 9),
            ],
            NO_FLIP,
            "After tuning, a and b have the same mean. a leads c by 0.030 points (95% interval −0.010 to 0.070; 5 more "
            "seeds), d by 0.030 points (−0.010 to 0.070; 5 more seeds) and f by 2.0 points (−1.0 to 5.0; 9 more "
            "seeds). These leads are not decided by 3 seeds of each. a leads e by 1.0 points. There is no interval, so "
            "this is not certain.",
        ),
        (
            [WINS, lead("c", 0.06, 0.05, 0.07), lead("d", 0.3, 0.28, 0.32), lead("e", 0.4, 0.38, 0.42)],
            NO_FLIP | {"certain": Certain(("a", "b"), ("d", "e"), (0.252, 0.4))},
            "After tuning, a and b beat d and e by 25.2 to 40.0 points. a beats b by 4.8 points (95% interval 2.0 to "
            "7.6). a beats c by 6.0 points (95% interval 5.0 to 7.0).",
        ),
        (
            [WINS, *(lead(name, 0.3, 0.28, 0.32) for name in "cdef")],
            NO_FLIP | {"certain": Certain(("a",), tuple("bcdef"), (0.048, 0.3))},
            "After tuning, a beats all 5 others by 4.8 to 30.0 points (95% interval over b: 2.0 to 7.6).",
        ),
        (
            [WINS._replace(condition="as far as the grid reaches: b still improves at 1e-2")],
            NO_FLIP,
            "After tuning, a leads b by 4.8 points (95% interval 2.0 to 7.6) as far as the grid reaches: b still "
            "improves at 1e-2.",
        ),
    ],
)
def test_sentences(leads: list[Lead], changed: dict[str, Any], text: str) -> None:
    assert said(*leads, **changed) == f"{text} {OTHERS}"


def test_a_mean_over_fewer_seeds_is_marked_where_it_is_named() -> None:
    found = said(WINS, few={("b", 1e-3): " (1 of 3 seeds)"})
    assert "you would have concluded that b (1 of 3 seeds) wins, by 10.0 points over a." in found


def test_of_a_metric_to_minimise_leads_are_positive_too() -> None:
    found = said(lead("b", -0.5, -0.7, -0.3), metric=LOSS, fixed_difference=0.25)
    assert found.startswith("After tuning, a beats b by 0.50 (95% interval 0.30 to 0.70). At 1e-3 alone")
    assert "b wins, by 0.25 over a. At 1 of the 3 learning rates another variant has the lowest mean" in found


def test_nothing_to_compare() -> None:
    assert said(best=()) == "No variant has a value."
    assert said() == "After tuning, a has a value, and there is nothing to compare it with."


def test_of_a_study_with_the_chosen_rates(tmp_path: Path) -> None:
    """SEM of both 1 point, so that of the difference is 1.41; two degrees of freedom: 4.30 x 1.41 = 6.1."""
    summary = summary_of(flip_record(tmp_path).write())
    ((name, sentences, chosen),) = verdict_block(verdicts(summary), summary, {}).items
    assert name == "mnist"
    text = " ".join(sentences)
    assert text.startswith(
        "After tuning, a beats c and b by 10.0 to 20.0 points with only two seeds (95% interval over c: 3.9 "
        "to 16.1). At 1e-3 alone, a has"
    )
    assert text.endswith("another variant has the highest mean; its lead is significant at none of them.")
    assert chosen == "Learning rates chosen on validation: a 1e-3, b 1e-3, c 1e-3."


def test_every_form_of_a_report_opens_with_the_verdict_and_says_once_what_tables_share(tmp_path: Path) -> None:
    report = write_report(flip_record(tmp_path).write(), "small")
    verdict, shared = "After tuning, a beats c and b by 10.0", "Selection: in each run"
    assert report.text.splitlines()[1].startswith(f"mnist: {verdict}")
    markdown, page = (report.folder / "report.md").read_text(), report.page.read_text()
    assert markdown.splitlines()[2].startswith(f"- **mnist**: {verdict}")
    assert page.index(verdict) < page.index('id="sweep"') < page.index(" alone, a has") < page.index("<table")
    assert (markdown.count(shared), report.text.count(shared)) == (1, 1)
    assert shared in (report.folder / "cells.md").read_text()


@pytest.mark.parametrize(
    ("rate", "opening"),
    [
        (1e-2, "At the one learning rate that was tried, a leads b by 10.0 points"),
        (1e-3, "At one learning rate each, a "),
    ],
)
def test_variants_with_one_learning_rate_are_not_called_tuned(tmp_path: Path, rate: float, opening: str) -> None:
    made = SyntheticRecord(tmp_path)
    for seed in (0, 1):
        made.add(1e-2, seed, [(300, 0.5, 0.5)], variant="a")
        made.add(rate, seed, [(300, 0.4, 0.39 + 0.02 * seed)], variant="b")
    (text,) = [line for line in write_report(made.write(), "small").text.splitlines() if line.startswith("mnist: ")]
    assert text.startswith(f"mnist: {opening}")
    assert "alone" not in text


def figure_of(num_pairs: int) -> Figure:
    row: dict[str, Any] = {"task": "digits", "model": "tiny", "variant": "a", "difference": 0.01}
    row |= {"low": 0, "high": 0.02}
    looks = pd.DataFrame([row | {"other": f"b{i}", "num_seeds": seeds} for i in range(num_pairs) for seeds in (3, 4)])
    decision: Any = SimpleNamespace(metric=ACCURACY, settings=SimpleNamespace(min_difference=0.0))
    return _figure(looks, decision)


@pytest.mark.parametrize(("num_pairs", "num_drawn"), [(2, 2), (8, 8), (10, 8)])
def test_each_pair_that_is_drawn_has_a_mark_of_its_own(num_pairs: int, num_drawn: int) -> None:
    figure = figure_of(num_pairs)
    (legend,) = figure.legends
    marks = {(line.get_color(), line.get_marker()) for line in legend.get_lines()}
    assert len(marks) == len(legend.get_texts()) == len(figure.axes[0].containers) == num_drawn
    is_said = any("the table has all" in text.get_text().replace("\n", " ") for text in figure.texts)
    assert is_said == (num_drawn < num_pairs)


def test_the_best_variant_s_lead_over_the_closest_comes_first() -> None:
    """by hand, losses: c leads all, a leads b and d; c's leads are 0.1, 0.3 and one unknown."""
    pairs = [("a", "b", -0.2), ("a", "c", 0.1), ("a", "d", -0.4), ("b", "c", 0.3), ("c", "d", math.nan)]
    table = pd.DataFrame(pairs, columns=["variant", "other", "difference"]).assign(task="text", model="tiny")
    table = table.assign(low=table["difference"] - 0.05, high=table["difference"] + 0.05, outcome="ahead", num_seeds=3)
    table.loc[4, ["outcome", "num_seeds"]] = "open", 0
    settings = SimpleNamespace(min_difference=0.0)
    decision: Any = SimpleNamespace(
        metric=Metric(name="loss", higher_is_better=False, is_fraction=False), settings=settings, table=lambda: table
    )
    assert decided_texts(decision)["text", "tiny"] == (
        "On fresh seeds, which chose no learning rate: c beats a by 0.100 (95% interval 0.050 to 0.150, 3 seeds); "
        "c beats b by 0.300 (95% interval 0.250 to 0.350, 3 seeds); c and d are not compared yet; and 2 more pairs."
    )
