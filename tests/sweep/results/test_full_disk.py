"""A disk that fills up while a sweep trains."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lr_sweep.tests.support.tiny_study import ROOT, command_line, environment, rows, sweep, write_study
from lr_sweep.tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.cluster]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 40 MB."""
    mount_point = tmp_path / "disk"
    mount_point.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=40m", "none", mount_point]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"may not mount a small disk: {mounted.stderr.strip()}")
    yield mount_point
    subprocess.run(["umount", "--lazy", mount_point], check=True)


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(100_000))
            except OSError:
                return


def test_it_is_reported_and_the_same_command_resumes(disk: Path, tmp_path: Path) -> None:
    study = write_study(tmp_path, num_steps=3000, protocol="{evaluate_every: 100, train_examples_evaluated: 100}")
    results = disk / "results"
    command = command_line("run", study, "--results", results, "--cpus", "2", "--checkpoint-every-s", "1")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=ROOT, env=environment(), text=True, **pipes) as process:  # type: ignore[call-overload]
        wait_until(lambda: list(results.glob("curves/*.parquet")), "curves", 120.0)
        fill(disk)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 2, output
    assert "Traceback" not in output
    assert "No space left on device" in output
    assert "the same command resumes" in output.replace("\n", " ")
    (disk / "filler").unlink()
    code, output = sweep("run", study, "--results", results)
    assert code == 0, output
    assert [row["status"] for row in rows(results).values()] == ["complete"] * 4
