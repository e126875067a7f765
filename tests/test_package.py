"""What of a checkout is sent to a cluster."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from sweep import provenance
from sweep.errors import UserError
from sweep.package import max_package_bytes, pack, shipped_files
from tests.tiny_study import ROOT

MIB = 2**20


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    left_out = (".git/config", "results/runs/r.parquet", "docs/d.md", "sweep/__pycache__/a.pyc", "big.log")
    for name in ("sweep/a.py", *left_out):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / ".gitignore").write_text("*.log\n")
    return folder


def test_what_is_packed(checkout: Path, tmp_path: Path) -> None:
    package = tmp_path / "checkout.zip"
    size = pack(checkout, {"submitted/tiny.yaml": "study: tiny"}, package, MIB)
    assert size == package.stat().st_size
    with zipfile.ZipFile(package) as archive:
        assert sorted(archive.namelist()) == [".gitignore", "packed.json", "submitted/tiny.yaml", "sweep/a.py"]
        assert archive.read("submitted/tiny.yaml") == b"study: tiny"
        assert archive.read("sweep/a.py") == b"sweep/a.py"


def test_equal_checkouts_make_equal_packages(checkout: Path, tmp_path: Path) -> None:
    """Ray names packages by their content, and does not send again what a cluster has."""
    first, second = tmp_path / "1.zip", tmp_path / "2.zip"
    pack(checkout, {}, first, MIB)
    os.utime(checkout / "sweep" / "a.py", (0, 0))
    pack(checkout, {}, second, MIB)
    assert first.read_bytes() == second.read_bytes()


def test_a_checkout_that_is_too_large_is_refused_on_the_way(checkout: Path, tmp_path: Path) -> None:
    for number, size in enumerate((3 * MIB, 20 * MIB)):
        (checkout / f"{number}.bin").write_bytes(os.urandom(size))
    package = tmp_path / "checkout.zip"
    wanted = r"larger than the 5 MiB .* largest files: 1.bin \(20.0 MiB\), 0.bin \(3.0 MiB\)"
    with pytest.raises(UserError, match=wanted):
        pack(checkout, {}, package, 5 * MIB)
    assert package.stat().st_size < 7 * MIB


def test_all_of_this_program_is_sent_and_fits() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "analysis", "datasets", "sweep", "trainables"], cwd=ROOT, capture_output=True, text=True
    )
    if tracked.returncode:
        pytest.skip("no git checkout")
    sent = {path.relative_to(ROOT).as_posix() for path in shipped_files(ROOT)}
    assert {name for name in tracked.stdout.splitlines() if (ROOT / name).exists()} <= sent
    assert max_package_bytes() == 100 * MIB
    assert sum((ROOT / name).stat().st_size for name in sent) < 20 * MIB


def test_a_packed_checkout_knows_its_commit(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs trained on a cluster are recorded with the commit of the laptop's checkout; no .git travels."""
    monkeypatch.setattr("sweep.package.git_state", lambda: ("0f3a", True))
    pack(checkout, {}, tmp_path / "checkout.zip", MIB)
    with zipfile.ZipFile(tmp_path / "checkout.zip") as archive:
        archive.extractall(tmp_path / "there")
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path / "there")
    assert provenance.git_state() == ("0f3a", True)
