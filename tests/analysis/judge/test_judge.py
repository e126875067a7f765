"""Tables of a few rows, of several files, and of other tools, judged; every number is worked out here."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lr_sweep.analysis.judge.judge import write_judged
from lr_sweep.analysis.judge.reading import QuestionError, Reading
from lr_sweep.analysis.study_summary import Study
from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cli.parser import main
from lr_sweep.tests.support.judged import chosen, judge, rows_of, study_of

pytestmark = pytest.mark.usefixtures("undrawn")
ROOT = Path(__file__).parents[3]
ACCURACY = rows_of(
    "variant,lr,seed,val_acc,test_acc",
    "a,1e-3,0,0.50,0.60 a,1e-3,1,0.60,0.60 a,1e-2,0,0.70,0.50 a,1e-2,1,0.60,0.54 "
    "b,1e-3,0,0.80,0.70 b,1e-3,1,0.80,0.72 b,1e-2,0,nan, b,1e-2,1,0.9,0.9",
)


def test_a_row_a_run(tmp_path: Path) -> None:
    """At 1e-2 a seed of b diverged, so 1e-3 is chosen for it."""
    study = study_of(tmp_path, ACCURACY)
    assert chosen(study) == {"a": (1e-2, 0.52), "b": (1e-3, 0.71)}
    assert study.summary.runs["status"].tolist() == ["complete"] * 6 + ["diverged", "complete"]
    assert set(study.summary.runs["task"]) == {"table"}


def test_parquet_and_csv_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(ACCURACY)
    frame = pd.read_csv(tmp_path / "table.csv")
    columns = {name: pa.array(list(frame[name])) for name in frame}  # pandas would write NaN as nothing
    columns["lr"] = columns["lr"].cast(pa.float32())  # 1e-3 is 0.0010000000474974513
    pq.write_table(pa.table(columns), tmp_path / "table.parquet")
    one, other = (judge([tmp_path / f"table.{kind}"], Reading()) for kind in ("csv", "parquet"))
    pd.testing.assert_frame_equal(one.summary.cells, other.summary.cells)


def test_without_validation_nothing_is_chosen(tmp_path: Path) -> None:
    text = rows_of("lr,seed,test_acc", "0.3,0,0.61 0.3,1,0.63 0.03,0,0.72 0.03,1,0.74 0.003,0,0.66 0.003,1,0.65")
    study = study_of(tmp_path, text)
    assert math.isnan(study.summary.cells["learning_rate"].iloc[0])
    assert study.summary.learning_rates["test_mean"].tolist() == pytest.approx([0.655, 0.73, 0.62])
    assert {each.check for each in study.findings} == {"not-chosen"}
    assert "73.0 ± 1.0" in write_judged(study, tmp_path / "out").text
    assert "NO LEARNING RATE IS CHOSEN" in (tmp_path / "out" / "report.md").read_text()
    asked = study_of(tmp_path, text, Reading(select_on_test=True))
    assert chosen(asked) == {"all": (0.03, 0.73)}
    assert {each.check for each in asked.findings} == {"chosen-on-test"}


def test_a_training_loss_does_not_turn_the_direction(tmp_path: Path) -> None:
    text = "method,lr,seed,train_loss,test_accuracy\na,.01,0,.3,90\na,.01,1,.3,91\na,.1,0,.2,97\na,.1,1,.2,98\n"
    text += "a,1,0,2.3,10\na,1,1,2.3,11\n"
    for columns in ({}, {"test": "test_accuracy"}):
        study = study_of(tmp_path, text, Reading(columns=columns, select_on_test=True))
        assert chosen(study) == {"a": (0.1, 0.975)}


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("", ["table.csv is empty"]),
        ('""\n', ["table.csv has no rows below its names"]),
        ("lr,val_acc\n", ["table.csv has no rows"]),
        ("lr,val_acc\n0.1,0.5,0.6\n", ["table.csv:2: got 3 fields, want 2"]),
        ("lr,lr,val_acc\n0.1,0.1,0.6\n", ["table.csv:1: two columns are named 'lr'"]),
        (
            "lr_decay,val_acc\n1,0.6\n1,0.7\n",
            ["no column of learning rates in lr_decay, val_acc: lr_decay has"],
        ),
        ("lr,seed\n1,2\n", ["no column of validation or test"]),
        ("lr,val_score\n1,2\n", ["is more score better or worse? give --higher-is-better or --lower-is-better"]),
        (
            'lr,seed,note,val_acc\n-1,1,"two\nlines",0.5\n1e-3,x,,0.5\n-inf,1.5,,high\n',
            [
                "table.csv:3: lr: got '-1', want a learning rate from 1e-30 to 1e30",
                "table.csv:4: seed: got 'x', want a whole number",
                *("table.csv:5: lr: got '-inf'", "table.csv:5: seed: got '1.5'", "table.csv:5: val_acc: got 'high'"),
            ],
        ),
        (
            "lr,seed,val_acc\n0.1,0,0.5\n0.10,0,0.6\n",
            ["table.csv:3: has the task table, model all, variant all, learning_rate 0.1, seed 0, step 0 of"],
        ),
        (
            "run_id,lr,seed,val_acc\nx,0.1,0,0.5\nx,0.05,0,0.5\n",
            ["table.csv:3: has the run x of", "but another learning_rate (0.05): a run has one"],
        ),
        ("run_id,lr,seed,val_acc\nx,0.1,0,0.5\ny,0.1,0,0.6\n", ["but another run (y)", "a seed of its own"]),
    ],
)
def test_mistakes_are_reported_together(tmp_path: Path, text: str, messages: list[str]) -> None:
    with pytest.raises(UserError) as raised:
        study_of(tmp_path, text)
    assert [message for message in messages if message not in str(raised.value)] == []


TESTS = {"a": (60.5, 61.5, 62.5), "b": (60.0, 61.0, 62.0)}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Seeds move both variants alike; a leads by half a point."""
    rows = [
        f"{variant},{rate},{seed},{validation},{test}"
        for variant, tests in TESTS.items()
        for rate, validation in (("1e-4", 50), ("1e-3", 70), ("1e-2", 50))
        for seed, test in enumerate(tests)
    ]
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(["variant,lr,seed,val_accuracy,test_accuracy", *rows]) + "\n")
    return path


