"""The stored baseline, guards, the log of a stream, nights, pytest's fixture, the action, and the loop of the docs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from lr_sweep.analysis.judge.sides import stored_side
from lr_sweep.analysis.judge.stream import append_turn, lock_of, read_turns, turn_of
from lr_sweep.sweep.cli.parser import main
from lr_sweep.tests.support.tiny_study import ROOT, environment

NOISE = (0.3, -0.5, 0.2, 0.1, -0.4, 0.3, 0.0, -0.2, 0.4, -0.1) * 3
"""Of seeds, in points."""
GUARD = "--guard=memory_gb<=1.05x"


def finals(name: str, gain: float, number: int, first: int = 0, memory: float = 10.0) -> None:
    """Write final runs; accuracies are 50% and `gain` points, with noise."""
    rows = [f"{first + i},{0.5 + (gain + NOISE[i]) / 100:.4f},{memory}" for i in range(number)]
    Path(name).write_text("\n".join(["seed,val_acc,memory_gb", *rows, ""]))


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a baseline of 30 seeds."""
    folder = tmp_path_factory.mktemp("accepted")
    with chdir(folder):
        finals("base.csv", 0.0, 30)
        assert main(["gate", "baseline.json", "base.csv", "--accept", GUARD]) == 0
    return folder


