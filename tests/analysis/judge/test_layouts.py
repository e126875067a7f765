"""Layouts that are rearranged, percents, and means that are no runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lr_sweep.analysis.judge.judge import judged
from lr_sweep.analysis.judge.reading import QuestionError, Reading
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.judged import chosen, judge, rows_of, study_of

WIDE = pd.DataFrame(
    {
        "optimizer": ["adam"] * 3 + ["sgd"] * 3,
        "lr": [0.1, 0.01, 0.001] * 2,
        "seed_0": [0.5, 0.7, 0.6, 0.8, 0.7, 0.3],
        "seed_1": [0.6, 0.72, 0.62, 0.82, 0.72, np.nan],
        "seed_2": [0.55, 0.71, 0.61, 0.81, 0.71, 0.31],
    }
)


@pytest.mark.parametrize(
    "named", ["val_acc_seed{}", "seed{}_val_acc", "seed {} val acc", "fold_{}/val_acc", "repeat{}.val_acc"]
)
def test_columns_of_seeds_are_runs(tmp_path: Path, named: str) -> None:
    wide = WIDE.rename(columns={f"seed_{i}": named.format(i) for i in range(3)})
    wide.to_csv(tmp_path / "wide.csv", index=False)
    found = judged([tmp_path / "wide.csv"], Reading())
    long = WIDE.melt(["optimizer", "lr"], value_name="value").groupby(["optimizer", "lr"])["value"].agg(["mean", "sem"])
    rates = found.study.summary.learning_rates.set_index(["variant", "learning_rate"]).sort_index()
    assert rates["validation_mean"].to_numpy() == pytest.approx(long.sort_index()["mean"].to_numpy())
    assert rates["validation_sem"].to_numpy() == pytest.approx(long.sort_index()["sem"].to_numpy())
    assert chosen(found.study) == {"adam": (0.01, 0.71), "sgd": (0.1, 0.81)}
    assert "are 3 seeds of each row" in found.study.about_table[0]
    assert chosen(judge([tmp_path / "wide.csv"], found.reading)) == chosen(found.study)  # as --save keeps it


def test_columns_that_name_no_metric_ask_for_the_direction_alone(tmp_path: Path) -> None:
    WIDE.to_csv(tmp_path / "wide.csv", index=False)
    with pytest.raises(QuestionError, match="is more value better or worse"):
        judge([tmp_path / "wide.csv"], Reading())
    assert chosen(judge([tmp_path / "wide.csv"], Reading(higher_is_better=False))) == {
        "adam": (0.1, 0.55),
        "sgd": (0.01, 0.71),  # not 0.001, which lacks a seed
    }


def test_validation_and_test_columns_of_a_seed_stay_together(tmp_path: Path) -> None:
    head = "lr,val_acc_seed_0,val_acc_seed_1,test_acc_seed_0,test_acc_seed_1"
    study = study_of(tmp_path, rows_of(head, "0.1,0.5,0.6,0.1,0.2 0.01,0.7,0.8,0.3,0.5 0.001,0.6,0.6,0.9,0.9"))
    assert chosen(study) == {"all": (0.01, 0.4)}
    assert study.summary.runs["test_accuracy"].tolist() == [0.1, 0.2, 0.3, 0.5, 0.9, 0.9]


def test_folds_of_scikit_learn_are_read_and_their_mean_is_not(tmp_path: Path) -> None:
    head = "param_learning_rate_init,split0_test_score,split1_test_score,mean_test_score,std_test_score,rank_test_score"
    text = rows_of(head, "0.1,0.5,0.6,0.55,0.05,3 0.01,0.7,0.8,0.75,0.05,1 0.001,0.6,0.6,0.6,0,2")
    study = study_of(tmp_path, text, Reading(higher_is_better=True, select_on_test=True))
    assert study.summary.learning_rates["num_tests"].tolist() == [2, 2, 2]
    assert chosen(study) == {"all": (0.01, 0.75)}


def test_a_column_of_one_seed_may_be_chosen_and_numbers_alone_are_asked_about(tmp_path: Path) -> None:
    WIDE.rename(columns=lambda name: name.replace("seed", "val_loss")).to_csv(tmp_path / "w.csv", index=False)
    with pytest.raises(QuestionError, match="3 columns may be validation: .*; if they are seeds, name them seed_0"):
        judge([tmp_path / "w.csv"], Reading())
    WIDE.rename(columns=lambda name: name.replace("seed", "acc_seed")).to_csv(tmp_path / "w.csv", index=False)
    one = judge([tmp_path / "w.csv"], Reading(columns={"validation": "acc_seed_0"}))
    assert chosen(one) == {"adam": (0.01, 0.7), "sgd": (0.1, 0.8)}


def test_bold_type_in_markdown_is_passed_over(tmp_path: Path) -> None:
    text = (
        "| lr | seed | val acc |\n|---|:-:|--:|\n| 0.1 | 0 | 0.5 |\n| 0.01 | 0 | **0.7** |\n| __0.001__ | 0 | 0.6 |\n"
    )
    assert chosen(study_of(tmp_path, text)) == {"all": (0.01, 0.7)}


def test_percents_are_fractions(tmp_path: Path) -> None:
    rows = "0.1,0,0.91% 0.1,1,92.5% 0.01,0,93% 0.01,1,nan 0.001,0, 0.001,1,0.5%"
    runs = study_of(tmp_path, rows_of("lr,seed,val_error", rows)).summary.runs
    assert runs["validation_accuracy"].dropna().tolist() == [0.0091, 0.925, 0.93, 0.005]
    assert runs["status"].tolist() == ["complete", "complete", "complete", "diverged", "missing", "complete"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("91%", "got '91%', want the sign % behind all values or none"),
        ("0.91 ± 0.01", "want the value of a single run, not a mean"),
        ("0.91+-0.01", "want the value of a single run, not a mean"),
        ("0.91 (0.01)", "want the value of a single run, not a mean"),
    ],
)
def test_marks_in_values_are_refused_with_the_reason(tmp_path: Path, value: str, message: str) -> None:
    with pytest.raises(UserError, match=message.replace("(", r"\(").replace("+", r"\+")):
        study_of(tmp_path, f"lr,seed,val_acc\n0.1,0,{value}\n0.1,1,0.5\n")


@pytest.mark.parametrize(
    ("head", "row", "message"),
    [
        ("lr,val_acc_mean", "0.5", "val_acc_mean may be a mean over seeds, as its name says"),
        ("lr,avg_test_loss", "0.5", "avg_test_loss may be a mean over seeds, as its name says"),
        ("lr,val_acc,val_acc_std", "0.5,0.1", "as val_acc_std beside it is their deviation"),
        ("lr,val_acc,std", "0.5,0.1", "as std beside it is their deviation"),
        ("lr,val_acc,n_seeds", "0.5,5", "n_seeds says that rows are means over several runs"),
        ("lr,val_acc,n", "0.5,5", "n says that rows are means over several runs"),
    ],
)
def test_a_mean_is_no_seed(tmp_path: Path, head: str, row: str, message: str) -> None:
    text = "\n".join([head, *(f"{rate},{row}" for rate in (0.1, 0.01, 0.001)), ""])
    with pytest.raises(UserError, match=message):
        study_of(tmp_path, text)


@pytest.mark.parametrize(
    ("head", "row"),
    [
        ("lr,seed,val_acc_mean,val_acc_std", "0,0.5,0.1"),
        ("lr,run_id,val_acc,n_seeds", "{},0.5,5"),
        ("lr,val_mean_squared_error", "0.5"),
        ("lr,val_acc,n_seeds", "0.5,1"),
        ("lr,val_acc,train_time_std", "0.5,3"),
    ],
)
def test_means_over_other_things_are_read(tmp_path: Path, head: str, row: str) -> None:
    text = "\n".join([head, *(f"{rate},{row.format(rate)}" for rate in (0.1, 0.01, 0.001)), ""])
    assert len(study_of(tmp_path, text).summary.runs) == 3


def test_a_mean_that_the_user_names_is_of_a_run(tmp_path: Path) -> None:
    study = study_of(tmp_path, "lr,val_acc_mean\n0.1,0.5\n0.01,0.6\n", Reading(columns={"validation": "val_acc_mean"}))
    assert chosen(study) == {"all": (0.01, 0.6)}


GRID = [(name, rate, seed) for name in ("adam", "sgd") for rate in (0.1, 0.01, 0.001) for seed in (0, 1)]
VALUES = {run: round(0.5 - abs(run[1] - (0.01 if run[0] == "adam" else 0.1)) + run[2] / 50, 4) for run in GRID}
BEST = {"adam": (0.01, 0.51), "sgd": (0.1, 0.51)}


def test_splits_in_rows_are_columns(tmp_path: Path) -> None:
    shifts = {"train": 0.2, "val": 0.0, "test": 0.1}
    rows = [f"{n},{r},{s},{split},{VALUES[n, r, s] + x},{x}" for n, r, s in GRID for split, x in shifts.items()]
    study = study_of(tmp_path, rows_of("optimizer,lr,seed,Split,acc,time", rows))
    assert chosen(study) == {name: (rate, value + 0.1) for name, (rate, value) in BEST.items()}
    assert "validation = validation_acc (guessed: rows with Split = val)" in study.about_table[0]
    assert study.summary.cells["validation_mean"].tolist() == pytest.approx([0.51, 0.51])


def test_metrics_in_rows_are_columns(tmp_path: Path) -> None:
    rows = [f"{n},{r},{s},val_acc,{VALUES[n, r, s]} {n},{r},{s},val_loss,0.3" for n, r, s in GRID]
    study = study_of(tmp_path, rows_of("optimizer,lr,seed,metric,value", " ".join(rows)))
    assert chosen(study) == BEST
    assert study.info.metric.name == "accuracy"


def test_splits_of_runs_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    rows = [f"{n},{r},{split},{VALUES[n, r, s]}" for n, r, s in GRID for split in ("val", "test")]
    with pytest.raises(
        UserError, match="rows of one run have split val twice, at .*table.csv:2 and here: add a column of"
    ):
        study_of(tmp_path, rows_of("optimizer,lr,split,acc", rows))


@pytest.mark.parametrize("named", ["{}", "lr={}", "lr_{}", "LR {}"])
def test_columns_of_learning_rates_are_rows(tmp_path: Path, named: str) -> None:
    table = pd.DataFrame([(n, r, s, VALUES[n, r, s]) for n, r, s in GRID], columns=["optimizer", "lr", "seed", "value"])
    wide = table.pivot(index=["optimizer", "seed"], columns="lr", values="value").reset_index()
    wide.columns = [named.format(name) if isinstance(name, float) else name for name in wide.columns]
    wide.to_csv(tmp_path / "wide.csv", index=False)
    study = judge([tmp_path / "wide.csv"], Reading(higher_is_better=True))
    assert chosen(study) == BEST
    assert "learning rate = learning_rate (guessed: the names of 3 columns)" in study.about_table[0]


@pytest.mark.parametrize("names", ["1,2,3", "10,20,30", "0.5,1,64"])
def test_numbers_that_may_be_other_things_are_no_rates(tmp_path: Path, names: str) -> None:
    with pytest.raises(UserError, match="no column of learning rates"):
        study_of(tmp_path, f"optimizer,{names}\na,0.1,0.2,0.3\n")


def test_numbered_columns_beside_a_metric_are_no_values(tmp_path: Path) -> None:
    """Two seeds of one run, as of its data and its weights."""
    rows = [f"{rate},{seed},{10 + seed},{0.5 + seed / 10}" for rate in (0.1, 0.01) for seed in (0, 1)]
    study = study_of(tmp_path, rows_of("lr,seed_1,seed_2,val_acc", rows), Reading(columns={"ignored": "seed_1+seed_2"}))
    assert study.summary.learning_rates["validation_mean"].tolist() == pytest.approx([0.55, 0.55])


@pytest.mark.parametrize("named", ["{}_lr{}_s{}", "{}-lr{}-seed{}", "{} lr={} seed={}"])
def test_settings_in_the_names_of_runs_are_read(tmp_path: Path, named: str) -> None:
    rows = [f"{named.format(*run)},{VALUES[run]}" for run in GRID]
    study = study_of(tmp_path, rows_of("run_name,val_acc", rows))
    assert chosen(study) == BEST
    assert study.summary.cells["num_values"].tolist() == [2, 2]
    assert "learning rate = config.lr (guessed: in run_name)" in study.about_table[0]


def test_runs_that_a_column_calls_diverged_are_not_chosen(tmp_path: Path) -> None:
    rows = [f"{n},{r},{s},{0.99 if r == 0.1 else VALUES[n, r, s]},{r == 0.1}" for n, r, s in GRID]
    study = study_of(tmp_path, rows_of("optimizer,lr,seed,val_acc,diverged", rows))
    assert study.summary.runs["status"].value_counts().to_dict() == {"complete": 8, "diverged": 4}
    assert chosen(study) == {"adam": (0.01, 0.51), "sgd": (0.01, 0.42)}
