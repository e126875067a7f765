"""The verdict in words, from leads made by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.record.study import Fresh
from lr_sweep.analysis.report.results import bold_text
from lr_sweep.analysis.report.verdict import sentences_on
from lr_sweep.analysis.statistics.comparisons.verdicts import Certain, Lead, OneRate
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.analysis.study_report import write_report
from lr_sweep.tests.support.judged import rows_of, study_of
from lr_sweep.tests.support.records import SyntheticRecord, add_fresh
from lr_sweep.tests.support.synthetic import flip_record

pytestmark = pytest.mark.usefixtures("undrawn")
LOSS = Metric(name="loss", higher_is_better=False, is_fraction=False)
REACH = "as far as the grid reaches: b still improves at 1e-2"


def lead(over: str, difference: float, low: float, high: float, p: float, **changed: Any) -> Lead:
    """A lead with three seeds, whose comparison would find a difference of 7 points."""
    return Lead(over, difference, low, high, p, p < 0.05, False, 3, 0.07)._replace(**changed)


def untested(over: str, difference: float, **changed: Any) -> Lead:
    return lead(over, difference, math.nan, math.nan, math.nan, findable=math.nan, **changed)


WINS = lead("b", 0.048, 0.02, 0.076, 0.003)
OPEN = lead("b", 0.0003, -0.0048, 0.0055, 0.9, findable=0.007)
EQUAL = lead("b", 0.003, -0.006, 0.012, 0.5, equal=True, findable=math.nan)
SURE = Certain(("a",), ("b",), (0.048, 0.048))
WON = "After tuning, a beats b by 4.8 points (95% interval 2.0 to 7.6, p 0.003)."
NONE = "After tuning, no difference is established."
FINDS = "With 3 seeds of each variant, a difference of 7.0 points would be found in 80% of studies."


def said(
    *leads: Lead,
    metric: Metric = ACCURACY,
    few: Mapping[str, int] | None = None,
    certain: Certain | None = None,
    one_rate: Sequence[OneRate] = (),
    seeds: int = 3,
    **options: Any,
) -> str:
    """The sentences of a study with `seeds` a variant, but for those in `few`; a is the leader."""
    names = ["a", *(each.over for each in leads)]
    counts = {"num_seeds": seeds, "most_seeds": seeds}
    cells = [{"variant": name, "num_tests": (few or {}).get(name, seeds)} | counts for name in names]
    rates = [{"variant": name, "learning_rate": rate} for name in names for rate in (1e-3, 1e-2)]
    frames = {"cells": pd.DataFrame(cells), "learning_rates": pd.DataFrame(rates)}
    summary = StudySummary(runs=pd.DataFrame(), metric=metric, **frames, **options)
    best = ("a", *(each.over for each in leads if not each.distinguishable))
    row = {"best": best, "leads": leads, "certain": certain, "one_rate": one_rate}
    return " ".join(sentences_on(row, summary))


@pytest.mark.parametrize(
    ("leads", "given", "text"),
    [
        ([WINS], {"certain": SURE}, WON),
        (
            [OPEN],
            {},
            f"{NONE} a leads b by 0.03 points (95% interval −0.48 to 0.55, p 0.9), which is not significant. With 3 "
            "seeds of each variant, a difference of 0.70 points would be found in 80% of studies.",
        ),
        (
            [lead(name, 0.01, -0.01, 0.03, 0.4) for name in "bc"],
            {},
            f"{NONE} a leads b by 1.0 points (95% interval −1.0 to 3.0, p 0.4) and c by 1.0 points (95% interval −1.0 "
            f"to 3.0, p 0.4); none of these leads is significant. {FINDS}",
        ),
        (
            [WINS, lead("c", 0.1, -0.02, 0.22, 0.07)],
            {"certain": SURE},
            f"{WON} a leads c by 10.0 points (95% interval −2.0 to 22.0, p 0.07), which is not significant. {FINDS}",
        ),
        (
            [EQUAL],
            {"equal_within": 0.02},
            "After tuning, a and b are equal within 2.0 points: a leads by 0.30 points (95% interval −0.60 to 1.20, "
            "p 0.5).",
        ),
        (
            [WINS._replace(condition=REACH)],
            {},
            f"After tuning, a leads b by 4.8 points (95% interval 2.0 to 7.6, p 0.003) {REACH}.",
        ),
        (
            [EQUAL._replace(condition=REACH, equal=False)],
            {"equal_within": 0.02},
            f"{NONE} a leads b by 0.30 points (95% interval −0.60 to 1.20, p 0.5), which is not significant, {REACH}.",
        ),
        (
            [WINS, lead("c", 0.06, 0.05, 0.07, 1e-5), *(lead(name, 0.3, 0.28, 0.32, 1e-9) for name in "de")],
            {"certain": Certain(("a", "b"), ("d", "e"), (0.252, 0.4))},
            "After tuning, a and b beat d and e by at least 25.2 and at most 40.0 points (p below 0.05 for each pair). "
            "a beats b by 4.8 points (95% interval 2.0 to 7.6, p 0.003). a beats c by 6.0 points (95% interval 5.0 to "
            "7.0, p < 0.001).",
        ),
        (
            [WINS, *(lead(name, 0.3, 0.28, 0.32, 1e-5) for name in "cdef")],
            {"certain": Certain(("a",), tuple("bcdef"), (0.048, 0.3))},
            "After tuning, a beats all 5 others by at least 4.8 and at most 30.0 points (over b: 95% interval 2.0 to "
            "7.6, p 0.003).",
        ),
        (
            [untested("b", 0.1), untested("c", 0.2)],
            {"seeds": 2},
            f"{NONE} a leads b by 10.0 points and c by 20.0 points. Variants with fewer than 3 seeds are not tested.",
        ),
        (
            [untested("b", 0.1, num_seeds=1), lead("c", 0.01, -0.01, 0.03, 0.4)],
            {"few": {"b": 1}, "seeds": 5},
            f"{NONE} a leads b (1 of 5 seeds) by 10.0 points and c by 1.0 points (95% interval −1.0 to 3.0, p 0.4); "
            "none of these leads is significant. Variants with fewer than 3 seeds are not tested. With these seeds, a "
            "difference of 7.0 points would be found in 80% of studies.",
        ),
        (
            [lead("b", 0.05, math.nan, math.nan, 0.1, findable=math.nan)],
            {},
            f"{NONE} a leads b by 5.0 points (no spread between seeds, p 0.1), which is not significant.",
        ),
        ([lead("b", 0.0, -0.01, 0.01, 1.0)], {}, f"{NONE} a and b have the same mean. {FINDS}"),
        (
            [lead(name, 0.01, -0.01, 0.03, 0.4) for name in "bcdef"],
            {},
            f"{NONE} a leads b by 1.0 points (95% interval −1.0 to 3.0, p 0.4), c by 1.0 points (95% interval −1.0 to "
            "3.0, p 0.4), d by 1.0 points (95% interval −1.0 to 3.0, p 0.4) and 2 others by up to 1.0 points; none of "
            f"these leads is significant. {FINDS}",
        ),
        (
            [WINS],
            {"certain": SURE, "one_rate": [OneRate("b", "a", True, (1e-4,), (0.4, 0.4))]},
            f"{WON} At 1e-4 alone, you would have concluded that b beats a by 40.0 points; after tuning, a beats b.",
        ),
        (
            [lead("b", 0.0, -0.01, 0.01, 1.0)],
            {"one_rate": [OneRate("b", "a", False, (1e-4, 1e-5), (0.1, 0.4))]},
            f"{NONE} a and b have the same mean. {FINDS} At 1e-4 or 1e-5 alone, you would have concluded that b beats "
            "a by at least 10.0 and at most 40.0 points; after tuning, no difference between the two is established.",
        ),
        (
            [WINS._replace(num_seeds=5)],
            {"certain": SURE, "fresh": Fresh(max=5), "seeds": 5},
            "On fresh seeds, which chose no learning rate, a beats b by 4.8 points (95% interval 2.0 to 7.6, p 0.003).",
        ),
        (
            [untested("b", 0.01)],
            {"fresh": Fresh(max=20, until_decided=True)},
            "On fresh seeds, which chose no learning rate, no difference is established. a leads b by 1.0 points. "
            "Variants with fewer than 4 fresh seeds are not tested.",
        ),
        ([], {}, "After tuning, a has a value, and there is nothing to compare it with."),
        (
            [WINS._replace(failed=(0, 3), num_runs=(5, 5), working_difference=-0.005)],
            {"certain": SURE},
            f"{WON} 3 of the 5 runs of b failed, and none of the 5 runs of a (Fisher's exact test, p 0.17). Without "
            "failed runs, b leads by 0.50 points.",
        ),
        (
            [lead("b", -0.5, -0.7, -0.3, 0.001)],
            {"certain": Certain(("a",), ("b",), (-0.5, -0.5)), "metric": LOSS},
            "After tuning, a beats b by 0.50 (95% interval 0.30 to 0.70, p 0.001).",
        ),
    ],
)
def test_sentences(leads: list[Lead], given: dict[str, Any], text: str) -> None:
    assert said(*leads, **given) == text


def test_of_many_variants_the_number_of_pairs_is_that_of_the_correction(tmp_path: Path) -> None:
    """61 variants make 1,830 pairs, of which the best one is in 60."""
    rows = [f"v{number},0.1,{seed},{(500 + number + seed) / 1000}" for number in range(61) for seed in range(3)]
    summary = study_of(tmp_path, rows_of("method,lr,seed,val_acc", rows)).summary
    assert "corrected for all 1830 pairs of the study, of which 60 are compared" in bold_text(summary)


def test_of_fresh_seeds(tmp_path: Path) -> None:
    """Both deviations are 1 point, so the difference has an SEM of 0.8165; by 2.776 that is 2.27 points, p 0.004."""
    made = SyntheticRecord(tmp_path)
    for variant in "ab":
        for rate, accuracy in ((1e-3, 0.3), (1e-2, 0.5), (1e-1, 0.3)):
            for seed in (0, 1):
                value = accuracy + 0.001 * seed + 0.01 * (variant == "a")
                made.add(rate, seed, [(300, value, value)], variant=variant)
    nothing = "No fresh seed has ended yet. The seeds that chose the learning rates do not compare the variants."
    assert nothing in write_report(made.write(fresh={"max": 3}), "small").text
    for variant, mean in (("a", 0.70), ("b", 0.65)):
        add_fresh(made, 1e-2, variant, [mean - 0.01, mean, mean + 0.01])
    report = write_report(made.write(fresh={"max": 3}), "small")
    won = "On fresh seeds, which chose no learning rate, a beats b by 5.0 points (95% interval 2.7 to 7.3, p 0.0036)."
    assert f"mnist: {won}\n" in report.text
    fresh = pd.read_csv(report.folder / "fresh.csv")
    assert fresh.groupby("variant")["test_accuracy"].mean().to_dict() == pytest.approx({"a": 0.7, "b": 0.65})
    assert "over 3 fresh seeds, which chose no learning rate" in (report.folder / "report.md").read_text()
    assert "| a | 1e-2 | 3 | **70.0** | 67.5 to 72.5 |  |  |" in (report.folder / "report.md").read_text()


def test_every_form_of_a_report_opens_with_question_and_verdict(tmp_path: Path) -> None:
    report = write_report(flip_record(tmp_path).write(), "small")
    question, verdict = "Which of a, b and c has the highest test accuracy on mnist", f"mnist: {NONE}"
    assert report.text.index(question) < report.text.index(verdict) < report.text.index("variant  learning rate")
    page = report.page.read_text()
    assert page.index(question) < page.index(NONE) < page.index("<table") < page.index('id="sweep"')
    content = json.loads((report.folder / "report.json").read_text())
    first, answer, table, *_ = content["sections"][0]["blocks"]
    assert first["prose"].startswith(question)
    assert answer["items"][0][1][0].startswith(NONE)
    assert table["rows"][0][:3] == ["a", "1e-3", "2"]


@pytest.mark.parametrize(
    ("rate", "opening"),
    [
        (1e-2, "At the one learning rate that was tried, no difference is established. a leads b by 10.0 points"),
        (1e-3, "At one learning rate each, no difference is established."),
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
