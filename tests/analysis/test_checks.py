"""The sweep's checks, one synthetic cell each; every number in a message is worked out here."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lr_sweep.analysis.__main__ import main
from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.report.findings import MAX_LINES, findings_text
from lr_sweep.analysis.statistics.checks import CheckFinding, check_sweep
from lr_sweep.analysis.statistics.further_rates import around, between, beyond, three_digits
from lr_sweep.tests.support.records import Point, SyntheticRecord, summary_of

ROOT = Path(__file__).parents[2]


def found_in(made: SyntheticRecord) -> list[CheckFinding]:
    results = made.write()
    return check_sweep(summary_of(results), record.read_curves(results))


def grid(made: SyntheticRecord, values: dict[float, float], seeds: int = 2, test_below: float = 0.0) -> None:
    """Add runs whose every seed has the same validation accuracy at a rate, and a test accuracy below it."""
    for rate, accuracy in values.items():
        for seed in range(seeds):
            made.add(rate, seed, [(300, accuracy, accuracy - test_below)])


def by_check(findings: list[CheckFinding]) -> dict[str, CheckFinding]:
    assert len({each.check for each in findings}) == len(findings), "each check at most once here"
    return {each.check: each for each in findings}


def test_a_sound_sweep_has_no_findings(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    grid(made, {1e-4: 0.59, 1e-3: 0.6, 1e-2: 0.595})
    assert found_in(made) == []


@pytest.mark.parametrize(
    ("values", "which", "further"),
    [
        ({1e-4: 0.5, 3e-4: 0.51, 1e-3: 0.52, 3e-3: 0.53}, "largest", (1e-2, 3e-2)),
        ({1e-4: 0.6, 1e-3: 0.59, 1e-2: 0.5}, "smallest", (1e-6, 1e-5)),
        ({1e-4: 0.5, 3.16e-4: 0.51, 1e-3: 0.52}, "largest", (3.16e-3, 1e-2)),
    ],
)
def test_best_at_the_edge(tmp_path: Path, values: dict[float, float], which: str, further: tuple[float, ...]) -> None:
    made = SyntheticRecord(tmp_path)
    grid(made, values)
    edge = by_check(found_in(made))["edge"]
    assert edge.level == "problem"
    assert f"is the {which} tried" in edge.message
    assert edge.learning_rates == further


def test_one_learning_rate_is_the_papers_mistake(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    grid(made, {1e-3: 0.5})
    untuned = by_check(found_in(made))["untuned"]
    assert untuned.level == "problem"
    assert untuned.message == "only one learning rate, 1e-3, was tried: nothing is tuned"
    assert untuned.learning_rates == (1e-4, 3.16e-4, 3.16e-3, 1e-2)


def test_two_learning_rates_show_no_peak(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    grid(made, {1e-3: 0.5, 1e-2: 0.6})
    found = by_check(found_in(made))
    assert set(found) == {"untuned"}
    assert found["untuned"].learning_rates == (1e-5, 1e-4, 1e-1, 1.0)


@pytest.mark.parametrize(
    ("values", "gain"),
    [
        ((0.20, 0.60, 0.60, 0.20), "5.0"),  # a parabola of 20 points a decade, its peak in the middle
        ((0.40, 0.55, 0.60, 0.55, 0.40), None),  # as steep, and its peak is on the grid
        ((0.58, 0.60, 0.60, 0.58), None),  # 0.25 points are to be had
        ((0.59, 0.60, 0.60, 0.10), None),  # a plateau and a cliff: no parabola
        ((0.595, 0.995, 0.995, 0.595), None),  # as the first, with half a point to 100%
    ],
    ids=["between two rates", "on a rate", "flat", "cliff", "no room"],
)
def test_a_coarse_grid(tmp_path: Path, values: tuple[float, ...], gain: str | None) -> None:
    """A parabola through y at -1.5, -0.5, 0.5, 1.5 decades: its peak is an eighth of the fall in a decade above y."""
    made = SyntheticRecord(tmp_path)
    rates = [10.0 ** (index - 5) for index in range(len(values))]
    grid(made, dict(zip(rates, values, strict=True)))
    found = by_check(found_in(made))
    assert ("narrow" in found) == (gain is not None)
    if gain is not None:
        assert found["narrow"].level == "problem"
        assert found["narrow"].message == (
            "the grid is coarse at 1e-4: by a parabola through its neighbours a rate near 3.16e-4 is better by "
            f"{gain} points (at least {gain} points)"
        )
        assert found["narrow"].learning_rates == (3.16e-5, 3.16e-4)


def test_a_gain_that_changes_no_order_is_a_note(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for variant, top in (("frozen-random", 0.30), ("unfrozen-random", 0.60)):
        for rate, below in zip((1e-5, 1e-4, 1e-3, 1e-2), (0.2, 0.0, 0.0, 0.2), strict=True):
            for seed in (0, 1):
                made.add(rate, seed, [(300, top - below, top - below)], variant=variant)
    found = of_check(made, "narrow")
    assert [each.level for each in found.values()] == ["note", "note"]
    assert found["frozen-random"].message.endswith("; the nearest variant is 30.0 points away, so the order stays")


def test_a_gain_within_the_noise_is_none(tmp_path: Path) -> None:
    """The same 5 points, between seeds that are 20 points apart: SEM 0.1 of each mean."""
    made = SyntheticRecord(tmp_path)
    for rate, mean in zip((1e-5, 1e-4, 1e-3, 1e-2), (0.2, 0.6, 0.6, 0.2), strict=True):
        for seed, value in enumerate((mean - 0.1, mean + 0.1)):
            made.add(rate, seed, [(300, value, value)])
    assert found_in(made) == []


@pytest.mark.parametrize(
    ("values", "lost", "level", "further"),
    [
        ({1e-4: 0.5, 3e-4: 0.55, 1e-3: 0.6}, (3e-3, 1e-2), "problem", (1.73e-3,)),  # rises by 5 points a half decade
        ({1e-4: 0.59, 3e-4: 0.595, 1e-3: 0.6}, (3e-3, 1e-2), "note", ()),  # a quarter of a point is to be had
        ({1e-5: 0.59, 1e-4: 0.595, 1e-3: 0.6}, (1e-2,), "problem", (3.16e-3,)),  # a step of a decade
    ],
    ids=["rising", "flat", "wide"],
)
def test_a_cliff_above_the_best_rate(
    tmp_path: Path, values: dict[float, float], lost: tuple[float, ...], level: str, further: tuple[float, ...]
) -> None:
    made = SyntheticRecord(tmp_path)
    grid(made, values)
    for rate in lost:
        made.add(rate, 0, [], "diverged", 9, 9)
        made.add(rate, 1, [], "diverged", 9, 9)
    cliff = by_check(found_in(made))["cliff"]
    assert (cliff.level, cliff.learning_rates) == (level, further)
    assert cliff.message.startswith("no rate above the chosen 1e-3 has a value: the next is ")


def test_rates_that_diverged_do_not_show_a_peak(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    grid(made, {1e-4: 0.6})
    for rate in (1e-3, 1e-2, 1e-1):
        made.add(rate, 0, [], "diverged", 9, 9)
        made.add(rate, 1, [], "diverged", 9, 9)
    untuned = by_check(found_in(made))["untuned"]
    assert untuned.level == "problem"
    assert untuned.message == "only 1 of 4 learning rates has a value: no peak can be seen to lie inside"
    assert untuned.learning_rates == (1e-6, 1e-5, 3.16e-4)


@pytest.mark.parametrize(("others", "level"), [((0.70, 0.71), "problem"), ((0.601, 0.605), "note")])
def test_a_choice_that_avoids_a_rate_where_a_seed_diverged(
    tmp_path: Path, others: tuple[float, float], level: str
) -> None:
    """Of three seeds two have 70 and 71% at 1e-3: 10.5 points above the chosen rate, far beyond the noise."""
    made = SyntheticRecord(tmp_path)
    grid(made, {1e-5: 0.5, 1e-4: 0.6, 1e-2: 0.59}, seeds=3)
    made.add(1e-3, 0, [], "diverged", 9, 9)
    for seed, value in enumerate(others, start=1):
        made.add(1e-3, seed, [(300, value, value)])
    unstable = by_check(found_in(made))["unstable"]
    assert unstable.level == level
    assert unstable.message.startswith("1 of 3 seeds have no value at 1e-3, where the others are better than at the")
    assert unstable.learning_rates == ((3.16e-4,) if level == "problem" else ())


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
            made.add(rate, seed, curve(0.1, 0.2, 0.3, 0.4, 0.59 + 0.01 * (rate == 1e-3)), budget=500)
    assert found_in(made) == []


def test_steps_beyond_the_study_s_budget_do_not_count_as_rising(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for rate, accuracy in ((1e-4, 0.59), (1e-3, 0.6), (1e-2, 0.59)):
        made.add(rate, 0, curve(0.3, 0.4, 0.5, accuracy, accuracy, accuracy, 0.9), trained=700, budget=600)
    assert {each.check for each in found_in(made)} == {"one-seed"}


def test_a_gap_unlike_the_task_s_others(tmp_path: Path) -> None:
    """Validation less test: 0, 1 and 8 points; the median is 1, from which 8 is 7 away and 0 is 1."""
    made = SyntheticRecord(tmp_path)
    for variant, below in (("frozen-random", 0.0), ("frozen-pretrained", 0.01), ("unfrozen-random", 0.08)):
        for rate, accuracy in ((1e-4, 0.59), (1e-3, 0.6), (1e-2, 0.59)):
            for seed in (0, 1):
                made.add(rate, seed, [(300, accuracy, accuracy - below)], variant=variant)
    gap = by_check(found_in(made))["gap"]
    assert (gap.variant, gap.level) == ("unfrozen-random", "problem")
    assert gap.message == "validation less test is +8.0 points, where the median of the task's cells is +1.0"


def test_a_gap_of_every_cell_is_the_task_s(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for variant, at_high in (("frozen-random", 0.59), ("unfrozen-random", 0.595)):
        for rate, accuracy in ((1e-4, 0.59), (1e-3, 0.6), (1e-2, at_high)):
            for seed in (0, 1):
                made.add(rate, seed, [(300, accuracy, accuracy - 0.2)], variant=variant)
    assert {(each.check, each.level) for each in found_in(made)} == {("gap", "note")}


def test_a_gap_of_the_only_cell_is_a_problem(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    grid(made, {1e-4: 0.59, 1e-3: 0.6, 1e-2: 0.59}, test_below=0.2)
    assert by_check(found_in(made))["gap"].level == "problem"


def variants(made: SyntheticRecord, by_variant: dict[str, list[list[float]]]) -> None:
    """Add a run of one seed for each learning rate and variant, by its validation accuracies."""
    for variant, curves in by_variant.items():
        for rate, values in zip((1e-4, 1e-3, 1e-2), curves, strict=True):
            made.add(rate, 0, curve(*values), variant=variant)


def of_check(made: SyntheticRecord, check: str) -> dict[str, CheckFinding]:
    return {each.variant: each for each in found_in(made) if each.check == check}


LEARNS = [[0.6, 0.61, 0.62], [0.6, 0.7, 0.8], [0.6, 0.7, 0.7]]


@pytest.mark.parametrize(
    ("curves", "message"),
    [
        ([[0.6, 0.6, 0.6]] * 3, "validation accuracy is 60.0 at all 9 evaluations of its 3 runs"),
        ([[1.0, 1.0, 1.0]] * 3, "validation accuracy is 100.0 at all 9 evaluations of its 3 runs"),  # labels of a class
        (
            [[0.6, 0.4, 0.6], [0.4, 0.4, 0.6], [0.6, 0.6, 0.4]],
            "60.0 at 5 of 9 evaluations of its 3 runs, and never higher",
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


def test_identical_variants(tmp_path: Path) -> None:
    other = [*LEARNS[:2], [0.6, 0.7, 0.7000000000000001]]
    made = SyntheticRecord(tmp_path)
    variants(made, {"frozen-random": LEARNS, "unfrozen-random": other, "frozen-pretrained": LEARNS})
    found = of_check(made, "identical")
    (name,) = found  # the one whose runs are read later
    (first,) = {"frozen-pretrained", "frozen-random"} - {name}
    assert found[name].level == "problem"
    assert f"is that of gpt2 {first}, to the last bit" in found[name].message


def test_two_names_for_the_same_runs_are_not_identical_variants(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    variants(made, {"frozen-random": LEARNS})
    made.wanted += [row | {"model": "another-name"} for row in made.wanted]
    assert of_check(made, "identical") == {}


def test_identical_results_of_two_tasks_are_not_compared(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for task in ("mnist", "cifar10"):
        for rate, values in zip((1e-4, 1e-3, 1e-2), LEARNS, strict=True):
            made.add(rate, 0, curve(*values), task=task)
    assert of_check(made, "identical") == {}


def test_one_seed_is_said(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    grid(made, {1e-4: 0.59, 1e-3: 0.6, 1e-2: 0.59}, seeds=1)
    assert [(each.check, each.level) for each in found_in(made)] == [("one-seed", "note")]


def test_a_study_of_which_nothing_ran(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for rate in (1e-4, 1e-3, 1e-2):
        made.want(rate, 0)
    assert [each.message for each in found_in(made)] == [
        "3 of 3 runs missing: 1 of 1 at 1e-4, 1 of 1 at 1e-3, 1 of 1 at 1e-2"
    ]


def test_strict_fails_on_problems_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sound = SyntheticRecord(tmp_path, "sound")
    grid(sound, {1e-4: 0.59, 1e-3: 0.6, 1e-2: 0.59}, seeds=1)  # a note: one seed
    sound.write()
    unsound = SyntheticRecord(tmp_path, "unsound")
    grid(unsound, {1e-4: 0.59, 1e-3: 0.6})
    unsound.write()
    assert main([str(tmp_path), "sound", "--strict"]) == 0
    assert "checks: 1 note" in capsys.readouterr().out
    assert main([str(tmp_path), "unsound"]) == 0
    assert main([str(tmp_path), "--strict"]) == 1  # every study there is
    assert "learning_rates: [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1]" in capsys.readouterr().out


def test_checks_json(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    grid(made, {1e-3: 0.5}, seeds=1)
    made.write()
    main([str(tmp_path), "small"])
    written = json.loads((tmp_path / "studies/small/report/checks.json").read_text())
    assert (written["study"], written["num_problems"]) == ("small", 1)
    assert written["learning_rates_tried"] == [1e-3]
    assert written["learning_rates_to_add"] == [1e-4, 3.16e-4, 3.16e-3, 1e-2]
    assert [each["check"] for each in written["findings"]] == ["untuned", "one-seed"]


def test_a_terminal_gets_a_part_of_many_findings() -> None:
    one = CheckFinding(check="edge", level="problem", task="t", model="m", variant="v", message="x", fix="")
    lines = findings_text([one] * (MAX_LINES + 3), [1e-3]).splitlines()
    assert lines[0] == f"checks: {MAX_LINES + 3} problems"
    assert lines[-1] == "  and 3 more in the report"


SOURCES = ("checks.py", "grid_checks.py", "unequal.py")


def test_the_docs_list_every_check() -> None:
    page = (ROOT / "docs" / "checks.md").read_text()
    source = "".join((ROOT / "analysis" / "statistics" / name).read_text() for name in SOURCES)
    names = set(re.findall(r'finding_of\(cell, "([\w-]+)"', source))
    assert len(names) == 17
    assert {name for name in names if f"| `{name}` |" not in page} == set()


@given(st.integers(-12, 2), st.integers(1, 20), st.integers(3, 40), st.sampled_from(["low", "high"]))
def test_a_grid_is_extended_with_its_own_spacing(start: int, per_decade: int, num: int, end: str) -> None:
    """Rates beyond a log grid are those of the longer grid, to the last of 3 digits."""
    rates = [three_digits(10 ** ((start * per_decade + k) / per_decade)) for k in range(-2, num + 2)]
    expected = rates[:2] if end == "low" else rates[-2:]
    got = beyond(rates[2:-2], end)
    assert all(math.isclose(x, y, rel_tol=0.03) for x, y in zip(got, expected, strict=True))
    if num > per_decade:  # the digits repeat
        assert got == tuple(expected)


def test_steps_between_and_around() -> None:
    assert between([1e-4, 1e-3, 1e-2], 1e-3) == (3.16e-4, 3.16e-3)
    assert around(1e-3) == (1e-4, 3.16e-4, 3.16e-3, 1e-2)
    assert beyond([1e-3, 2e-3, 4e-3], "high") == (8e-3, 1.6e-2)
