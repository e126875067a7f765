"""The lock of a store: one writer at a time."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.common.object_store import ObjectStore, StoreError
from lr_sweep.common.working_copy import INCOMING, refresh
from lr_sweep.sweep.store.results import StoredResults, results_here
from lr_sweep.sweep.store.writing import LOCK, StoreLock, current_writer
from lr_sweep.tests.support.servers.s3_server import Machines, faulty
from lr_sweep.tests.support.synthetic import URI, add_runs, lock_of
from lr_sweep.tests.support.tiny_study import curves, rows, succeeds


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


def test_of_several_that_ask_at_once_one_may_write(machines: Machines) -> None:
    holding: list[StoreLock] = []
    together = threading.Barrier(4)

    def ask(lock: StoreLock) -> None:
        together.wait()
        with suppress(UserError):
            lock.acquire()
            holding.append(lock)

    threads = [threading.Thread(target=ask, args=(lock_of(f"study-{number}"),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (held,) = holding
    assert current_writer(ObjectStore(URI))["study"].startswith("study-")
    held.release()
    assert current_writer(ObjectStore(URI)) == {}


def test_a_lock_that_is_not_renewed_can_be_taken_and_its_holder_notices(machines: Machines) -> None:
    frozen, heir, third = (lock_of(name, stale_s=3) for name in ("frozen", "heir", "third"))
    frozen.acquire()
    with pytest.raises(
        UserError, match=r"written to by process \d+ on \S+ \(study frozen\)\. .* can be taken 3 s after"
    ):
        heir.acquire()
    frozen.renew()  # who asked in vain does no harm
    time.sleep(3.2)
    heir.acquire()
    with pytest.raises(UserError, match=r"counted as dead: process \d+ on \S+ \(study heir\) writes there now"):
        frozen.renew()
    frozen.release()  # which is not its own any more
    heir.renew()
    assert current_writer(ObjectStore(URI), stale_s=0) == {}
    heir.renew()  # late, but no other process took the lock
    with pytest.raises(UserError, match="study heir"):
        third.acquire()
    heir.release()
    third.acquire()


def test_a_lock_that_is_removed_is_lost(machines: Machines) -> None:
    lock = lock_of("small")
    lock.acquire()
    ObjectStore(URI).remove(LOCK)
    with pytest.raises(UserError, match="counted as dead: another process writes there now"):
        lock.renew()


def test_a_lost_answer_loses_no_lock(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client tries again, and finds its own object where it wanted none, or another version than it knows."""
    lock, write_if = lock_of("small"), ObjectStore.write_if

    def twice(store: ObjectStore, version: str | None, name: str, content: bytes) -> str | None:
        write_if(store, version, name, content)
        return write_if(store, version, name, content)

    monkeypatch.setattr(ObjectStore, "write_if", twice)
    lock.acquire()
    lock.renew()
    lock.release()
    assert current_writer(ObjectStore(URI)) == {}


