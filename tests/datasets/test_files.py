"""Finding, downloading and verifying files, with a made-up download in place of a network."""

import dataclasses
import hashlib
import os
import socket
import time
from pathlib import Path

import pytest

from lr_sweep.datasets import TASKS, cifar10, files, mnist
from lr_sweep.datasets.task import DataError
from lr_sweep.tests.support.task_files import OFFLINE, REMOTE, in_four_processes, write_files


def listing(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_mtime_ns) for path in [folder, *folder.rglob("*")])


def test_what_is_missing_is_downloaded_and_what_is_there_is_kept(tmp_path: Path) -> None:
    kept = tmp_path / "toy/raw/a.bin"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"first")
    before = kept.stat().st_ino
    assert files.fetch(REMOTE, tmp_path) == tmp_path / "toy"
    assert kept.stat().st_ino == before
    assert (tmp_path / "toy/raw/b.bin").read_bytes() == b"second"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".toy.lock", "toy"]


def test_complete_folder_is_only_read(tmp_path: Path) -> None:
    write_files(tmp_path / "toy")
    before = listing(tmp_path)
    files.fetch(OFFLINE, tmp_path)
    assert listing(tmp_path) == before


def test_missing_without_network(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        files.fetch(OFFLINE, tmp_path)
    message = str(error.value)
    assert f"{tmp_path}/toy/raw/a.bin\n" in message
    assert "Name or service not known" in message
    assert f"lr-sweep data toy --data-dir {tmp_path}" in message
    assert f"copy the files to {tmp_path}/toy." in message
    assert [path.name for path in tmp_path.iterdir()] == [".toy.lock"]


def test_corrupted_file(tmp_path: Path) -> None:
    write_files(tmp_path / "toy")
    (tmp_path / "toy/raw/a.bin").write_bytes(b"fIrst")
    got, want = hashlib.md5(b"fIrst").hexdigest(), hashlib.md5(b"first").hexdigest()
    with pytest.raises(DataError, match=f"raw/a.bin is corrupted: its md5 is {got}, wanted {want}. Delete it and run"):
        files.fetch(REMOTE, tmp_path)
    assert (tmp_path / "toy/raw/a.bin").read_bytes() == b"fIrst"


def test_missing_in_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "is_writable", lambda folder: False)  # root may write anywhere, so no chmod
    with pytest.raises(DataError, match="is not writable"):
        files.fetch(REMOTE, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_is_writable_obeys_permissions(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    assert not files.is_writable(tmp_path)
    tmp_path.chmod(0o755)
    assert files.is_writable(tmp_path)


def test_data_directory_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"does not exist\. Create it"):
        files.fetch(REMOTE, tmp_path / "typo")
    assert not (tmp_path / "typo").exists()


def test_default_data_directory_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWEEP_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert files.default_data_dir() == tmp_path / "lr-sweep" / "data"
    files.fetch(REMOTE, files.default_data_dir())
    monkeypatch.setenv("SWEEP_DATA_DIR", "/elsewhere")
    assert files.default_data_dir() == Path("/elsewhere")


def test_several_processes_download_once(tmp_path: Path) -> None:
    log = tmp_path / "downloads.txt"

    def download(folder: Path) -> None:
        with log.open("a") as file:
            file.write("once\n")
        time.sleep(0.2)
        write_files(folder)

    remote = dataclasses.replace(REMOTE, download=download)
    in_four_processes(files.fetch, remote, tmp_path)
    assert log.read_text() == "once\n"


def test_md5s_are_torchvisions() -> None:
    from torchvision.datasets import CIFAR10, MNIST

    assert mnist.FILES.md5s == {f"MNIST/raw/{name}": md5 for name, md5 in MNIST.resources}
    batches = [*CIFAR10.train_list, *CIFAR10.test_list, (CIFAR10.meta["filename"], CIFAR10.meta["md5"])]
    assert cifar10.FILES.md5s == {f"{CIFAR10.base_folder}/{name}": md5 for name, md5 in batches}


@pytest.mark.parametrize("task", ["mnist", "cifar10"])
def test_torchvision_without_network(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with pytest.raises(DataError, match="downloading failed"):
        TASKS[task].fetch(TASKS[task].Options(), tmp_path)
