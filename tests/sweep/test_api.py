"""The Python API does what the commands do, with the same objects."""

from __future__ import annotations

import importlib
import json
import os
import runpy
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

import lr_sweep
from lr_sweep.sweep.api import RecordError, Sweep, UserError, judge
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.tune import tuner
from lr_sweep.tests.support.scripted_trials import Script, new_bench
from lr_sweep.tests.support.tiny_study import ROOT, said, write_study
from lr_sweep.trainables.own.run import import_function

FIELDS = {
    "study": "mine",
    "tasks": {"digits": {"num_steps": 100}},
    "models": {"small": {"size": {"layers": 1, "heads": 1, "width": 8}}},
    "variants": ["frozen-random", "unfrozen-random"],
    "learning_rates": [1e-3, 1e-2],
    "seeds": [7],
    "protocol": {"evaluate_every": 100},
}


def test_a_study_of_a_mapping_is_that_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(json.dumps(FIELDS))  # JSON is YAML
    assert Sweep(FIELDS, tmp_path / "results").study == load_study(tmp_path / "mine.yaml")


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        Sweep(FIELDS | {"variants": ["frozn-random"], "seeds": "3"}, tmp_path)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("variants.frozn-random: unknown variant 'frozn-random'; did you mean 'frozen-random'?")
    assert lines[1].startswith('seeds: got "3", want a whole number n')
    with pytest.raises(UserError, match="only: got 'variant', want AXIS=VALUE"):
        Sweep(FIELDS, tmp_path, only="variant")
    with pytest.raises(UserError, match="unknown study 'quikstart'; did you mean 'quickstart'"):
        Sweep("quikstart", tmp_path)


