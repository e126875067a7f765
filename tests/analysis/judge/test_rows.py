"""Fields of a table as numbers; what may be read in two ways is refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.judged import chosen, study_of

HEAD = "variant,lr,seed,val_loss\n"
PPL = "variant\tlr\tseed\tval_ppl\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "a,0.3,0,5_0\n", "table.csv:2: val_loss: got '5_0', want a number"),
        (HEAD + "a,0.3,0,\uff15\n", "table.csv:2: val_loss: got '\uff15', want a number"),
        (HEAD + "a,1_0,0,5\n", "table.csv:2: lr: got '1_0'"),
        (HEAD + "a,0.3,0,0.9\na,0.03,0,0.", "table.csv:3: the file ends within a number, '0.'"),
        (HEAD + "a,0.3,0,0.9\na,0.03,0,5e-", "table.csv:3: the file ends within a number, '5e-'"),
        (HEAD + f"{'a' * 201},0.3,0,0.9\n", "table.csv:2: variant: got a name of 201 characters, want at most 200"),
        (PPL + "a\t0.3\t0\t1,234\na\t0.03\t0\t123.4\n", "table.csv:2: which mark"),
        ("variant;lr;seed;val_ppl\na;0,3;0;1.234\na;0,03;0;123,4\n", "table.csv:2: which mark"),
        (PPL + "a\t1e-3\t0\t1,234\na\t1e-2\t0\t2,345\n", "got '1,234', one number with a decimal comma, another"),
        (HEAD + "a,0.3,seed_0,0.9\na,0.3,run_1,0.9\n", "table.csv:2: seed: got 'seed_0', want a whole number"),
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
    remark: str | None = None


READ = {
    "a decimal comma that can be no other": Table(
        "variant;lr;seed;val_ppl\n1,5;0,3;0;1,234\n1,5;0,03;0;2,345\n", best={"1,5": (0.3, 1.234)}
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
}


@pytest.mark.parametrize("table", READ.values(), ids=READ)
def test_what_is_read(tmp_path: Path, table: Table) -> None:
    study = study_of(tmp_path, table.text)
    assert {name: study.summary.runs[name].tolist() for name in table.runs} == table.runs
    assert table.best in (None, chosen(study))
    assert table.remark is None or table.remark in study.about_table


@pytest.mark.parametrize("value", ["1e400", "-inf", "nan", "1.7e308", "-1.7e308", "1e101"])
def test_what_is_infinite_diverged(tmp_path: Path, value: str) -> None:
    study = study_of(tmp_path, HEAD + f"a,0.3,0,{value}\na,0.03,0,0.5\n")
    assert study.summary.runs["status"].tolist() == ["diverged", "complete"]
    assert chosen(study) == {"a": (0.03, 0.5)}


def test_one_metric_in_two_units_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"a fraction in one column and percent in another \(validation up to 0.9, test"
    ):
        study_of(tmp_path, "lr,seed,val_acc,test_acc\n0.3,0,0.9,89\n0.1,0,0.8,79\n")


def test_a_given_direction_against_the_name_is_said(tmp_path: Path) -> None:
    study = study_of(tmp_path, "lr,seed,val_acc\n0.3,0,0.9\n", Reading(higher_is_better=False))
    assert "accuracy: lower is better, as given; the column's name says otherwise" in study.about_table
