"""Tables that names decide, tables that are listed, and meanings that the user gives; every answer is worked out here.

Each kind of wrong reading that was met in other people's files has a table here: it is right, listed or refused.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.judge import judged
from lr_sweep.analysis.judge.listing import Listing, ListingError
from lr_sweep.analysis.judge.reading import Reading, columns_in
from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cli.parser import main
from lr_sweep.tests.support.judge_readings import reading_of
from lr_sweep.tests.support.judged import cases, chosen, judge, rows_of, shown, study_of

pytestmark = pytest.mark.usefixtures("undrawn")


def said(columns: str, higher: bool | None = None) -> Reading:
    return Reading(columns=columns_in([columns]), higher_is_better=higher)


def opens(options: str, opened: str) -> bool:
    """Return whether a printed command leaves `validation=` or `=name` open."""
    pair = f"...{opened}" if opened[0] == "=" else f"{opened}..."
    return pair in re.split(r"[ ,']", options)


def listed(folder: Path, text: str, reading: Reading | None = None) -> Listing:
    """Return the listing of a table that names leave open."""
    with pytest.raises(ListingError) as raised:
        study_of(folder, text, reading)
    return raised.value.listing


AT_ONCE = cases("""
MLflow | run_id,status,start_time,metrics.val_acc,metrics.test_acc,params.lr,params.optimizer |
  r1,FINISHED,1,0.5,0.6,0.1,a r2,FAILED,2,0.7,0.8,0.2,a | variant=params.optimizer learning_rate=params.lr
  run=run_id status=status validation=metrics.val_acc test=metrics.test_acc
Ray | val_acc,training_iteration,trial_id,time_total_s,config/lr,config/seed,logdir,pid | 0.5,1,t1,9.5,0.1,0,/a,7
  0.6,2,t1,19.5,0.1,0,/a,7 0.4,1,t2,9.1,0.2,1,/b,8 | learning_rate=config/lr seed=config/seed
  step=training_iteration run=trial_id validation=val_acc
other names | Env Name,Algo,Architecture,Learning Rate,random_state,Epoch,dev loss,heldout loss,train loss |
  x,a,mlp,0.1,0,1,1.5,1.6,1.4 y,a,mlp,0.1,0,1,1.3,1.2,1.1 | task=Env_Name variant=Algo model=Architecture
  learning_rate=Learning_Rate seed=random_state step=Epoch validation=dev_loss test=heldout_loss train=train_loss
a constant rate beside the setting | base_lr,lr,seed,val_acc | 0.1,0.3,0,0.5 0.1,0.2,0,0.6 | learning_rate=lr
  seed=seed validation=val_acc
a schedule's rate beside the setting | config.lr,lr,seed,step,val_acc | 0.1,0.1,0,1,0.5 0.1,0.05,0,2,0.6
  0.2,0.2,0,1,0.5 0.2,0.1,0,2,0.4 | learning_rate=config.lr seed=seed step=step validation=val_acc
a test value of another metric | lr,seed,val_loss,test_acc | 0.1,0,0.5,0.6 0.2,0,0.4,0.7 | learning_rate=lr
  seed=seed validation=val_loss
a text that names each row | what,val_acc | base,0.5 wide,0.6 | variant=what validation=val_acc
a metric that does not say its data | lr,seed,accuracy | 0.1,0,0.5 0.2,0,0.6 | learning_rate=lr seed=seed
  validation=accuracy
""")


@pytest.mark.parametrize(("head", "rows", "columns"), AT_ONCE)
def test_what_names_decide_is_read_at_once(tmp_path: Path, head: str, rows: str, columns: str) -> None:
    (tmp_path / "t.csv").write_text(rows_of(head, rows))
    found = judged([tmp_path / "t.csv"], Reading()).reading.columns
    assert {meaning: name.replace(" ", "_") for meaning, name in found.items()} == dict(
        pair.split("=") for pair in columns.split()
    )


LISTED = cases("""
two metrics | lr,seed,val_loss,val_acc | 1,0,5,0.6 2,0,4,0.5 | validation= | val_acc | all 1 0.6
an accuracy and a loss that may be of training | lr,seed,accuracy,loss | 0.1,0,0.5,0.9 0.2,0,0.6,0.8 | validation= |
  accuracy | all 0.2 0.6
