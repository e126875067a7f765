"""What a task loads is compared with what it declares."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lr_sweep.datasets import TASKS, data_checksum
from lr_sweep.datasets.loaded import load_checked, mismatches
from lr_sweep.datasets.task import DataError, TaskData, TaskShape
from lr_sweep.tests.support.small_runs import real_valued_task, run_of, symbol_task
from lr_sweep.trainables.worker.session import task_data

NUMBERS, SYMBOLS = real_valued_task(), symbol_task()  # (N, 6, 4) and 3 classes; (N, 6) ids of 0 to 5 and 2 classes
INPUTS, LABELS = NUMBERS.train.inputs, NUMBERS.train.labels


def with_train(data: TaskData, **changes: Any) -> TaskData:
    return dataclasses.replace(data, train=dataclasses.replace(data.train, **changes))


def with_first(tensor: torch.Tensor, value: float) -> torch.Tensor:
    """A copy with another first number."""
    changed = tensor.clone()
    changed.view(-1)[0] = value
    return changed


def found(data: Any, declared: TaskShape) -> list[str]:
    return list(mismatches(data, declared))


@pytest.mark.parametrize("data", [NUMBERS, SYMBOLS], ids=["numbers", "symbols"])
def test_sound_data_has_no_mismatch(data: TaskData) -> None:
    assert found(data, data.shape) == []
    if data is NUMBERS:
        assert found(dataclasses.replace(data, scale=None, shift=None), data.shape) == []
        assert found(with_train(data, inputs=INPUTS.double()), data.shape) == []


def test_real_values_without_a_scale_are_what_they_are() -> None:
    """They were cut to integers, so that every example read the same."""
    values = torch.rand(40, 6, 4)
    data = dataclasses.replace(NUMBERS, scale=None, shift=None)
    assert data.tokens(values).equal(values)
    assert data.tokens(values.double()).dtype == torch.float32
    assert data.tokens(INPUTS).dtype == torch.float32
    assert data.to(torch.device("cpu")).scale is None


def test_symbols_are_recognised_by_the_declared_shape() -> None:
    ids = SYMBOLS.train.inputs
    scaled = dataclasses.replace(SYMBOLS, scale=torch.ones(1), shift=torch.ones(1))
    assert SYMBOLS.tokens(ids).equal(ids.long())
    assert scaled.tokens(ids).equal(ids.long())


IDS, FLOATS = SYMBOLS.train.inputs, INPUTS.float()
ONES = torch.ones(40, dtype=torch.int64)
OF_SYMBOLS: list[tuple[dict[str, Any], str]] = [
    ({"inputs": IDS.float()}, "inputs: got float32 of shape (40, 6), want integers of shape (40, 6), by num_"),
    ({"inputs": with_first(IDS, 6)}, "train.inputs: got 0 to 6, want 0 to 5, by num_tokens and num_token_ids"),
    ({"inputs": with_first(IDS.long(), -1)}, "got -1 to 5, want 0 to 5"),
    ({"inputs": IDS[:, :5]}, "shape (40, 5), want integers of shape (40, 6)"),
    ({"lengths": 0 * ONES}, "train.lengths: got 0 to 0, want 1 to 6"),
    ({"lengths": 7 * ONES}, "train.lengths: got 7 to 7, want 1 to 6"),
    ({"lengths": ONES[1:]}, "got int64 of shape (39,), want int64 of shape"),
]
OF_NUMBERS: list[tuple[dict[str, Any], str]] = [
    ({"inputs": INPUTS[:, :, :3]}, "shape (40, 6, 3), want real numbers of shape (40, 6, 4)"),
    ({"inputs": INPUTS.bool()}, "train.inputs: got bool of shape (40, 6, 4), want real numbers"),
    ({"inputs": with_first(FLOATS, float("nan"))}, "inputs: got numbers that are not finite"),
    ({"inputs": with_first(FLOATS, -torch.inf)}, "inputs: got numbers that are not finite"),
    ({"inputs": INPUTS.numpy()}, "train.inputs: got ndarray, want a torch tensor"),
    ({"labels": with_first(LABELS, 3)}, "train.labels: got 0 to 3, want 0 to 2, by num_classes"),
    ({"labels": LABELS.to(torch.uint8)}, "train.labels: got uint8 of shape (40,), want int64"),
    ({"inputs": INPUTS[:0], "labels": LABELS[:0]}, "train: got no examples, want one or more"),
]
OF_DATA: list[tuple[TaskData, dict[str, Any], str]] = [
    (SYMBOLS, {"scale": torch.ones(6)}, "scale: got one, want none: num_token_ids declares symbols"),
    (NUMBERS, {"shift": None}, "scale: got it alone, want both scale and shift, or neither"),
    (NUMBERS, {"scale": None}, "shift: got it alone, want both scale and shift, or neither"),
    (NUMBERS, {"scale": torch.ones(3)}, "scale: got float32 of shape (3,), want float32 of shape"),
    (NUMBERS, {"shift": torch.ones(4).double()}, "shift: got float64 of shape (4,), want float32"),
    (NUMBERS, {"scale": torch.full((4,), torch.inf)}, "scale: got numbers that are not finite"),
    (NUMBERS, {"scale": np.ones(4)}, "scale: got ndarray, want a torch tensor"),
    (NUMBERS, {"shape": SYMBOLS.shape}, "shape: got TaskShape(num_tokens=6, num_classes=2"),
]
MISMATCHES = [
    *((SYMBOLS, with_train(SYMBOLS, **changes), want) for changes, want in OF_SYMBOLS),
    *((NUMBERS, with_train(NUMBERS, **changes), want) for changes, want in OF_NUMBERS),
    *((data, dataclasses.replace(data, **changes), want) for data, changes, want in OF_DATA),
]


@pytest.mark.parametrize(("declared", "data", "want"), MISMATCHES)
def test_a_mismatch_says_what_was_got_and_wanted(declared: TaskData, data: TaskData, want: str) -> None:
    (message,) = found(data, declared.shape)
    assert want in message


@given(st.sets(st.sampled_from(["train", "validation", "test"]), min_size=1))
def test_all_mismatches_come_at_once(splits: set[str]) -> None:
    short = {name: dataclasses.replace(getattr(NUMBERS, name), inputs=INPUTS[:1]) for name in splits}
    messages = found(dataclasses.replace(NUMBERS, **short, shift=None), NUMBERS.shape)
    assert {message.split(".")[0] for message in messages[:-1]} == splits
    assert messages[-1].startswith("scale: got it alone")


@pytest.mark.parametrize(
    ("sizes", "want"),
    [
        ({}, "want num_token_ids (symbols) or token_dim (real values), and not both"),
        ({"num_token_ids": 3, "token_dim": 2}, "and not both"),
        ({"token_dim": 0}, "want token_dim of 1 or more"),
    ],
)
def test_a_shape_is_of_symbols_or_of_real_values(sizes: dict[str, int], want: str) -> None:
    with pytest.raises(DataError) as raised:
        TaskShape(num_tokens=1, num_classes=2, **sizes)
    assert want in str(raised.value)


def test_loading_checks_and_names_the_task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Both engines load by `task_data`."""
    wrong = with_train(dataclasses.replace(NUMBERS, shift=None), labels=with_first(LABELS, 3))
    task: Any = SimpleNamespace(
        Options=SimpleNamespace,
        shape=lambda options: NUMBERS.shape,
        checksum=lambda options, data_dir: "mine",
        load=lambda options, data_dir: wrong,
    )
    monkeypatch.setitem(TASKS, "mine", task)
    with pytest.raises(DataError) as raised:
        load_checked("mine", task, None, tmp_path)
    lines = str(raised.value).splitlines()
    assert lines[0] == "mine: what `load` returns is not what `shape` declares:"
    assert [line.split(":")[0] for line in lines[1:-1]] == ["  train.labels", "  scale"]
    checksum = data_checksum("mine", SimpleNamespace(), tmp_path)
    run = dataclasses.replace(run_of(), task="mine", data_checksum=checksum)
    with pytest.raises(DataError, match="mine: what `load` returns"):
        task_data(run, tmp_path, "cpu")
