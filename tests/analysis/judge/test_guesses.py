"""What is guessed by names and fields: the rate, the metric, its direction, what is compared; and what is asked."""

from __future__ import annotations

import shlex
from itertools import product
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.judge import judged
from lr_sweep.analysis.judge.reading import (
    QuestionError,
    Reading,
    columns_in,
    options_text,
    save_reading,
    saved_reading,
)
from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cli.parser import main
from lr_sweep.tests.support.judged import chosen, judge, rows_of, study_of

RATES = ("1e-3", "1e-2", "1e-1")
VALUES = {"1e-3": 0.5, "1e-2": 0.8, "1e-1": 0.6}


def table(head: str, *columns: object) -> str:
    """Rows for each rate and two seeds; `{rate}`, `{seed}` and `{value}` in columns are filled in."""
    row = ",".join(map(str, columns))
    rows = [row.format(rate=rate, seed=seed, value=VALUES[rate] + seed / 100) for rate in RATES for seed in (0, 1)]
    return rows_of(head, rows)


def test_names_of_runs_are_asked_about_where_rows_are_left_out(tmp_path: Path) -> None:
    rows = ["small net,0.1,0.5", "wide net,0.1,0.7", "deep net,0.2,0.6", "flat net,0.2,0.4", "no net,0,0.1"]
    with pytest.raises(QuestionError, match="runs of one learning rate have names in name"):
        study_of(tmp_path, rows_of("name,lr,val_acc", rows))


def test_a_run_that_was_started_again_is_not_read_as_one_run(tmp_path: Path) -> None:
    rows = ["first,0.1,1000,nan", "first,0.1,2000,0.75", "second,0.01,2000,0.5"]  # after NaN, 0.75 would not count
    with pytest.raises(QuestionError, match="a run in run_id has several num_steps") as raised:
        study_of(tmp_path, rows_of("run_id,lr,num_steps,val_acc", rows))
    assert options_text(raised.value.choices[0].reading) == "--columns run="


@pytest.mark.parametrize(("state", "number"), [("finished", 2), ("keep", 1)])
def test_a_loss_of_0_is_no_value_beside_an_agent_s_verdicts_alone(tmp_path: Path, state: str, number: int) -> None:
    rows = [f"{name},0.1,0,{state},{loss}" for name, loss in (("a", 0.0), ("b", 0.5))]
    study = study_of(tmp_path, rows_of("variant,lr,seed,status,val_loss", rows))
    assert int(study.summary.cells["num_values"].sum()) == number


def test_the_configured_rate_is_read_and_not_the_scheduled_one(tmp_path: Path) -> None:
    rows = [
        f"{rate},{float(rate) * (1 - step / 4)},{seed},{step},{VALUES[rate] + seed / 100 + step / 1000}"
        for rate, seed, step in product(RATES, (0, 1), (0, 1, 2))
    ]
    study = study_of(tmp_path, rows_of("peak_lr,lr,seed,step,val_acc", rows))
    assert chosen(study) == {"all": (1e-2, 0.807)}
    assert "learning rate = peak_lr (guessed: rather than lr)" in study.about_table[0]
    alone = rows_of("lr,seed,step,val_acc", [row.partition(",")[2] for row in rows])
    with pytest.raises(UserError, match="lr changes with the step: it is the rate of a schedule"):
        study_of(tmp_path, alone)


def test_two_rates_that_were_both_varied_are_asked_about(tmp_path: Path) -> None:
    rows = [f"{one},{other},{one + other}" for one, other in product((0.1, 0.2), (0.1, 0.2, 0.3))]
    with pytest.raises(QuestionError, match="2 columns may be learning_rate: head_lr, body_lr") as raised:
        study_of(tmp_path, rows_of("head_lr,body_lr,val_loss", rows))
    assert [options_text(each.reading) for each in raised.value.choices] == [
        "--columns learning_rate=head_lr",
        "--columns learning_rate=body_lr",
    ]
    same = rows_of("base_lr,lr,seed,val_loss", [f"{rate},{rate},0,{VALUES[rate]}" for rate in RATES])
    assert chosen(study_of(tmp_path, same)) == {"all": (1e-3, 0.5)}
    constant = table("base_lr,lr,seed,val_acc", "0.1,{rate},{seed},{value}")
    assert chosen(study_of(tmp_path, constant)) == {"all": (1e-2, 0.805)}


