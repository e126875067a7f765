"""Whether a part of a Slurm job has made progress, on a disk and in a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.common.object_store import ObjectStore
from lr_sweep.sweep.cluster.slurm import recorded
from lr_sweep.tests.support.servers.s3_server import Machines

PROGRESS, OTHER = "checkpoints/ab/step-20.safetensors", "logs/run.log"


@pytest.mark.parametrize("stored", [False, True])
def test_a_checkpoint_is_progress_and_a_log_is_none(
    machines: Machines, tmp_path: Path, capfd: pytest.CaptureFixture[str], stored: bool
) -> None:
    results = "s3://bucket/results" if stored else str(tmp_path / "results")

    def write(name: str) -> None:
        if stored:
            ObjectStore(results).write(name, b"0")
        else:
            (Path(results) / name).parent.mkdir(parents=True)
            (Path(results) / name).write_bytes(b"0")

    def digest() -> str:
        assert recorded("tiny", "--results", results, "--cpus", "2") == 0
        return capfd.readouterr().out

    before = digest()
    write(OTHER)
    assert digest() == before
    write(PROGRESS)
    assert digest() != before