two rates | head.lr,body.lr,val_loss | 0.1,0.1,3 0.1,0.2,2 0.2,0.1,4 0.2,0.2,5 | learning_rate= |
  head.lr,tuned=body.lr | all 0.1 2
no known metric | lr,seed,val_score | 0.1,0,5 0.2,0,6 | validation= | val_score --lower-is-better | all 0.1 5
a setting | algo,width,lr,seed,val_acc | a,8,1,0,0.5 a,9,1,0,0.75 | =width | tuned | a 1 0.75
a text at one rate | lr,kind,val_acc | 1,x,0.5 1,y,0.75 | =kind | variant | x 1 0.5, y 1 0.75
a text at rates of its own | lr,seed,kind,val_acc | 1,0,x,0.5 2,0,y,0.75 | =kind | variant | x 1 0.5, y 2 0.75
repeats | lr,val_acc | 0.1,0.5 0.1,0.6 0.2,0.5 | seed= | rows | all 0.1 0.55
means | lr,val_acc,val_acc_std | 0.1,0.5,0.1 0.2,0.75,0.1 | seed= | rows | all 0.2 0.75
a variant that some rows lack | method,lr,seed,val_acc | a,0.1,0,0.5 ,0.1,0,0.75 | variant= | method --where
  'method!=' | a 0.1 0.5
a schedule | method,lr,seed,step,val_acc | a,0.1,0,1,0.5 a,0.05,0,2,0.6 b,0.1,0,1,0.7 b,0.05,0,2,0.8 |
  learning_rate= | ,ignored=lr | a 1 0.6, b 1 0.8
a schedule beside a rate of another name | lr,eta,seed,step,val_acc | 0.1,0.1,0,1,0.5 0.05,0.1,0,2,0.6
  0.2,0.2,0,1,0.7 0.1,0.2,0,2,0.8 | learning_rate= | eta | all 0.2 0.8
names of runs with settings | trial_id,val_acc | adam-lr0.1-s0,0.5 adam-lr0.2-s0,0.6 sgd-lr0.1-s0,0.25
  sgd-lr0.1-s1,0.75 | run= | trial_id,variant=trial_id.1,learning_rate=trial_id.2 | adam 0.2 0.6, sgd 0.1 0.5
names of runs | lr,run_id,val_acc | 1,ape,0.5 1,bee,0.75 | run= | run_id | all 1 0.625
columns of seeds | lr,acc_1,acc_2 | 0.1,0.5,0.75 0.2,0.25,0.5 | validation= | acc_1+acc_2,seed=names
  --higher-is-better | all 0.1 0.625
""")


@pytest.mark.parametrize(("head", "rows", "opened", "answer", "best"), LISTED)
def test_the_printed_command_works_once_it_is_completed(
    tmp_path: Path, head: str, rows: str, opened: str, answer: str, best: str
) -> None:
    printed = listed(tmp_path, rows_of(head, rows)).options.replace("'", "")
    assert opens(printed, opened)
    assert printed.count("...") == 1
    command = printed.replace("...", answer)
    assert shown(judge([tmp_path / "table.csv"], reading_of(command))) == best, command


def test_repeats_without_numbers_bar_no_rate(tmp_path: Path) -> None:
    """The best rate of `a` has one row, and a worse one has two: it is `a` that is better, by 0.9 to 0.81."""
    rows = "a,0.1,0.7 a,0.1,0.72 a,0.01,0.9 b,0.1,0.8 b,0.1,0.82 b,0.01,0.6 b,0.01,0.62"
    assert listed(tmp_path, rows_of("variant,lr,val_acc", rows)).options.endswith("seed=...")
    best = chosen(study_of(tmp_path, rows_of("variant,lr,val_acc", rows), said("seed=rows")))
    assert best == {"a": (0.01, 0.9), "b": (0.1, 0.81)}


def test_rows_of_curves_are_no_seeds(tmp_path: Path) -> None:
    """Which rows belong to one run cannot be seen: they may be shuffled."""
    table = rows_of("lr,step,val_acc", "1,1,0.5 1,2,0.6 1,1,0.7 1,2,0.8")
    assert listed(tmp_path, table, said("seed=rows")).doubts[0].endswith("as run=NAME")


RIGHT = cases("""
an outcome is no setting | variant,lr,seed,correct,stopped_at,val_acc | a,0.1,0,81,7,0.625 a,0.1,1,89,9,0.875
  b,0.1,0,5,8,0.5 |  | a 0.1 0.75, b 0.1 0.5
