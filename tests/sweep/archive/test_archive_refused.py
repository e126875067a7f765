"""Archives that are damaged or made up: refused, with nothing changed; and exports and imports that cannot be."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lr_sweep.analysis.record.columns import CURVES, RUNS
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.record.read import RecordError
from lr_sweep.common.errors import UserError
from lr_sweep.sweep.archive.exporter import export
from lr_sweep.sweep.archive.format import Entry, manifest_text
from lr_sweep.sweep.archive.importer import import_archive
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.archives import packed, refusal
from lr_sweep.tests.support.records import (
    Trained,
    add,
    add_study,
    checkpoint_bytes,
    files,
    four_runs,
    new_results,
    points,
    row,
    run_id_of,
    write,
)

TWO = Trained(evaluations=2)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return four_runs(tmp_path / "results")


@pytest.fixture
def other(tmp_path: Path) -> Results:
    return new_results(tmp_path / "other")


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), cut=st.booleans())
def test_a_damaged_archive_is_refused_or_has_the_same_content(
    tmp_path_factory: pytest.TempPathFactory, where: float, bit: int, cut: bool
) -> None:
    """The padding of a tar holds nothing, and damage there does none."""
    folder = tmp_path_factory.getbasetemp() / "damage"
    if not folder.exists():
        source = new_results(folder / "source")
        add(source, 0, Trained(evaluations=2))
        add_study(source, "grid", {0: 20})
        packed(source)
    content = (folder / "0.tar").read_bytes()
    offset = int(where * len(content))
    broken = content[:offset] + (b"" if cut else bytes([content[offset] ^ (1 << bit)]) + content[offset + 1 :])
    (folder / "broken").write_bytes(broken)
    shutil.rmtree(folder / "target", ignore_errors=True)
    target = new_results(folder / "target")
    empty = files(target.root)
    try:
        import_archive(folder / "broken", target)
    except UserError:
        assert files(target.root) == empty
    else:
        assert files(target.root) == files(folder / "source")


def test_a_flipped_bit_in_any_file_is_refused(results: Results, other: Results) -> None:
    archive = packed(results)
    content = archive.read_bytes()
    with tarfile.open(archive) as tar:
        members = tar.getmembers()[1:]
    for member in members:
        offset = member.offset_data + member.size // 2
        archive.write_bytes(content[:offset] + bytes([content[offset] ^ 1]) + content[offset + 1 :])
        assert f"the sha256 of {member.name} is not the one in its manifest" in refusal(archive, other)
        archive.write_bytes(content[:offset])
        assert "Nothing was changed" in refusal(archive, other)


Member = tuple[str, bytes]


def forged(
    folder: Path,
    members: list[Member],
    types: dict[str, bytes] | None = None,
    *,
    files: dict[str, Any] | None = None,
    all_files: Any = None,
    **manifest: Any,
) -> Path:
    """An archive whose manifest fits its members, but for `files` by path, or `all_files`, and other keys."""
    entries = {n: Entry(sha256=hashlib.sha256(c).hexdigest(), num_bytes=len(c)) for n, c in members}
    document = json.loads(manifest_text(entries)) | manifest
    document["files"] = document["files"] | (files or {}) if all_files is None else all_files
    path = folder / "forged.tar"
    with tarfile.open(path, "w") as tar:
        for name, content in [("manifest.json", json.dumps(document, separators=(",", ":")).encode()), *members]:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.type = (types or {}).get(name, tarfile.REGTYPE)
            member.linkname = "/etc/passwd" if member.type != tarfile.REGTYPE else ""
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize(
    "name",
    [
        "/tmp/runs/0123456789abcdef.parquet",
        "../runs/0123456789abcdef.parquet",
        "runs/../../0123456789abcdef.parquet",
        "runs/./0123456789abcdef.parquet",
        "runs/0123456789abcdef.parquet ",
        "runs/0123456789ABCDEF.parquet",
        "runs/short.parquet",
        "studies/a/b.yaml",
        "studies/../study.json",
        "studies/a/report/report.md",
        "pretrained/gpt2-2x16-000000000000/code.py",
        "checkpoints/0123456789abcdef/damaged-step-000000010-0123456789abcdef.safetensors",
        "format.json",
        "writer.lock",
        "mlflow.db",
    ],
)
def test_a_path_that_is_not_of_a_record_is_refused(tmp_path: Path, other: Results, name: str) -> None:
    assert "may not be in an archive" in refusal(forged(tmp_path, [(name, b"x")]), other)


NAME, ZEROS = "runs/0123456789abcdef.parquet", "0" * 64


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.GNUTYPE_SPARSE],
)
def test_only_plain_files_are_taken(tmp_path: Path, other: Results, kind: bytes) -> None:
    assert f"'{NAME}' is not a plain file" in refusal(forged(tmp_path, [(NAME, b"")], {NAME: kind}), other)


@pytest.mark.parametrize(
    ("members", "manifest", "wanted"),
    [
        ([(NAME, b"x"), (NAME, b"x")], {}, "is not in its manifest, or there twice"),
        ([("runs/evil", b"x")], {"files": {"runs/evil": {}}}, "its manifest.json cannot be read"),
        ([(NAME, b"xy")], {"files": {NAME: {"sha256": ZEROS, "bytes": 1}}}, f"{NAME} has 2 bytes, want 1"),
        ([(NAME, b"xy")], {"files": {NAME: {"sha256": ZEROS, "bytes": 2}}}, "is not the one in its manifest"),
        ([], {"files": {NAME: {"sha256": ZEROS, "bytes": 2}}}, f"1 files of its manifest are missing, {NAME} for one"),
        ([], {"files": {NAME: {"sha256": ZEROS, "bytes": -1}}}, "its manifest.json cannot be read"),
        ([], {"files": {NAME: {"sha256": [[]], "bytes": 1}}}, "its manifest.json cannot be read"),
        ([], {"files": {NAME: {"sha256": ZEROS, "bytes": 10**10}}}, "of 10000000000 bytes may not be in an archive"),
        ([], {"files": {NAME: {"sha256": ZEROS, "bytes": 10**6}}}, "smaller than the files that its manifest lists"),
        ([], {"all_files": []}, "its manifest.json cannot be read"),
        ([], {"archive": 2}, "got archive version 2 of record format 1, want 1 of 1: import it with the version"),
        ([], {"format": 9}, "got archive version 1 of record format 9, want 1 of 1"),
        ([(NAME, b"no parquet")], {}, "it is not as this program writes it (cannot read runs/"),
        (
            [("studies/a/study.json", b"{}")],
            {},
            "is not as this program writes it (studies/a/study.json: got keys []",
        ),
        ([("pretrained/gpt2-2x16-000000000000/model.safetensors", b"x" * 99)], {}, "pretrained/gpt2-2x16-"),
        ([("pretrained/gpt2-2x16-000000000000/config.json", b"{}")], {}, "pretrained/gpt2-2x16-"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, other: Results, members: list[Member], manifest: dict[str, Any], wanted: str
) -> None:
    archive = forged(tmp_path, members, **manifest)
    assert wanted in refusal(archive, other)


def test_a_file_that_is_not_in_the_manifest_is_refused(tmp_path: Path, other: Results) -> None:
    archive = forged(tmp_path, [])
    with tarfile.open(archive, "a") as tar:
        tar.addfile(tarfile.TarInfo(NAME))
    assert f"'{NAME}' is not in its manifest" in refusal(archive, other)


def test_other_files_are_no_archives(results: Results, tmp_path: Path, other: Results) -> None:
    (tmp_path / "text").write_text("not a tar")
    assert "it is no tar file" in refusal(tmp_path / "text", other)
    assert "No such file or directory" in refusal(tmp_path / "none", other)
    assert "Is a directory" in refusal(tmp_path, other)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(tmp_path / "text", "text")
    assert "its first member is not manifest.json" in refusal(tmp_path / "a.tar", other)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar, tarfile.open(packed(results)) as plain:
        for member in plain:
            tar.addfile(member, plain.extractfile(member))
    assert "it is no tar file" in refusal(tmp_path / "a.tar.gz", other)


def of_run(tmp_path: Path, rows: list[dict[str, Any]], curve: list[dict[str, Any]]) -> Path:
    """An archive of seed 0's run with any content in its two files."""
    scratch, run_id = tmp_path / "scratch", run_id_of(0)
    write(Paths(scratch).run(run_id), rows, RUNS)
    write(Paths(scratch).curve(run_id), curve, CURVES)
    return forged(tmp_path, list(files(scratch).items()))


