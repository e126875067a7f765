"""Study files with mistakes: what is refused, at which line, in which words."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.datasets import TASKS
from lr_sweep.datasets.task import Task
from lr_sweep.sweep.study.built_in import BuiltInStudy
from lr_sweep.sweep.study.file import load_study
from lr_sweep.tests.support.study_example import GRID, PRETRAINED, SIZE, STUDY, mistakes
from lr_sweep.trainables.pretraining.recipe import PretrainRecipe, TaskRecipe
from lr_sweep.trainables.run import ModelSize, Protocol

VARIANTS = "[frozen-random, frozen-pretrained]"
DIGITS = "digits: {num_steps: 2000}"
SEARCH = "search: {low: 1e-5, high: 1e-1, rates: 6}"


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        # names
        ("study: example", "study: other", "1: study: 'other' is not the file's name; leave it out, or call the file"),
        ("study: example", r'study: "\ud800"', r'1: study: got "\ud800", want letters a to z'),
        ("study: example", "study: .example", '1: study: got ".example", want letters a to z'),
        ("study: example", "study: x.yaml", '1: study: got "x.yaml", want letters a to z'),
        ("title: An example", 'title: "two\\nlines"', "2: title: want one line of text"),
        ("  digits:", "  digit:", "4: tasks.digit: unknown task 'digit'; did you mean 'digits'? valid: bit-memory, "),
        ("frozen-random,", "frozn-random,", "9: variants.frozn-random: unknown variant 'frozn-random'; did you mean"),
        ("seeds: 3", "seeds: 3\ntags: {a: b, mlflow.user: c}", '12: tags.mlflow.user: got "mlflow.user", want letters'),
        ("seeds: 3", "seeds: 3\ntags: {year: 2026}", "12: tags.year: got 2026, want text"),
        ("seeds: 3", 'seeds: 3\nnotes: "\\e[31m"', r'12: notes: got "\u001b[31m", want at most 4000 characters'),
        # keys
        ("seeds: 3", "seeds: 3\nseed: 1", "12: seed: unknown key 'seed'; did you mean 'seeds'? valid: cells, equal_"),
        ("num_steps: 2000", "split_seed: 1", "4: tasks.digits: its step budget is missing: give num_steps here, or fo"),
        ("seeds: 3\n", "", "1: seeds: missing; write `seeds: 3`"),
        ("seeds: 3", "seeds: 3\nseeds: 4", "12: seeds: duplicate key; the first is in line 11"),
        # types are not converted
        ("num_steps: 2000", 'num_steps: "2000"', '4: tasks.digits.num_steps: got "2000", want a whole number'),
        ("evaluate_every: 1000", "dropout: yes", '12: protocol.dropout: got "yes", want a number'),
        ("evaluate_every: 1000", "dropout: .nan", "12: protocol.dropout: got NaN, want a finite number"),
        ("evaluate_every: 1000", "readout: last", '12: protocol.readout: got "last", but is always "final_position";'),
        ("seeds: 3", 'seeds: "3"', '11: seeds: got "3", want a whole number n, for seeds 0 to n - 1, or a list'),
        ("tasks:\n  digits: {num_steps: 2000}", "tasks: digits", '3: tasks: got "digits", want a mapping'),
        (
            VARIANTS,
            "{frozen-random: {initialisation: random, trained: [output]}}",
            "9: variants.frozen-random: 'frozen-random' is a known variant; leave its entry empty, or choose another",
        ),
        (
            VARIANTS,
            "{mine: {initialisation: random, trained: [outputs]}}",
            "9: variants.mine.trained: got unknown part 'outputs'; want some of attention",
        ),
        ("  tiny:", "  tiny:\n    base: gpt3", "7: models.tiny.base: unknown model 'gpt3'"),
        ("  tiny:", "  tiny:\n    depth: 3", "7: models.tiny.depth: got 3, want at most size.layers = 2"),
        # values
        (DIGITS, "mnist: {num_steps: 1000, image_size: 30}", "4: tasks.mnist.image_size: got 30, want 32 or 28"),
        ("heads: 4", "heads: 3", "7: models.tiny.size.heads: 3 heads do not divide width = 64"),
        # what could be read, but not run or recorded
        ("evaluate_every: 1000", "batch_size: 1198", "12: protocol: batch_size: the training split has 1197 examples;"),
        # nothing, or twice
        ("  digits: {num_steps: 2000}", "  {}", "3: tasks: got {}, want at least one entry"),
        ("seeds: 3", "seeds:\n- 1\n- 2\n- 1", "14: seeds[2]: 1 is there twice"),
        # learning rates
        (GRID, "learning_rates:\n- 1e-3\n- 0.001", "12: learning_rates[1]: 0.001 is there twice"),
        ("low: 1e-4", "low: 0", "10: learning_rates.low: got 0, want greater than 0"),
        ("low: 1e-4", "low: 1e-1", "10: learning_rates.low: 1e-1 is above high = 1e-2"),
        ("low: 1e-4", "low: 1.2345e-4", "10: learning_rates.low: 0.00012345 has more than 3 significant digits"),
        # rates in rounds, fresh seeds
        (GRID, "learning_rates: [1e-3, 1e-2]\nrefine: 3", "11: refine: got a grid of 2 learning rates, want at least"),
        (GRID, f"refine: 2\n{SEARCH}", "10: refine: the study has a `search`, which is not refined"),
        (GRID, f"winners: 6\n{SEARCH}", "10: winners: got 6, want fewer than the 6 learning rates of a cell"),
        ("seeds: 3", "seeds: 1\nwinners: 2", "12: winners: has no effect with one seed; want more seeds, or leave it"),
        ("seeds: 3", "seeds: 3\ntarget: {mnist: 90}", "12: target: unknown task 'mnist'; valid: digits"),
        (
            "seeds: 3",
            "seeds: 3\nequal_within: 2\nfresh: {max: 9, equal_within: 2}",
            "13: fresh.equal_within: gone from here: give `equal_within` to the study",
        ),
        # models
        (SIZE + "\n", "", "6: models.tiny: unknown model 'tiny'; valid: bert-base-uncased, distilgpt2, gpt2"),
        (PRETRAINED, "", "6: models.tiny: variant 'frozen-pretrained' needs `pretrained`, with one of: shipped, hub"),
        ("  tiny:", "  gpt2:", "7: models.gpt2.size: 'gpt2' is a known model of another size"),
        ("{pretrain: {}}", "{}", "8: models.tiny.pretrained: want exactly one of: shipped, hub, folder, pretrain"),
        ("{pretrain: {}}", "{folder: nowhere}", "8: models.tiny.pretrained.folder: nothing is at "),
        ("{pretrain: {}}", "{hub: a/b, sha256: 12ab}", '8: models.tiny.pretrained.sha256: got "12ab", want 64'),
        ("{}", "{text: [no.txt]}", "8: models.tiny.pretrained.pretrain.text[0]: nothing is at "),
        ("{}", "{text: novels}", '8: models.tiny.pretrained.pretrain.text: got "novels", want python-stdlib or a list'),
        ("{}", "{text: [DATA/../secret]}", '8: models.tiny.pretrained.pretrain.text[0]: got "DATA/../secret", want a'),
        ("{pretrain: {}}", "{hub: a/b, revision: ../x}", '8: models.tiny.pretrained.revision: got "../x", want'),
        ("{}", "{num_tokens: 2048}", "8: models.tiny.pretrained.pretrain.num_tokens: 2048 tokens are more than"),
        # YAML
        ("seeds: 3", "seeds: [3", "12: not valid YAML: while parsing a flow sequence:"),
        ("  digits", "\tdigits", "4: not valid YAML: while scanning for the next token: found character '\\t' that"),
        ("seeds: 3", "seeds: !!int three", '11: seeds: "three" is no int (invalid literal'),
        ("seeds: 3", "seeds: " + "[" * 900 + "]" * 900, "1: nested too deep"),
        ("seeds: 3", "seeds: !!python/name:os.system 3", "11: not valid YAML: could not determine a constructor"),
        ("seeds: 3", "seeds: &three 3\nx: *three", "12: x: aliases (*name) are not supported"),
    ],
)
def test_a_mistake_is_reported_with_its_line(tmp_path: Path, old: str, new: str, wanted: str) -> None:
    assert old in STUDY
    found = mistakes(tmp_path, STUDY.replace(old, new, 1))
    assert any(line.startswith(wanted) for line in found), found


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("refine: 0", "refine: got 0, want"),
        ("paired: true", "paired: gone: variants are compared by Welch's t test; remove this line"),
        (
            "stop_early: {rule: halving, eta: 3}",
            'stop_early: got {"rule": "halving", "eta": 3}, want median, which has no options',
        ),
        ("stop_early: {first: 400}", 'stop_early: got {"first": 400}, want median, which has no options'),
        ("fresh: 1", "fresh: got 1, want greater than or equal to 2"),
        ("fresh: true", "fresh: got true, want a number of seeds, or as many as it takes, {max: 20}"),
        ("fresh: many", 'fresh: got "many", want a number of seeds, or as many as it takes, {max: 20}'),
        ("fresh: {}", "fresh.max: missing; write `max: 20`"),
        ("fresh: {max: 3}", "fresh.max: got 3, want greater than or equal to 4"),
        ("decide: {max_seeds: 3}", "decide: gone: write `fresh: {max: N}` for its `max_seeds`, and `equal_within: SI"),
        ("cells: [{protocol: {dropout: 0}}]", "cells[0].protocol: gone from here: give `evaluate_every` in a task"),
        ("search: {low: 1e-5, high: 1e-1, rates: 6, at_once: 3}", "search.at_once: gone: a round has 2 learning rates"),
    ],
)
def test_a_mistake_in_a_further_line(tmp_path: Path, line: str, wanted: str) -> None:
    found = mistakes(tmp_path, f"{STUDY}{line}\n")
    assert any(each.startswith(f"14: {wanted}") for each in found), found


@pytest.mark.parametrize(
    ("old", "new", "fix"),
    [
        ("2000", "2500", "4: tasks.digits.num_steps: 2500 is not a multiple of {every}; 2000 or 3000 is"),
        ("2000", "300", "4: tasks.digits.num_steps: 300 is not a multiple of {every}; 1000 is"),
        ("1e-2", "3e-2", "10: learning_rates.high: 3e-2 is no whole number of {steps}; 1e-2 or 1e-1 is"),
        ("1e-2", "9.99e-3", "10: learning_rates.high: 9.99e-3 is no whole number of {steps}; 1e-3 or 1e-2 is"),
    ],
)
def test_the_nearest_right_values_are_named(tmp_path: Path, old: str, new: str, fix: str) -> None:
    wanted = fix.format(every="evaluate_every = 1000", steps="grid steps above low = 1e-4")
    assert mistakes(tmp_path, STUDY.replace(old, new, 1)) == [wanted]


def test_each_mistake_is_reported_once(tmp_path: Path) -> None:
    assert len(mistakes(tmp_path, STUDY.replace("study: example\ntitle: An example", "study: other"))) == 1
    assert len(mistakes(tmp_path, STUDY.replace("seeds: 3", "seeds: [0, 0]"))) == 1
    assert len(mistakes(tmp_path, STUDY.replace("heads: 4", "heads: 3"))) == 1
    assert len(mistakes(tmp_path, STUDY.replace(GRID, "learning_rates: [-1.0]"))) == 1
    assert len(mistakes(tmp_path, STUDY.replace("seeds: 3", "seeds: !!int three"))) == 1


def test_all_mistakes_are_reported_at_once_in_the_order_of_lines(tmp_path: Path) -> None:
    text = """\