DECAYS = [(1e-4, 0, 0.8), (1e-4, 0.1, 0.84), (1e-3, 0, 0.9), (1e-3, 0.1, 0.86), (1e-2, 0, 0.7), (1e-2, 0.1, 0.88)]
RUNS = [{"lr": rate, "weight_decay": decay, "val_acc": value} for rate, decay, value in DECAYS]


def study_of_parts(folder: Path, runs: Sequence[Mapping[str, object]], reading: Reading | None = None) -> Study:
    """Write a file a run, and judge all by a pattern."""
    for number, run in enumerate(runs):
        (folder / f"{number}.json").write_text(json.dumps(run))
    return judge([str(folder / "*.json")], reading or Reading())


def test_a_file_a_run_is_read_as_one_file_with_all_runs(tmp_path: Path) -> None:
    parts = study_of_parts(tmp_path, RUNS)
    (tmp_path / "all.jsonl").write_text("\n".join(map(json.dumps, RUNS)))
    assert (
        chosen(parts)
        == chosen(judge([tmp_path / "all.jsonl"], Reading()))
        == {"weight_decay=0": (1e-3, 0.9), "weight_decay=0.1": (1e-2, 0.88)}
    )


def test_a_setting_that_some_files_lack_is_one(tmp_path: Path) -> None:
    runs = [{"lr": rate, "optimizer": "sgd", "val_acc": 0.5 + rate} for rate in (0.1, 0.2)]
    runs += [
        {"lr": rate, "optimizer": "adam", "beta": beta, "val_acc": rate} for rate in (0.1, 0.2) for beta in (0.8, 0.9)
    ]
    with pytest.raises(QuestionError, match=r"differ in beta \(2 values\)"):
        study_of_parts(tmp_path, runs)
    found = study_of_parts(tmp_path, runs, Reading(columns={"variant": "optimizer+beta"}))
    assert set(chosen(found)) == {"sgd", "adam, beta=0.8", "adam, beta=0.9"}


def test_seeds_of_several_columns_are_numbered_over_all_files(tmp_path: Path) -> None:
    runs = [{"lr": 0.1 * (1 + fold), "fold": fold, "split": s, "val_acc": s / 4} for fold in (0, 1) for s in (0, 1)]
    found = study_of_parts(tmp_path, runs, Reading(columns={"seed": "fold+split"}))
    assert sorted(found.summary.runs["seed"]) == [0, 1, 2, 3]


def test_a_file_without_a_column_that_is_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"1.json has other columns than .*0.json, where validation is val_acc: judge"):
        study_of_parts(tmp_path, [{"lr": 0.1, "val_acc": 0.5}, {"lr": 0.2, "val_loss": 0.5}])


def test_the_readme_s_export_of_wandb_gives_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The shipped runs of `optimizers-digits`, in the columns of W&B's table of runs."""
    runs = pd.read_csv(ROOT / "docs" / "results" / "optimizers-digits" / "runs.csv")
    names = {"variant": "optimizer", "learning_rate": "lr", "seed": "seed", "validation_accuracy": "val_acc"}
    frame = runs[[*names, "test_accuracy"]].rename(columns=names | {"test_accuracy": "test_acc"})
    frame["optimizer"] = frame["optimizer"].str.rpartition("-")[2]
    about = {"Name": [f"run-{i}" for i in range(len(runs))], "State": "finished", "User": "me", "Runtime": 12}
    pd.concat([pd.DataFrame(about), frame], axis=1).to_csv(tmp_path / "wandb_export.csv", index=False)
    monkeypatch.chdir(tmp_path)
    shown = (ROOT / "README.md").read_text().partition("$ lr-sweep judge")[2].partition("```")[0]
    command, *lines = shown.splitlines()
    assert main(["judge", *command.partition("#")[0].split()]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for part in " ".join(" ".join(lines).split()).split(" ... "):
        assert part.removesuffix(" ...") in printed
