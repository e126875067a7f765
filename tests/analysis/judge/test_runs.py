"""Fields as values and rows as runs: which count, which diverged, which are one; what can be read in two ways."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.reading import Reading, columns_in
from lr_sweep.analysis.judge.table_file import MOST_NAME
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.judged import cases, chosen, rows_of, study_of

READ = cases("""
seeds that begin with a word | variant,lr,seed,val_loss | a,0.3,seed_0,0.9 a,0.3,Seed_10,0.8 | seed: 0 10 |
large seeds | variant,lr,seed,val_loss | a,0.3,4611686018427387905,0.9 a,0.3,4611686018427387906,0.8 | seed:
  4611686018427387905 4611686018427387906 |
seeds of two columns | lr,fold,split,val_acc | 1,0,0,0.5 1,0,1,0.6 1,1,0,0.7 1,1,1,0.8 | seed: 0 1 2 3 |
  seed=fold+split
rates of single precision | lr,seed,val_loss | 0.000976563,0,1 0.0009765625,1,2 0.0010000000474974513,0,1 1e-3,1,1 |
  learning_rate: 0.00097656 0.00097656 0.001 0.001 |
marks of thousands before a point | lr;seed;val_loss | 1e-3;0;1,234.5 1e-2;0;2,345.5 | validation: 1234.5
  2345.5 | validation=val_loss
percents | lr,seed,val_error | 1,0,0.91% 2,0,92.5% 3,0, | validation: 0.0091 0.925 - |
percents without a sign | lr,seed,val_acc | 1,0,0.5 1,1,88 1,2,90 2,0,91 2,1,92 2,2,93 | test: 0.005 0.88
  0.9 0.91 0.92 0.93 |
a diverged percent | lr,seed,val_acc | 1,0,91% 2,0,1e9999% | status: complete diverged |
fractions of epochs | lr,seed,epoch,eval_loss | 0.3,0,0.5,0.7 0.3,0,1.25,0.8 0.03,0,0.5,1 0.03,0,1.25,0.9 |
  best_step: 500 1250; num_steps: 1250 1250 |
states in words of tools | lr,val_loss,state | 1,0.1,PRUNED 2,0.5,COMPLETE 3,,FAIL 4,,WAITING 5,0.1,TIMEOUT
  6,0.1,CANCELLED_by_1000 7,1,TrialState.COMPLETE | status: stopped complete failed missing failed failed complete |
a run that finished without a value | lr,seed,state,val_acc | 0.1,0,finished,0.5 0.1,1,crashed,0.7 0.1,2,running,
  0.1,3,finished, | status: complete failed missing missing |
a column that says which diverged | lr,seed,diverged,val_acc | 1,0,True,0.9 2,0,False,0.5 | status: diverged
  complete |
a loss of NaN beside the metric | lr,seed,val_loss,val_acc | 30,0,nan,0.99 30,1,nan,0.10 0.03,0,0.5,0.80
  0.03,1,0.5,0.81 0.003,0,0.7,0.70 0.003,1,0.7,0.71 | status: diverged diverged complete complete complete complete
  | validation=val_acc
a training loss of NaN | lr,seed,train_loss,val_acc | 30,0,nan,0.99 30,1,nan,0.10 0.03,0,0.5,0.80 0.03,1,0.5,0.81
  0.003,0,0.7,0.70 0.003,1,0.7,0.71 | status: diverged diverged complete complete complete complete |
a loss of NaN without a value | lr,seed,train_loss,val_acc | 30,0,nan, 30,1,NaN, 0.03,0,0.5,0.80 0.03,1,0.5,0.81
  0.003,0,0.7,0.70 0.003,1,0.7,0.71 | status: diverged diverged complete complete complete complete |
a loss that most runs lack | lr,seed,train_loss,val_acc | 30,0,nan,0.99 30,1,nan,0.10 0.03,0,nan,0.80
  0.03,1,nan,0.81 0.003,0,0.7,0.70 0.003,1,0.7,0.71 | status: complete complete complete complete complete complete
  |
a loss of NaN at the first evaluation alone | lr,seed,step,train_loss,val_acc | 1,0,0,nan,0.1 1,0,1,0.5,0.7 |
  status: complete |
