"""A command in place of a training function: its options, its evaluations, its failures, its resumes and its end."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from lr_sweep.tests.support.own_study import to_end, write_command
from lr_sweep.tests.support.tiny_study import ROOT, runs_of
from lr_sweep.tests.support.waiting import is_alive, wait_until
from lr_sweep.trainables.own import supervisor
from lr_sweep.trainables.own.command import rows_of, values_in
from lr_sweep.trainables.own.command_line import filled, placeholders
from lr_sweep.trainables.own.engine import OwnTraining
from lr_sweep.trainables.own.run import MisusedSessionError, TrainingFunctionError, own_run
from lr_sweep.trainables.own.session import Output


def training(folder: Path, script: str, output: Output | None = None, **changes: str) -> OwnTraining:
    """The only run of a study of a command whose script has this text."""
    (wanted,) = runs_of(write_command(folder, script, **changes), folder)
    return OwnTraining(own_run(wanted.run), wanted.num_steps, "cpu", time.time, output, folder / "checkpoints")


def test_each_run_fills_in_its_own_words() -> None:
    words = ["python", "{flags}", "--lr={learning_rate}", "{on}", "${HOME}", '{"a": 1}', "{none}", "{width}"]
    assert placeholders(words) == {"flags", "learning_rate", "on", "none", "width"}
    values = {"flags": ["--m", 0.9], "learning_rate": 1e-5, "on": True, "none": [], "width": 4}
    assert filled(words, values) == ["python", "--m", "0.9", "--lr=1e-05", "true", "${HOME}", '{"a": 1}', "4"]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("val=0.25, test=1", "0.25"),
        ("val=1.5e-05", "1.5e-05"),  # of which the pattern takes 1.5 alone
        ("val=0.1 val=0.2", "0.2"),
        ("val=nan", "nan"),  # which the pattern does not match
        ("val=-inf", "nan"),
        ("loss=nan", None),
    ],
)
def test_a_pattern_says_where_a_number_begins(line: str, value: str | None) -> None:
    assert values_in(line, {"validation": "val=([0-9.]+)"}).get("validation") == value


def test_a_file_of_evaluations_is_read_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    assert rows_of(path) == []
    path.write_text('{"v": 1, "t": null}\n{"v": 2}\n{"v": ')
    assert rows_of(path) == [{"v": 1}, {"v": 2}]
    table = tmp_path / "log.csv"
    table.write_text("v,t\n1,\n,2\n3,")
    assert rows_of(table) == [{"v": "1"}, {"t": "2"}]
    whole = tmp_path / "log.json"
    whole.write_text('{"v": ')
    assert rows_of(whole) == []
    whole.write_text(json.dumps([{"v": 1}, {"v": 2}], indent=1))
    assert rows_of(whole) == [{"v": 1}, {"v": 2}]


PRINTS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--seed", type=int)
options = parser.parse_args()
for epoch in range(3):
    print(f"epoch {epoch}: val=0.{epoch + 1}")
    print(f"test={options.lr + options.seed}", flush=True)
"""


def test_evaluations_are_counted_or_the_last_one_counts(tmp_path: Path) -> None:
    output = Output()
    assert to_end(training(tmp_path, PRINTS, output, num_steps="3"), 3) == [0.1, 0.2, 0.3]
    (printed,) = output.take(whole_lines=False)
    assert printed.text.startswith("$ python train.py --lr 0.01 --seed 0\nepoch 0: val=0.1\ntest=0.01\n")
    one = training(tmp_path, PRINTS)
    assert to_end(one, 1) == [0.3]
    assert one.progress.curve[0].test == 0.01
    assert one.progress.last_printed == 3
    ended = training(tmp_path, PRINTS)
    ended.load_state(*one.state())
    assert ended.progress.last_printed == 3


def test_evaluations_may_say_their_step(tmp_path: Path) -> None:
    script = "for step in range(5, 25, 5): print(f'step={step} val=0.{step} test=0.5')"
    metrics = r"{validation: 'val=(\S+)', test: 'test=(\S+)', step: 'step=(\d+)'}"
    one = training(tmp_path, script, metrics=metrics, num_steps="20", protocol="{evaluate_every: 10}")
    assert to_end(one, 20) == [0.1, 0.2]


