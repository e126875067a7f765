"""How command lines are read: help, completion, options anywhere, and mistakes, all at once."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lr_sweep.common.text import command
from lr_sweep.datasets import files
from lr_sweep.sweep.cli.parser import main
from lr_sweep.tests.datasets.test_files import OFFLINE
from lr_sweep.tests.support.tiny_study import ROOT, arguments_of, environment, refused, said

NAMES = [
    *("run", "plan", "report", "status", "init", "ls", "show", "ui", "verify", "challenge", "export"),
    *("gc", "judge", "gate", "data", "submit", "cluster"),
]
COMMANDS = [name for name in NAMES if name != "cluster"]
COMMANDS += ["cluster jobs", "cluster logs", "cluster stop"]
PANELS = ["A study", "Results", "Tables", "Clusters and data"]


def test_help_lists_the_commands_in_panels() -> None:
    code, printed = said("--help")
    lines = printed.partition("\n\nA study:\n")[2].splitlines()
    assert code == 0
    assert [line.split()[0] for line in lines if line[:3].strip()[:1].islower()] == NAMES
    assert ["A study", *(line[:-1] for line in lines if line[:1].isupper())] == PANELS


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_that_can_be_read(name: str) -> None:
    code, printed = said(*name.split(), "-h")
    example = printed.partition("Example:\n    lr-sweep ")[2]
    assert code == 0
    assert example.startswith(name)
    assert arguments_of(example.split()) is not None  # else it raises
    assert "list[" not in printed


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("job stop x", "`job` is gone: use `cluster jobs`, `cluster logs` or `cluster stop`"),
        ("mlflow sync", "`mlflow` is gone: use `export --mlflow`"),
        ("pretrain x", "`pretrain` is gone: use `data STUDY --pretrain`"),
        ("laws", "`laws` is a part of every report: `judge TABLE` or `report STUDY` (docs/laws.md)"),
        ("cluster check x", "`check` is gone: `ray up` checks a cluster file"),
        ("help run", "`help` is an option: `--help`"),
    ],
)
def test_what_is_no_command_says_where_it_is(line: str, instead: str) -> None:
    assert refused(*line.split()) == f"error: {instead}\n"


@pytest.mark.parametrize("line", [[], ["cluster"]])
def test_without_a_command_the_help_is_printed(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", said(*line, "--help")[1])


def test_a_printed_command_can_be_pasted() -> None:
    assert command("ui", "--results", "results") == "lr-sweep ui --results results"
    assert command("ui", "--results", "my dir/$x") == "lr-sweep ui --results 'my dir/$x'"
    assert files._command(OFFLINE, Path("/my data")) == "lr-sweep data toy --data-dir '/my data'"


def test_the_version() -> None:
    assert said("--version")[1].startswith("lr-sweep 0.")


def test_a_shell_completes_commands() -> None:
    """As bash asks after words of a command line."""
    asked = {"_LR_SWEEP_COMPLETE": "complete_bash", "COMP_WORDS": "lr-sweep cluster s", "COMP_CWORD": "2"}
    line = [sys.executable, "-c", "from lr_sweep.sweep.cli.parser import main; main()"]
    done = subprocess.run(line, env=environment(**asked), capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["stop"]
    assert "--show-completion" in said("--help")[1]


def test_options_may_stand_anywhere_and_have_an_equals_sign() -> None:
    before = arguments_of(["plan", "--cpus=3", "--results", "x", "a", "b"])
    assert before == arguments_of(["plan", "a", "--results=x", "b", "--cpus", "3"])
    assert (before["studies"], before["cpus"], before["results"]) == (["a", "b"], 3, "x")
    assert arguments_of(["plan", "--", "--x"])["studies"] == ["--x"]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (["pln"], "unknown command 'pln'; did you mean 'plan'? valid: " + ", ".join(NAMES)),
        (["show"], "Missing argument 'RUN'. The run's id, or at least its first 4 letters; `ls` lists all ids.\n"),
        (["plan", "x", "--cpsu", "3"], "No such option: --cpsu (Possible options: --cpus"),
        (["plan", "x", "--cpus"], "Option '--cpus' requires an argument."),
        (["plan", "x", "--json=3"], "Option '--json' does not take a value."),
        (["show", "abcd", "efgh"], "Got unexpected extra argument(s) (efgh)"),
        (["cluster", "halt"], "unknown command 'halt'; valid: fetch, down, jobs, logs, stop"),
        (["export"], "missing: TARGET, the CSV file to make, or --mlflow"),
        (["gc", "--only", "x"], "unknown kind 'x'; valid: checkpoints, leftovers, unwanted"),
        (["plan", "x", "--only", "a"], "--only: got 'a', want AXIS=VALUE; axes: task, "),
        (["export", "x", "--csv"], "--csv is gone: leave it out, as CSV is the only format"),
        (["init", "--kind", "lightnin"], "--kind: unknown kind 'lightnin'; did you mean 'lightning'? valid: command,"),
        (["judge", "x", "--higher-is-better", "--lower-is-better"], "--lower-is-better and --higher-is-better exclude"),
        (["ui", "y", "--results", "x"], "FILE and --results exclude each other"),
        (["ui", "--port", "99999"], "'--port': Input should be less than or equal to 65535"),
        (["run", "x", "--checkpoint-every-s", "0"], "'--checkpoint-every-s': Input should be greater than or equal to"),
        (["run", "x", "--checkpoint-every-s", "nan"], "'--checkpoint-every-s': Input should be "),
        (["run", "x", "--cpus", "two"], "'--cpus': Input should be a valid integer"),
        (["run", "quickstart", "--gpus-per-trial", "2"], "--gpus-per-trial: got 2.0, want less than or equal to 1"),
        (["run", "quickstart", "--gpus-per-trial", "nan"], "--gpus-per-trial: got NaN, want a finite number"),
        (["run", "quickstart", "--gpus-per-trial", "x"], "'--gpus-per-trial': could not convert string to float: 'x'"),
        (["plan", "x", "--results", "~nouser"], "'--results': got '~nouser': Could not determine home directory"),
    ],
)
def test_mistakes_in_a_command_line(tmp_path: Path, line: list[str], wanted: str) -> None:
    with contextlib.chdir(tmp_path):
        printed = refused(*line)
    assert wanted in printed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_threads_of_torch_soon_sleep_unless_the_user_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("OMP_", "GOMP_"))]:
        monkeypatch.delenv(name)
    program = "import sys; from lr_sweep.sweep.cli.parser import main; main(sys.argv[1:]); import torch; torch.ones(3)"
    line = [sys.executable, "-c", program, "ls", "--results", str(tmp_path)]
    shows = os.environ | {"OMP_DISPLAY_ENV": "VERBOSE"}
    shown = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True, env=shows).stderr
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in shown  # of the OpenMP that torch has loaded
    assert "GOMP_SPINCOUNT = '3000'" in shown
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    said("ls", "--results", tmp_path)
    assert (os.environ["OMP_WAIT_POLICY"], "GOMP_SPINCOUNT" in os.environ) == ("ACTIVE", False)
