"""The studies of Lu et al. 2021: what their tables are made of, and which runs they share."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from lr_sweep.analysis.paper.published import SMALL_MODELS, TABLES, entries
from lr_sweep.sweep.study.backbones import find_backbones
from lr_sweep.sweep.study.file import load_study, shipped_studies
from lr_sweep.sweep.study.runs import Cell, by_cell, wanted_runs

SMALL_TASKS = {table: text.small for table, text in TABLES.items() if text.small}
NOWHERE = Path("/nowhere")
TASKS = ["bit-memory", "bit-xor", "listops", "mnist", "cifar10", "cifar10-lra", "remote-homology"]


@cache
def cells(study: str) -> dict[Cell, frozenset[str]]:
    """The ids of the runs of each cell, without data and weights: ids of pretrained runs are provisional."""
    loaded = load_study(study)
    wanted = wanted_runs(loaded, find_backbones(loaded, NOWHERE), NOWHERE)
    assert len({run.run_id for run in wanted}) == len(wanted)
    return {cell: frozenset(run.run_id for run in runs) for cell, runs in by_cell(wanted).items()}


def rates(study: str) -> dict[Cell, tuple[float, ...]]:
    return {Cell(*cell[:3]): cell.learning_rates for cell in load_study(study).cell_list()}


def test_each_table_is_two_shipped_studies_and_some_are_a_small_one() -> None:
    names = [f"lu2021-table{table}{ending}" for table in TABLES for ending in ("", "-swept")]
    small = [f"lu2021-table{table}-small" for table in SMALL_TASKS]
    assert len(names + small) == 42 + 10
    assert {name for name in shipped_studies() if name.startswith("lu2021")} == {*names, *small}


@pytest.mark.parametrize("table", TABLES)
def test_a_swept_study_differs_from_that_of_its_table_in_learning_rates_alone(table: int) -> None:
    fixed, swept = (load_study(f"lu2021-table{table}{ending}") for ending in ("", "-swept"))
    assert fixed.tasks == swept.tasks
    assert (fixed.models, fixed.variants) == (swept.models, swept.variants)
    of_cells = [
        {(cell.task, cell.model, cell.variant): cell.protocol for cell in study.cell_list()} for study in (fixed, swept)
    ]
    assert of_cells[0] == of_cells[1]


@pytest.mark.parametrize("table", TABLES)
def test_a_study_has_the_cells_of_its_table(table: int) -> None:
    assert set(cells(f"lu2021-table{table}")) == {entry.cell for entry in entries(table) if entry.model}


@pytest.mark.parametrize("table", SMALL_TASKS)
def test_a_small_study_has_what_stands_for_the_cells_of_its_table(table: int) -> None:
    study = f"lu2021-table{table}-small"
    stands_for = {**SMALL_MODELS, **SMALL_TASKS[table]}
    assert set(cells(study)) == {
        (stands_for[entry.task], stands_for[entry.model], entry.variant)
        for entry in entries(table)
        if {entry.task, entry.model} <= stands_for.keys()
    }
    assert set(rates(study).values()) == {(1e-4, 3.16e-4, 1e-3, 3.16e-3, 1e-2, 3.16e-2, 1e-1, 3.16e-1, 1e0)}


def test_the_paper_s_learning_rates() -> None:
    """Appendix C: 1e-3, for transformers on remote homology 1e-4, for LSTMs 3e-4."""
    found = rates("lu2021-table1")
    assert len(found) == 21
    for (task, model, _), of_cell in found.items():
        assert of_cell == ((3e-4,) if model == "lstm-3" else (1e-4,) if task == "remote-homology" else (1e-3,))
    grid = (1e-6, 3.16e-6, 1e-5, 3.16e-5, 1e-4, 3.16e-4, 1e-3, 3.16e-3, 1e-2)
    assert set(rates("lu2021-table1-swept").values()) == {grid}


def test_output_only_without_dropout_is_another_run() -> None:
    """Tables 10 and 12 compute features once, so without dropout; tables 15 and 18 train as all else."""
    output = Cell("listops", "gpt2", "output-pretrained")
    ten, twelve, fifteen, eighteen = (cells(f"lu2021-table{table}")[output] for table in (10, 12, 15, 18))
    assert ten == twelve != fifteen == eighteen
    dropouts = {cell.variant: cell.protocol.dropout for cell in load_study("lu2021-table10").cell_list()}
    assert dropouts == {"output-pretrained": 0.0, "frozen-pretrained": 0.1, "unfrozen-random": 0.1}


def test_budgets_are_those_of_table_6_and_at_least_100_000() -> None:
    steps = dict.fromkeys(TASKS, 0)
    for entry in entries(6):
        if entry.metric == "gradient_steps_to_converge":
            steps[entry.task] = max(steps[entry.task], int(entry.value), 100_000)
    assert {task: each.num_steps for task, each in load_study("lu2021-table2").tasks.items()} == steps
    assert steps["cifar10-lra"] == 600_000


def test_trained_parameters_of_table_8_by_hand() -> None:
    """Positions 1024 D, layer norms (2 layers + 1) 2 D, input 49 D, output 10 (D + 1)."""
    study = load_study("lu2021-table8")
    rows = [run.row() for run in wanted_runs(study, find_backbones(study, NOWHERE), NOWHERE)]
    assert {(row["model"], row["trained_parameters"]) for row in rows} == {
        ("gpt2", 786_432 + 38_400 + 37_632 + 7_690),
        ("gpt2-medium", 1_048_576 + 100_352 + 50_176 + 10_250),
        ("gpt2-large", 1_310_720 + 186_880 + 62_720 + 12_810),
    }


def test_the_page_has_the_numbers_of_runs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "lu2021.md").read_text()
    fixed, swept = (
        {table: frozenset().union(*cells(f"lu2021-table{table}{ending}").values()) for table in TABLES}
        for ending in ("", "-swept")
    )
    counts = [len(ids) for ids in fixed.values()]
    assert [len(ids) for ids in swept.values()] == [9 * count for count in counts]
    assert f"A table has {min(counts)} to {max(counts)} runs" in page
    assert f"ways are {len(frozenset().union(*fixed.values(), *swept.values()))} runs" in page
