"""What a question offers leads to a report, also as a command line; two models never share a run."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.gate import gate
from lr_sweep.analysis.judge.reading import Choice, QuestionError, Reading, asking, columns_in, options_text
from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cli.parser import main
from lr_sweep.tests.support.judged import chosen, rows_of, study_of

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


@pytest.mark.parametrize("column", ["width", "a,b", "a+b", "a b", "it'd", "a,b=c"])
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


def test_a_choice_that_fails_is_not_offered() -> None:
    choices = [Choice(name, Reading(columns={"variant": name})) for name in "abc"]

    def read(reading: Reading) -> str:
        if reading.columns.get("variant") == "a":
            raise UserError("a is empty")
        if reading.columns.get("variant") == "b":  # a question without an end
            raise QuestionError("b?", [Choice("b", reading)])
        if reading.columns:
            return "a report"
        raise QuestionError("which?", choices)

    with pytest.raises(QuestionError) as raised:
        asking(read, Reading())
    assert raised.value.choices == (choices[2],)
    choices.pop()
    with pytest.raises(UserError, match=r"which\?\n  not --columns variant=a: a is empty\n") as failed:
        asking(read, Reading())
    assert not isinstance(failed.value, QuestionError)


def test_columns_are_read_as_they_are_written() -> None:
    assert columns_in(["variant=a,b, seed=s", "test="]) == {"variant": "a,b", "seed": "s", "test": ""}
    with pytest.raises(UserError, match="seed is given twice, as 'a' and 'b'"):
        columns_in(["seed=a,seed=b"])


def test_an_answer_keeps_those_before(tmp_path: Path) -> None:
    """Width and depth change together, so the first question names one of them alone."""
    rows = "a,x,0.1,8,1,0.5 b,x,0.1,16,2,0.6 c,x,0.2,8,1,0.7 d,x,0.2,16,2,0.8"
    text, reading = rows_of("run_id,method,lr,width,depth,val_acc", rows), Reading()
    for ignored in ("width", "width+depth"):
        with pytest.raises(QuestionError) as raised:
            study_of(tmp_path, text, reading)
        reading = reading.but(raised.value.choices[-1].reading)
        assert reading.columns == {"ignored": ignored}
    assert len(study_of(tmp_path, text, reading).summary.runs) == 4


def test_a_gate_offers_what_both_tables_have(tmp_path: Path) -> None:
    runs = "0.1,0,0.5,0.5 0.1,1,0.6,0.6"
    for name, head in (("base", "lr,seed,val_acc,val_f1"), ("new", "lr,seed,val_acc,other")):
        (tmp_path / f"{name}.csv").write_text(rows_of(head, runs))
    with pytest.raises(QuestionError, match="2 columns may be validation: val_acc, val_f1") as raised:
        gate(tmp_path / "base.csv", tmp_path / "new.csv", Reading())
    assert [each.reading.columns for each in raised.value.choices] == [{"validation": "val_acc"}]