values behind NaN | lr,seed,step,val_loss | 0.3,0,1,nan 0.3,0,2,0.4 0.1,0,1,0.7 0.1,0,2,inf 0.1,0,3,0.1 0.03,0,1,0.9
  | status: diverged diverged complete; best_step: - 1 1 |
what is infinite | lr,seed,val_loss | 1,0,1e400 2,0,-inf 3,0,nan 4,0,1.7e308 5,0,1e101 6,0,0.5 | status: diverged
  diverged diverged diverged diverged complete |
rows of training and of validation | lr,seed,step,train_loss,val_loss | 3,0,99,0.9, 3,0,99,,1 3,0,120,0.9,
  1,0,99,,0.6 1,0,99,0, | status: complete complete; best_step: 99 99 |
a test value measured once | lr,seed,step,val_acc,test_acc | 1,0,1,0.5, 1,0,2,0.7, 1,0,3,0.6,0.65 | best_step: 2;
  test: 0.65 |
rows without a rate and a value | params.lr,run_id,val_acc | ,1, 1,2,0.5 None,3, 2,4,0.6 | seed: 0 0 |
numbers of many digits as labels | lr,salt,seed,val_acc | 1,1234567890123456788,0,5 1,1234567890123456789,0,6 |
  variant: salt=1234567890123456788 salt=1234567890123456789 | variant=salt