def test_what_verify_would_name_is_refused(tmp_path: Path, other: Results) -> None:
    """What that is, is tested with `verify`, and for every kind of file with those that are damaged."""
    sound, curve = row(0, TWO), points(run_id_of(0), TWO)
    assert "learning_rate: got 0.5, content has 0.01)" in refusal(
        of_run(tmp_path, [sound | {"learning_rate": 0.5}], curve), other
    )
    assert "got 2 rows, want 1)" in refusal(of_run(tmp_path, [sound, row(1, TWO)], curve), other)
    assert "evaluation 1 is at step 20, want 10)" in refusal(of_run(tmp_path, [sound], curve[::-1]), other)


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"K", b"S"])
def test_broken_headers_are_refused(tmp_path: Path, other: Results, kind: bytes) -> None:
    for record in (b"x path=y\n", b"-1 path=y\n", b"99 a=b\n", b"\xff\xff", b"9 size=x\n", b"0 a=\n", b"11 a\n"):
        header = tarfile.TarInfo("./PaxHeaders/a")
        header.type, header.size = kind, len(record)
        blocks = header.tobuf(tarfile.USTAR_FORMAT) + record.ljust(512, b"\0")
        (tmp_path / "pax.tar").write_bytes(blocks + tarfile.TarInfo("manifest.json").tobuf() + b"\0" * 1024)
        assert "pax.tar: " in refusal(tmp_path / "pax.tar", other)


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        (f"step-000000010-{'0' * 16}.safetensors", checkpoint_bytes(10), "its sha256 begins with "),
        ("step-000000011-{}.safetensors", checkpoint_bytes(10), "its step is not the one in its name"),
        ("step-000000010-{}.safetensors", b"not tensors", "is not as this program writes it"),
    ],
)
def test_a_checkpoint_that_no_trainer_wrote_is_refused(
    tmp_path: Path, other: Results, name: str, content: bytes, wanted: str
) -> None:
    name = name.format(hashlib.sha256(content).hexdigest()[:16])
    assert wanted in refusal(forged(tmp_path, [(f"checkpoints/{run_id_of(0)}/{name}", content)]), other)


