"""`--json`: documents that parse, with the keys that docs/gate.md names and the numbers of the record."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.tests.support.records import SyntheticRecord
from lr_sweep.tests.support.tiny_study import ROOT, said, write_study


def documented(command: str) -> set[str]:
    """The keys that the page names for a command; those within brackets are of what is nested."""
    page = (ROOT / "docs" / "gate.md").read_text().partition("The keys:")[2]
    (text,) = re.findall(rf"^- `{command}`: (.*?)(?=^- |\Z)", page, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"`([a-z_]+)`", re.sub(r"\([^)]*\)", "", text)))


def printed(*arguments: str | Path, code: int = 0) -> Any:
    exit_code, text = said(*arguments, "--json")
    assert exit_code == code, text
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.fixture
def record(tmp_path: Path) -> SyntheticRecord:
    """A run that has ended, one that failed, one that waits; its loss is not known."""
    record = SyntheticRecord(tmp_path / "results")
    record.add(1e-3, 0, [(100, 0.25, 0.5), (300, 0.75, 0.625)])
    record.add(1e-2, 0, [(100, 0.5, 0.5)], status="failed", trained=100, failure="ValueError: no")
    record.want(1e-1, 0)
    record.write()
    return record


def test_status_and_ls_count_runs(record: SyntheticRecord) -> None:
    counts = {"complete": 1, "failed": 1, "waiting": 1}
    status, ls = (printed(name, *rest, "--results", record.results) for name, *rest in (("status", "small"), ("ls",)))
    (study,) = status["studies"]
    assert {"studies", *study} == documented("status")
    assert study["runs"] == counts
    assert study["cells"] == [{"task": "mnist", "model": "gpt2", "variant": "frozen-random", "runs": counts}]
    assert [each["failure"] for each in study["failed"]] == ["ValueError: no"]
    assert ls.keys() == documented("ls")
    metric = {"name": "accuracy", "higher_is_better": True, "is_fraction": True}
    assert ls["studies"] == [{"study": "small", "title": "A small study", "metric": metric, "runs": counts}]
    ended = next(run for run in ls["runs"] if run["status"] == "complete")
    assert (ended["learning_rate"], ended["validation"], ended["test"]) == (1e-3, 0.75, 0.625)
    assert ended["studies"] == {"small": 300}


def test_show_has_row_and_curve(record: SyntheticRecord) -> None:
    run_id = record.wanted[0]["run_id"]
    found = printed("show", run_id, "--results", record.results)
    assert found.keys() == documented("show")
    assert (found["run_id"], found["row"]["content"]["seed"]) == (run_id, 0)
    assert [(point["step"], point["test"]) for point in found["curve"]] == [(100, 0.5), (300, 0.625)]
    assert printed("show", record.wanted[2]["run_id"], "--results", record.results)["row"] is None


def test_plan_counts_what_is_left(tmp_path: Path) -> None:
    study = write_study(tmp_path, rates=(1e-3, 1e-2), num_steps=20)
    found = printed("plan", study, "--results", tmp_path / "results")
    (plan,) = found["studies"]
    assert {"studies", *plan} == documented("plan")
    assert (plan["to_train"], plan["num_steps"], plan["device_s"]) == (4, 80, None)
    assert [cell["left"] for cell in plan["cells"]] == [2, 2]


@pytest.mark.usefixtures("undrawn")
def test_judge_and_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        f"{name},{rate},{seed},{0.5 + gain + seed / 100 - abs(rate - 0.1)}"
        for name, gain in (("a", 0.0), ("b", 0.2))
        for rate in (0.1, 0.2)
        for seed in range(4)
    ]
    Path("table.csv").write_text("variant,lr,seed,val_acc\n" + "\n".join(rows) + "\n")
    found = printed("judge", "table.csv")
    assert found.keys() == documented("judge")
    assert [(cell["variant"], cell["learning_rate"]) for cell in found["cells"]] == [("a", 0.1), ("b", 0.1)]
    (pair,) = found["comparisons"]
    assert (round(pair["difference"], 6), pair["distinguishable"], pair["equal"]) == (-0.2, True, False)
    assert found["checks"]["format"] == 1
    assert Path(found["report"]).is_file()
    for name, gain in (("base", 0.0), ("better", 0.1), ("few", 0.3)):
        lines = [f"{seed},{0.5 + gain + seed / 100}" for seed in range(2 if name == "few" else 30)]
        Path(f"{name}.csv").write_text("seed,val_acc\n" + "\n".join(lines) + "\n")
    assert said("gate", "base.json", "base.csv", "--accept")[0] == 0
    gate = printed("gate", "base.json", "better.csv", "--min-sd", "0.5")
    assert gate.keys() == documented("gate")
    assert (gate["decision"], gate["seeds"]) == ("accept", [])
    more = printed("gate", "base.json", "few.csv", code=3)
    assert (more["decision"], more["seeds"]) == ("run", [2, 3])