the worst of a curve beside its value | variant,lr,seed,min_acc,val_acc | a,0.1,0,0.9,0.75 b,0.1,0,0.95,0.5 |  | a
  0.1 0.75, b 0.1 0.5
counts beside the metric | variant,lr,seed,num_correct,eval_samples,val_acc | a,0.1,0,7,9,0.75 b,0.1,0,8,10,0.5 |
  validation=val_acc | a 0.1 0.75, b 0.1 0.5
a rate behind its name | variant,lr,seed,val_acc | a,lr_1e-1,0,0.75 b,lr_0.1,0,0.5 |  | a 0.1 0.75, b 0.1 0.5
None and null are names | optimizer,lr,seed,val_acc | adam,1,0,0.5 None,1,0,0.25 null,1,0,0.75 |  | adam 1 0.5, None
  1 0.25, null 1 0.75
ids of repeats | run_id,variant,lr,val_acc | 1,a,0.1,0.625 2,a,0.1,0.875 3,b,0.1,0.5 |  | a 0.1 0.75, b 0.1 0.5
a column that is ignored and gone | variant,lr,seed,val_acc | a,0.1,0,0.75 b,0.1,0,0.5 | ignored=notes | a 0.1 0.75,
  b 0.1 0.5
settings that are tuned | variant,wd,lr,seed,val_acc | a,0,0.1,0,0.5 a,1,0.1,0,0.75 b,0,0.1,0,0.5 b,1,0.1,0,0.25 |
  tuned=wd | a 0.1 0.75, b 0.1 0.5
settings that are ignored | variant,wd,lr,seed,val_acc | a,0,0.1,0,0.625 a,1,0.1,1,0.875 b,0,0.1,0,0.5 | ignored=wd
  | a 0.1 0.75, b 0.1 0.5
parts of names | name,val_acc | a-lr0.1/s0,0.625 a-lr0.1/s1,0.875 b-lr1e-1/s0,0.5 |
  variant=name.1,learning_rate=name.2,seed=name.3 | a 0.1 0.75, b 0.1 0.5
positions | x,,z,val_acc | a,0.1,0,0.75 b,0.1,0,0.5 | variant=#1,learning_rate=#2,seed=#3 | a 0.1 0.75, b 0.1 0.5
a pattern, its columns as rows | variant,lr,val_acc_0,val_acc_1 | a,0.1,0.625,0.875 b,0.1,0.25,0.75 |
  validation=val_acc_*,seed=names | a 0.1 0.75, b 0.1 0.5
columns as rows beside one named value | value,lr,s1,s2 | 7,0.1,0.625,0.875 | validation=s1+s2,seed=names | all 0.1
  0.75
