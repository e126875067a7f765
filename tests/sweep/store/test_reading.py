"""A results directory in S3 is read on any machine, through a working copy."""

from __future__ import annotations

import pytest

from lr_sweep.common.object_store import ObjectStore, StoreError
from lr_sweep.common.working_copy import KEPT, refresh
from lr_sweep.sweep.cli.parser import main
from lr_sweep.sweep.cluster.jobs import check_paths
from lr_sweep.sweep.store.results import results_here
from lr_sweep.tests.support.servers.s3_server import SECRET, Machines
from lr_sweep.tests.support.synthetic import URI, filled
from lr_sweep.tests.support.tiny_study import curves, in_process, refused, rows, succeeds


@pytest.mark.parametrize("name", ["studies/../mlflow.db", "runs/../a.parquet", "pretrained/../a", "curves/.a.parquet"])
def test_names_in_a_store_lead_nowhere_else(name: str) -> None:
    assert not any(pattern.fullmatch(name) for pattern in KEPT.values())
    assert KEPT["studies"].fullmatch("studies/small/wanted.parquet")


@pytest.mark.usefixtures("undrawn")
def test_what_is_written_here_is_read_on_a_machine_that_has_nothing(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    written = filled()
    machines.be("second")
    read = results_here(URI)
    assert read.root != written.root
    assert len(rows(read.root)) == 2
    assert rows(read.root) == rows(written.root)
    assert curves(read.root) == curves(written.root)
    assert not read.being_written()
    assert main(["report", "small", "--results", URI]) == 0
    assert f"store      {URI}/studies/small/report\n" in capsys.readouterr().out
    assert b"<!doctype html>" in ObjectStore(URI).find("studies/small/report/index.html").content[:100].lower()
    code, output = in_process("status", "small", "--results", URI)
    assert (code, output.splitlines()[-1]) == (0, f"results: {URI}")
    succeeds("ls", "--results", URI)
    run_id = next(iter(rows(read.root)))
    assert f"{URI}/checkpoints/{run_id}\n" in in_process("show", run_id, "--results", URI)[1]
    store = ObjectStore(URI)
    kept = [path.read_bytes() for path in read.root.rglob("*") if path.is_file()]
    kept += [store.find(name).content for name in store.names("")]
    assert not any(SECRET.encode() in content for content in kept)


def test_a_second_reading_fetches_what_changed_alone(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    written = filled()
    machines.be("second")
    copy = refresh(URI)
    first, second = sorted(rows(copy))
    machines.be("first")
    with written.writing("small"):
        written.run(first).unlink()
        written.curve(first).write_bytes(written.curve(second).read_bytes())
    machines.be("second")
    fetched: list[str] = []
    find = ObjectStore.find
    monkeypatch.setattr(ObjectStore, "find", lambda store, name: fetched.append(name) or find(store, name))
    refresh(URI)
    assert sorted(fetched) == [f"curves/{first}.parquet", "format.json"]
    assert set(rows(copy)) == {second}


def test_a_file_changed_in_a_cache_is_fetched_again(machines: Machines) -> None:
    results = filled()
    refresh(URI)
    path = results.run(next(iter(rows(results.root))))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"x")
    (results.root / "runs" / "0123456789abcdef.parquet").write_bytes(whole)
    refresh(URI)
    assert path.read_bytes() == whole
    assert len(rows(results.root)) == 2


def test_a_reader_beside_a_run_on_the_same_machine_sees_what_the_run_wrote(machines: Machines) -> None:
    results = filled()
    with results.writing("small"):
        run_id = next(iter(rows(results.root)))
        results.run(run_id).unlink()
        assert refresh(URI) == results.root
        assert run_id not in rows(results.root)


@pytest.mark.parametrize(
    ("uri", "wanted"),
    [
        ("ftp://host/results", "want a directory, or s3://BUCKET/PREFIX"),
        ("s3://bucket/results?region=eu-west-1", "a region with AWS_DEFAULT_REGION"),
        (f"s3://key:{SECRET}@bucket/results", "got credentials in the address of s3://bucket/results"),
        ("s3:///results", "or s3://BUCKET/PREFIX alone"),
        ("s3://no-such-bucket/results", "cannot use s3://no-such-bucket/results"),
        ("s3://bucket/strange", "holds 'thesis.tex' and no record of ours"),
    ],
)
def test_addresses_that_are_refused(machines: Machines, uri: str, wanted: str) -> None:
    ObjectStore("s3://bucket/strange").write("thesis.tex", b"dear")
    printed = refused("status", "quickstart", "--results", uri)
    assert wanted in printed
    assert SECRET not in printed
    with pytest.raises(StoreError):
        refresh(uri)


def test_a_command_for_directories_alone_says_so(machines: Machines) -> None:
    filled()
    refused("gc", "--results", URI)


def test_a_store_can_be_submitted_to() -> None:
    check_paths(URI, "/shared/data")
    with pytest.raises(StoreError, match="want a directory"):
        check_paths("ftp://host/results", "/shared/data")
