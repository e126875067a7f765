"""The chart of a study that runs: what waits is called waiting, and conclusions come once they have grounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lr_sweep.analysis.study_report import chart_and_verdict
from lr_sweep.sweep.live.chart import running_chart
from lr_sweep.sweep.live.state import Live
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.records import SyntheticRecord, add_fresh

RATES = (1e-3, 1e-2, 1e-1)


def panel_of(made: SyntheticRecord, **facts: Any) -> dict[str, Any]:
    """The only panel of the chart, after the record was written."""
    made.write(**facts)
    (study,) = Live(Results(made.results)).view().studies
    (panel,) = running_chart(chart_and_verdict(made.results, "small")[0], study.runs)["panels"]
    return panel


def study_of_two(folder: Path, ended: dict[str, tuple[int, ...]]) -> SyntheticRecord:
    """Two seeds at three rates; `ended`: the number of seeds that have ended, by variant and rate."""
    made = SyntheticRecord(folder)
    for variant, numbers in ended.items():
        for rate, number in zip(RATES, numbers, strict=True):
            for seed in (0, 1):
                made.want(rate, seed, variant=variant)
                if seed < number:
                    made.end(made.wanted[-1], [(300, 0.5 + rate, 0.5 + rate)], "complete", 300)
    return made


def test_nothing_is_concluded_before_each_variant_has_two_rates(tmp_path: Path) -> None:
    """The variant a has three, b one, and one whose runs have failed: no chosen rate, no order, a sentence."""
    made = study_of_two(tmp_path, {"a": (2, 2, 2), "b": (2, 1, 0)})
    for run in made.wanted[-2:]:
        made.end(run, [], "failed", 10, failure="node lost")
    panel = panel_of(made)
    assert panel["pending"] == (
        "b has 1 of 3 learning rates with all 2 seeds; conclusions appear when each variant has 2."
    )
    assert panel["handle"]["rates"] == []
    for line in panel["lines"]:
        assert not any(point["chosen"] for point in line["points"])
        assert (line["optimum"], line["edge"], line["seeds"]) == (None, "", [])


def test_then_it_is_the_chart_of_the_report(tmp_path: Path) -> None:
    """Two rates of b have all seeds: the rest still waits, by that name."""
    panel = panel_of(study_of_two(tmp_path, {"a": (2, 2, 2), "b": (2, 2, 1)}))
    assert panel["pending"] == ""
    assert [rate["lost"] for rate in panel["handle"]["rates"]] == ["", "", "1 waiting"]
    assert [point["chosen"] for point in panel["lines"][0]["points"]] == [False, False, True]


def test_the_tuned_order_waits_for_the_fresh_seeds(tmp_path: Path) -> None:
    """At the chosen rate one of two fresh seeds of each variant has ended, then both."""
    made = study_of_two(tmp_path, {"a": (2, 2, 2), "b": (2, 2, 2)})
    for variant, test in (("a", 0.7), ("b", 0.6)):
        add_fresh(made, 1e-1, variant, [test, None])
    handle = panel_of(made, fresh={"max": 2})["handle"]
    assert (handle["tuned"], len(handle["rates"])) == ([], 3)
    for run in (run for run in made.wanted if run["seed"] == 11):
        made.end(run, [(300, 0.5, 0.6 if run["variant"] == "a" else 0.5)], "complete", 300)
    assert panel_of(made, fresh={"max": 2})["handle"]["tuned"] == [[0], [1]]


def test_a_run_is_called_what_status_calls_it(tmp_path: Path) -> None:
    """At 1e-3 a run waits, at 1e-2 one trains and one waits, at 1e-1 both have failed."""
    made = study_of_two(tmp_path, {"a": (1, 0, 0)})
    made.write_curve(made.wanted[2]["run_id"], [(100, 0.5, 0.5)])
    for run in made.wanted[4:]:
        made.end(run, [], "failed", 10, failure="node lost")
    first, second, third = panel_of(made)["lines"][0]["points"]
    assert (first["kind"], first["lost"]) == ("partial", "1 waiting")
    assert (second["kind"], second["text"]) == ("waiting", "– (1 started, 1 waiting)")
    assert (third["kind"], third["text"]) == ("none", "– (2 failed)")


def test_a_study_of_one_rate_is_compared_at_that_rate(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    for variant in ("a", "b"):
        made.add(1e-3, 0, [(300, 0.5, 0.5)], variant=variant)
    made.want(1e-3, 1, variant="c")
    assert panel_of(made)["pending"].startswith("c has 0 of 1 learning rate with all 1 seed; ")
    made.end(made.wanted[-1], [(300, 0.5, 0.5)], "complete", 300)
    assert panel_of(made)["pending"] == ""