def test_accuracy_is_read_before_loss_and_said(tmp_path: Path) -> None:
    study = study_of(
        tmp_path, table("lr,seed,val_loss,val_acc,test_loss,test_acc", "{rate},{seed},0.1,{value},0.1,0.7")
    )
    assert chosen(study) == {"all": (1e-2, 0.7)}
    assert "validation = val_acc (guessed: rather than val_loss)" in study.about_table[0]
    assert "not used: val_loss (1 value), test_loss (1 value)" in study.about_table[0]
    with pytest.raises(QuestionError, match="2 columns may be validation: val_acc, val_f1"):
        study_of(tmp_path, table("lr,seed,val_acc,val_f1", "{rate},{seed},{value},{value}"))


def test_a_metric_and_its_direction_are_read_from_other_columns(tmp_path: Path) -> None:
    text = table("lr,seed,value,metric,direction", "{rate},{seed},{value},best_val/f1_macro,maximize")
    study = study_of(tmp_path, text)
    assert chosen(study) == {"all": (1e-2, 0.805)}
    assert (study.info.metric.name, study.info.metric.test) == ("f1 macro", "validation f1 macro")
    assert "metric says best_val/f1_macro" in study.about_table[0]
    down = study_of(tmp_path, text.replace("f1_macro", "score").replace("maximize", "StudyDirection.MINIMIZE"))
    assert chosen(down) == {"all": (1e-3, 0.505)}
    on_test = study_of(tmp_path, text.replace("best_val", "test"))
    assert on_test.info.metric.chosen_on == ""
    with pytest.raises(UserError, match="value has the values of several metrics, by metric: .*f1_macro, test_f1"):
        study_of(tmp_path, text.replace("best_val/f1_macro", "test_f1", 1))


def test_a_metric_of_unnamed_data_is_that_of_validation_unless_others_are_named(tmp_path: Path) -> None:
    study = study_of(tmp_path, table("algo,lr,seed,mean_reward,std_reward", "ppo,{rate},{seed},{value},9"))
    assert chosen(study) == {"ppo": (1e-2, 0.805)}
    assert "validation = mean_reward (guessed: its name does not say on which data)" in study.about_table[0]
    keras = study_of(tmp_path, table("lr,seed,loss,accuracy,test_accuracy", "{rate},{seed},0.1,0.9,{value}"))
    assert keras.info.metric.chosen_on == ""


def test_what_may_be_repeats_is_asked(tmp_path: Path) -> None:
    rows = [f"{k},{rate},{VALUES[rate] + k / 100}" for k, rate in product((0, 1), RATES)]
    text, same = rows_of("k,lr,val_acc", rows), {"all": (1e-2, 0.805)}
    with pytest.raises(QuestionError, match=r"differ in k \(2 values\)") as raised:
        study_of(tmp_path, text)
    assert options_text(raised.value.choices[0].reading) == "--columns seed=k"
    assert chosen(study_of(tmp_path, text, raised.value.choices[0].reading)) == same
    for name in ("repeat", "fold", "random_seed"):
        assert chosen(study_of(tmp_path, rows_of(f"{name},lr,val_acc", rows))) == same


TUNED = [
    f"{algo},{decay},{rate},{seed},{VALUES[rate] + (decay == 0.1) / 20 + (algo == 'b') / 10 + seed / 100}"
    for algo, decay, rate, seed in product("ab", (0.0, 0.1), RATES, (0, 1))
]


