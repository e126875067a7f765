"""JSON, lines of JSON and YAML as columns of texts."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lr_sweep.analysis.judge.readers.files import table_of_content
from lr_sweep.analysis.judge.readers.nested import flat_settings, settings_in
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.judged import cases
from lr_sweep.tests.support.tables import shown_columns, texts_of

FORMS = cases("""
rows | [{"lr": 0.1, "acc": null}, {"lr": 0.2, "a": {"b": 1}}] | lr: 0.1 0.2; acc: - -; a.b: - 1
an object | {"lr": 0.1, "done": true, "tags": ["x"]} | lr: 0.1; done: True; tags: x
runs with their history | {"runs": [{"config": {"lr": 0.1}, "history": [{"epoch": 1}, {"epoch": 2}]}]} | config.lr:
  0.1 0.1; epoch: 1 2
fields of one name | {"lr": 1, "log": [{"lr": 2}, {"acc": 3}]} | config.lr: 1 1; lr: 2 -; acc: - 3
several lists | {"a": [{"x": 1}], "b": [{"x": 2}, {"y": 3}], "lr": 0.1} | lr: 0.1 0.1 0.1; x: 1 2 -; list: a b b; y: -
  - 3
curves | [{"lr": 0.1, "val": [0.5, 0.75], "train": [4, 2]}] | lr: 0.1 0.1; index: 0 1; val: 0.5 0.75; train: 4 2
a history of curves | {"lr": 0.1, "of": {"val": [0.5, 0.75], "train": [4, 2]}} | lr: 0.1 0.1; index: 0 1; of.val:
  0.5 0.75; of.train: 4 2
curves of several lengths, as of DeepOBS | {"params": {"lr": 0.1, "betas": [0.9, 0.99]}, "valid": [5, 4], "batches":
  [9, 8, 7]} | params.lr: 0.1 0.1 0.1 0.1 0.1; params.betas: [0.9, 0.99] [0.9, 0.99] [0.9, 0.99] [0.9, 0.99] [0.9,
  0.99]; index: 0 1 0 1 2; valid: 5 4 - - -; list: valid valid batches batches batches; batches: - - 9 8 7
columns with a text | {"name": ["a", "b"], "acc": [1, 2]} | index: 0 1; name: a b; acc: 1 2
a list of texts is a field | {"tags": ["x", "y"], "acc": 1} | tags: ["x", "y"]; acc: 1
labels | {"adam": {"acc": 1}, "sgd": {"acc": 2}} | key1: adam sgd; acc: 1 2
labels of runs | {"adam": {"s": 3, "log": [{"acc": 1}]}, "sgd": {"s": 4, "log": [{"acc": 2}]}} | key1: adam sgd; s: 3
  4; acc: 1 2
labels that are numbers, below names | {"host": "x", "acc": {"ewc": {"1e-3": 1, "1e-2": 2}, "none": {"0.1": 3}}} |
  host: x x x; key1: ewc ewc none; key2: 1e-3 1e-2 0.1; value: 1 2 3
labels that are settings | {"lr=0.1": [1, 2], "lr=0.2": []} | key1: lr=0.1 lr=0.1 lr=0.2; config.lr: 0.1 0.1 0.2;
  index: 0 1 -; value: 1 2 -
names within a run | [{"seed": 0, "val": {"acc": 1}, "test": {"acc": 2}}] | seed: 0; val.acc: 1; test.acc: 2
settings beside a history | {"log_history": [{"loss": 1}], "callbacks": {"A": {"args": 1}, "B": {"args": 2}}} |
  callbacks.A.args: 1; callbacks.B.args: 2; loss: 1
split, of pandas | {"columns": ["lr", "acc"], "index": [0], "data": [[0.1, null]]} | lr: 0.1; acc: -
by columns, of pandas | {"lr": {"0": 0.1, "1": 0.2}, "acc": {"0": 1, "1": 2}} | lr: 0.1 0.2; acc: 1 2
""")


@pytest.mark.parametrize(("text", "columns"), FORMS)
def test_forms(text: str, columns: str) -> None:
    assert shown_columns(text, "r.json") == columns


def test_lines_may_have_settings_in_the_first() -> None:
    assert shown_columns('{"lr": 0.1}\n\n{"lr": 0.2, "acc": NaN}', "r.json") == "lr: 0.1 0.2; acc: - nan"
    above = '{"config": {"lr": 0.1}}\n{"acc": 1}\n{"acc": 2}'
    assert shown_columns(above, "r.json") == "config.lr: 0.1 0.1; acc: 1 2"


def test_yaml_is_read_as_json() -> None:
    assert shown_columns("0.1: {acc: 1}\n0.2: {acc: .nan}\n", "r.yaml") == "key1: 0.1 0.2; acc: 1 nan"


def test_a_line_that_is_no_json_is_named() -> None:
    with pytest.raises(UserError, match=r"r.json:2: no JSON .*: remove a line that was cut"):
        shown_columns('{"a": 1}\n{"a": ', "r.json")


@given(st.lists(st.tuples(st.floats(allow_nan=False), st.text("ab,é", min_size=1)), min_size=2))
def test_tables_that_pandas_writes(rows: list[tuple[float, str]]) -> None:
    frame = pd.DataFrame(rows, columns=["lr", "variant"]).astype({"lr": str})
    columns = {name: list(frame[name]) for name in frame}
    texts = [frame.to_json(orient=orient) for orient in ("records", "split", "columns")]
    for text in [*texts, frame.to_json(orient="records", lines=True)]:
        assert texts_of(table_of_content(Path("r.json"), text.encode(), "r.json")) == columns


NAMES = {
    "lr=0.1,seed=1": {"lr": "0.1", "seed": "1"},
    "a_lr=1e-4_seed=0": {"a_lr": "1e-4", "seed": "0"},
    "train_fn_0169c_00000_0_lr=0.0010,opt=a_2026-11-28_00-17-00": {"lr": "0.0010", "opt": "a"},
    "+model.dim=3 opt='adam'": {"model.dim": "3", "opt": "adam"},
    "adam-lr0.1-s1": {},
    "opt=adam_lr=0.1": {},
}


def test_settings_in_names() -> None:
    assert {name: settings_in(name) for name in NAMES} == NAMES


def test_flat_settings() -> None:
    assert flat_settings({"a": {"b": 1}, "_wandb": 2}) == {"config.a.b": 1}