def test_evaluations_may_be_in_a_file_and_the_script_a_shells(tmp_path: Path) -> None:
    line = '{"v": %s, "t": %s}'
    script = f"#!/bin/sh\nfor v in 0.1 0.2; do printf '{line}\\n' $v $1 >> a.jsonl; done\n"
    (tmp_path / "train.sh").write_text(script)
    changes = {"command": "./train.sh {learning_rate} {seed}", "metrics": "{file: a.jsonl, validation: v, test: t}"}
    assert to_end(training(tmp_path, "", num_steps="2", **changes), 2) == [0.1, 0.2]
    assert not (tmp_path / "a.jsonl").exists()  # each run has a folder of its own


def test_a_number_that_is_not_finite_is_a_divergence(tmp_path: Path) -> None:
    one = training(tmp_path, "print('val=nan test=0.5')\nimport time\ntime.sleep(600)", num_steps="2")
    one.advance()
    assert one.progress.diverged_at_step == 1
    one.close()


@pytest.mark.parametrize(
    ("script", "kind", "reason"),
    [
        ("raise ValueError('no data')", MisusedSessionError, "ended with exit code 1: ValueError: no data"),
        ("print('\\x1b[32mval=\\x1b[1m1 \\x1b[mtest=1')\n1 / 0", TrainingFunctionError, "  val=1 test=1\n  Trace"),
        ("print('val=1 test=1')\n1 / 0", TrainingFunctionError, "exit code 1: ZeroDivisionError: division by zero"),
        ("import os\nos.kill(os.getpid(), 9)", TrainingFunctionError, "the command was killed by SIGKILL"),
        ("", MisusedSessionError, "(it printed nothing)\nthe command ended, and what it printed has nothing for `val"),
        ("print('val=1 tset=1')", MisusedSessionError, "  val=1 tset=1\nthe command ended, and what it printed has"),
        ("print('val=1 test=1')", MisusedSessionError, "has 1 evaluation, the last at step 1; want one every 1 steps"),
        ("print('val=1 test=1\\n' * 3)", MisusedSessionError, "printed an evaluation of step 3, want 2 at most"),
        ("print('val=93 test=1')", MisusedSessionError, "the evaluation got validation=93.0, want a fraction"),
    ],
)
def test_failures_show_what_the_command_printed(
    script: str, kind: type[Exception], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(TrainingFunctionError) as raised:
        to_end(training(tmp_path, script, num_steps="2"), 2)
    assert type(raised.value) is kind
    assert reason in str(raised.value)


def test_a_percent_is_read_as_the_fraction_that_it_is(tmp_path: Path) -> None:
    script = "print('val: 55.96%, test: 7 %')"
    metrics = "{validation: 'val: (.*)%', test: 'test: (.*)'}"
    one = training(tmp_path, script, metrics=metrics)
    assert to_end(one, 1) == [0.5596]
    assert one.progress.curve[0].test == 0.07


def test_the_line_that_the_error_of_a_percent_offers_works(tmp_path: Path) -> None:
    script = "print('val=55.96% test=50.5')"
    with pytest.raises(MisusedSessionError, match=r"got test=50\.5, want a fraction from 0 to 1") as raised:
        to_end(training(tmp_path, script), 1)
    percent, loss = re.findall("`metric: (.*?)`", str(raised.value))
    assert to_end(training(tmp_path, script, metric=percent), 1) == [55.96]
    assert to_end(training(tmp_path, script, metric=loss), 1) == [55.96]


RESUMES = """
import pathlib, sys
kept = pathlib.Path(sys.argv[3])
done = len(list(kept.iterdir()))
for step in range(done + 1, 5):
    (kept / str(step)).touch()
    print(f"step={step} val=0.{step} test=0.5", flush=True)
    if step - done == 2:  # killed after two steps of each start, of which one has not been read
        import os, time
        os.kill(os.getpid(), 9) if sys.argv[4] == "killed" else time.sleep(0)
"""


def test_a_command_that_takes_a_checkpoint_resumes_from_it(tmp_path: Path) -> None:
    changes = {
        "command": "python train.py {learning_rate} {seed} {checkpoint} {variant}",
        "metrics": r"{validation: 'val=(\S+)', test: 'test=(\S+)', step: 'step=(\d+)'}",
        "variants": "[killed]",
        "num_steps": "4",
    }
    first = training(tmp_path, RESUMES, **changes)
    first.advance()
    tensors, progress = first.state()
    with pytest.raises(TrainingFunctionError, match="killed by SIGKILL"):
        to_end(first, 4)
    second = training(tmp_path, RESUMES, **changes)
    second.load_state(tensors, progress)
    with pytest.raises(TrainingFunctionError, match="killed by SIGKILL"):
        to_end(second, 4)
    third = training(tmp_path, RESUMES, **changes)
    third.load_state(*second.state())
    assert to_end(third, 4) == [0.1, 0.2, 0.3, 0.4]


def test_another_command_is_trained_anew_unless_it_had_ended(tmp_path: Path) -> None:
    first = training(tmp_path, PRINTS, num_steps="3")
    first.advance()
    again = training(tmp_path, PRINTS, output := Output(), num_steps="3")
    again.load_state(*first.state())
    assert (again.progress.step, again.progress.curve) == (0, [])
    assert output.take()[0].text == "trained anew, not from step 1: the command has no {checkpoint}"
    to_end(again, 3)
    ended = training(tmp_path, "raise ValueError", num_steps="3")
    ended.load_state(*again.state())
    assert to_end(ended, 3) == [0.1, 0.2, 0.3]


HANGS = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path(sys.argv[3]).write_text(f"{child.pid}")
time.sleep(600)
"""


def started(folder: Path, prints: str = "") -> tuple[OwnTraining, Path]:
    """A command that hangs, with a child, and the file with this child's process id."""
    pid = folder / "pid"
    script = HANGS.replace("time.sleep(600)\n", f"{prints}\ntime.sleep(600)\n")
    return training(folder, script, num_steps="2", command=f"python train.py {{learning_rate}} {{seed}} {pid}"), pid


def test_a_command_ends_with_a_run_that_failed(tmp_path: Path) -> None:
    one, pid = started(tmp_path, "print('val=93 test=1', flush=True)")
    with pytest.raises(MisusedSessionError):
        one.advance()
    del one
    wait_until(lambda: pid.exists() and not is_alive(int(pid.read_text())), "the child's end", 60)


SAVES = """
import pathlib, signal, sys, time

def save(number, frame):
    time.sleep(0.5)
    pathlib.Path(sys.argv[3], "state").touch()
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
pathlib.Path(sys.argv[3], "started").touch()
time.sleep(600)
"""


def test_a_command_whose_run_is_left_has_time_to_save(tmp_path: Path) -> None:
    one = training(tmp_path, SAVES, command="python train.py {learning_rate} {seed} {checkpoint}")
    kept = tmp_path / "checkpoints" / one.run.run_id / "command" / "checkpoint"
    wait_until(lambda: one.advance(for_s=0.1) is None and (kept / "started").exists(), "its start", 60)
    one.leave()
    assert (kept / "state").exists()


def test_a_command_that_is_left_may_save_for_as_long_as_slurm_s_script_warns_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose run has ended may not: the next run waits for its place."""
    end, asked = supervisor.end, list[float]()
    monkeypatch.setattr(supervisor, "end", lambda process, saving_s: (asked.append(saving_s), end(process)))
    for stop in (OwnTraining.leave, OwnTraining.close):
        one, _ = started(tmp_path)
        one.advance(for_s=0.0)
        stop(one)
    notice = re.search(r"USR1@(\d+)", (ROOT / "docs" / "cluster" / "sweep.sbatch").read_text())
    assert notice
    assert asked[1] < 30 < int(notice[1]) < asked[0]


def test_a_file_of_evaluations_may_be_in_the_folder_that_is_kept(tmp_path: Path) -> None:
    script = "import sys\nopen(sys.argv[3] + '/a.csv', 'a').write('s,v,t\\n2,0.1,0.2\\n')"
    changes = {
        "command": "python train.py {learning_rate} {seed} {checkpoint}",
        "metrics": "{file: '{checkpoint}/a.csv', validation: v, test: t, step: s}",
    }
    one = training(tmp_path, script, num_steps="2", **changes)
    assert to_end(one, 2) == [0.1]
    assert len(list(tmp_path.glob("checkpoints/*/command/checkpoint/a.csv"))) == 1
