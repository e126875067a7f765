"""Rows of a table as runs: which count, which diverged, which are one; settings that are not read are no seeds."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.study_summary import Study
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.judged import chosen, rows_of, study_of

LOSSES = rows_of(
    "lr,seed,val_loss,val_acc",
    "30,0,nan,0.99 30,1,nan,0.10 0.03,0,0.5,0.80 0.03,1,0.5,0.81 0.003,0,0.7,0.70 0.003,1,0.7,0.71",
)


def test_a_loss_of_nan_beside_the_metric_is_divergence(tmp_path: Path) -> None:
    for name in ("val_loss", "train_loss"):
        study = study_of(tmp_path, LOSSES.replace("val_loss", name))
        assert study.summary.runs["status"].tolist() == ["diverged"] * 2 + ["complete"] * 4
        assert chosen(study) == {"all": (0.03, 0.805)}
        assert f"2 runs diverged by {name}, which is NaN to their end" in study.about_table


def test_a_loss_of_nan_is_divergence_without_a_value_of_the_metric_too(tmp_path: Path) -> None:
    """In a row of its own, or as the run's only row; an empty loss says nothing."""
    study = study_of(tmp_path, LOSSES.replace("nan,0.99", "nan,").replace("nan,0.10", "NaN,"))
    assert study.summary.runs["status"].tolist() == ["diverged"] * 2 + ["complete"] * 4
    lost = "lr,seed,val_loss,val_acc\n30,0,,\n0.3,0,0.5,0.8\n0.03,0,0.5,0.8\n"
    assert study_of(tmp_path, lost).summary.runs["status"].tolist() == ["missing", "complete", "complete"]
    rows = ["0.1,0,1,0.9,", "0.1,0,2,,0.5", "0.1,0,3,nan,", "0.1,0,4,,0.1", "0.2,0,1,0.9,", "0.2,0,2,,0.6"]
    found = study_of(tmp_path, rows_of("lr,seed,step,train_loss,val_acc", rows))
    assert found.summary.runs[["status", "best_step"]].to_numpy().tolist() == [["diverged", 2], ["complete", 2]]


def test_a_loss_that_was_not_measured_is_no_divergence(tmp_path: Path) -> None:
    """In most runs, or at the first evaluation alone."""
    text = LOSSES.replace(",0.5,", ",nan,")
    study = study_of(tmp_path, text, Reading(metric="accuracy"))
    assert set(study.summary.runs["status"]) == {"complete"}
    assert "val_loss is NaN at the end of 4 of 6 runs: not read as a sign of divergence" in study.about_table
    steps = "lr,seed,step,train_loss,val_acc\n0.1,0,0,nan,0.1\n0.1,0,1,0.5,0.7\n"
    assert study_of(tmp_path, steps, Reading(metric="accuracy")).summary.runs["status"].tolist() == ["complete"]


def test_learning_rates_of_six_and_of_more_digits_are_one(tmp_path: Path) -> None:
    for one, other, text in (
        ("0.000976563", "0.0009765625", "9.76563e-4 as 9.76562e-4"),
        ("0.00195313", "0.001953125", "1.95313e-3 as 1.95312e-3"),
    ):
        table = f"lr,seed,val_loss\n{one},1,0.52\n{other},0,0.50\n0.03125,0,0.60\n0.03125,1,0.62\n"
        study = study_of(tmp_path, table)
        assert study.summary.learning_rates["num_values"].tolist() == [2, 2]
        assert f"learning rates that differ in their sixth digit are one: {text}" in study.about_table


def test_failed_runs_have_no_value_without_validation_either(tmp_path: Path) -> None:
    text = "lr,seed,state,test_acc\n0.1,0,finished,0.5\n0.1,1,crashed,0.9\n"
    assert study_of(tmp_path, text).summary.learning_rates["test_mean"].tolist() == [0.5]


def test_what_tells_two_runs_of_a_seed_apart_is_compared(tmp_path: Path) -> None:
    text = "gamma,lr,seed,val_acc\n0.9,0.3,0,0.1\n0.99,0.3,0,0.3\n0.9,0.03,0,0.1\n0.99,0.03,0,0.2\n"
    for table in (text, "run_id," + "".join(f"{i}x," * bool(i) + line for i, line in enumerate(text.splitlines(True)))):
        assert set(chosen(study_of(tmp_path, table))) == {"gamma=0.9", "gamma=0.99"}
    assert set(chosen(study_of(tmp_path, text, Reading(columns={"variant": "gamma"})))) == {"gamma=0.9", "gamma=0.99"}