study: other
title: ""
tasks:
  digit: {num_steps: 100}
  mnist: {num_steps: 2500, imagesize: 28, split_seed: true}
models:
  tiny:
    size: {layers: 2, heads: 3, width: 64}
  gpt3: {}
variants: [frozen-pretrained]
learning_rates: {low: 0, high: 1e-2}
learning_rates: [1e-3]
seeds: x
protocol: {drop: 3, readout: last}
"""
    lines_and_keys = [line.split(": ")[:2] for line in mistakes(tmp_path, text)]
    assert lines_and_keys == [
        ["1", "study"],
        ["2", "title"],
        ["4", "tasks.digit"],
        ["5", "tasks.mnist.imagesize"],
        ["5", "tasks.mnist.split_seed"],
        ["7", "models.tiny"],
        ["8", "models.tiny.size.heads"],
        ["9", "models.gpt3"],
        ["11", "learning_rates.low"],
        ["12", "learning_rates"],
        ["13", "seeds"],
        ["14", "protocol.drop"],
        ["14", "protocol.readout"],
    ]


def test_every_record_field_has_a_limit_or_choices() -> None:
    """A field added to a record must be validated too, or a study could hold a value that has no meaning."""
    for kind, wrong in ((Protocol, -1), (ModelSize, 0), (PretrainRecipe, -1), (TaskRecipe, -1)):
        for field in dataclasses.fields(kind):
            if (kind, field.name) == (TaskRecipe, "options"):
                continue  # a study has the task's own fields in its place
            values: dict[str, object] = {"layers": 1, "heads": 1, "width": 1} if kind is ModelSize else {}
            values |= {"task": "bit-xor", "num_steps": 1} if kind is TaskRecipe else {}
            with pytest.raises(ValueError, match=field.name):
                _with_record(kind, values | {field.name: wrong})


def _with_record(kind: type, values: Mapping[str, object]) -> BuiltInStudy:
    fields = {
        "study": "s",
        "title": "t",
        "tasks": {"digits": {"num_steps": 2000}},
        "models": {"gpt2": {}},
        "variants": ("frozen-random",),
        "learning_rates": (1e-3,),
        "seeds": 1,
    }
    size = {"layers": 1, "heads": 1, "width": 1}
    if kind is Protocol:
        fields["protocol"] = values
    elif kind is ModelSize:
        fields["models"] = {"own": {"size": values}}
    else:
        fields["models"] = {"own": {"size": size, "pretrained": {"pretrain": values}}}
    return BuiltInStudy.model_validate(fields)


def test_a_task_that_lacks_a_function_is_named_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = TASKS["digits"]
    parts = {name: getattr(whole, name) for name in ("Options", "shape", "checksum", "origin", "load")}
    monkeypatch.setitem(TASKS, "digits", cast(Task, SimpleNamespace(**parts)))
    (mistake,) = mistakes(tmp_path, STUDY)
    assert "digits: its module lacks num_train, num_held_out, fetch; datasets/task.py says what each returns" in mistake


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "- a\n- b\n", "just words\n", "3\n"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    (found,) = mistakes(tmp_path, text)
    assert found.startswith("1: ")
    assert "want a mapping of keys to values" in found


def test_a_study_that_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    path.mkdir()
    with pytest.raises(UserError, match=r"example\.yaml: it is no plain file; shipped studies"):
        load_study(path)


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    path.write_bytes(STUDY.replace("An example", "é").encode("latin-1"))
    with pytest.raises(UserError, match="not a text file in UTF-8"):
        load_study(path)
