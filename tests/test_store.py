"""A results directory in S3: read on any machine, written by one, in an order in which it may be read."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from analysis.__main__ import main as analysis
from analysis.checksum import parquet_bytes
from analysis.columns import CURVES, RUNS, table
from analysis.record import read_rows
from analysis.run_index import index_lacks, index_path
from analysis.store import Store, StoreError, local_path
from analysis.working_copy import refresh
from sweep.cli import main
from sweep.commands import plan_elsewhere
from sweep.errors import UserError
from sweep.store_lease import Lease
from sweep.store_push import Push, PushThread
from sweep.stored_results import StoredResults, results_here
from sweep.study_file import load_study
from sweep.submission import check_paths
from tests.s3_server import SECRET, Machines, S3Server
from tests.synthetic_record import SyntheticRecord
from tests.tiny_study import curves, in_process, rows, write_study

URI = "s3://bucket/sweeps/one"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def machines(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    """Empty S3, and a machine to begin with."""
    server.empty("bucket")
    machines = Machines(server, tmp_path / "machines", monkeypatch)
    machines.be("first")
    return machines


def add_runs(folder: Path, rates: tuple[float, ...] = (1e-3, 1e-2)) -> SyntheticRecord:
    """Write a study with a complete run for each rate."""
    record = SyntheticRecord(folder, "small")
    for rate in rates:
        record.add(rate, 0, [(100, 0.4, 0.3), (300, 0.5 + rate, 0.4)])
    record.write()
    return record


def filled() -> StoredResults:
    """Write a study into the store as `run` does: below the working copy, by code that knows of directories alone."""
    results = StoredResults(URI)
    results.prepare()
    with results.writing("small"):
        add_runs(results.root)
    return results


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
    assert b"<!doctype html>" in Store(URI).read("studies/small/report/index.html")[:100].lower()
    code, output = in_process("status", "small", "--results", URI)
    assert (code, output.splitlines()[-1]) == (0, f"results: {URI}")
    assert in_process("ls", "--results", URI)[0] == 0
    run_id = next(iter(rows(read.root)))
    assert f"{URI}/checkpoints/{run_id}\n" in in_process("show", run_id, "--results", URI)[1]
    machines.be("third")
    assert analysis([URI]) == 0
    assert f"Report: {URI}/studies/small/report\n" in capsys.readouterr().out


def test_a_second_reading_fetches_what_changed_alone(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.working_copy.SETTLED_NS", -(10**12))
    written = filled()
    machines.be("second")
    copy = refresh(URI)
    first, second = sorted(rows(copy))
    time.sleep(1.1)  # stores tell the second of a change, and the other curve may be as long
    machines.be("first")
    with written.writing("small"):
        written.run(first).unlink()
        written.curve(first).write_bytes(written.curve(second).read_bytes())
    machines.be("second")
    fetched: list[str] = []
    read = Store.read
    monkeypatch.setattr(Store, "read", lambda store, name: fetched.append(name) or read(store, name))
    refresh(URI)
    assert sorted(fetched) == [f"curves/{first}.parquet", "format.json"]
    assert set(rows(copy)) == {second}


def test_a_large_copy_gets_an_index_from_who_reads(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy is this machine's: the store has no index, and the copy's follows what is fetched."""
    for name, value in {"INDEX_FROM": 2, "INDEX_BEHIND": 1, "FEW": 0, "SETTLED_NS": -(10**12)}.items():
        monkeypatch.setattr(f"analysis.run_index.{name}", value)
    written = filled()
    assert index_path(written.root).exists()
    machines.be("second")
    copy = refresh(URI)
    assert index_lacks(copy) == 0
    assert "index.parquet" not in Store(URI).top()
    machines.be("first")
    with written.writing("small"):
        add_runs(written.root, (1e-3, 1e-2, 1e-1))
    machines.be("second")
    assert index_lacks(refresh(URI)) == 0
    assert rows(copy) == rows(written.root)
    assert len(rows(copy)) == 3


def test_a_file_changed_in_a_cache_is_fetched_again(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.working_copy.SETTLED_NS", -(10**12))
    results = filled()
    refresh(URI)
    path = results.run(next(iter(rows(results.root))))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"x")
    (results.root / "runs" / "0123456789abcdef.parquet").write_bytes(whole)
    refresh(URI)
    assert path.read_bytes() == whole
    assert len(rows(results.root)) == 2