CURVE = [0.5, 0.625, 0.75, 0.875]


def num_runs(study: Study) -> tuple[int, bool]:
    """Return how many runs there are, and whether any was left out."""
    return len(study.summary.runs), any("a repeat is no further seed" in line for line in study.about_table)


@pytest.mark.parametrize(
    ("head", "rows", "found"),
    [
        ("run_id,lr,seed,val_acc", "a,0.1,0,0.5 b,0.1,0,0.5 c,0.2,0,0.6 d,0.2,1,0.6", (3, True)),
        ("lr,seed,val_acc", "0.1,0,0.5 0.1,0,0.5", (1, True)),
        ("lr,seed,step,val_acc", "0.1,0,1,0.5 0.1,0,2,0.6 0.1,0,1,0.5 0.1,0,2,0.6", (1, True)),
        ("lr,seed,val_acc", "0.1,0,0.5 0.1,1,0.5", (2, False)),
        ("lr,val_acc", "0.1,0.5 0.1,0.5 0.2,0.6 0.2,0.6 0.3,0.7", (3, True)),
        ("lr,val_acc", "0.1,0.5 0.1,0.5 0.2,0.6 0.2,0.7", (4, False)),
        ("lr,val_acc", "0.1,0.5 0.1,0.5 0.2,nan 0.2,nan 0.3,0.6 0.3,0.6", (3, True)),
        ("lr,val_acc", "0.1,nan 0.1,nan 0.2,0.6 0.2,0.7", (4, False)),
    ],
    ids=["ids", "rows", "evaluations", "seeds", "all twice", "by chance", "diverged twice", "both diverged"],
)
def test_what_is_there_twice(tmp_path: Path, head: str, rows: str, found: tuple[int, bool]) -> None:
    assert num_runs(study_of(tmp_path, rows_of(head, rows))) == found


def test_a_whole_curve_is_equal_by_no_chance(tmp_path: Path) -> None:
    rows = [f"{run},0.1,{step},{value + 0.01 * (run == 'c')}" for run in "abc" for step, value in enumerate(CURVE)]
    assert num_runs(study_of(tmp_path, rows_of("run_id,lr,step,val_acc", rows))) == (2, True)
    flat = rows_of("run_id,lr,step,val_acc", [f"{run},0.1,{step},0.1" for run in "ab" for step in range(4)])
    other = "".join(f"{run},0.2,{step},{0.3 + (run == 'c') / 8}\n" for run in "cd" for step in range(4))
    assert num_runs(study_of(tmp_path, flat + other)) == (4, False)  # two that learned nothing, and two that did


