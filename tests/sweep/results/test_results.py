"""The results directory: ours or not, one writer, whole files, full disks."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch

from lr_sweep.analysis.record.parquet import FORMAT
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import partial_path, whole_file, write_json
from lr_sweep.sweep.cli.parser import main
from lr_sweep.sweep.inspection.export import write_csv
from lr_sweep.sweep.inspection.gc import leftovers
from lr_sweep.sweep.results.directory import Results, storage_problems
from lr_sweep.tests.support.background import Background
from lr_sweep.tests.support.records import four_runs
from lr_sweep.tests.support.tiny_study import ROOT, rows, swept, write_study
from lr_sweep.trainables.checkpoint import save_checkpoint


@pytest.mark.parametrize("there", ["nothing", "a folder", "a hidden file"])
def test_prepare_makes_a_directory_and_takes_it_again(tmp_path: Path, there: str) -> None:
    results = Results(tmp_path / "a" / "b")
    if there != "nothing":
        results.root.mkdir(parents=True)
    if there == "a hidden file":
        (results.root / ".DS_Store").touch()
    assert not results.exists()
    results.check()
    ids = set()
    for _ in range(2):
        results.prepare()
        assert results.exists()
        ids.add(results.id)
        assert json.loads((results.root / "format.json").read_text()) == {"format": FORMAT, "id": results.id}
    assert len(ids) == 1


def test_a_directory_of_an_earlier_version_gets_an_id(tmp_path: Path) -> None:
    results = Results(tmp_path)
    (tmp_path / "format.json").write_text(json.dumps({"format": FORMAT}))
    assert results.id == ""
    results.prepare()
    assert len(results.id) == 16
    assert results.exists()


@pytest.mark.parametrize(
    ("path", "content", "wanted"),
    [
        ("results/thesis.tex", "dear", "is not empty and holds no record of ours"),
        ("results", "a file", "results is a file. Choose a new or empty directory"),
        ("results/format.json", json.dumps({"format": FORMAT + 1}), r"format\.json"),
        ("results/format.json", "{}", r"format\.json"),
        ("results/format.json", "not json", r"format\.json"),
        ("results/format.json", "[]", r"format\.json"),
    ],
)
def test_what_is_no_results_directory_is_refused_and_left_alone(
    tmp_path: Path, path: str, content: str, wanted: str
) -> None:
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text(content)
    for refused in (Results(tmp_path / "results").check, Results(tmp_path / "results").prepare):
        with pytest.raises(UserError, match=wanted):
            refused()
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == [tmp_path / path]
    if path == "results":
        with pytest.raises(UserError, match="cannot write to"):
            Results(tmp_path / "results" / "below").prepare()


HOLD = """
import sys
from pathlib import Path
from lr_sweep.sweep.results.directory import Results
with Results(Path(sys.argv[1])).writing("other-study"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def results(tmp_path: Path) -> Results:
    made = Results(tmp_path / "results")
    made.prepare()
    return made


@pytest.fixture
def holder(results: Results) -> Iterator[subprocess.Popen[str]]:
    """Another process that writes to the results directory."""
    command = [sys.executable, "-c", HOLD, str(results.root)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_one_process_writes_and_another_gets_an_error_that_names_it(
    results: Results, holder: subprocess.Popen[str]
) -> None:
    assert results.being_written()
    held = results.holder.read_text()
    for known, named in (
        (held, f"process {holder.pid} on .* \\(study other-study\\)"),
        ("half a fi", "another process"),
    ):
        results.holder.write_text(known)
        with pytest.raises(UserError, match=f"is being written to by {named}"), results.writing("mine"):
            pytest.fail("two processes write")
    assert results.holder.exists()  # the other's
    holder.kill()  # as a crash: it releases nothing itself
    holder.wait()
    assert not results.being_written()
    with suppress(ZeroDivisionError), results.writing("mine"):
        assert results.being_written()
        assert json.loads(results.holder.read_text())["pid"] == os.getpid()
        raise ZeroDivisionError
    assert not results.being_written()
    assert not results.holder.exists()


def _write_half(path: Path) -> None:
    with suppress(ZeroDivisionError), whole_file(path) as partial:
        partial.write_text("half")
        raise ZeroDivisionError


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.json"
    _write_half(path)
    assert list(path.parent.iterdir()) == []
    write_json(path, {"a": 1})
    _write_half(path)
    assert json.loads(path.read_text()) == {"a": 1}
    write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 2}
    assert list(path.parent.iterdir()) == [path]


def dead_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    return ended.pid


def test_what_a_killed_writer_left_is_removed_by_the_next(results: Results) -> None:
    folders = results.written_folders()
    dead = [folder / partial_path(Path("x")).name.replace(str(os.getpid()), str(dead_pid())) for folder in folders]
    mine = results.root / "runs" / partial_path(Path("x")).name
    elsewhere = results.root / "runs" / ".x.another-host-1.partial"
    for path in [*dead, mine, elsewhere]:
        path.touch()
    with results.writing("tiny"):  # no process was killed while it wrote: nothing is looked for
        assert all(path.exists() for path in dead)
    write_json(results.holder, {"pid": dead_pid()})
    assert list(leftovers(results)) == sorted([dead[0], elsewhere, *dead[1:]])
    with results.writing("tiny"):
        assert not any(path.exists() for path in dead)
        assert mine.exists()
        assert elsewhere.exists()


def test_a_folder_that_takes_no_files_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    results = four_runs(tmp_path / "results")
    assert main(["export", "/proc/x.csv", "--results", str(results.root)]) == 2
    assert "cannot write to /proc/x.csv: nothing can be made there. Make it writable" in capsys.readouterr().err


def test_what_a_killed_export_left_beside_its_target_is_removed_by_the_next(tmp_path: Path) -> None:
    results = four_runs(tmp_path / "results")
    left = tmp_path / partial_path(Path("all.csv")).name.replace(str(os.getpid()), str(dead_pid()))
    left.write_bytes(b"half")
    write_csv(results, (), tmp_path / "other.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.csv", "results"]


@pytest.mark.parametrize(
    ("number", "fix"),
    [
        (errno.ENOSPC, "Free some space"),
        (errno.EDQUOT, "Free some space"),
        (errno.EFBIG, r"Raise the limit of the size of files \(`ulimit -f`\)"),
        (errno.EROFS, "Make it writable"),
        (errno.EACCES, "Make it writable"),
    ],
)
def test_storage_problems_are_reported(number: int, fix: str) -> None:
    reason = os.strerror(number)
    wanted = f"cannot write to /results/runs/a: {reason}. {fix}; what is recorded is intact"
    with pytest.raises(UserError, match=wanted), storage_problems(Path("/results")):
        raise OSError(number, reason, "/results/runs/a")
    with pytest.raises(UserError, match="cannot write to /results: "), storage_problems(Path("/results")):
        raise OSError(number, reason)  # names no file
    for problem in (ConnectionError("gone"), FileNotFoundError(2, "No such file"), ValueError("x")):
        with pytest.raises(type(problem)), storage_problems(Path("/results")):
            raise problem


def test_a_write_that_the_system_cuts_short_leaves_the_old_file(results: Results) -> None:
    """A limit on the size of files: the write fails half-way, as on a full disk."""
    write_json(results.root / "old.json", {"a": 0})
    before, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(OSError) as caught:  # noqa: PT011 - its number is looked at
            write_json(results.root / "old.json", {"a": "x" * 10000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(results.root / "old.json"))
    assert json.loads((results.root / "old.json").read_text()) == {"a": 0}
    assert not list(results.root.glob(".*.partial"))


@contextmanager
def disk_of(size: str, place: Path) -> Iterator[Path]:
    """Mount a small disk."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", place]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"may not mount a small disk: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disk_of("64k", tmp_path / "disk") as disk:
        yield disk


def test_a_checkpoint_for_which_there_is_no_room_is_an_error_of_the_disk(small_disk: Path) -> None:
    """safetensors has an error of its own for it."""
    save_checkpoint(small_disk / "run", {"weights": torch.zeros(100)}, {"step": 1})
    with pytest.raises(OSError, match="No space left on device: .*partial-"):
        save_checkpoint(small_disk / "run", {"weights": torch.zeros(100_000)}, {"step": 2})
    assert [path.name[:14] for path in (small_disk / "run").iterdir()] == ["step-000000001"]


def test_a_read_only_disk_is_reported(small_disk: Path) -> None:
    Results(small_disk).prepare()
    with Results(small_disk).writing("mine"):
        pass
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(UserError, match="Read-only file system. Make it writable"):
        Results(small_disk).prepare()
    Results(small_disk).check()  # reading needs no more
    assert not Results(small_disk).being_written()


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(100_000))


@pytest.mark.slow
@pytest.mark.cluster
def test_a_disk_that_fills_up_while_a_sweep_trains_is_reported_and_the_same_command_resumes(tmp_path: Path) -> None:
    study = write_study(tmp_path, num_steps=3000, protocol="{evaluate_every: 100, train_examples_evaluated: 100}")
    with disk_of("40m", tmp_path / "disk") as disk:
        results = disk / "results"
        command = (study, "--results", results, "--cpus", "2", "--checkpoint-every-s", "1")
        with Background(tmp_path / "log", *command) as run:
            run.wait_until(lambda: list(results.glob("curves/*.parquet")))
            fill(disk)
            code, output = run.ends()
        assert code == 2, output
        assert "Traceback" not in output
        assert "No space left on device" in output
        assert "the same command resumes" in output.replace("\n", " ")
        (disk / "filler").unlink()
        swept("run", study, "--results", results)
        assert [row["status"] for row in rows(results).values()] == ["complete"] * 4