def test_an_export_that_cannot_be(results: Results, tmp_path: Path) -> None:
    def message(target: Path, *names: str, source: Results = results) -> str:
        with pytest.raises((UserError, RecordError)) as caught:
            export(source, target, names, checkpoints=False)
        return str(caught.value)

    (tmp_path / "there.tar").write_text("precious")
    assert "exists; `export` overwrites nothing" in message(tmp_path / "there.tar")
    assert (tmp_path / "there.tar").read_text() == "precious"
    assert "no study 'frist'" in message(tmp_path / "a.tar", "frist")
    assert "it has first, second" in message(tmp_path / "a.tar", "frist")
    assert f"there is no folder {tmp_path / 'there.tar'}" in message(tmp_path / "there.tar" / "a.tar")
    assert f"there is no folder {tmp_path / 'no'}" in message(tmp_path / "no" / "a.tar")
    assert "holds nothing to export" in message(tmp_path / "a.tar", source=new_results(tmp_path / "new"))
    assert "no results directory at" in message(tmp_path / "a.tar", source=Results(tmp_path / "none"))
    assert not (tmp_path / "a.tar").exists()
    assert not list(tmp_path.glob(".*"))


def test_an_import_that_cannot_be(results: Results, other: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = packed(results)
    with other.writing("a study"), pytest.raises(UserError, match="is being written to by process"):
        import_archive(archive, other)
    monkeypatch.setattr(Results, "free_bytes", lambda self: 1000)
    assert "has 0.0 MB free and" in refusal(archive, other)