def test_a_renewal_that_arrives_while_the_server_goes_away_loses_no_lock(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object is replaced, but the answer and all attempts after it are lost; then the server is back."""
    lock, write_if = lock_of("small"), ObjectStore.write_if

    def unanswered(store: ObjectStore, version: str | None, name: str, content: bytes) -> str | None:
        write_if(store, version, name, content)
        raise OSError("no answer")

    lock.acquire()
    monkeypatch.setattr(ObjectStore, "write_if", unanswered)
    with pytest.raises(OSError, match="no answer"):
        lock.renew()
    monkeypatch.setattr(ObjectStore, "write_if", write_if)
    lock.renew()
    with pytest.raises(UserError, match="study small"):
        lock_of("other").acquire()
    lock.release()
    assert current_writer(ObjectStore(URI)) == {}


def test_a_server_without_conditional_writes_is_refused(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    def unconditional(store: ObjectStore, version: str | None, name: str, content: bytes) -> str:
        store.write(name, content)
        return "a version"

    monkeypatch.setattr(ObjectStore, "write_if", unconditional)
    with pytest.raises(UserError, match="ignores `If-None-Match`, so it cannot keep two writers apart"):
        lock_of("small").acquire()


def test_who_died_on_this_machine_need_not_be_waited_for(machines: Machines) -> None:
    died, elsewhere, here = lock_of("a", "one"), lock_of("b", "two"), lock_of("c", "one")
    died.acquire()
    with pytest.raises(UserError):
        elsewhere.acquire()
    here.acquire()
    assert current_writer(ObjectStore(URI))["study"] == "c"


RATES = tuple(1e-3 * (1 + number) for number in range(10))


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lr_sweep.common.object_store._PAUSES_S", (0.01, 0.1))


@pytest.fixture
def written(machines: Machines) -> Path:
    """Ten runs in the store; then this is another machine."""
    results = StoredResults(URI)
    results.prepare()
    with results.writing("small"):
        add_runs(results.root, RATES)
    return results.root


def test_every_body_that_is_cut_is_asked_for_again(machines: Machines, written: Path) -> None:
    with faulty(machines.server, cut=0.3) as server:
        machines.be("second", server)
        copy = refresh(URI)
        assert sum(number for (_, _, fate), number in server.seen.items() if fate == "cut") > 0
        large = ObjectStore(URI)
        large.write("checkpoints/a/large", bytes(20_000_000))
        large.download("checkpoints/a/large", copy / "large")
        assert (copy / "large").stat().st_size == 20_000_000
        assert large.sha256("checkpoints/a/large") == large.sha256("checkpoints/a/large")
    assert (rows(copy), curves(copy)) == (rows(written), curves(written))
    assert not (copy / INCOMING).exists()


def test_a_broken_download_is_resumed(machines: Machines, written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the second download, no object is one of the first."""
    asked: list[str] = []
    find = ObjectStore.find

    def breaking(store: ObjectStore, name: str) -> object:
        if len(asked) == 15:
            raise OSError("the line is cut")
        asked.append(name)
        return find(store, name)

    machines.be("second")
    with monkeypatch.context() as patched:
        patched.setattr("lr_sweep.common.working_copy.THREADS", 1)
        patched.setattr(ObjectStore, "find", breaking)
        with pytest.raises(StoreError, match="the line is cut. Check"):
            refresh(URI)
    first, asked[:] = set(asked), []
    monkeypatch.setattr(ObjectStore, "find", lambda store, name: asked.append(name) or find(store, name))
    copy = refresh(URI)
    assert first & set(asked) == {"format.json"}
    assert len(first | set(asked)) >= 20
    assert (rows(copy), curves(copy)) == (rows(written), curves(written))


def test_ls_and_status_fetch_no_curve_of_an_ended_run(machines: Machines, written: Path) -> None:
    ObjectStore(URI).write("curves/0123456789abcdef.parquet", b"of a run that trains")
    with faulty(machines.server) as server:
        machines.be("second", server)
        succeeds("ls", "--results", URI)
        assert "10" in succeeds("status", "small", "--results", URI)
        assert server.seen["GET", "runs", "whole"] == 10
        assert server.seen["GET", "curves", "whole"] == 1
        results_here(URI, curves=False).refresh()  # `status` of a study with `fresh`
        row = written / "runs" / f"{min(rows(written))}.parquet"
        ObjectStore(URI).write("runs/0123456789abcdef.parquet", row.read_bytes())
        assert server.seen["GET", "curves", "whole"] == 11
        ObjectStore(URI).write("curves/0123456789abcdef.parquet", b"longer, now that it has ended")
        refresh(URI, curves=False)  # `report` may be reading: the copy has all curves and keeps them
        assert server.seen["GET", "curves", "whole"] == 12


@pytest.mark.slow
def test_a_sweep_waits_for_an_overloaded_store(machines: Machines, written: Path) -> None:
    """It answers 503 nine times, three times as often as botocore tries, and then to 30%."""
    with faulty(machines.server, overloaded=0.3, first=9) as server:
        machines.be("second", server)
        results = StoredResults(URI)
        results.refresh(patience_s=60)
        with results.writing("small"):
            add_runs(results.root, (0.5,))
            results.settle()
    machines.be("third")
    assert len(rows(refresh(URI))) == 11


def test_a_reader_does_not_wait_for_ever(machines: Machines, written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with faulty(machines.server, overloaded=1.0) as server:
        machines.be("second", server)
        with pytest.raises(StoreError, match=r"Please reduce your rate\. Check"):
            refresh(URI, patience_s=0.2)