def test_at_any_moment_each_row_in_the_store_has_its_curve(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every prefix of what a pass does: rows come last, and go first where curves get shorter."""
    results = filled()
    record = add_runs(results.root)  # the same again
    store, done = Store(URI), []
    push = Push(store, results.root, lambda: None)
    run_id = record.wanted[0]["run_id"]
    record.end(record.wanted[0], [(100, 0.4, 0.3)], "diverged", 150, 150)  # started over, it ended earlier
    new = record.add(1e-1, 0, [(100, 0.4, 0.3), (300, 0.9, 0.4)])
    record.write()

    def check() -> None:
        for name in store.names("runs"):
            last = length(store, name.replace("runs", "curves"))
            assert last == {"complete": 300, "diverged": 100}[status(store, name)], name
        done.append(set(store.names("runs")))

    for method in ("write", "remove"):
        real = getattr(Store, method)
        monkeypatch.setattr(Store, method, lambda *given, real=real: (real(*given), check()))
    push()
    assert {f"runs/{run_id}.parquet" in names for names in done} == {True, False}
    assert f"runs/{new}.parquet" in done[-1]
    done.clear()
    push()
    assert done == []


def status(store: Store, name: str) -> str:
    return read_back(store, name, RUNS)[0]["status"]


def length(store: Store, name: str) -> int:
    return max(point["step"] for point in read_back(store, name, CURVES))


def read_back(store: Store, name: str, columns: tuple) -> list[dict]:
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        file.write(store.read(name))
        file.flush()
        found = read_rows(Path(file.name), columns)
    assert found is not None
    return found


def test_half_an_upload_is_never_seen(machines: Machines) -> None:
    filled()
    store, name = Store(URI), "runs/0123456789abcdef.parquet"
    stream = store._fs.open_output_stream(str(store._root / name))
    stream.write(b"x" * 12_000_000)  # more than a part: it has left this machine
    assert name not in store.names("runs")
    machines.be("second")
    assert len(rows(refresh(URI))) == 2
    stream.close()
    assert name in store.names("runs")


def test_one_writer(machines: Machines) -> None:
    results = StoredResults(URI)
    results.prepare()
    with results.writing("small"):
        machines.be("second")
        elsewhere = StoredResults(URI)
        elsewhere.prepare()
        with pytest.raises(UserError, match=r"is being written to by process \d+ on \S+ \(study small\)"):
            elsewhere.writing("other").__enter__()
        reader = results_here(URI)
        assert reader.being_written()
    assert not results_here(URI).being_written()
    with elsewhere.writing("other"):
        pass


def test_of_two_that_ask_at_once_never_both_may_write(machines: Machines) -> None:
    for _ in range(5):
        leases = [Lease(Store(URI), f"study-{number}", f"copy-{number}") for number in range(3)]
        holding: list[Lease] = []
        together = threading.Barrier(len(leases))

        def ask(lease: Lease, holding: list[Lease] = holding, together: threading.Barrier = together) -> None:
            together.wait()
            try:
                lease.acquire()
            except UserError:
                return
            holding.append(lease)

        threads = [threading.Thread(target=ask, args=(lease,)) for lease in leases]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(holding) <= 1
        for lease in holding:
            lease.release()
        assert Store(URI).names("writers") == {}


def test_a_claim_that_nobody_renews_ends_and_who_comes_back_must_leave(machines: Machines) -> None:
    store = Store(URI)
    frozen, heir, third = (Lease(store, name, f"{name}'s copy", stale_s=3) for name in ("frozen", "heir", "third"))
    frozen.acquire()
    with pytest.raises(UserError, match="its claim ends 3 s after its last sign of life"):
        heir.acquire()
    frozen.renew()  # who asked in vain does no harm
    time.sleep(3.2)
    heir.acquire()
    with pytest.raises(UserError, match=r"counted as dead: process \d+ on \S+ \(study heir\) writes there now"):
        frozen.renew()
    heir.renew()
    time.sleep(3.2)
    heir.renew()  # away for long, but nobody came
    with pytest.raises(UserError, match="study heir"):
        third.acquire()


def test_a_claim_that_is_removed_while_it_is_renewed_is_lost(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease(Store(URI), "small", "this copy")
    lease.acquire()
    monkeypatch.setattr(Store, "write", lambda store, name, content: store.remove(name))
    with pytest.raises(UserError, match="counted as dead: another process writes there now"):
        lease.renew()


def test_who_died_on_this_machine_need_not_be_waited_for(machines: Machines) -> None:
    store = Store(URI)
    died, elsewhere, here = (Lease(store, name, copy) for name, copy in (("a", "one"), ("b", "two"), ("c", "one")))
    died.acquire()
    with pytest.raises(UserError):
        elsewhere.acquire()
    here.acquire()
    assert list(store.names("writers")) == [f"{here._name}.held"]


def test_storage_away_for_a_while(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written meanwhile comes later; it is told once, and nothing waits for it."""
    monkeypatch.setattr("sweep.stored_results.PushThread", partial(PushThread, every_s=0.2))
    results = StoredResults(URI)
    results.prepare()
    told: list[str] = []
    with results.writing("small"):
        record = add_runs(results.root)
        results.settle()
        with machines.server.away():
            began = time.monotonic()
            late = record.add(1e-1, 0, [(300, 0.9, 0.4)])
            record.write()
            assert results.news() == []
            assert time.monotonic() - began < 0.5
            while not told:
                told += results.news()
                time.sleep(0.1)
        results.settle()
        told += results.news()
        assert f"runs/{late}.parquet" in Store(URI).names("runs")
    assert [message.partition(" (")[0] for message in told] == [
        f"{URI} takes nothing",
        f"{URI} has everything again",
    ]


def test_storage_away_at_the_end_is_an_error_and_the_record_claims_no_more_than_is_there(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = filled()
    monkeypatch.setattr("sweep.stored_results.PATIENCE_S", 1.0)
    writing = results.writing("small")
    writing.__enter__()
    with machines.server.away():
        record = add_runs(results.root, (1e-3, 1e-2, 1e-1))
        with pytest.raises(UserError, match="did not take everything within 1 s"):
            writing.__exit__(None, None, None)
    assert len(rows(results.root)) == 3
    refresh(URI)  # the store is the truth: what it lacks is made again from checkpoints
    assert len(rows(results.root)) == 2
    assert record.wanted[2]["run_id"] not in rows(results.root)


def test_a_reader_beside_a_run_on_the_same_machine_sees_what_the_run_wrote(machines: Machines) -> None:
    results = filled()
    with results.writing("small"):
        run_id = next(iter(rows(results.root)))
        results.run(run_id).unlink()
        assert refresh(URI) == results.root
        assert run_id not in rows(results.root)


def test_a_thread_that_lost_the_right_to_write_writes_nothing_more(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, store = filled(), Store(URI)
    lease = Lease(store, "small", "this copy")
    lease.acquire()
    thread = PushThread(store, results.root, lease, every_s=0.1)
    assert thread.flush(10)
    monkeypatch.setattr("sweep.store_lease.BEAT_S", 0.0)
    store.write("writers/other.held", b"{}")
    (results.root / "runs" / "0123456789abcdef.parquet").write_bytes(parquet_bytes(table([], RUNS)))
    assert not thread.flush(10)
    with pytest.raises(UserError, match="another process writes there now"):
        thread.news()
    assert "runs/0123456789abcdef.parquet" not in store.names("runs")


@pytest.mark.parametrize(
    ("uri", "wanted"),
    [
        ("ftp://host/results", "want a directory, file:///PATH, or an object store, s3://"),
        ("hdfs://host/results", "only there half a file is never seen"),
        (f"s3://key:{SECRET}@bucket/results", "got credentials in the address of s3://bucket/results"),
        ("s3:///results", "want the name of a bucket"),
        ("s3://no-such-bucket/results", "cannot use s3://no-such-bucket/results"),
        ("s3://bucket/strange", "holds 'thesis.tex' and no record of ours"),
    ],
)
def test_addresses_that_are_refused(
    machines: Machines, uri: str, wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Store("s3://bucket/strange").write("thesis.tex", b"dear")
    assert main(["status", "quickstart", "--results", uri]) == 2
    printed = capsys.readouterr().err
    assert wanted in printed
    assert SECRET not in printed
    with pytest.raises(StoreError):
        refresh(uri)


def test_commands_for_directories_alone_say_so(machines: Machines, tmp_path: Path) -> None:
    filled()
    archive = tmp_path / "all.tar"
    for command in (["gc"], ["import", str(archive)], ["export", str(archive), "--checkpoints"]):
        assert main([*command, "--results", URI]) == 2


def test_a_store_can_be_submitted_to_and_its_plan_is_shown_where_it_can_be_read(
    machines: Machines, tmp_path: Path
) -> None:
    check_paths(URI, "/shared/data")
    with pytest.raises(StoreError, match="want a directory"):
        check_paths("ftp://host/results", "/shared/data")
    study = load_study(write_study(tmp_path))
    plan = plan_elsewhere(study, URI, tmp_path)
    assert "4 wanted: 4 new" in plan
    assert f"results    {URI}" in plan
    assert plan_elsewhere(study, "s3://no-such-bucket/p", tmp_path).startswith("No plan from here: cannot use s3://no")


def test_a_file_uri_is_a_directory(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    add_runs(folder)
    assert local_path(folder.as_uri()) == folder
    assert in_process("status", "small", "--results", folder.as_uri())[0] == 0
    assert analysis([folder.as_uri()]) == 0


def test_no_secret_is_kept(machines: Machines) -> None:
    results = filled()
    for path in results.root.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()
    store = Store(URI)
    assert not any(SECRET.encode() in store.read(name) for name in store.names(""))
