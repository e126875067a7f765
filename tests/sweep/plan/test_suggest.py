"""Grids that the record suggests, from a law worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.plan.plan import Plan
from lr_sweep.sweep.plan.suggest import suggestion_lines
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.study.file import load_study
from lr_sweep.tests.support.records import SyntheticRecord

STUDY = """\
study: {name}
tasks: {{digits: {{num_steps: 300}}}}
models: {{tiny: {{size: {{layers: 1, heads: 2, width: 16, positions: 12}}}}}}
variants: [unfrozen-random]
axes: {{batch_size: [{sizes}]}}
learning_rates: [1e-4, 3.16e-4, 1e-3, 3.16e-3, 1e-2]
seeds: 2
protocol: {{evaluate_every: 100}}
"""
OPTIMA = {"8": -3.5, "16": -3.25, "32": -3.0, "64": -2.75}
"""log10, of sizes: they rise by a quarter of a decade as the size doubles."""


def plan(folder: Path, name: str, sizes: str, text: str = STUDY) -> Plan:
    path = folder / f"{name}.yaml"
    path.write_text(text.format(name=name, sizes=sizes))
    study = load_study(path)
    return Plan(study, Placement(resources=study.resources), Results(folder / "results"), folder)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return record(tmp_path, apart=0.001)


def record(tmp_path: Path, apart: float) -> Path:
    """A study of three sizes, whose curves are parabolas around their optima, two seeds that far apart."""
    made = SyntheticRecord(tmp_path / "results", "first")
    for run in plan(tmp_path, "first", "8, 16, 32").wanted:
        made.wanted.append(run.row())
        away = math.log10(run.run.learning_rate) - OPTIMA[run.variant.split("-")[-1]]
        value = 0.9 - 0.08 * away**2 + apart * run.run.seed
        content = run.run.canonical_json()
        made.end(made.wanted[-1], [(300, value, value)], "complete", 300, content=content)
    made.write()
    return tmp_path


@pytest.mark.parametrize(
    ("apart", "start", "least", "most"), [(0.001, "1.8e-3", 0.4, 0.5), (0.011, "1.7e-3", 0.5, 0.7)]
)
def test_a_cell_of_another_size_starts_where_the_law_says(
    tmp_path: Path, apart: float, start: str, least: float, most: float
) -> None:
    """The next size continues the line: 10^-2.75 is 1.78e-3. The grid reaches as far as the interval, or 0.5."""
    said, grid = suggestion_lines(plan(record(tmp_path, apart), "next", "64"))
    assert said.startswith("suggested  digits tiny unfrozen-random-batch-size-64: by the law over batch_size of first ")
    assert f"(8 to 32), at 64 start at {start}" in said
    rates = YAML(typ="safe").load(grid)["learning_rates"]
    low, high = map(float, said.partition(f"start at {start} (")[2].rstrip(")").split(" to "))
    assert least <= math.log10(high / low) / 2 < most
    reach = max(0.5, math.log10(high / low) / 2)
    grid_by_hand = math.log10(float(start)) + reach * np.linspace(-1, 1, 5)
    assert [math.log10(float(rate)) for rate in rates] == pytest.approx(grid_by_hand, abs=0.03)


def test_other_tasks_say_within_a_decade(recorded: Path) -> None:
    """The best rate of the size 8 is 10^-3.5 on digits; on bits it is looked for from 10^-4.5 to 10^-2.5."""
    text = STUDY.replace("digits: {{num_steps: 300}}", "bit-memory: {{num_steps: 300}}")
    said, grid = suggestion_lines(plan(recorded, "next", "8", text))
    assert said == (
        "suggested  bit-memory tiny unfrozen-random-batch-size-8: within a decade of the best rates on other tasks, "
        "which may be off: digits 3.2e-4"
    )
    rates = YAML(typ="safe").load(grid)["learning_rates"]
    assert [math.log10(float(rate)) for rate in rates] == pytest.approx([-4.5, -4, -3.5, -3, -2.5], abs=0.05)


def test_nothing_is_suggested_from_what_differs_otherwise(recorded: Path) -> None:
    text = STUDY.replace("[unfrozen-random]", "[frozen-random]").replace("width: 16", "width: 32")
    (line,) = suggestion_lines(plan(recorded, "other", "64", text))
    assert line.startswith("suggested  nothing")


def test_nothing_is_suggested_without_a_record(tmp_path: Path) -> None:
    (line,) = suggestion_lines(plan(tmp_path, "next", "64"))
    assert line.startswith("suggested  nothing")
