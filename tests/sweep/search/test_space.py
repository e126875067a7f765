"""Searches of further options beside the learning rate."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lr_sweep.analysis.record.read import read_wanted
from lr_sweep.analysis.statistics.rates.refinement import Observation
from lr_sweep.sweep.search.samplers import next_points
from lr_sweep.sweep.study.search import Point, Range, Search
from lr_sweep.tests.support.scripted_trials import (
    Bench,
    Landscape,
    planned,
    proposed,
    search_bench,
    searched,
    with_search,
)
from lr_sweep.tests.support.study_example import mistakes_in
from lr_sweep.tests.support.tiny_study import rows

SPACE = "{batch_size: [4, 8], weight_decay: {low: 1e-4, high: 1e-1}, dropout: {low: 0, high: 0.3}}"
SEARCH = f"{{sampler: tpe, low: 1e-5, high: 1e-1, rates: 6, space: {SPACE}}}"
CELL = ("digits", "tiny", "frozen-random")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return search_bench(tmp_path, monkeypatch, SEARCH, seeds=2)


def test_each_rate_trains_with_the_options_that_were_stored_for_it(bench: Bench) -> None:
    script = Landscape()
    assert bench.run(script).trained == 2 * 6 * 2
    stored = {(row.variant, row.learning_rate): json.loads(row.options) for row in proposed(bench).itertuples()}
    assert {tuple(options) for options in stored.values()} == {("batch_size", "dropout", "weight_decay")}
    for row in rows(bench.results.root).values():
        protocol = json.loads(row["content"])["protocol"]
        options = stored[row["variant"], row["learning_rate"]]
        assert {name: protocol.get(name, 0.0) for name in options} == options
    wanted = read_wanted(bench.results.root, "tiny")
    assert [json.loads(row.options) for row in wanted.itertuples()] == [
        stored[row.variant, row.learning_rate] for row in wanted.itertuples()
    ]


def test_only_runs_with_the_same_options_train_together(bench: Bench) -> None:
    script, resources = Landscape(), bench.study.resources.model_copy(update={"runs_per_trial": None})
    bench.study = bench.study.model_copy(update={"resources": resources})
    bench.run(script)
    assert all(len({run.protocol for run in cohort.runs}) == 1 for cohort in script.cohorts)
    assert sorted(len(cohort.runs) for cohort in script.cohorts) == [2] * 12  # the seeds of each point


def test_a_report_names_the_options_at_the_chosen_rate(bench: Bench) -> None:
    report = bench.run(Landscape(), report=True).report
    text = (report.folder / "report.md").read_text()
    assert "Each learning rate was tried with its own values of batch_size, weight_decay, dropout." in text
    folder = bench.results.root / "studies/tiny/report"
    table, cells = pd.read_csv(folder / "options.csv"), pd.read_csv(folder / "cells.csv")
    assert table["learning_rate"].tolist() == cells["learning_rate"].tolist()
    stored = {(row.variant, row.learning_rate): json.loads(row.options) for row in proposed(bench).itertuples()}
    for row in table.to_dict("records"):
        options = stored[row["variant"], row["learning_rate"]]
        assert {name: row[name] for name in options} == options
    assert "Options at the chosen learning rate" in (folder / "report.md").read_text()


def test_plan_and_proposals_have_the_space_and_an_edited_one_holds_from_the_next_round_on(bench: Bench) -> None:
    assert len(planned(bench).wanted) == 24
    bench.run(Landscape())
    assert {tuple(json.loads(text)) for text in proposed(bench)["options"]} == {
        ("batch_size", "dropout", "weight_decay")
    }
    before = proposed(bench)
    with_search(bench, rates=8, space={"batch_size": (2, 4), "gradient_clip_norm": Range(low=0.9, high=9)})
    assert bench.run(Landscape()).trained == 8
    after = proposed(bench)
    pd.testing.assert_frame_equal(after[after["number"] < 6].reset_index(drop=True), before)
    assert {tuple(json.loads(text)) for text in after.loc[after["number"] >= 6, "options"]} == {
        ("batch_size", "gradient_clip_norm")
    }


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ("{batch: [4, 8]}", "search.space.batch: unknown option 'batch'"),
        ("{precision: [fp32, tf32]}", "search.space.precision: is how runs are measured or computed"),
        ("{batch_size: [4]}", "search.space.batch_size: "),
        ("{batch_size: [4, 4]}", "search.space.batch_size[1]: 4 is there twice"),
        ("{batch_size: {low: 4, high: 64}}", "for whole numbers want a list of values"),
        ("{batch_size: [4, 100000]}", "search.space: batch_size: the training split has"),
        ("{dropout: {low: 0.1, high: 0.3, scale: linear}}", "search.space.dropout.scale: gone: a range from 0 has a l"),
        ("{dropout: {low: 0.3, high: 0.1}}", "search.space.dropout.high: got 0.1, want more than low = 0.3"),
        ("{dropout: {low: 0.1, high: 1.5}}", "search.space.dropout: "),
        ("{dropout: 0.1}", "search.space.dropout: got 0.1, want a range, {low: 1e-3, high: 1e-1}, or a list of values"),
        ("{momentum: [0.5, 0.95]}", "search.space.momentum: unknown option 'momentum'"),
        ("{optimizer: [adam, sgd], parametrization: [standard, mup]}", "search.space: parametrization: mup has no ru"),
        ("{weight_decay: {low: 0.12345, high: 1}}", "search.space.weight_decay.low: 0.12345 has more than 3 signif"),
    ],
)
def test_mistakes(tmp_path: Path, space: str, message: str) -> None:
    found = mistakes_in(searched(tmp_path, f"{{low: 1e-5, high: 1e-1, rates: 6, space: {space}}}"))
    assert message in "\n".join(found)


@given(st.floats(0, 1), st.sampled_from([1e-3, 0.0]))
def test_values_of_a_range_are_inside_and_rise_with_the_position(position: float, low: float) -> None:
    axis = Range(low=low, high=0.5)
    assert axis.low <= axis.at(position) <= axis.high
    assert (axis.at(0.0), axis.at(1.0)) == (low, 0.5)
    assert axis.at(0.5) == {1e-3: 0.0224, 0.0: 0.25}[low]  # sqrt(1e-3 x 0.5), and half of 0.5


@pytest.mark.parametrize(("low", "scale"), [(0, "linear"), (1e-3, "log")])
def test_a_scale_of_an_earlier_version_that_is_today_s_is_read(low: float, scale: str) -> None:
    assert Range.model_validate({"low": float(low), "high": 0.5, "scale": scale}) == Range(low=low, high=0.5)


@pytest.mark.parametrize("sampler", ["tpe", pytest.param("gp", marks=pytest.mark.slow), "quasi-random", "random"])
def test_samplers_fill_the_space_and_repeat_themselves(sampler: str) -> None:
    search = Search.model_validate(
        {
            **{"sampler": sampler, "low": 1e-5, "high": 1e-1, "rates": 12},
            "space": {"batch_size": (4, 8), "dropout": {"low": 0.0, "high": 0.3}},
        }
    )

    def found() -> list[tuple[Point, Observation]]:
        tried: list[tuple[Point, Observation]] = []
        while len(tried) < search.rates:
            tried += [(each, value_of(each)) for each in next_points(search, CELL, tried, 3, maximise=True)]
        return tried

    points = [point for point, _ in found()]
    assert points == [point for point, _ in found()]
    assert len({point.learning_rate for point in points}) == 12
    assert {point.options["batch_size"] for point in points} == {4, 8}
    assert all(0 <= point.options["dropout"] <= 0.3 for point in points)


def value_of(point: Point) -> Observation:
    """A value that is best at 1e-3, without dropout."""
    value = 0.9 - 0.1 * abs(math.log10(point.learning_rate / 1e-3)) - point.options["dropout"]
    return Observation(point.learning_rate, "measured", value)
