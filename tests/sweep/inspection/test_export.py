"""Curves for other programs: one row or one event an evaluation, with the record's values."""

from __future__ import annotations

import struct
from pathlib import Path

import pandas as pd
import pytest
from tensorboardX.proto.event_pb2 import Event

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.inspection.export import VALUES, write_csv, write_tensorboard
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.run_state import LABELS
from lr_sweep.tests.support.records import SyntheticRecord
from lr_sweep.tests.support.tiny_study import said

Scalars = dict[tuple[str, int], float]


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """Two runs of one cell, of two and one evaluations: step, validation and test accuracy."""
    record = SyntheticRecord(tmp_path / "results", "tiny")
    record.add(1e-3, 0, [(10, 0.25, 0.5), (20, 0.75, 0.625)])
    record.add(3.16e-2, 4, [(10, 0.5, 0.375)])
    record.write()
    return Results(tmp_path / "results")


def events(file: Path) -> list[Event]:
    """Read TensorBoard's framing: length, its checksum, content, its checksum."""
    content, at, found = file.read_bytes(), 0, []
    while at < len(content):
        (size,) = struct.unpack_from("<Q", content, at)
        found.append(Event.FromString(content[at + 12 : at + 12 + size]))
        at += 12 + size + 4
    return found


def test_a_csv_has_a_row_an_evaluation(results: Results, tmp_path: Path) -> None:
    target = tmp_path / "curves.csv"
    code, printed = said("export", target, "--csv", "--results", results.root)
    assert (code, printed) == (0, f"{target}: 3 evaluations of 2 runs\n")
    table = pd.read_csv(target)
    assert list(table.columns) == ["study", *LABELS, "run_id", "step", *VALUES]
    numbers = table[["learning_rate", "seed", "step", "validation_accuracy", "test_accuracy"]].to_numpy().tolist()
    assert numbers == [[1e-3, 0, 10, 0.25, 0.5], [1e-3, 0, 20, 0.75, 0.625], [3.16e-2, 4, 10, 0.5, 0.375]]


def test_tensorboard_s_events_are_the_record_s(results: Results, tmp_path: Path) -> None:
    target = tmp_path / "board"
    write_tensorboard(results, ["tiny"], target)
    files = sorted(target.rglob("events.*"))
    assert [file.parent.name for file in files] == ["lr=1e-3,seed=0", "lr=3.16e-2,seed=4"]
    assert files[0].relative_to(target).parts[0] == "tiny"
    scalars: Scalars = {}
    for event in events(files[0]):
        scalars |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
    assert scalars["accuracy/validation", 10] == 0.25
    assert scalars["accuracy/test", 20] == 0.625
    assert len(scalars) == 2 * len(VALUES)


def test_nothing_is_overwritten_and_nothing_is_made_of_nothing(results: Results, tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    for write in (write_csv, write_tensorboard):
        with pytest.raises(UserError, match="there exists; `export` overwrites nothing"):
            write(results, [], tmp_path / "there")
    for path in (results.root / "curves").iterdir():
        path.unlink()
    with pytest.raises(UserError, match="holds no evaluation to export"):
        write_csv(results, [], tmp_path / "new.csv")
    assert not (tmp_path / "new.csv").exists()


@pytest.mark.parametrize("name", ["../../away", "/away", "a\0b"])
def test_names_of_a_record_lead_nowhere_else(tmp_path: Path, name: str) -> None:
    """Another program may have written them."""
    record = SyntheticRecord(tmp_path / "results", "tiny")
    record.add(1e-3, 0, [(10, 0.25, 0.5)], variant=name)
    record.write()
    with pytest.raises(UserError, match="which is none of a folder"):
        write_tensorboard(Results(tmp_path / "results"), [], tmp_path / "board")
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