def test_the_plan_is_the_command_s(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    only = "variant=unfrozen-random"
    plan = Sweep(study, tmp_path / "results", data_dir=tmp_path, only=only).plan()
    _, printed = said("plan", study, "--results", tmp_path / "results", "--data-dir", tmp_path, "--only", only)
    by_call, by_command = (
        [line for line in text.splitlines() if not line.startswith("disk")]  # free space changes
        for text in (plan, printed)
    )
    assert by_call == by_command
    assert "to train   2 runs" in plan


def test_a_sweep_runs_and_its_numbers_are_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, script = new_bench(tmp_path, monkeypatch), Script()
    monkeypatch.setattr(tuner, "train_cohorts", script.train_cohorts)
    sweep = Sweep(tmp_path / "tiny.yaml", bench.results.root, data_dir=tmp_path)
    with pytest.raises(RecordError, match="run a study first"):
        sweep.summary()
    said: list[str] = []
    outcome = sweep.run(say=said.append)
    assert (outcome.trained, outcome.failed, outcome.stopped) == (4, 0, False)
    assert said[0] == "tiny: 4 runs wanted, 4 new"
    summary = sweep.summary()
    assert list(summary.runs["validation"]) == [0.5] * 4
    assert list(summary.cells["learning_rate"]) == [1e-4]  # of equal ones the smallest
    assert list(sweep.optima()["note"]) == ["the best learning rate is at the edge of those tried"]
    assert sweep.laws().empty
    assert len(sweep.curves()) == 4
    assert list(sweep.logged()) == ["run_id", "step", "name", "value"]
    figure = sweep.figure()
    figure.savefig(tmp_path / "figure.png")
    assert figure.axes[0].get_xlabel() == "learning rate"
    with pytest.raises(UserError, match="unknown model 'tinny'"):
        sweep.figure("tinny")
    assert sweep.report().text == outcome.report.text


def test_a_table_is_judged(tmp_path: Path) -> None:
    values = {"a": (0.5, 0.7, 0.6), "b": (0.4, 0.5, 0.3)}
    table = pd.DataFrame(
        {"kind": name, "lr": 10.0**-power, "seed": seed, "val_acc": value + 0.01 * seed, "test_acc": value}
        for name, found in values.items()
        for power, value in enumerate(found, 1)
        for seed in (0, 1)
    )
    table.to_csv(tmp_path / "runs.csv", index=False)
    found = judge(tmp_path / "runs.csv", columns={"variant": "kind"}, equal_within=0.5)
    assert found.summary.cells.set_index("variant")["test_mean"].round(6).to_dict() == {"a": 0.7, "b": 0.5}
    assert found.comparisons()["difference"].round(6).tolist() == [0.2]
    assert "variant = kind" in found.read_as[0]
    found.figure().savefig(tmp_path / "figure.pdf")
    for frame in (table, table.set_index(["kind", "seed"])):
        again = judge(frame, columns={"variant": "kind"})
        assert again.summary.cells["test_mean"].equals(found.summary.cells["test_mean"])
    assert found.report(tmp_path / "report", latex=True).folder.joinpath("table.tex").is_file()
    with pytest.raises(UserError, match="unknown column 'knid'; did you mean 'kind'"):
        judge(tmp_path / "runs.csv", columns={"variant": "knid"})
    with pytest.raises(UserError, match="columns: unknown meaning 'nuisance'"):
        judge(tmp_path / "runs.csv", columns={"nuisance": "kind"})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pd.DataFrame([[1, 2]], columns=["lr", "lr"]), "DataFrame cannot be read .Duplicate column names found"),
        (pd.DataFrame(), "DataFrame has no runs to read"),
    ],
)
def test_what_is_no_table_is_not_judged(table: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        judge(table)
    with pytest.raises(UserError, match="got no table"):
        judge()


TRAIN = """
from functools import wraps
from lr_sweep import Sweep

def train(run, session):
    for step in session.steps():
        if session.due:
            session.report(validation=0.5, test=0.5)

def made():
    def nested(run, session): ...
    return nested

SETTINGS = dict(variants=["a"], learning_rates=[1e-3], seeds=1, num_steps=2, protocol={"evaluate_every": 1})
"""


def test_a_function_is_the_study_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_alone.py").write_text(TRAIN)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("mine_alone")
    study = Sweep(module.train, tmp_path / "results", **module.SETTINGS).study
    assert study.files is not None
    assert (study.study, study.files.trainable) == ("mine_alone", "mine_alone.py:train")
    assert study.files.folders == (tmp_path,)
    for no_function in (lambda run, session: None, module.made(), partial(module.train), str.upper):
        with pytest.raises(UserError, match="as the training function, want one that `def` defines at the top of a"):
            Sweep(no_function, tmp_path)
    with pytest.raises(UserError, match="seeds: missing; write `seeds: 3`"):
        Sweep(module.train, tmp_path, **{name: module.SETTINGS[name] for name in module.SETTINGS if name != "seeds"})
    with pytest.raises(UserError, match="got seeds beside a study"):
        Sweep(FIELDS, tmp_path, seeds=3)


def test_a_script_and_an_interpreter_have_functions_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of `python mine.py`, `python -m mine` and `python -c`, without processes that import torch."""
    monkeypatch.syspath_prepend(tmp_path)
    program = f"{TRAIN}\ntrainable = Sweep(train, **SETTINGS).study.files.trainable"
    (tmp_path / "mine.py").write_text(program)
    for ran in (
        runpy.run_path(str(tmp_path / "mine.py"), run_name="__main__"),
        runpy.run_module("mine", run_name="__main__", alter_sys=True),
    ):
        assert ran["trainable"] == "mine.py:train"
    monkeypatch.setitem(sys.modules, "__main__", interpreter := ModuleType("__main__"))
    with pytest.raises(UserError, match="got train as the training function, want one that `def`"):
        exec(program, vars(interpreter))


def test_a_script_that_starts_a_sweep_as_workers_import_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"{TRAIN}\nSweep(train, **SETTINGS)")
    with pytest.raises(
        UserError, match='workers import this file: put what starts a sweep below `if __name__ == "__main__":`'
    ):
        import_function("mine.py:train", tmp_path, ["mine.py"])


def test_the_package_has_both_and_imports_them_late(tmp_path: Path) -> None:
    """In a process of its own, for which the package is a link: older installations make a namespace of it."""
    assert (lr_sweep.Sweep, lr_sweep.judge) == (Sweep, judge)
    (tmp_path / "lr_sweep").symlink_to(ROOT)
    code = (
        "import sys, lr_sweep; print({'ray', 'mlflow', 'pandas'} & set(sys.modules), lr_sweep.__all__)\n"
        "import lr_sweep.nothing"
    )
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert found.stdout == "set() ['Sweep', 'judge']\n"
    assert "No module named 'lr_sweep.nothing'" in found.stderr