def test_a_run_column_that_numbers_seeds_is_one_of_seeds(tmp_path: Path) -> None:
    """Run 0 and run 1 have every rate, at the same steps too. A name with every rate is a variant."""
    study = study_of(tmp_path, table("LR,Run,Val acc", "{rate},{seed},{value}"))
    assert "seed = Run (guessed: its numbers are those of several learning rates)" in study.about_table[0]
    assert chosen(study) == {"all": (1e-2, 0.805)}
    assert "seed = Run" in study_of(tmp_path, table("LR,Run,step,Val acc", "{rate},{seed},10,{value}")).about_table[0]
    single = rows_of("LR,Run,Val acc", [f"{rate},{number},{VALUES[rate]}" for number, rate in enumerate(RATES)])
    assert "run = Run" in study_of(tmp_path, single).about_table[0]
    named = study_of(tmp_path, table("LR,Run,Val acc", "{rate},run{seed},{value}"))
    assert "variant = Run (guessed: each has several learning rates)" in named.about_table[0]


def test_settings_beside_variants_are_asked_about(tmp_path: Path) -> None:
    """Tuned as the rate is, compared, or refused; never seeds."""
    text = rows_of("algo,weight_decay,lr,seed,val_acc", TUNED)
    with pytest.raises(QuestionError, match=r"differ in weight_decay \(2 values\): settings are no seeds") as raised:
        study_of(tmp_path, text)
    assert [options_text(each.reading) for each in raised.value.choices] == [
        "--columns nuisance=weight_decay",
        "--columns variant=algo+weight_decay",
        "--columns task=weight_decay",
    ]
    tuned = study_of(tmp_path, text, Reading(columns={"nuisance": "weight_decay"}))
    assert chosen(tuned) == {"a": (1e-2, 0.855), "b": (1e-2, 0.955)}
    assert tuned.summary.runs["seed"].nunique() == 2
    assert "Chosen: a 1e-2 with weight_decay=0.1; b 1e-2 with weight_decay=0.1" in tuned.about_table[-1]
    compared = study_of(tmp_path, text, Reading(columns={"variant": "algo+weight_decay"}))
    assert chosen(compared)["b, weight_decay=0"] == (1e-2, 0.905)


def test_a_setting_that_is_tuned_needs_validation_data(tmp_path: Path) -> None:
    text = rows_of("algo,weight_decay,lr,seed,test_acc", TUNED)
    with pytest.raises(UserError, match="settings are tuned on validation data, and the table has none"):
        study_of(tmp_path, text, Reading(columns={"nuisance": "weight_decay"}))


MOVED = "0.1,0,x,0.1 0.1,1,x,0.2 0.2,0,y,0.2 0.2,1,y,0.3"
FOUND = {
    "with the rate": (
        "params_lr,params_batch,params_follows,val_acc",
        "0.1,8,1,0.5 0.2,16,2,0.6 0.3,8,3,0.7",
        "problem: its learning rates differ in params_batch as well",
    ),
    "no rate has two runs": (  # so nothing shows that `rank` is no result
        "lr,rank,val_acc",
        "0.1,8,0.5 0.2,16,0.6 0.3,8,0.7 0.4,16,0.5",
        "note: its learning rates differ in rank as well",
    ),
    "of any name": ("lr,seed,kind,val_acc", MOVED, "problem: its learning rates differ in kind as well"),
    "of the rate's name": ("lr,seed,lr_name,val_acc", MOVED, ""),
    "of a machine's name": ("lr,seed,gpu,val_acc", MOVED, ""),
    "between seeds": (  # the data's seed follows from the seed, and the batch does not
        "params.lr,params.batch,params.data_seed,seed,val_loss",
        "0.1,8,10,0,0.5 0.1,16,11,1,0.6 0.2,16,10,0,0.7 0.2,8,11,1,0.8",
        "problem: runs of one learning rate differ in params.batch besides",
    ),
}


