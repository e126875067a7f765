"""Studies of a command: what they may contain, their runs' ids, and their mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.sweep.study.file import load_study, study_to_yaml
from lr_sweep.tests.support.own_study import write_command
from lr_sweep.tests.support.study_example import mistakes_in
from lr_sweep.tests.support.tiny_study import runs_of


def test_an_unchanged_script_keeps_its_ids_and_any_change_of_the_question_makes_new_ones(tmp_path: Path) -> None:
    def run_id(folder: str, text: str = "", **changes: str) -> str:
        (tmp_path / folder).mkdir()
        study = write_command(tmp_path / folder, text, **changes)
        return runs_of(study, tmp_path)[0].run_id

    same = run_id("a")
    assert run_id("b", command="[python, train.py, --lr, '{learning_rate}', --seed, '{seed}']") == same
    assert run_id("c", num_steps="2", title="Another") == same
    others = {
        run_id("d", "# a comment"),
        run_id("e", command="python train.py --seed {seed} --lr {learning_rate}"),
        run_id("f", metrics="{validation: 'v=(.+)', test: 'a=(.+)'}"),
        run_id("g", command="python train.py --lr {learning_rate} --seed {seed} {x}", variants="{train: {x: 1}}"),
    }
    assert len(others | {same}) == 5


def test_it_is_written_with_all_defaults_and_read_again(tmp_path: Path) -> None:
    study = write_command(tmp_path, metrics="{file: a.csv, validation: v, test: t}")
    loaded = load_study(study)
    assert loaded.files is not None
    assert list(loaded.files.code) == ["train.py"]
    assert loaded.files.trainable == "python train.py --lr {learning_rate} --seed {seed}"
    study.write_text(study_to_yaml(loaded))
    assert load_study(study) == loaded


COMMAND = "python train.py --lr {learning_rate} --seed {seed}"


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"command": f"{COMMAND} --o {{optimiser}}", "variants": "{a: {optimizer: sgd}}"}, "did you mean 'optimizer'?"),
        ({"variants": "{a: {x: 1}}"}, "variants.a.x: no {x} in the command"),
        ({"variants": "[a, b]"}, "it is the same for mine train a and mine train b; use {variant}"),
        ({"command": f"{COMMAND} {{x}}", "variants": "{a: {x: 1}, b: {}}"}, "mine train b has no option x"),
        ({"command": "python train.py --lr {learning_rate}"}, "command: it lacks {seed}"),
        ({"command": f"{COMMAND} > log"}, "no shell reads it, so > would be an argument"),
        ({"command": f"{COMMAND} 'a"}, "command: No closing quotation"),
        ({"command": "python other.py {learning_rate} {seed}"}, "code: no other.py, which the command names, in /"),
        ({"command": "python -m other {learning_rate} {seed}"}, "code: the command names no file beside the study"),
        ({"command": f"{COMMAND} {{checkpoint}}", "num_steps": "2"}, "metrics.step: with {checkpoint} it is needed"),
        ({"metrics": "{validation: 'v=.+', test: '(.)(.)'}"}, 'metrics.validation: got "v=.+" with 0 groups'),
        ({"metrics": "{validation: '(', test: '(.)'}"}, "which is no regular expression"),
        ({"metrics": "{file: a.txt, validation: v, test: t}"}, "want a file that ends with .jsonl, .json, .csv"),
        ({"trainable": "train.py:train"}, "trainable: the study has a `command`"),
        ({"resources": "{processes_per_run: 2}"}, "resources.processes_per_run: has no effect here"),
    ],
)
def test_mistakes_say_what_is_wanted(changes: dict[str, str], wanted: str, tmp_path: Path) -> None:
    mistakes = mistakes_in(write_command(tmp_path, **changes))
    assert any(wanted in mistake for mistake in mistakes), mistakes