HEAD = "variant,lr,seed,val_loss\n"
PPL = "variant\tlr\tseed\tval_ppl\n"
ACC = "lr,seed,val_acc\n"
SALT = 1234567890123456788
GRID = "".join(
    f"{width},{drop},{rate},{i}.5,{4 + width / 128 + rate}\n"
    for i, (width, drop, rate) in enumerate(product((32, 128), (0.0, 0.4), (0.3, 0.03, 0.003)))
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "a,0.3,0,5_0\n", "table.csv:2: val_loss: got '5_0', want a number"),
        (HEAD + "a,0.3,0,\uff15\n", "table.csv:2: val_loss: got '\uff15', want a number"),
        (HEAD + "a,1_0,0,5\n", "table.csv:2: lr: got '1_0'"),
        (HEAD + "a,0.3,0,0.9\na,0.03,0,0.", "table.csv:3: the file ends within a number, '0.'"),
        (PPL + "a\t0.3\t0\t1,234\na\t0.03\t0\t123.4\n", "table.csv:2: val_ppl: got '1,234', want"),
        ("variant;lr;seed;val_ppl\na;0,3;0;1.234\na;0,03;0;123,4\n", "table.csv:3: val_ppl: got '123,4'"),
        (PPL + "a\t1e-3\t0\t1,234\na\t1e-2\t0\t2,345\n", "got '1,234', want a number with a decimal point"),
        (HEAD + "a,0.3,seed_0,0.9\na,0.3,run_1,0.9\n", "table.csv:2: seed: got 'seed_0', want a whole number"),
        ("width,dropout,lr,seconds,val_loss\n" + GRID, "differ in width (2 values), dropout (2 values)"),
        (
            "lr,seed,val_acc,test_acc\n0.3,0,0.9,89\n0.1,0,0.8,79\n",
            "a fraction in one column and percent in another (validation up to 0.9, test",
        ),
        (ACC + "0.1,0,91%\n0.1,1,0.5\n", "got '91%', want a number of a single run (no mean), with the sign %"),
        *(
            (ACC + f"0.1,0,0.9{mark}\n", "want a number of a single run (no mean)")
            for mark in (" ± 0.1", "+-0.1", " (0.1)")
        ),
        *(
            (f"optimizer,{names}\na,0.1,0.2,0.3\n", "no column of learning rates")
            for names in ("1,2,3", "10,20,30", "0.5,1,64")
        ),
        ("name,val_acc\na,0.5\n", "and a single run"),
        (ACC + "".join(f"{rate},0,0.5\n" for rate in range(1, 2002)), "learning_rate has 2,001 values"),
        # A rate of 0 is a schedule's end, or was rounded.
        ("lr,step,val_acc\n0.1,1,0.7\n0,2,0.8\n0.01,1,0.6\n0,2,0.9\n", "want a learning rate from 1e-30"),
        ("lr,step,val_acc\n0.00,1,0.7\n0.00,2,0.8\n0.01,1,0.6\n0.01,2,0.9\n", "want a learning rate from 1e-30"),
    ],
)
def test_numbers_that_are_none_or_two_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError) as raised:
        study_of(tmp_path, text)
    assert message in str(raised.value)


@dataclass
class Table:
    """What is read of a table: columns of its runs, the best rate and value by variant, a remark."""

    text: str
    runs: dict[str, list[object]] = field(default_factory=dict)
    best: dict[str, tuple[float, float]] | None = None
    remark: str = ""
    reading: Reading = field(default_factory=Reading)


