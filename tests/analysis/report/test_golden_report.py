"""One small study with everything that goes wrong in it; every number of its report is worked out here by hand.

Four learning rates, three seeds, three variants. Every run has evaluations at 100, 200 and 300; validation is equal at
200 and 300, so 200 is the best step, while test falls by 20 points at 300 and would show a wrong tie rule.

- frozen-pretrained: validation means tie at 1e-4 and 1e-3; test is far better at 1e-3, which must not matter.
- unfrozen-pretrained: best at 1e-4; at 1e-3 behind frozen-pretrained, the order flip; all diverge at 1e-2.
- frozen-random: best at the edge, 1e-2; a seed is missing at 1e-5 and failed at 1e-4.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lr_sweep.analysis.paper.paper import paper_tables
from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.report import tables
from lr_sweep.analysis.report.blocks import Table
from lr_sweep.analysis.report.tables import order_table, order_texts, pair_table
from lr_sweep.analysis.statistics.comparisons.orders import orders
from lr_sweep.analysis.statistics.comparisons.pairs import comparisons
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.analysis.study_report import Report, write_report
from lr_sweep.tests.support.records import SyntheticRecord, summary_of

F, U, R = "frozen-pretrained", "unfrozen-pretrained", "frozen-random"
VALUES = {  # variant, learning rate: validation by seed, test by seed, at step 200
    (F, 1e-5): ((0.30, 0.30, 0.30), (0.30, 0.30, 0.30)),
    (F, 1e-4): ((0.60, 0.62, 0.64), (0.50, 0.53, 0.56)),
    (F, 1e-3): ((0.64, 0.62, 0.60), (0.80, 0.80, 0.80)),
    (F, 1e-2): ((0.40, 0.40, 0.40), (0.70, 0.70, 0.70)),
    (U, 1e-5): ((0.50, 0.50, 0.50), (0.45, 0.45, 0.45)),
    (U, 1e-4): ((0.70, 0.72, 0.74), (0.60, 0.63, 0.66)),
    (U, 1e-3): ((0.65, 0.65, 0.65), (0.40, 0.40, 0.40)),
    (R, 1e-5): ((0.20, 0.20), (0.20, 0.20)),
    (R, 1e-4): ((0.30, 0.30), (0.30, 0.30)),
    (R, 1e-3): ((0.40, 0.40, 0.40), (0.40, 0.40, 0.40)),
    (R, 1e-2): ((0.50, 0.50, 0.50), (0.48, 0.50, 0.52)),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = SyntheticRecord(tmp_path_factory.mktemp("results"), "golden")
    for (variant, rate), by_seed in VALUES.items():
        for seed, (validation, test) in enumerate(zip(*by_seed, strict=True)):
            curve = [(100, validation - 0.1, test - 0.1), (200, validation, test), (300, validation, test - 0.2)]
            made.add(rate, seed, curve, variant=variant)
    for seed in range(3):
        made.add(1e-2, seed, [], "diverged", 40, 40, variant=U)
    made.want(1e-5, 2, variant=R)
    made.add(1e-4, 2, [], "failed", 0, failure="out of memory", variant=R)
    return made.write()


@pytest.fixture(scope="module")
def summary(results: Path) -> StudySummary:
    return summary_of(results, "golden")


@pytest.fixture(scope="module")
def paper(results: Path, summary: StudySummary) -> dict[str, Table]:
    return {table.title[:7]: table for table in paper_tables(summary, record.read_curves(results))}


@pytest.fixture(scope="module")
def report(results: Path, undrawn_module: None) -> Report:
    return write_report(results, "golden")


def test_table_1(paper: dict[str, Table]) -> None:
    """SEM of 0.50, 0.53, 0.56: 0.03 / sqrt(3) = 0.0173; of 0.48, 0.50, 0.52: 0.0115."""
    assert [row[:2] for row in paper["Table 1"].rows] == [
        (F, "53.0 ± 1.7"),  # not the 80.0 of the equally good 1e-3
        (U, "63.0 ± 1.7"),
        (R, "50.0 ± 1.2 †‡"),
    ]


def test_every_learning_rate(summary: StudySummary) -> None:
    table = tables.learning_rate_table(summary, "mnist", "gpt2")
    assert table.header == ("variant", "1e-5", "1e-4", "1e-3", "1e-2")
    assert table.rows == (
        (F, "30.0 ± 0.0", "53.0 ± 1.7 *", "80.0 ± 0.0", "70.0 ± 0.0"),
        (U, "45.0 ± 0.0", "63.0 ± 1.7 *", "40.0 ± 0.0", "– (3 diverged)"),
        (
            R,
            "20.0 ± 0.0 (2 of 3 seeds) (1 missing)",
            "30.0 ± 0.0 (2 of 3 seeds) (1 failed)",
            "40.0 ± 0.0",
            "50.0 ± 1.2 *",
        ),
    )


def test_table_2(paper: dict[str, Table]) -> None:
    """To match 53.0: itself at 200; unfrozen at 100, where it has 0.63 - 0.1; frozen-random never."""
    assert [row[:2] for row in paper["Table 2"].rows] == [(F, "200"), (U, "100"), (R, "- †‡")]


def test_table_3(paper: dict[str, Table]) -> None:
    """At step 300 test is 20 points below that at 200; train is 0.5 in every synthetic run."""
    assert [row[:3] for row in paper["Table 3"].rows] == [
        *((F, "train", "50.0"), (F, "test", "33.0"), (F, "diff", "17.0")),
        *((U, "train", "50.0"), (U, "test", "43.0"), (U, "diff", "7.0")),
        *((R, "train", "50.0 †‡"), (R, "test", "30.0 †‡"), (R, "diff", "20.0 †‡")),
    ]


def test_comparisons(summary: StudySummary) -> None:
    """Squared standard errors of the means: 3e-4, 3e-4 and 1.333e-4.

    Between the first two: 0.02449 with 4 degrees of freedom; with the third: 0.02082 with
    4.333^2 / (3^2 / 2 + 1.333^2 / 2) = 3.484. The neighbouring rates have no spread, and show nothing. By Holm the p of
    0.0052, 0.0151 and 0.23 are multiplied by 3, 2 and 1, so the t factors are those of 5% / 3 (4.327), 5% / 2 (3.495)
    and 5% (2.946).
    """
    table = pair_table(comparisons(summary).assign(condition=""), summary, [U])
    assert table.rows == (
        (f"{F} − {U}", "3", "−10.0", "−18.6 to −1.4", "0.03", "yes", "11.2"),
        (f"{F} − {R}", "3", "+3.0", "−3.1 to 9.1", "0.23", "no", "8.3"),
        (f"{U} − {R}", "3", "+13.0", "4.0 to 22.0", "0.016", "yes", "11.6"),
    )


def test_the_variants_are_ranked_with_their_distance_to_the_best(report: Report) -> None:
    """The t factor of 3 seeds is 4.3027; the standard errors are 0.01732, 0.01732 and 0.01155, so the decimals are
    those of 1.7 points. Differences are as above; typical is half a width of 9 points."""
    page = (report.folder / "report.md").read_text()
    heading = "| variant | learning rate | runs | mean | 95% interval | difference to the best | corrected p |"
    rows = page.partition(heading)[2].splitlines()[2:5]
    assert rows == [
        f"| {U} | 1e-4 | 3 | **63.0** | 55.5 to 70.5 |  |  |",
        f"| {F} | 1e-4 | 3 | 53.0 | 45.5 to 60.5 | −10.0 | 0.03 |",
        f"| {R} | 1e-2 | 3 | 50.0 †‡ | 45.0 to 55.0 | −13.0 | 0.016 |",
    ]
    assert page.index(f"After tuning, {U} beats {F}") < page.index(rows[0]) < page.index("| variant | 1e-5 |")


def test_orders(summary: StudySummary) -> None:
    """The third variant has two seeds at 1e-5 and 1e-4, so it is not tested there."""
    assert list(order_table(order_texts(orders(summary))).rows) == [
        ("tuned", f"{U} > {F} > {R}", f"{U}: 3 diverged; {R}: 1 missing, 1 failed", "", ""),
        ("1e-5", f"{U} > {F} > {R}", f"{R}: 1 missing", "as tuned", f"{U} > {F}"),
        ("1e-4", f"{U} > {F} > {R}", f"{R}: 1 failed", "as tuned", f"{U} > {F}"),
        ("1e-3", f"{F} > {R} = {U}", "", "another winner", f"{F} > {U}, {F} > {R}"),
        ("1e-2", f"{F} > {R}", f"{U}: 3 diverged", "another winner", f"{F} > {R}"),
    ]


def test_checks(report: Report) -> None:
    """Validation less test: 9, 9 and 0 points; three standard errors of splits of 100, as these seem, are 20 points."""
    assert [(each.variant, each.check, each.level, each.message) for each in report.findings] == [
        (R, "edge", "problem", "the best learning rate, 1e-2, is the largest tried"),
        (R, "missing", "problem", "1 of 12 runs missing: 1 of 3 at 1e-5"),
        (R, "missing", "problem", "1 of 12 runs failed: 1 of 3 at 1e-4"),
        (U, "diverged", "note", "3 of 12 runs diverged: 3 of 3 at 1e-2"),
    ]
    setting = "learning_rates: [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0]"
    assert report.text.endswith(f"`{setting}`")
    to_add = json.loads((report.folder / "checks.json").read_text())["learning_rates_to_add"]
    assert to_add == [1e-1, 1.0]


def test_the_page_has_what_the_tables_have(report: Report, paper: dict[str, Table]) -> None:
    page = (report.folder / "report.md").read_text()
    for table in paper.values():
        assert table.markdown() in page
    assert "36 runs wanted: 31 complete, 3 diverged, 1 failed, 1 missing." in page
    assert "out of memory" in page
