"""Checkpoints are whole files; damaged ones are set aside, and one that vanishes meanwhile is no end."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lr_sweep.trainables import checkpoint as checkpoint_module
from lr_sweep.trainables.checkpoint import (
    checkpoints,
    keep_newest,
    load_newest_checkpoint,
    newest_checkpoint,
    save_checkpoint,
)


@pytest.mark.parametrize("damage", ["a flipped bit", "torn", "empty"])
def test_checkpoints_are_pruned_and_a_damaged_one_is_passed_over(tmp_path: Path, damage: str) -> None:
    assert load_newest_checkpoint(tmp_path, pytest.fail) is None
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, {"x": torch.tensor([float(step)])}, {"step": step})
    keep_newest(tmp_path, 2)
    newest, before = checkpoints(tmp_path)
    assert (newest.name[:14], before.name[:14]) == ("step-000000003", "step-000000002")
    whole = newest.read_bytes()
    flipped = whole[:-1] + bytes([whole[-1] ^ 1])
    newest.write_bytes({"a flipped bit": flipped, "torn": whole[:-3], "empty": b""}[damage])
    damaged: list[Path] = []
    saved = load_newest_checkpoint(tmp_path, damaged.append)
    assert saved is not None
    assert saved[1] == {"step": 2}
    assert damaged == [tmp_path / f"damaged-{newest.name}"]
    # The renamed damaged file does not count when the intact one is written again.
    again = save_checkpoint(tmp_path, {"x": torch.tensor([3.0])}, {"step": 3})
    keep_newest(tmp_path, 1)
    assert checkpoints(tmp_path) == [again]
    assert again.read_bytes() == whole
    assert damaged[0].exists()


def test_a_checkpoint_that_vanishes_while_it_is_looked_at_is_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that outlives its driver for a moment saves a newer one and removes the old."""
    save_checkpoint(tmp_path, {"x": torch.tensor([1.0])}, {"step": 1})
    hash_file = checkpoint_module.hash_file

    def saved_meanwhile(path: Path) -> str:
        monkeypatch.setattr(checkpoint_module, "hash_file", hash_file)
        save_checkpoint(tmp_path, {"x": torch.tensor([2.0])}, {"step": 2})
        keep_newest(tmp_path, 1)
        return hash_file(path)

    monkeypatch.setattr(checkpoint_module, "hash_file", saved_meanwhile)
    saved = load_newest_checkpoint(tmp_path, pytest.fail)
    assert saved is not None
    assert saved[1] == {"step": 2}


def test_nothing_is_written_or_removed_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "partial-1").touch()
    (folder := tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="it is a link"):
        newest_checkpoint(folder, None, pytest.fail)
    assert (tmp_path / "elsewhere" / "partial-1").exists()


@pytest.mark.parametrize("harm", ["link", "folder"])
def test_what_is_no_checkpoint_is_set_aside(tmp_path: Path, harm: str) -> None:
    intact = save_checkpoint(tmp_path, {}, {"step": 10})
    wrong = tmp_path / "step-000000020-0123456789abcdef.safetensors"
    wrong.symlink_to("nothing") if harm == "link" else wrong.mkdir()
    seen: list[Path] = []
    assert load_newest_checkpoint(tmp_path, seen.append) == ({}, {"step": 10})
    assert seen == [tmp_path / f"damaged-{wrong.name}"]
    assert checkpoints(tmp_path) == [intact]