control characters | variant,lr,seed,val_acc | a\x1b[2J,1,0,0.5 | variant: a [2J |
a model where there is no variant | model,lr,seed,val_acc | m,1,0,0.5 | model: all; variant: m |
a column a step | lr,seed,val_loss 100,val_loss 110 | 1,0,3.25,3.5 | best_step: 100; num_steps: 110 |
  validation=val_loss*,step=names.3
repeats without numbers | lr,val_acc | 1,0.5 1,0.6 2,0.4 | seed: 0 1 2 | seed=rows
""")


@pytest.mark.parametrize(("head", "rows", "wanted", "columns"), READ)
def test_what_is_read(tmp_path: Path, head: str, rows: str, wanted: str, columns: str) -> None:
    runs = study_of(tmp_path, rows_of(head, rows), Reading(columns=columns_in([columns]))).summary.runs
    texts = {name: runs[name].astype(object).where(runs[name].notna(), "-") for name in runs}
    names = [text.partition(":")[0] for text in wanted.split("; ")]
    assert "; ".join(f"{name}: {' '.join(map(str, texts[name]))}" for name in names) == wanted


@pytest.mark.parametrize(
    ("head", "rows", "number"),
    [
        ("run_id,variant,lr,seed,val_acc", "1,a,0.1,0,0.5 2,a,0.1,0,0.5 3,a,0.2,0,0.6 4,a,0.2,1,0.6", 3),
        ("lr,seed,val_acc", "0.1,0,0.5 0.1,0,0.5", 1),
        ("lr,seed,step,val_acc", "0.1,0,1,0.5 0.1,0,2,0.6 0.1,0,1,0.5 0.1,0,2,0.6", 1),
        ("lr,seed,val_acc", "0.1,0,0.5 0.1,1,0.5", 2),
    ],
    ids=["ids", "rows", "evaluations", "seeds"],
)
def test_what_is_there_twice(tmp_path: Path, head: str, rows: str, number: int) -> None:
    study = study_of(tmp_path, rows_of(head, rows))
    assert len(study.summary.runs) == number
    assert any(line.startswith("left out: ") for line in study.about_table) == (number % 2 == 1)


REFUSED = cases("""
underscores | variant,lr,seed,val_loss | a,0.3,0,5_0 | table.csv:2: val_loss: got '5_0', want a number
other digits | variant,lr,seed,val_loss | a,0.3,0,\uff15 | table.csv:2: val_loss: got '\uff15', want a number
an underscore in a rate | variant,lr,seed,val_loss | a,1_0,0,5 | table.csv:2: lr: got '1_0'
decimal commas | lr;seed;val_loss | 1e-3;0;1,5 1e-2;0;2,5 | with a decimal point
thousands | lr;seed;val_loss | 1e-3;0;1,234 1e-2;0;2,345 | with a decimal point and without marks of thousands
two prefixes | variant,lr,seed,val_loss | a,0.3,seed_0,0.9 a,0.3,run_1,0.9 | table.csv:2: seed: got 'seed_0', want a
  whole number
fractions and percents | lr,seed,val_acc,test_acc | 0.3,0,0.9,89 0.1,0,0.8,79 | a fraction in some places and
  percent in others (validation up to 0.9, test up to 89)
some fractions | lr,seed,val_acc | 1,0,0.8 1,1,0.9 2,0,70 2,1,71 | a fraction in some places and percent in others
some signs | lr,seed,val_acc | 0.1,0,91% 0.1,1,0.5 | with the sign % behind all values or none
a spread | lr,seed,val_acc | 0.1,0,0.9±0.1 | want a number of a single run (no mean)
a negative accuracy | lr,seed,val_acc | 0.1,0,-0.9 0.2,0,0.9 | accuracy is down to -0.9
a negative rate | lr,seed,val_acc | -1,0,0.5 0.1,0,0.5 | got '-1', want a learning rate from 1e-30 to 1e30
a fraction of a seed | lr,seed,val_acc | 0.1,1.5,0.5 | seed: got '1.5', want a whole number
a state of no known meaning | lr,seed,status,val_acc | 1,0,odd,0.5 | --columns status= leaves the column out
test values at other steps | lr,seed,step,val_acc,test_acc | 1,0,1,0.5, 1,0,2,,0.5 1,0,3,,0.6 | same steps
large steps with fractions | lr,seed,step,val_acc | 1,0,0.5,0.5 1,0,9e15,0.6 | want a number from 0 to 9e12
""")


@pytest.mark.parametrize(("head", "rows", "message"), REFUSED)
def test_what_can_be_read_in_two_ways_is_refused(tmp_path: Path, head: str, rows: str, message: str) -> None:
    with pytest.raises(UserError) as raised:
        study_of(tmp_path, rows_of(head, rows))
    assert message in str(raised.value)


def test_mistakes_are_reported_together_with_their_lines_and_a_way_out(tmp_path: Path) -> None:
    text = 'note,lr,seed,val_acc\n"two\nlines",1,0,0.5\n,2,0,high\n,3,x,0.5\n'
    reading = Reading(columns={"ignored": "note"})
    with pytest.raises(UserError) as raised:
        study_of(tmp_path, text, reading)
    first, second = str(raised.value).splitlines()
    assert "table.csv:4: val_acc: got 'high'" in first
    assert "table.csv:5: seed: got 'x'" in second
    where = [line.rpartition("--where ")[2].strip("'") for line in (first, second)]
    assert chosen(study_of(tmp_path, text, reading.but(Reading(where=where)))) == {"all": (1.0, 0.5)}


def test_a_rate_of_0_is_no_training(tmp_path: Path) -> None:
    study = study_of(tmp_path, rows_of("variant,lr,seed,val_acc", "a,0.1,0,0.5 none,0.0,0,0.9"))
    assert chosen(study) == {"a": (0.1, 0.5)}
    assert len(study.left_out) == 1
    with pytest.raises(UserError, match="want a learning rate from 1e-30"):
        study_of(tmp_path, rows_of("variant,lr,seed,val_acc", "a,0.1,0,0.5 a,0,0,0.9"))


@pytest.mark.parametrize("head", ["lr,seed,val_acc", "name,seed,val_acc", "run_id,lr,val_acc"])
def test_very_long_texts_take_no_time(tmp_path: Path, head: str) -> None:
    """A search for settings, or for the number of a seed, in 200,000 letters took minutes."""
    began = time.process_time()
    for long in ("a" * 200_000, "9" * 200_000):
        fields = {"lr": "0.1", "seed": long, "name": long, "run_id": long, "val_acc": "0.5"}
        with suppress(UserError):
            study_of(tmp_path, rows_of(head, [",".join(fields[name] for name in head.split(","))]))
    assert time.process_time() - began < 5


def test_long_names_stay_apart(tmp_path: Path) -> None:
    rows = [f"{'x' * 5000}{end},1,0,0.5" for end in "ab"]
    names = study_of(tmp_path, rows_of("variant,lr,seed,val_acc", rows)).summary.cells["variant"]
    assert (names.nunique(), set(names.str.len())) == (2, {MOST_NAME})