@pytest.mark.parametrize(("head", "rows", "found"), FOUND.values(), ids=FOUND)
def test_settings_that_the_report_finds(tmp_path: Path, head: str, rows: str, found: str) -> None:
    findings = [each for each in study_of(tmp_path, rows_of(head, rows)).findings if each.check == "settings"]
    assert [f"{each.level}: {each.message}"[: len(found)] for each in findings] == [found] * bool(found)


def test_a_reading_is_kept_and_read_again(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(table("width,lr,seed,value", "8,{rate},{seed},{value}"))
    found = judged([tmp_path / "table.csv"], Reading(higher_is_better=False))
    save_reading(tmp_path / "judge.yaml", found.reading)
    with (tmp_path / "judge.yaml").open("a") as file:
        file.write("paired: true\n")  # of an earlier version
    again = judged([tmp_path / "table.csv"], saved_reading(tmp_path / "judge.yaml"))
    assert again.reading == found.reading
    assert again.study.summary.cells.equals(found.study.summary.cells)
    mistakes = [("- 1", "want a mapping"), ("colums: {}", "colums: got {}: Unexp"), ("columns: {rate: lr}", "'rate'")]
    mistakes += [("equal_within: -1", "got -1: .* greater than 0"), ("equal_within: true", "valid number")]
    for text, message in mistakes:
        (tmp_path / "judge.yaml").write_text(text)
        with pytest.raises(UserError, match=message):
            saved_reading(tmp_path / "judge.yaml")


def test_repeats_of_repeats_are_seeds_together(tmp_path: Path) -> None:
    rows = [f"{r},{f},{s},{VALUES[r] + f / 10 + s / 100}" for r, f, s in product(RATES, (0, 1), (0, 1))]
    text = rows_of("lr,fold,seed,val_acc", rows)
    with pytest.raises(QuestionError, match=r"differ in fold") as raised:
        study_of(tmp_path, text)
    assert options_text(raised.value.choices[0].reading) == "--columns seed=seed+fold"
    study = study_of(tmp_path, text, raised.value.choices[0].reading)
    assert (chosen(study), study.summary.runs["seed"].nunique()) == ({"all": (1e-2, 0.855)}, 4)
    with pytest.raises(UserError, match="learning_rate=lr.fold: want one column"):
        study_of(tmp_path, text, Reading(columns={"learning_rate": "lr+fold"}))


def test_runs_of_an_ablation_go_by_their_names(tmp_path: Path) -> None:
    """One setting at a time differs from the first run's; of a grid, its settings are offered."""
    rows = ["base,8,0,0.1,0.5", "wide,16,0,0.1,0.6", "decayed,8,0.5,0.1,0.7", "faster,8,0,0.2,0.8"]
    head, grid = "what,width,decay,lr,val_acc", [*rows, "both,16,0.5,0.1,0.6", "last,16,0,0.2,0.5"]
    for text, offer in ((rows, "variant=what"), (grid, "variant=width,nuisance=decay")):
        with pytest.raises(QuestionError, match="runs differ in width .*, decay") as raised:
            study_of(tmp_path, rows_of(head, text))
        assert options_text(raised.value.choices[0].reading) == f"--columns {offer}"


SHARED = rows_of(
    "run,size,strategy,lr,epoch,eval_loss",
    "x-1,small,x,0.1,3.5,0.5 x-2,small,x,0.2,3.5,0.25 x-1,base,x,0.1,3,0.375 x-2,base,x,0.2,3,0.125 "
    "y-1,small,y,0.1,3.5,1",
)
SCHEDULED = rows_of(
    "learning_rate,lr,epoch,beta,decay,val_loss",
    "0.01,0.01,1,0.9,0.1,0.9 0.005,0.01,2,0.9,0.1,0.8 0.1,0.1,1,0.9,0.1,0.7 0.05,0.1,2,0.9,0.1,0.6 "
    "0.01,0.01,1,0.5,0,0.95 0.005,0.01,2,0.5,0,0.85 0.1,0.1,1,0.5,0,0.75 0.05,0.1,2,0.5,0,0.65",
)


def test_a_time_that_changes_within_a_run_tells_no_runs_apart(tmp_path: Path) -> None:
    """Ray Tune's tables have the time of each report; some runs are so short that theirs does not change."""
    lines = ["trial_id,method,lr,seed,training_iteration,date,val_acc"]
    for number, (variant, rate, seed) in enumerate((v, r, s) for v in "ab" for r in (1e-3, 1e-2) for s in (0, 1)):
        for step in (1, 2):
            second = step if number % 2 else 0
            lines.append(f"t{number},{variant},{rate},{seed},{step},2026-11-27_17-49-0{second},0.{5 + number % 4}")
    (tmp_path / "steps.csv").write_text("\n".join(lines) + "\n")
    assert len(judge([tmp_path / "steps.csv"], Reading()).summary.runs) == 8


def test_two_models_that_share_the_names_of_runs_are_asked_about(tmp_path: Path) -> None:
    with pytest.raises(QuestionError, match="runs of one name differ in size; .*differ in size") as raised:
        study_of(tmp_path, SHARED)
    (apart,) = [each.reading for each in raised.value.choices if "variant" in each.reading.columns]
    assert options_text(apart) == "--columns variant=strategy+size,run=run+size"
    assert chosen(study_of(tmp_path, SHARED, apart)) == {
        "x, small": (0.2, 0.25),
        "x, base": (0.2, 0.125),
        "y, small": (0.1, 1.0),
    }
    alone = SHARED.replace(",strategy", ",name").replace("y-1,small,y,0.1,3.5,1\n", "")
    with pytest.raises(QuestionError, match="runs of one name differ in size"):
        study_of(tmp_path, alone)


def test_several_columns_of_a_meaning_beside_two_of_rates(tmp_path: Path) -> None:
    study = study_of(tmp_path, SCHEDULED, Reading(columns={"variant": "beta+decay"}))
    assert chosen(study) == {"beta=0.9, decay=0.1": (0.1, 0.6), "beta=0.5, decay=0": (0.1, 0.65)}


@pytest.mark.parametrize("column", ["a,b", "a+b it'd", "a,b=c"])
def test_each_command_that_is_offered_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], column: str, undrawn: None
) -> None:
    """Names of columns may have what separates them on the command line; what cannot be written is not offered."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{kind},{size},{rate},0,{rate + size / 1000}" for kind in "xy" for size in (8, 64) for rate in (0.1, 0.2)]
    Path("t.csv").write_text(rows_of(f'method,"{column}",lr,seed,val_acc', rows))
    assert main(["judge", "t.csv"]) == 2
    lines = [line.strip() for line in capsys.readouterr().err.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("lr-sweep judge")]
    assert bool(commands) == (column != "a,b=c")
    for command in commands:
        assert main(command) == 0, command


def test_columns_are_read_as_they_are_written() -> None:
    assert columns_in(["variant=a,b, seed=s", "test="]) == {"variant": "a,b", "seed": "s", "test": ""}
    with pytest.raises(UserError, match="seed is given twice, as 'a' and 'b'"):
        columns_in(["seed=a,seed=b"])


def test_an_answer_keeps_those_before(tmp_path: Path) -> None:
    """Width and depth change together, so the first question names one of them alone; what is ignored may be empty."""
    rows = "a,x,0.1,8,1,0.5 b,x,0.1,,2,0.6 c,x,0.2,8,1,0.7 d,x,0.2,,2,0.8"
    text, reading = rows_of("run_id,method,lr,width,depth,val_acc", rows), Reading(columns={"ignored": "width"})
    with pytest.raises(QuestionError) as raised:
        study_of(tmp_path, text, reading)
    found = study_of(tmp_path, text, reading.but(raised.value.choices[0].reading))
    assert found.summary.cells["task"].tolist() == ["depth=1", "depth=2"]