READ = {
    "a decimal comma that can be no other": Table(
        "variant;lr;seed;val_ppl\n1,5;0,3;0;1,234\n1,5;0,03;0;2,345\n", best={"1.5": (0.3, 1.234)}
    ),
    "a last line without its end": Table(
        HEAD + "a,0.3,0,0.9", remark="table.csv: no line end after the last row; was the file cut?"
    ),
    "seeds that begin with a word": Table(HEAD + "a,0.3,seed_0,0.9\na,0.3,Seed_10,0.8\n", {"seed": [0, 10]}),
    "large seeds": Table(HEAD + f"a,0.3,{2**62 + 1},0.9\na,0.3,{2**62 + 2},0.8\n", {"seed": [2**62 + 1, 2**62 + 2]}),
    "fractions of epochs": Table(
        "lr,seed,epoch,eval_loss\n0.3,0,0.5,0.7\n0.3,0,1.25,0.8\n0.03,0,1.25,0.9\n",
        {"best_step": [50, 125], "num_steps": [125, 125]},
        remark="steps have fractions: in the report a step is 1/100 of the table's",
    ),
    "states of Optuna": Table(
        "lr,val_loss,state\n0.3,0.1,PRUNED\n0.03,0.5,COMPLETE\n0.003,,FAIL\n0.01,0.6,COMPLETE\n0.1,,WAITING\n",
        {"status": ["stopped", "complete", "failed", "complete", "missing"]},
        {"all": (0.03, 0.5)},
    ),
    "states in other words": Table(
        "lr,val_loss,state\n0.3,0.1,TIMEOUT\n0.2,0.1,CANCELLED by 1000\n0.1,0.1,Out of memory\n0.03,0.1,stopped\n"
        "0.01,0.6,TrialState.COMPLETE\n0.003,0.5,ok\n",
        {"status": [*["failed"] * 3, "stopped", "complete", "complete"]},
        {"all": (0.003, 0.5)},
    ),
    "states of W&B": Table(
        "lr,seed,state,val_acc,test_acc\n0.1,0,finished,0.5,0.5\n0.1,1,crashed,0.7,0.7\n0.1,2,running,,\n"
        "0.1,3,finished,,\n",
        {"status": ["complete", "failed", "missing", "missing"]},
        {"all": (0.1, 0.5)},
    ),
    "rows without seeds": Table(
        "lr,val_acc,test_acc\n0.1,0.5,0.5\n0.1,0.7,0.6\n0.2,0.1,0.1\n",
        {"seed": [0, 1, 0]},
        remark="no column of seeds: rows of a cell and learning rate are numbered in their order, as seeds",
    ),
    "a seed of its own for each run": Table(
        rows_of("lr,seed,step,val_acc", "0.1,7,1,0.5 0.1,7,2,0.6 0.1,8,1,0.4 0.2,9,1,0.7"),
        {"seed": [0, 1, 0]},
        remark="each run of a variant has a seed of its own: seeds are read as run ids",
    ),
    "a seed that two rates share": Table(
        rows_of("lr,seed,val_acc", "0.1,7,0.5 0.1,8,0.4 0.2,7,0.7"), {"seed": [7, 8, 7]}
    ),
    "steps that begin again": Table(
        rows_of("lr,step,val_loss", "0.1,1,0.9 0.1,2,0.7 0.1,1,0.8 0.1,2,0.9 0.2,1,0.6"),
        {"seed": [0, 1, 0]},
        {"all": (0.1, 0.75)},
        remark="no column of seeds or run ids: where the steps of a rate begin again, a run does",
    ),
    "a setting that every model has at a rate of its own": Table(
        rows_of("model,head,lr,val_acc", "a,linear,0.1,0.5 a,mlp,0.2,0.6 b,linear,0.3,0.7 b,mlp,0.4,0.8"),
        {"model": ["a", "a", "b", "b"], "variant": ["linear", "mlp"] * 2},
    ),
    "a test value measured once": Table(
        "lr,seed,step,val_acc,test_acc\n0.1,0,1,0.5,\n0.1,0,2,0.7,\n0.1,0,3,0.6,0.65\n",
        best={"all": (0.1, 0.65)},
        remark="the one test value of 1 run counts as that of the best step",
    ),
    "percents of a spreadsheet": Table(  # a mark at the start, another order of columns, a blank line
        "\ufefftest_acc;val_acc;method;lr\n70,5;80;a;0,001\n\n60;90,5;a;0,01\n",
        best={"a": (0.01, 0.6)},
        remark="some values of accuracy are above 1: all are read as percent",
    ),
    "values behind NaN": Table(  # at 0.3 there is none before it; at 0.1 the one before counts
        rows_of("lr,seed,step,val_loss", "0.3,0,1,nan 0.3,0,2,0.4 0.1,0,1,0.7 0.1,0,2,inf 0.1,0,3,0.1 0.03,0,1,0.9"),
        {"status": ["diverged", "diverged", "complete"]},
        {"all": (0.1, 0.7)},
    ),
    **{
        f"{value} is infinite": Table(
            HEAD + f"a,0.3,0,{value}\na,0.03,0,0.5\n", {"status": ["diverged", "complete"]}, {"a": (0.03, 0.5)}
        )
        for value in ("1e400", "-inf", "nan", "1.7e308", "-1.7e308", "1e101")
    },
    "rows of training and of validation": Table(  # a training loss behind the last evaluation is no missing evaluation
        rows_of(
            "lr,seed,step,train_loss,val_loss", "0.3,0,99,0.9, 0.3,0,99,,1 0.3,0,120,0.9, 0.1,0,99,,0.6 0.1,0,99,0,"
        ),
        {"status": ["complete"] * 2, "best_step": [99, 99]},
        {"all": (0.1, 0.6)},
    ),
    "a row an evaluation": Table(
        rows_of(
            "model,lr,seed,step,val_loss,test_loss",
            "a,0.1,0,10,3,3.1 a,0.1,0,20,2,2.5 a,0.1,0,30,2.2,2.1 a,0.2,0,10,2.5,1 a,0.2,0,20,inf,",
        ),
        {"best_step": [20, 10], "status": ["complete", "diverged"]},
        {"a": (0.1, 2.5)},
        remark="loss: lower is better",
    ),
    "a direction against the metric's name": Table(
        "lr,seed,val_acc\n0.3,0,0.9\n",
        remark="accuracy: lower is better, as given; the column's name says otherwise",
        reading=Reading(higher_is_better=False),
    ),
    "results that differ": Table(
        rows_of("lr,val_loss,seconds,correct,note", "0.1,0.5,7,81,x 0.1,0.6,8,82,y 0.2,0.7,7,83,z 0.2,0.8,9,84,z"),
        {"seed": [0, 1, 0, 1]},
        remark="not used: seconds (3 values), correct (4 values), note (3 values)",
    ),
    "rows without a rate and a value": Table(
        "params.lr,id,metrics.val_acc\n,a,\n0.1,b,0.5\nNone,c,\n0.2,d,0.6\n",
        best={"all": (0.2, 0.6)},
        remark="table.csv: left out: 2 rows without a learning rate",
    ),
    "budgets that differ": Table(
        rows_of("lr,seed,max_epochs,val_acc", "0.1,0,10,0.5 0.1,0,20,0.6 0.2,0,10,0.8 0.2,0,20,0.9"),
        best={"max_epochs=10": (0.2, 0.8), "max_epochs=20": (0.2, 0.9)},
    ),
    "columns of validation and test by seed": Table(
        rows_of(
            "lr,val_acc_seed_0,val_acc_seed_1,test_acc_seed_0,test_acc_seed_1",
            "0.1,0.5,0.6,0.1,0.2 0.01,0.7,0.8,0.3,0.5 0.001,0.6,0.6,0.9,0.9",
        ),
        {"test_accuracy": [0.1, 0.2, 0.3, 0.5, 0.9, 0.9]},
        {"all": (0.01, 0.4)},
    ),
    "a mean that the user names": Table(
        "lr,val_acc_mean\n0.1,0.5\n0.01,0.6\n",
        best={"all": (0.01, 0.6)},
        reading=Reading(columns={"validation": "val_acc_mean"}),
    ),
    "settings that differ in their last digit": Table(
        rows_of("lr,config.salt,val_acc", [f"{rate},{SALT + i},{rate}" for rate in (0.1, 0.2) for i in (0, 1)]),
        best={f"salt={SALT}": (0.2, 0.2), f"salt={SALT + 1}": (0.2, 0.2)},
    ),
    "a setting with control characters": Table(
        rows_of(
            "lr,config.way,val_acc", [f"{rate},{name},{rate}" for rate in (0.1, 0.2) for name in ("a\x1b[2J", "b")]
        ),
        best={"a [2J": (0.2, 0.2), "b": (0.2, 0.2)},
    ),
    "names of single runs": Table(
        rows_of("name,lr,val_acc", "run0,0.1,0.5 run1,0.1,0.51 run2,0.01,0.52 run3,0.01,0.53"), {"variant": ["all"] * 4}
    ),
}


