"""The sweep's checks, one synthetic cell each; every number in a message is worked out here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lr_sweep.analysis.report.blocks import MOST_ROWS, Bullets
from lr_sweep.tests.support.records import Point, SyntheticRecord
from lr_sweep.tests.support.synthetic import by_check, found_in, grid, of_check
from lr_sweep.tests.support.tiny_study import said, succeeds

pytestmark = pytest.mark.usefixtures("undrawn")
ROOT = Path(__file__).parents[4]


def test_a_sound_sweep_has_no_findings(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    grid(made, {1e-4: 0.59, 1e-3: 0.6, 1e-2: 0.595})
    assert found_in(made) == []


def test_missing_failed_and_diverged_runs_are_named_by_learning_rate(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    grid(made, {1e-4: 0.59, 1e-3: 0.6}, seeds=2)
    made.add(1e-2, 0, [], "diverged", 9, 9)
    made.add(1e-2, 1, [(300, 0.59, 0.59)])
    made.add(1e-1, 0, [], "failed", 0, failure="out of memory")
    made.want(1e-1, 1)
    found = found_in(made)
    assert [(each.check, each.level, each.message) for each in found] == [
        ("missing", "problem", "1 of 8 runs missing: 1 of 2 at 1e-1"),
        ("missing", "problem", "1 of 8 runs failed: 1 of 2 at 1e-1"),
        ("diverged", "note", "1 of 8 runs diverged: 1 of 2 at 1e-2"),
    ]
    assert [each.fix for each in found[:2]] == ["`run` trains them", "`run --retry-failed` trains them again"]


def test_divergence_at_the_chosen_learning_rate_is_a_problem(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    grid(made, {1e-4: 0.59, 1e-2: 0.58}, seeds=2)
    made.add(1e-3, 0, [(100, 0.61, 0.61)], "diverged", 150, 150)
    made.add(1e-3, 1, [(300, 0.6, 0.6)])
    diverged = by_check(found_in(made))["diverged"]
    assert diverged.level == "problem"
    assert diverged.message.endswith("1 of 2 at 1e-3; the chosen learning rate, 1e-3, among them")


def curve(*values: float) -> list[Point]:
    return [(100 * (index + 1), value, value) for index, value in enumerate(values)]


@pytest.mark.parametrize(
    ("ends", "gain"),
    [
        (((0.60, 0.62, 0.64), (0.61, 0.63, 0.65)), "4.0"),
        (((0.60, 0.61, 0.60), (0.61, 0.60, 0.61)), None),
        (((0.600, 0.601, 0.604), (0.601, 0.603, 0.604)), None),
        (((0.60, 0.61, 0.66), (0.62, 0.61, 0.60)), None),
    ],
    ids=["rises", "flat", "less than half a point", "rises less than the seeds differ"],
)
def test_still_rising_at_the_budget(tmp_path: Path, ends: tuple[tuple[float, ...], ...], gain: str | None) -> None:
    """A quarter of six evaluations is less than three, so it is the last three: steps 400 to 600."""
    made = SyntheticRecord(tmp_path)
    for seed, end in enumerate(ends):
        for rate in (1e-4, 1e-2):
            made.add(rate, seed, curve(0.3, 0.4, 0.5, 0.59, 0.59, 0.59), budget=600)
        made.add(1e-3, seed, curve(0.3, 0.4, 0.5, *end), budget=600)
    found = by_check(found_in(made))
    if gain is None:
        assert "improving" not in found
    else:
        assert found["improving"].message == (
            f"validation still rises at the budget: by {gain} points over the last 200 steps"
        )


def test_five_evaluations_are_too_few_to_rise(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for rate in (1e-4, 1e-3, 1e-2):
        for seed in (0, 1):
            made.add(rate, seed, curve(0.1, 0.2, 0.3, 0.4 + rate, 0.59 + 0.01 * (rate == 1e-3)), budget=500)
    assert found_in(made) == []


def test_steps_beyond_the_study_s_budget_do_not_count_as_rising(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for rate, accuracy in ((1e-4, 0.59), (1e-3, 0.6), (1e-2, 0.59)):
        made.add(rate, 0, curve(0.3, 0.4, 0.5 + rate, accuracy, accuracy, accuracy, 0.9), trained=700, budget=600)
    assert {each.check for each in found_in(made)} == set()


def variants(made: SyntheticRecord, by_variant: dict[str, list[list[float]]], task: str = "mnist") -> None:
    """Add a run of one seed for each learning rate and variant, by its validation accuracies."""
    for variant, curves in by_variant.items():
        for rate, values in zip((1e-4, 1e-3, 1e-2), curves, strict=True):
            made.add(rate, 0, curve(*values), variant=variant, task=task)


LEARNS = [[0.6, 0.61, 0.62], [0.6, 0.7, 0.8], [0.6, 0.7, 0.7]]


@pytest.mark.parametrize(
    ("curves", "message"),
    [
        ([[0.6, 0.6, 0.6]] * 3, "validation accuracy is 60.0 at 9 of 9 evaluations of 3 runs, and never higher"),
        ([[1.0, 1.0, 1.0]] * 3, "validation accuracy is 100.0 at 9 of 9 evaluations of 3 runs"),  # labels of a class
        (
            [[0.6, 0.4, 0.6], [0.4, 0.4, 0.6], [0.6, 0.6, 0.4]],
            "60.0 at 5 of 9 evaluations of 3 runs, and never higher",
        ),
        ([[0.6, 0.6, 0.6], [0.6, 0.6, 0.601], [0.6, 0.6, 0.6]], None),  # once above it
        ([[0.1, 0.6, 0.6], [0.3, 0.5, 0.6], [0.2, 0.4, 0.6]], None),  # 4 of 9
        ([[0.1, 0.2, 0.3], [0.6, 0.6, 0.6], [0.6, 0.6, 0.6]], None),  # a rate that does not come so far
        ([[0.5, 1.0, 1.0], [1.0, 1.0, 1.0], [0.9, 1.0, 1.0]], None),  # an easy task
        (LEARNS, None),
    ],
)
def test_a_task_stuck_at_one_accuracy(tmp_path: Path, curves: list[list[float]], message: str | None) -> None:
    made = SyntheticRecord(tmp_path)
    variants(made, {"frozen-random": curves})
    found = of_check(made, "stuck")
    assert [each.level for each in found.values()] == ([] if message is None else ["problem"])
    assert message is None or message in found["frozen-random"].message


def test_a_variant_that_learns_nothing_is_a_note_where_another_learns(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    variants(made, {"frozen-random": [[0.6, 0.6, 0.6]] * 3, "unfrozen-random": LEARNS})
    assert {name: each.level for name, each in of_check(made, "stuck").items()} == {"frozen-random": "note"}


def test_three_evaluations_are_too_few_to_be_stuck(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    grid(made, {1e-4: 0.6, 1e-3: 0.6, 1e-2: 0.6}, seeds=1)
    assert of_check(made, "stuck") == {}


def test_strict_fails_on_problems_only(tmp_path: Path) -> None:
    sound, unsound = SyntheticRecord(tmp_path, "sound"), SyntheticRecord(tmp_path, "unsound")
    grid(sound, {1e-4: 0.59, 1e-3: 0.6, 1e-2: 0.59}, seeds=1)
    grid(unsound, {1e-3: 0.6}, seeds=1)
    sound.write()
    unsound.write()
    succeeds("report", "sound", "--strict", "--results", tmp_path)
    code, printed = said("report", "sound", "unsound", "--strict", "--results", tmp_path)
    assert code == 1
    assert "learning_rates: [1e-4, 3.16e-4, 1e-3, 3.16e-3, 1e-2]" in printed
    written = json.loads((tmp_path / "studies/unsound/report/checks.json").read_text())
    assert (written["study"], written["num_problems"]) == ("unsound", 1)
    assert written["learning_rates_tried"] == [1e-3]
    assert written["learning_rates_to_add"] == [1e-4, 3.16e-4, 3.16e-3, 1e-2]
    assert [each["check"] for each in written["findings"]] == ["untuned"]
    succeeds("report", "unsound", "--results", tmp_path)


def test_a_terminal_gets_a_part_of_many_findings() -> None:
    lines = Bullets(["problem: v: x"] * (MOST_ROWS + 3)).text().splitlines()
    assert lines[-2:] == ["  problem: v: x", "  and 3 more in the report"]


def test_the_docs_list_every_check() -> None:
    page = (ROOT / "docs" / "checks.md").read_text()
    source = "".join(path.read_text() for path in (ROOT / "analysis" / "statistics").rglob("*.py"))
    names = set(re.findall(r'(?:finding|finding_of|asking_for)\(\s*(?:cell, )?"([\w-]+)"', source))
    assert len(names) == 13
    assert {name for name in names if f"- `{name}` (" not in page} == set()
