"""Fields of a table as numbers; what may be read in two ways is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.analysis.judge.columns import Reading
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
        (PPL + "a\t0.3\t0\t1,234\na\t0.03\t0\t123.4\n", "'1,234' in val_ppl at line 2: which mark"),
        ("variant;lr;seed;val_ppl\na;0,3;0;1.234\na;0,03;0;123,4\n", "'1.234' in val_ppl at line 2: which mark"),
        (PPL + "a\t1e-3\t0\t1,234\na\t1e-2\t0\t2,345\n", "got '1,234', one number with a decimal comma, another"),
        (HEAD + "a,0.3,seed_0,0.9\na,0.3,run_1,0.9\n", "table.csv:2: seed: got 'seed_0', want a whole number"),
    ],
)
def test_numbers_that_are_none_or_two_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError) as raised:
        study_of(tmp_path, text)
    assert message in str(raised.value)


def test_a_decimal_comma_is_read_where_it_can_be_no_other(tmp_path: Path) -> None:
    study = study_of(tmp_path, "variant;lr;seed;val_ppl\n1,5;0,3;0;1,234\n1,5;0,03;0;2,345\n")
    assert chosen(study) == {"1,5": (0.3, 1.234)}


def test_a_whole_file_may_lack_its_last_line_end(tmp_path: Path) -> None:
    study = study_of(tmp_path, HEAD + "a,0.3,0,0.9")
    assert "table.csv: no line end after the last row; was the file cut?" in study.about_table


@pytest.mark.parametrize("value", ["1e400", "-inf", "nan", "1.7e308", "-1.7e308", "1e101"])
def test_what_is_infinite_diverged(tmp_path: Path, value: str) -> None:
    study = study_of(tmp_path, HEAD + f"a,0.3,0,{value}\na,0.03,0,0.5\n")
    assert study.summary.runs["status"].tolist() == ["diverged", "complete"]


def test_seeds_may_begin_with_a_word(tmp_path: Path) -> None:
    study = study_of(tmp_path, HEAD + "a,0.3,seed_0,0.9\na,0.3,Seed_10,0.8\n")
    assert study.summary.runs["seed"].tolist() == [0, 10]


def test_large_seeds_are_read_exactly(tmp_path: Path) -> None:
    study = study_of(tmp_path, HEAD + f"a,0.3,{2**62 + 1},0.9\na,0.3,{2**62 + 2},0.8\n")
    assert study.summary.runs["seed"].tolist() == [2**62 + 1, 2**62 + 2]


def test_epochs_may_have_fractions(tmp_path: Path) -> None:
    text = "lr,seed,epoch,eval_loss\n0.3,0,0.5,0.7\n0.3,0,1.25,0.8\n0.03,0,1.25,0.9\n"
    study = study_of(tmp_path, text)
    assert study.summary.runs[["best_step", "num_steps"]].to_numpy().tolist() == [[50, 125], [125, 125]]
    assert "steps have fractions: in the report a step is 1/100 of the table's" in study.about_table


def test_states_of_optuna(tmp_path: Path) -> None:
    text = "lr,val_loss,state\n0.3,0.1,PRUNED\n0.03,0.5,COMPLETE\n0.003,,FAIL\n0.01,0.6,COMPLETE\n0.1,,WAITING\n"
    study = study_of(tmp_path, text)
    assert study.summary.runs["status"].tolist() == ["stopped", "complete", "failed", "complete", "missing"]
    assert chosen(study) == {"all": (0.03, 0.5)}
    assert "1 of 5 runs were stopped early: 1 of 1 at 3e-1" in [each.message for each in study.findings]


def test_one_metric_in_two_units_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"a fraction in one column and percent in another \(validation up to 0.9, test"
    ):
        study_of(tmp_path, "lr,seed,val_acc,test_acc\n0.3,0,0.9,89\n0.1,0,0.8,79\n")


def test_a_given_direction_against_the_name_is_said(tmp_path: Path) -> None:
    study = study_of(tmp_path, "lr,seed,val_acc\n0.3,0,0.9\n", Reading(higher_is_better=False))
    assert "accuracy: lower is better, as given; the column's name says otherwise" in study.about_table