@pytest.fixture(autouse=True)
def _baseline(accepted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Store the baseline in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(accepted, tmp_path, dirs_exist_ok=True)


def stream(name: str, *options: str) -> int:
    return main(["gate", "baseline.json", name, "--stream", "log.jsonl", *options])


def test_a_guard_rejects_what_is_better_but_too_large(capsys: pytest.CaptureFixture[str]) -> None:
    finals("c.csv", 1.5, 30, memory=10.4)
    assert main(["gate", "baseline.json", "c.csv", GUARD]) == 0
    finals("c.csv", 1.5, 30, memory=10.6)
    assert main(["gate", "baseline.json", "c.csv", GUARD]) == 1
    assert "memory_gb is worse than 1.05 times the baseline's mean, 10: 10.6" in capsys.readouterr().out
    assert main(["gate", "baseline.json", "c.csv", "--guard", "val_acc"]) == 2
    assert "--guard val_acc: the baseline has no values of it" in capsys.readouterr().err.replace("\n", " ")


def test_a_stream_keeps_the_level_of_a_candidate_and_the_next_ones_have_less() -> None:
    finals("a.csv", 0.5, 2)
    assert stream("a.csv") == 3
    finals("b.csv", -1.0, 2)
    assert stream("b.csv") == 1
    finals("a.csv", 0.5, 4)
    assert stream("a.csv") == 3
    lines = [json.loads(line) for line in Path("log.jsonl").read_text().splitlines()]
    assert [line["number"] for line in lines] == [1, 2, 1]
    assert lines[0]["level"] == lines[2]["level"] > lines[1]["level"]
    finals("b.csv", 2.0, 2)  # the name of a rejected one, with other values: a new candidate
    assert stream("b.csv") == 3
    assert [turn.number for turn in read_turns(Path("log.jsonl"))] == [1, 2, 3]


def test_a_log_of_an_earlier_version_is_read_and_lond_sets_the_next_level() -> None:
    """Its lines have a p value; one of two candidates was accepted, so the third has 2 x 5% x 3^-1.6 / 2.2858."""
    turn = {"number": 1, "level": 0.0027, "candidate": "x", "seeds": [0], "values": [0.5], "evidence": 0.26}
    lines = [turn | {"decision": "accept"}, turn | {"number": 2, "decision": "reject", "evidence": 1.0}]
    Path("log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    finals("a.csv", 0.5, 2)
    assert stream("a.csv") == 3
    line = json.loads(Path("log.jsonl").read_text().splitlines()[-1])
    assert (line["number"], line["level"]) == (3, pytest.approx(2 * 0.05 * 3**-1.6 / 2.2858, rel=1e-4))
    assert "evidence" not in line


def test_guards_of_a_baseline_need_as_many_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    finals("b.csv", 0.0, 30)
    rows = Path("b.csv").read_text().splitlines()
    Path("b.csv").write_text("\n".join([*rows[:11], *(row.removesuffix("10.0") for row in rows[11:]), ""]))
    assert main(["gate", "new.json", "b.csv", "--accept", GUARD]) == 2
    assert "got 10 fresh seeds, want 30, at least 20" in capsys.readouterr().err.replace("\n", " ")
    old = json.loads(Path("baseline.json").read_text())
    Path("baseline.json").write_text(json.dumps(old | {"seeds": old["seeds"][:8], "values": old["values"][:8]}))
    assert stream("b.csv") == 2
    assert "got 8 fresh seeds, want 30, at least 20" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.slow
def test_two_processes_at_once_lose_no_line_and_share_no_number() -> None:
    """Each adds five candidates; without the lock both would read the log before the other one writes."""
    one = "import sys, test_gate_loop as t; t.add_candidates(sys.argv[1])"
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); {one}"
    both = [subprocess.Popen([sys.executable, "-c", code, name], env=environment()) for name in "ab"]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    lines = [json.loads(line) for line in Path("log.jsonl").read_text().splitlines()]
    assert sorted(line["number"] for line in lines) == list(range(1, 11))


def add_candidates(name: str) -> None:
    """Add five candidates to the log, slowly, so that another process is met."""
    log, side = Path("log.jsonl"), stored_side(Path("baseline.json"))
    for index in range(5):
        with lock_of(log):
            turn = turn_of(read_turns(log), f"{name}{index}", side)
            time.sleep(0.1)
            append_turn(log, turn)
        time.sleep(0.05)


def test_the_seeds_that_were_accepted_are_no_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    finals("a.csv", 3.0, 30)
    assert stream("a.csv") == 0
    assert "candidate 1 of the stream" in capsys.readouterr().out
    assert stream("a.csv", "--accept") == 2
    assert "store 30 further seeds, from 30 on" in capsys.readouterr().err
    finals("fresh.csv", 2.5, 30, first=100)
    assert stream("fresh.csv", "--accept") == 0
    assert json.loads(Path("baseline.json").read_text())["seeds"][0] == 100


@pytest.mark.parametrize("rest", ["", '"guards": 2}', '"guards": {}}'])
def test_a_damaged_baseline_or_log_is_named(rest: str, capsys: pytest.CaptureFixture[str]) -> None:
    finals("c.csv", 0.0, 2)
    content = f'{{"seeds": [], {rest}'
    Path("log.jsonl").write_text(content)
    assert stream("c.csv") == 2
    assert "--stream log.jsonl: no log of the gate" in capsys.readouterr().err
    Path("baseline.json").write_text(content)
    assert main(["gate", "baseline.json", "c.csv"]) == 2
    assert "baseline.json: no baseline" in capsys.readouterr().err


def test_nights_that_become_worse_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    finals("nights.csv", 0.0, 20)
    assert main(["gate", "baseline.json", "nights.csv", "--drift"]) == 0
    rows = Path("nights.csv").read_text()
    Path("nights.csv").write_text(rows + "".join(f"{night},0.49,10\n" for night in range(20, 28)))
    assert main(["gate", "baseline.json", "nights.csv", "--drift"]) == 1
    assert "worse than the baseline since night 21, by night 24: mean" in capsys.readouterr().out


def run(command: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Start a command with the programs of this environment."""
    programs = environment() | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **variables}
    return subprocess.run(command, env=programs, capture_output=True, text=True, timeout=300, check=False)


def test_the_fixture_fails_on_a_loss_and_on_drift() -> None:
    Path("test_it.py").write_text(
        "def test_equal(gate):\n"
        "    assert gate.check([0.5, 0.503, 0.499, 0.501, 0.502], baseline='baseline.json').decision == 'run'\n"
        "def test_worse(gate):\n    gate.check([0.48, 0.482, 0.481] * 3, baseline='baseline.json')\n"
        "def test_better(gate):\n"
        "    assert gate.check([0.53, 0.532, 0.531] * 10, baseline='baseline.json').decision == 'accept'\n"
        "def test_few(gate):\n    gate.check([0.5] * 4, baseline='baseline.json')\n"
        "def test_drift(gate):\n    gate.drift([0.48] * 9, baseline='baseline.json')\n"
    )
    plugin = ["-p", "lr_sweep.analysis.judge.pytest_plugin", "-p", "no:cacheprovider"]
    done = run([sys.executable, "-m", "pytest", "-q", *plugin, "test_it.py"], PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert "3 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "worse than baseline.json: it gains -1.9" in done.stdout
    assert "gate.check: got 4 values, want at least 5" in done.stdout


@pytest.mark.slow
def test_the_action_writes_a_summary_and_ends_with_the_decision() -> None:
    action = YAML(typ="safe").load((ROOT / ".github/actions/gate/action.yml").read_text())
    (step,) = action["runs"]["steps"]
    finals("c.csv", 1.5, 30)
    given = {"BASELINE": "baseline.json", "CANDIDATE": "c.csv", "OPTIONS": GUARD.replace("=", " ", 1)}
    of_github = {"GITHUB_STEP_SUMMARY": "summary.md", "GITHUB_OUTPUT": "output", "RUNNER_TEMP": "."}
    assert given.keys() == step["env"].keys()
    done = run(["bash", "-ec", step["run"]], **given, **of_github)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = Path("summary.md").read_text()
    assert summary.startswith("### c.csv\n\n```text\naccept: the candidate is better: it gains 1.5")
    assert Path("gate.md").read_text() == summary
    assert Path("output").read_text() == "code=0\ncomment=./gate.md\n"
    finals("c.csv", 0.8, 2)
    assert run(["bash", "-ec", step["run"]], **given, **of_github).returncode == 3


@pytest.mark.slow
def test_the_loop_of_the_docs_keeps_the_gain_and_nothing_else() -> None:
    page = (ROOT / "docs" / "gate.md").read_text()
    loop = page.partition("```python\n")[2].partition("```")[0]
    Path("train.py").write_text(
        f"NOISE = {NOISE}\nIDEAS = ['same', 'better', 'worse']\n"
        "def train(idea, seed):\n"
        "    return 1 - {'same': 0, 'better': 0.03, 'worse': -0.03}[idea] + NOISE[(7 * seed + 3) % 30] / 100\n"
    )
    rows = [f"base\t{seed}\t{1 + NOISE[seed] / 100}\n" for seed in range(30)]
    Path("results.tsv").write_text("variant\tseed\tval_bpb\n" + "".join(rows))
    assert main(["gate", "baseline.json", "results.tsv", "--where=variant=base", "--accept"]) == 0
    done = run([sys.executable, "-c", loop])
    assert done.returncode == 0, done.stderr
    last = {line["candidate"]: line["decision"] for line in map(json.loads, Path("log.jsonl").read_text().splitlines())}
    names = [f"results.tsv variant={idea}" for idea in ("same", "better", "worse")]
    assert last == dict(zip(names, ("reject", "accept", "reject"), strict=True))
    assert json.loads(Path("baseline.json").read_text())["seeds"] == list(range(100, 130))
