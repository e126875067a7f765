"""Which column means what, by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lr_sweep.analysis.judge.columns import Columns, columns_of
from lr_sweep.analysis.judge.judge import judged
from lr_sweep.analysis.judge.names import is_higher_better, measured
from lr_sweep.analysis.judge.reading import QuestionError, Reading
from lr_sweep.analysis.judge.table_file import Line, TableFile
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.judged import chosen, judge, rows_of, study_of

MLFLOW = ["", "run_id", "status", "start_time", "metrics.test_acc", "metrics.val_acc", "metrics.val_loss", "params.lr"]
RAY = ["val_acc", "test_acc", "training_iteration", "trial_id", "time_total_s", "config/lr", "config/seed", "logdir"]


def find_columns(names: Sequence[str], given: Mapping[str, str], metric: str | None) -> Columns:
    """Of a table with two rows, in which all columns differ."""
    fields = {name: [f"0.{place}1", f"0.{place}2"] for place, name in enumerate(names, 1)}
    fields |= {name: ["finished", "failed"] for name in ("status", "state") if name in names}
    lines = [Line(Path("t.csv"), 2), Line(Path("t.csv"), 3)]
    table = TableFile(path=Path("t.csv"), columns=fields, lines=lines)
    return columns_of(table, Reading(columns=given, metric=metric))


@pytest.mark.parametrize(
    ("names", "metric", "found"),
    [
        (
            *(MLFLOW, "accuracy"),
            "learning_rate=params.lr run=run_id status=status validation=metrics.val_acc test=metrics.test_acc",
        ),
        (
            *(RAY, None),
            "learning_rate=config/lr seed=config/seed step=training_iteration run=trial_id validation=val_acc "
            "test=test_acc",
        ),
        (
            ["number", "value", "params_lr", "params_width", "state", "val_acc"],
            None,
            "learning_rate=params_lr status=state validation=val_acc",
        ),
    ],
    ids=["MLflow", "Ray", "Optuna"],
)
def test_exports_are_read_by_name(names: list[str], metric: str | None, found: str) -> None:
    result = find_columns(names, {}, metric)
    assert (result.of, result.metric) == (dict(pair.split("=") for pair in found.split()), "accuracy")


RATE_NAMES = "lr LR learning_rate learningRate adam_lr optimizer.lr start_lr opt/lr params_lr params.lr hparams.lr"
RATE_NAMES += " hparams/lr config/lr config/optimizer/lr params_learning_rate"


@pytest.mark.parametrize("rate", [*RATE_NAMES.split(), "Learning Rate"])
def test_a_learning_rate_is_known_by_its_name(rate: str) -> None:
    names = [rate, "lr_decay", "warmup_lr_steps", "seed", "val_acc"]
    assert find_columns(names, {}, None).of["learning_rate"] == rate


def test_test_data_of_another_metric_or_left_out_by_the_user_are_not_read() -> None:
    assert "test" not in find_columns(["lr", "val_loss", "test_acc"], {}, None).of
    assert "test" not in find_columns(["lr", "val_acc", "test_acc"], {"test": ""}, None).of


@pytest.mark.parametrize(
    ("column", "metric", "higher"),
    [
        *[("best_val_acc", "accuracy", True), ("valid_ppl", "perplexity", False), ("eval/loss", "loss", False)],
        *[("val_bleu", "bleu", True), ("val_cross_entropy", "cross entropy", False), ("val_score", "score", None)],
        ("val_neg_mean_squared_error", "neg mean squared error", None),
    ],
)
def test_the_metric_and_its_direction(column: str, metric: str, higher: bool | None) -> None:
    assert (measured(column), is_higher_better(metric)) == (metric, higher)


def test_the_metric_is_that_of_the_column_that_is_selected_on_or_shown() -> None:
    names = ["lr", "val_loss", "val_acc", "test_acc"]
    assert find_columns(names, {"test": "test_acc"}, None).of["validation"] == "val_acc"
    found = find_columns(["lr", "dev_f1", "heldout_f1"], {"test": "heldout_f1"}, None)
    assert (found.of["validation"], found.metric) == ("dev_f1", "f1")
    assert find_columns(["lr", "val_acc", "val_loss"], {"validation": "val_loss"}, None).metric == "loss"
    two_names = {"validation": "val_loss", "test": "test_nll"}
    assert find_columns(["lr", *two_names.values()], two_names, None).metric == "loss"


@pytest.mark.parametrize(
    ("given", "metric", "named"),
    [
        ({"validation": "val_loss", "test": "test_acc"}, None, ("validation=val_loss", "test=test_acc")),
        ({"validation": "val_acc", "train": "train_loss"}, None, ("validation=val_acc", "train=train_loss")),
        ({"validation": "val_loss", "test": ""}, "accuracy", ("validation=val_loss", "--metric accuracy")),
        ({"validation": "val_acc", "test": "test_f1"}, None, ("validation=val_acc", "test=test_f1")),
    ],
)
def test_columns_that_contradict_are_named(given: dict[str, str], metric: str | None, named: tuple[str, str]) -> None:
    names = ["lr", "val_loss", "val_acc", "test_acc", "test_f1", "train_loss"]
    with pytest.raises(UserError) as raised:
        find_columns(names, given, metric)
    assert all(name in str(raised.value) for name in named)


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
    assert "seed = seed (guessed: the names of 3 columns)" in found.study.about_table[0]
    assert chosen(judge([tmp_path / "wide.csv"], found.reading)) == chosen(found.study)  # as --save keeps it


def test_columns_that_name_no_metric_ask_for_the_direction_alone(tmp_path: Path) -> None:
    WIDE.to_csv(tmp_path / "wide.csv", index=False)
    with pytest.raises(QuestionError, match="is more value better or worse"):
        judge([tmp_path / "wide.csv"], Reading())
    assert chosen(judge([tmp_path / "wide.csv"], Reading(higher_is_better=False))) == {
        "adam": (0.1, 0.55),
        "sgd": (0.01, 0.71),  # not 0.001, which lacks a seed
    }


def test_a_column_of_one_seed_may_be_chosen_and_numbers_alone_are_asked_about(tmp_path: Path) -> None:
    WIDE.rename(columns=lambda name: name.replace("seed", "val_loss")).to_csv(tmp_path / "w.csv", index=False)
    with pytest.raises(QuestionError, match="3 columns may be validation: .*; if they are seeds, name them seed_0"):
        judge([tmp_path / "w.csv"], Reading())
    WIDE.rename(columns=lambda name: name.replace("seed", "acc_seed")).to_csv(tmp_path / "w.csv", index=False)
    one = judge([tmp_path / "w.csv"], Reading(columns={"validation": "acc_seed_0"}))
    assert chosen(one) == {"adam": (0.01, 0.7), "sgd": (0.1, 0.8)}


def test_percents_are_fractions(tmp_path: Path) -> None:
    rows = "0.1,0,0.91% 0.1,1,92.5% 0.01,0,93% 0.01,1,nan 0.001,0, 0.001,1,0.5%"
    runs = study_of(tmp_path, rows_of("lr,seed,val_error", rows)).summary.runs
    assert runs["validation_accuracy"].dropna().tolist() == [0.0091, 0.925, 0.93, 0.005]
    assert runs["status"].tolist() == ["complete", "complete", "complete", "diverged", "missing", "complete"]


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
