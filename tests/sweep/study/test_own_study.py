"""Studies of a training function of the user's own: what they may contain, and their mistakes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from lr_sweep.sweep.study.file import load_study, study_to_yaml
from lr_sweep.tests.support.own_study import write_function, write_own_study
from lr_sweep.tests.support.study_example import mistakes_in
from lr_sweep.tests.support.tiny_study import runs_of, write_study
from lr_sweep.trainables.own.run import own_run

BODY = "for step in session.steps():\n    pass"


def test_a_grid_of_a_function_of_ones_own(tmp_path: Path) -> None:
    study = write_own_study(tmp_path / "study", rates="1e-3, 1e-2", seeds=2)
    runs = runs_of(study, tmp_path)
    assert len(runs) == len({run.run_id for run in runs}) == 8
    last = runs[-1]
    assert last.run_id == last.run.run_id
    assert last.run.content() == {
        "trainable": "train.py:train",
        "code": {
            name: hashlib.sha256((tmp_path / "study" / name).read_bytes()).hexdigest()
            for name in ("model.py", "train.py")
        },
        "data": {"data/digits.npz": hashlib.sha256((tmp_path / "study/data/digits.npz").read_bytes()).hexdigest()},
        "task": "digits",
        "model": "conv",
        "variant": "sgd",
        "options": {"width": 4, "optimizer": "sgd", "momentum": 0.9},
        "learning_rate": 1e-2,
        "seed": 1,
        "metric": {"name": "loss", "higher_is_better": False, "is_fraction": False},
        "protocol": {"evaluate_every": 10},
        "weights_checksum": None,
        "data_checksum": last.run.data_checksum,
        "protocol_version": 1,
    }


def test_what_a_run_can_see_is_in_its_id_and_the_budget_is_not(tmp_path: Path) -> None:
    def ids(folder: str, **changes: str) -> str:
        (tmp_path / folder).mkdir()
        return runs_of(write_function(tmp_path / folder, BODY, **changes), tmp_path)[0].run_id

    same = ids("a")
    assert ids("b") == same
    assert ids("c", num_steps="20", title="Another", tags="{team: red}", notes="A note") == same
    others = {
        ids("d", protocol="{evaluate_every: 10}"),
        ids("e", variants="{train: {momentum: 0.9}}"),
        ids("f", tasks="{other: {}}"),
        ids("g", metric="{name: loss, higher_is_better: false}"),
        ids("h", seeds="[1]"),
        ids("i", models="[mine]"),
    }
    assert len(others) == 6
    assert same not in others
    with (tmp_path / "a" / "train.py").open("a") as file:
        file.write("# a comment\n")
    assert runs_of(tmp_path / "a" / "mine.yaml", tmp_path)[0].run_id not in {same, *others}


def test_it_is_written_with_all_defaults_and_read_again(tmp_path: Path) -> None:
    study = write_own_study(tmp_path / "study")
    loaded = load_study(study)
    (tmp_path / "study" / "data" / "digits.npz").rename(tmp_path / "digits.npz")  # a cluster has it elsewhere
    study.write_text(study_to_yaml(loaded))
    again = load_study(study)
    assert again == loaded
    assert "momentum: 0.9" in study.read_text()


def test_a_minimal_study_has_one_cell(tmp_path: Path) -> None:
    (run,) = runs_of(write_function(tmp_path, BODY), tmp_path)
    assert run.cell == ("mine", "train", "train")
    assert run.num_steps == 10


def test_cells_may_have_learning_rates_of_their_own(tmp_path: Path) -> None:
    cells = "[{models: [a]}, {models: [b], learning_rates: [1, 2]}]"
    study = write_function(tmp_path, BODY, models="[a, b]", cells=cells)
    runs = runs_of(study, tmp_path)
    assert [(run.model, run.run.learning_rate) for run in runs] == [("a", 1e-2), ("b", 1.0), ("b", 2.0)]
    study.write_text(study_to_yaml(load_study(study)))
    assert [run.run_id for run in runs_of(study, tmp_path)] == [run.run_id for run in runs]


def test_all_mistakes_are_reported_at_once_with_their_lines(tmp_path: Path) -> None:
    changes = {
        "num_steps": "12",
        "code": "[train.py, modle.py]",
        "data": "[none/*.npz, ../up.npz]",
        "variants": "{sgd: {momentum: .nan}}",
        "metric": "{name: loss}",
        "resources": "{engine: plain, runs_per_trial: 2}",
        "modles": "[a]",
    }
    study = write_function(tmp_path, BODY, **changes)
    plain = "text, a finite number, true, false, null, or lists and mappings of these"
    single = "has no effect here: runs of the user's own function train one by one; leave it out"
    assert mistakes_in(study) == [
        "4: num_steps: 12 is not a multiple of evaluate_every = 5; 10 or 15 is",
        f"7: code[1]: no file modle.py in {tmp_path}; paths start from the study file's folder",
        f"8: data[0]: no file none/*.npz in {tmp_path}; paths start from the study file's folder",
        "8: data[1]: got \"../up.npz\", want a path below the study file's folder, without '..'",
        f"9: variants.sgd.momentum: got NaN, want {plain}",
        "10: metric.higher_is_better: missing; write `higher_is_better: false`",
        f"11: resources.engine: {single}",
        f"11: resources.runs_per_trial: {single}",
        "12: modles: unknown key 'modles'; did you mean 'models'? valid: cells, code, data, "
        "equal_within, fresh, learning_rates, metric, models, notes, num_steps, protocol, refine, resources, search, "
        "seeds, selection, stop_early, study, tags, target, tasks, title, trainable, variants, winners",
    ]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"trainable": "train.py:trian"}, "train.py defines no 'trian'; did you mean 'train'? it has torch, train"),
        ({"trainable": "train.py"}, 'trainable: got "train.py", want a file and a function in it, such as'),
        ({"trainable": "model.py:train", "code": "[train.py]"}, "code: it lacks model.py, the file of `trainable`"),
        ({"trainable": "trian.py:train"}, "trainable: no file trian.py in FOLDER; did you mean 'train.py'? paths"),
        ({"models": "{a: {width: 3}}", "variants": "{b: {width: 4}}"}, "variants: width: an option of `models`, too"),
        (
            {
                "models": "{a: {width: 3}}",
                "learning_rates": "null",
                "search": "{low: 1e-3, high: 1, rates: 6, space: {width: [3, 4]}}",
            },
            "search.space: width: an option of `models`, too; leave it out in one",
        ),
        ({"tasks": "{digits: {rate: 2001-01-01}}"}, 'tasks.digits.rate: got "2001-01-01", want text, a finite number'),
        ({"num_steps": "null"}, "tasks.mine: its step budget is missing: give num_steps here, or for the whole study"),
    ],
)
def test_mistakes(tmp_path: Path, changes: dict[str, str], problem: str) -> None:
    (tmp_path / "model.py").touch()
    (line,) = mistakes_in(write_function(tmp_path, BODY, **changes))
    assert problem in line.replace(str(tmp_path), "FOLDER")


def test_code_that_cannot_be_imported_is_a_mistake_of_the_study(tmp_path: Path) -> None:
    study = write_function(
        tmp_path, "import helper\nfrom parts.model import build\nimport json", code="[train.py, queue.py, parts/h*.py]"
    )
    (tmp_path / "helper.py").touch()
    (tmp_path / "queue.py").write_text("def broken(:\n")
    (tmp_path / "parts").mkdir()
    for name, text in {"head": "from .layers import depth\nfrom ... import above", "layers": "", "model": ""}.items():
        (tmp_path / "parts" / f"{name}.py").write_text(text)
    assert [line.partition(": ")[2] for line in mistakes_in(study)] == [
        "code: parts/head.py imports parts/layers.py, which is not listed; add it",
        "code: queue.py is no Python: invalid syntax (<unknown>, line 1)",
        "code: queue.py would hide a module of Python's own; rename it",
        "code: train.py imports helper.py, which is not listed; add it",
        "code: train.py imports parts/model.py, which is not listed; add it",
    ]


def test_processes_are_of_a_function_and_each_has_a_whole_gpu(tmp_path: Path) -> None:
    study = write_function(tmp_path, BODY, resources="{gpus_per_trial: 0.5, processes_per_run: 2}")
    want = "got 2 with gpus_per_trial: 0.5, want gpus_per_trial: 1, or 0"
    assert [line.partition(": ")[2] for line in mistakes_in(study)] == [f"resources.processes_per_run: {want}"]
    study = write_function(tmp_path, BODY, resources="{gpus_per_trial: 1, processes_per_run: 2}")
    (run,) = runs_of(study, tmp_path)
    assert own_run(run.run).processes == 2
    study.write_text(study_to_yaml(load_study(study)))
    assert [each.run_id for each in runs_of(study, tmp_path)] == [run.run_id]
    (tmp_path / "tiny").mkdir()
    built_in = write_study(tmp_path / "tiny", resources="{processes_per_run: 2}")
    why = "only a function of the user's own trains a run in several processes"
    assert [line.partition(": ")[2] for line in mistakes_in(built_in)] == [
        f"resources.processes_per_run: has no effect here: {why}; leave it out"
    ]
