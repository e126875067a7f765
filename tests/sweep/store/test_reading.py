"""A results directory in S3 is read on any machine, through a working copy."""

from __future__ import annotations

import pytest

from lr_sweep.analysis.__main__ import main as analysis
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.common.object_store import ObjectStore
from lr_sweep.common.working_copy import KEPT, refresh
from lr_sweep.sweep.cli.parser import main
from lr_sweep.sweep.store.results import StoredResults, results_here
from lr_sweep.tests.support.records import rows_not_indexed
from lr_sweep.tests.support.servers.s3_server import Machines
from lr_sweep.tests.support.synthetic import URI, add_runs, filled
from lr_sweep.tests.support.tiny_study import curves, in_process, rows, succeeds


@pytest.mark.parametrize("name", ["studies/../mlflow.db", "runs/../a.parquet", "pretrained/../a", "curves/.a.parquet"])
def test_names_in_a_store_lead_nowhere_else(name: str) -> None:
    assert not any(pattern.fullmatch(name) for pattern in KEPT.values())
    assert KEPT["studies"].fullmatch("studies/small/wanted.parquet")


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
    machines.be("third")
    assert analysis([URI]) == 0
    assert f"Report: {URI}/studies/small/report\n" in capsys.readouterr().out


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


def test_a_large_copy_gets_an_index_from_who_reads(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy is this machine's: the store has no index, and the copy's follows what is fetched."""
    for name, value in {"INDEX_FROM": 2, "INDEX_BEHIND": 1, "FEW": 0, "SETTLED_NS": -(10**12)}.items():
        monkeypatch.setattr(f"lr_sweep.analysis.record.index.{name}", value)
    written = filled()
    assert Paths(written.root).index.exists()
    machines.be("second")
    reader = StoredResults(URI)
    reader.refresh()
    assert rows_not_indexed(reader.root) == 0
    assert "index.parquet" not in ObjectStore(URI).names("")
    machines.be("first")
    with written.writing("small"):
        add_runs(written.root, (1e-3, 1e-2, 1e-1))
    machines.be("second")
    reader.refresh()
    assert rows_not_indexed(reader.root) == 0
    assert rows(reader.root) == rows(written.root)
    assert len(rows(reader.root)) == 3


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