parts of the names of columns | lr,acc/a/0,acc/a/1,acc/b/0,acc/b/1 | 0.1,0.625,0.875,0.25,0.75 |
  validation=acc/*,variant=names.2,seed=names.3 | a 0.1 0.75, b 0.1 0.5
""")


@pytest.mark.parametrize(("head", "rows", "columns", "best"), RIGHT)
def test_what_is_read_rightly(tmp_path: Path, head: str, rows: str, columns: str, best: str) -> None:
    higher = True if "names" in columns else None
    study = study_of(tmp_path, rows_of(head, rows), said(columns, higher) if columns else None)
    assert shown(study) == best


def test_columns_of_one_metric_say_which_way_it_is_better(tmp_path: Path) -> None:
    table = rows_of("lr,seed,mnist_acc,cifar_acc", "0.1,0,0.75,0.5 0.1,1,0.25,0.5")
    metric = study_of(tmp_path, table, said("validation=*_acc,task=names")).summary.metric
    assert (metric.name, metric.higher_is_better) == ("accuracy", True)


OPEN = cases("""
names of single runs may hold variants | run_id,lr,val_acc | adam-0,1,5 adam-1,1,6 sgd-0,1,7 sgd-1,1,8 | run=
names of rows may hold variants | name,lr,val_acc | adam-0,1,5 adam-1,1,6 sgd-0,1,7 sgd-1,1,8 | =name
1e4 in a name may be 1e-4 | name,seed,val_acc | lr_1e4,0,5 lr_1e3,0,6 | =name
counts | variant,lr,seed,num_correct,eval_samples | a,1,0,8,10 b,1,0,9,12 | validation=
a loss that may be that of training | variant,lr,seed,loss | a,1,0,0.5 b,1,0,0.6 | validation=
no names at all | a,0.1,0,0.81,0.7 | a,0.01,0,0.82,0.2 b,0.1,0,0.71,0.3 | validation=
the worst of several means | lr,seed,min_val_acc,mean_val_acc | 1,0,0.1,0.5 2,0,0.2,0.4 | validation=
a setting with a value of its own at each seed | lr,seed,wd,val_acc | 1,0,0,5 1,0,1,6 1,1,0,7 | =wd
a column beside the steps | lr,seed,step,kind,val_acc | 1,0,1,x,5 1,0,2,y,6 | =kind
""")


@pytest.mark.parametrize(("head", "rows", "opened"), OPEN)
def test_what_may_be_read_wrongly_is_left_open(tmp_path: Path, head: str, rows: str, opened: str) -> None:
    options = listed(tmp_path, rows_of(head, rows)).options
    assert opens(options, opened)


REFUSED = cases("""
1e4 behind a name | lr,seed,val_acc | lr_1e4,0,0.5 lr_1e3,0,0.6 |  | got 'lr_1e4', want a learning rate
a rate without its point | lr,seed,val_acc | lr001,0,0.5 lr01,0,0.6 |  | got '001', want a learning rate
a column that is not there | lr,val_acc | 0.1,0.5 | test=tset | unknown column 'tset'; valid: lr, val_acc
a column of two meanings | lr,val_acc | 0.1,0.5 | test=val_acc,train=val_acc | as test and as train
a restart beside its aborted run | run_id,lr,seed,state,val_acc | 1,0.1,0,crashed,0.9 2,0.1,0,finished,0.75 |  |
  or leave one out, as by --where STATE!=crashed
two runs of a seed | run_id,lr,seed,val_acc | 1,0.1,0,0.5 2,0.1,0,0.6 |  | table.csv:3: .*table.csv:2 has
a row twice with other values | lr,seed,val_acc | 0.1,0,0.5 0.10,0,0.6 |  | table.csv:3: .*table.csv:2 has
""")


@pytest.mark.parametrize(("head", "rows", "columns", "message"), REFUSED)
def test_what_is_refused(tmp_path: Path, head: str, rows: str, columns: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        study_of(tmp_path, rows_of(head, rows), said(columns) if columns else None)


def test_runs_in_folders_are_no_seeds_of_one_variant_and_files_no_one_task(tmp_path: Path) -> None:
    for name in ("adam_0", "adam_1", "sgd_0", "sgd_1"):
        (tmp_path / "logs" / name).mkdir(parents=True)
        (tmp_path / "logs" / name / "log.csv").write_text(f"epoch,val_acc\n1,0.5\n2,0.{len(name)}\n")
    with pytest.raises(ListingError) as raised:
        judge([tmp_path / "logs"], Reading())
    assert "...=file" in raised.value.listing.options
    best = chosen(judge([tmp_path / "logs"], said("variant=file.1,seed=file.2")))
    assert best == {"adam": (1.0, 0.6), "sgd": (1.0, 0.5)}
    for task, best_value in (("mnist", 0.75), ("svhn", 0.5)):
        (tmp_path / f"{task}.csv").write_text(f"optimizer,lr,seed,val_acc\na,1,0,{best_value}\nb,1,0,0.25\n")
    with pytest.raises(ListingError, match="file"):
        judge([str(tmp_path / "*.csv")], Reading())
    study = judge([str(tmp_path / "*.csv")], said("task=file"))
    assert study.summary.cells[["task", "variant", "test_mean"]].to_numpy().tolist() == [
        *(["mnist", "a", 0.75], ["mnist", "b", 0.25], ["svhn", "a", 0.5], ["svhn", "b", 0.25])
    ]


def test_a_variant_without_a_rate_is_left_out_by_name_and_the_printed_option_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = rows_of("variant,lr,seed,val_acc", "a,0.1,0,0.5 a,0.2,0,0.75 free,,0,0.9 b,0.1,0,0.25")
    (line,) = study_of(tmp_path, text).left_out
    assert "free" in line
    assert main(["judge", "table.csv"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert line in printed
    (option,) = re.findall(r"--columns (\S+)", line)
    kept = chosen(judge(["table.csv"], said(option)))
    assert kept == {"a, lr=0.1": (1, 0.5), "a, lr=0.2": (1, 0.75), "free": (1, 0.9), "b, lr=0.1": (1, 0.25)}