@pytest.mark.parametrize("table", READ.values(), ids=READ)
def test_what_is_read(tmp_path: Path, table: Table) -> None:
    study = study_of(tmp_path, table.text, table.reading)
    assert {name: study.summary.runs[name].tolist() for name in table.runs} == table.runs
    assert table.best in (None, chosen(study))
    assert any(table.remark in line for line in study.about_table)


def test_curves_that_begin_late_are_named(tmp_path: Path) -> None:
    """Run b lost its rows before step 40; c has half as many evaluations, and its first is its second step of ten."""
    steps = {"a": range(10, 101, 10), "b": range(40, 101, 10), "c": range(20, 101, 20), "d": range(10, 101, 10)}
    steps["e"] = steps["a"]
    rows = [f"{run},0.{run_number},{step},0.5" for run_number, run in enumerate(steps, 1) for step in steps[run]]
    remarks = study_of(tmp_path, rows_of("run_id,lr,step,val_acc", rows)).about_table
    (line,) = [line for line in remarks if line.startswith("NO FIRST ROWS")]
    assert "1 run (" in line
    assert "table.csv:12): the first is of step 40, that of most runs of 10. Were rows lost before a resume?" in line


def test_very_many_variants_are_refused(tmp_path: Path) -> None:
    rows = [f"v{number},0.1,0,0.5" for number in range(201)]
    with pytest.raises(UserError, match=r"the variants make 20,100 pairs to compare, want at most 20,000"):
        study_of(tmp_path, rows_of("variant,lr,seed,val_acc", rows))
