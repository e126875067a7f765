"""Files of TensorBoard: each value as it was written, up to the last whole record."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.readers.files import table_of_content
from lr_sweep.analysis.judge.readers.sources import read_sources
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.tables import texts_of


@pytest.mark.parametrize("library", ["tensorboardX", "torch.utils.tensorboard"])
def test_events_of_tensorboard(tmp_path: Path, library: str) -> None:
    """Written by tensorboardX 2.6 and TensorBoard 2.21; hyperparameters are in a folder of their own."""
    pytest.importorskip("tensorboard" if library.startswith("torch") else library)
    writer_of = pytest.importorskip(library).SummaryWriter
    for rate in (0.1, 0.2):
        with writer_of(str(tmp_path / f"lr={rate}")) as writer:
            writer.add_scalar("val/acc", rate, 1)
            writer.add_text("notes", "mine", 2)
            writer.add_hparams({"opt": "adam", "width": 8}, {"final": 1.0})
    table = read_sources([tmp_path])[0]
    rows = [row for row in zip(*(texts_of(table)[name] for name in ("run", "step", "val/acc")), strict=True) if row[2]]
    assert rows == [("lr=0.1", "1", "0.1"), ("lr=0.2", "1", "0.2")]
    assert set(texts_of(table)["config.opt"]) == {"adam"}
    assert set(texts_of(table)["config.width"]) == {"8.0"}
    assert set(texts_of(table)["config.lr"]) == {"0.1", "0.2"}


def written_events(folder: Path, steps: int = 3) -> Path:
    with pytest.importorskip("tensorboardX").SummaryWriter(str(folder)) as writer:
        for step in range(1, steps + 1):
            writer.add_scalar("val/acc", step / 4, step)
    (path,) = folder.iterdir()
    return path


def test_a_file_that_was_cut_has_its_first_records_and_one_without_values_is_a_run(tmp_path: Path) -> None:
    path = written_events(tmp_path / "a")
    path.write_bytes(path.read_bytes()[:-20])
    written_events(tmp_path / "b", steps=0)
    (table,) = read_sources([tmp_path])
    assert texts_of(table) == {"run": ["a", "a", "b"], "step": ["1", "2", ""], "val/acc": ["0.25", "0.5", ""]}


def test_a_flipped_byte_changes_no_value(tmp_path: Path) -> None:
    """One bit of every byte is flipped, and the file is cut at every length."""
    path = written_events(tmp_path)
    content = path.read_bytes()
    whole = texts_of(table_of_content(path, content, path.name))
    for place in range(len(content)):
        flipped = content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :]
        for damaged in (flipped, content[:place]):
            with suppress(UserError):
                columns = texts_of(table_of_content(path, damaged, path.name))
                assert {*columns.get("val/acc", ())} <= {*whole["val/acc"]}, place
                assert columns != whole or damaged is flipped


def test_damaged_hyperparameters_are_named(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import RecordWriter

    event = Event()
    data = event.summary.value.add(tag="_hparams_/session_start_info").metadata.plugin_data
    data.plugin_name, data.content = "hparams", b"\xff\xff"
    RecordWriter(str(tmp_path / "events.out.tfevents.1")).write(event.SerializeToString())
    with pytest.raises(UserError, match="events.out.tfevents.1 cannot be read"):
        read_sources([tmp_path])
