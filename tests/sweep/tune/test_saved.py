"""A sweep that is left prints until which step its runs are saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.common.object_store import ObjectStore
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.tune.saved import saved_steps, saved_text


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([40], "1 run saved at step 40"),
        ([120, 40, 80], "3 runs saved at step 40 to 120"),
        ([7, 0, 7], "2 runs saved at step 7, 1 run to be trained anew"),
        ([], ""),
    ],
)
def test_a_line_sums_up_the_steps(steps: list[int], text: str) -> None:
    assert saved_text(steps) == text


def test_steps_are_those_of_checkpoints_on_the_disk_and_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that has not answered has an older checkpoint; one of another machine has its newest in the store."""
    results = Results(tmp_path / "results")
    for run_id, step in (("a", 110), ("a", 120), ("b", 40)):
        path = results.checkpoints(run_id) / f"step-{step:09d}-0123456789abcdef.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert saved_steps(results, "abc") == {"a": 120, "b": 40, "c": 0}
    results.uri = "s3://bucket/results"
    stored = {"checkpoints/b": ["checkpoints/b/step-000000050-0123456789abcdef.safetensors"]}
    monkeypatch.setattr(ObjectStore, "__init__", lambda self, uri, patience_s: None)
    monkeypatch.setattr(ObjectStore, "names", lambda self, folder: dict.fromkeys(stored.get(folder, ()), "version"))
    assert saved_steps(results, "abc") == {"a": 120, "b": 50, "c": 0}

    def is_away(self: ObjectStore, folder: str) -> dict[str, str]:
        raise OSError("no answer")

    monkeypatch.setattr(ObjectStore, "names", is_away)
    assert saved_steps(results, "abc") == {"a": 120, "b": 40, "c": 0}
