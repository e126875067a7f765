"""What a run writes arrives in S3 in an order in which it may be read, also where the storage is away for a while."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.analysis.record.columns import CURVES, RUNS, table
from lr_sweep.analysis.record.parquet import parquet_bytes
from lr_sweep.analysis.record.read import read_rows
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import write_bytes
from lr_sweep.common.object_store import ObjectStore
from lr_sweep.common.working_copy import refresh
from lr_sweep.sweep.store.results import StoredResults
from lr_sweep.sweep.store.writing import LOCK, PushThread, current_writer
from lr_sweep.tests.support.servers.s3_server import Machines
from lr_sweep.tests.support.synthetic import URI, add_runs, filled, lock_of
from lr_sweep.tests.support.tiny_study import rows
from lr_sweep.tests.support.waiting import wait_until


def test_at_any_moment_each_row_in_the_store_has_its_curve(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every prefix of what a pass does: rows come last, and go first where curves get shorter."""
    results = filled()
    record = add_runs(results.root)  # the same again
    store, done = ObjectStore(URI), []
    push = pushing(results)
    push()  # its first pass is over before the record changes
    run_id = record.wanted[0]["run_id"]
    record.end(record.wanted[0], [(100, 0.4, 0.3)], "diverged", 150, 150)  # started over, it ended earlier
    new = record.add(1e-1, 0, [(100, 0.4, 0.3), (300, 0.9, 0.4)])
    record.write()

    def check() -> None:
        for name in store.names("runs"):
            last = length(store, name.replace("runs", "curves"))
            assert last == {"complete": 300, "diverged": 100}[status(store, name)], name
        done.append(set(store.names("runs")))

    for method in ("write", "upload", "remove"):
        real = getattr(ObjectStore, method)
        monkeypatch.setattr(ObjectStore, method, lambda *given, real=real: (real(*given), check()))
    push()
    assert {f"runs/{run_id}.parquet" in names for names in done} == {True, False}
    assert f"runs/{new}.parquet" in done[-1]
    done.clear()
    push()
    assert done == []


def pushing(results: StoredResults) -> Callable[[], None]:
    """Return what makes one pass over the working copy."""
    lock = lock_of("small")
    lock.acquire()
    thread = PushThread(ObjectStore(URI), results.root, lock, every_s=1000.0)

    def push() -> None:
        assert thread.flush(30), thread._worker.failing

    return push


def status(store: ObjectStore, name: str) -> str:
    return read_back(store, name, RUNS)[0]["status"]


def length(store: ObjectStore, name: str) -> int:
    return max(point["step"] for point in read_back(store, name, CURVES))


def read_back(store: ObjectStore, name: str, columns: tuple) -> list[dict]:
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        file.write(store.find(name).content)
        file.flush()
        found = read_rows(Path(file.name), columns)
    assert found is not None
    return found


def test_a_file_that_is_replaced_while_it_is_uploaded_arrives_whole(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its path, the length would be one file's and the content the next one's: the server waits for the rest."""
    store, path = ObjectStore(URI), tmp_path / "study.json"
    path.write_text("the former, which is longer")
    send = store._client.upload_fileobj

    def replace_and_send(*given: Any) -> None:
        write_bytes(path, b"the next")
        send(*given)

    monkeypatch.setattr(store._client, "upload_fileobj", replace_and_send)
    store.upload(path, "study.json")
    assert store.find("study.json").content == b"the former, which is longer"


def test_storage_away_for_a_while(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written meanwhile comes later; it is reported once, and nothing waits for it."""
    monkeypatch.setattr("lr_sweep.sweep.store.results.PushThread", partial(PushThread, every_s=0.2))
    results = StoredResults(URI)
    results.prepare()
    messages: list[str] = []
    with results.writing("small"):
        record = add_runs(results.root)
        results.settle()
        with machines.server.away():
            began = time.monotonic()
            late = record.add(1e-1, 0, [(300, 0.9, 0.4)])
            record.write()
            assert results.news() == []
            assert time.monotonic() - began < 10
            messages += wait_until(results.news, "the message")
        results.settle()
        messages += results.news()
        assert f"runs/{late}.parquet" in ObjectStore(URI).names("runs")
    assert [message.partition(" (")[0] for message in messages] == [
        f"cannot write to {URI}",
        f"{URI} has everything again",
    ]


def test_storage_away_at_the_end_is_an_error_and_the_record_claims_no_more_than_is_there(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = filled()
    monkeypatch.setattr("lr_sweep.sweep.store.results.PATIENCE_S", 1.0)
    writing = results.writing("small")
    writing.__enter__()
    with machines.server.away():
        record = add_runs(results.root, (1e-3, 1e-2, 1e-1))
        with pytest.raises(UserError, match=r"could not upload everything to \S+ within 1 s"):
            writing.__exit__(None, None, None)
    assert len(rows(results.root)) == 3
    refresh(URI)  # the store is the truth: what it lacks is made again from checkpoints
    assert len(rows(results.root)) == 2
    assert record.wanted[2]["run_id"] not in rows(results.root)


def test_an_upload_that_does_not_end_keeps_the_lock(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else another process could write before it arrives; the same copy may, as its lock tells that this one ended."""
    monkeypatch.setattr("lr_sweep.sweep.store.results.IMPATIENCE_S", 0.5)
    results, hung, ended, real = filled(), threading.Event(), threading.Event(), ObjectStore.write

    def write(store: ObjectStore, name: str, content: bytes) -> None:
        hung.set()
        assert ended.wait(60)
        real(store, name, content)

    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "write", write)
        with suppress(ZeroDivisionError), results.writing("small"):
            add_runs(results.root, (1e-3, 1e-2, 1e-1))
            assert hung.wait(60)
            raise ZeroDivisionError
        assert current_writer(ObjectStore(URI))["study"] == "small"
        ended.set()
    with results.writing("small"):
        pass
    assert current_writer(ObjectStore(URI)) == {}


def test_a_thread_that_lost_the_right_to_write_writes_nothing_more(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, store = filled(), ObjectStore(URI)
    lock = lock_of("small")
    lock.acquire()
    thread = PushThread(store, results.root, lock, every_s=0.1)
    assert thread.flush(10)
    monkeypatch.setattr("lr_sweep.sweep.store.writing.RENEW_EVERY_S", 0.0)
    store.write(LOCK, b'{"pid": 1}')
    (results.root / "runs" / "0123456789abcdef.parquet").write_bytes(parquet_bytes(table([], RUNS)))
    assert not thread.flush(10)
    with pytest.raises(UserError, match="another process writes there now"):
        thread.news()
    assert "runs/0123456789abcdef.parquet" not in store.names("runs")


def test_an_object_takes_one_request(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass asks for nothing, since it knows what it put; ten new runs are ten curves, ten rows, and a few others."""
    results = filled()
    record = add_runs(results.root)
    sent: list[tuple[str, str]] = []
    made = ObjectStore.__init__

    def watched(store: ObjectStore, uri: str, **given: float) -> None:
        made(store, uri, **given)
        store._client.meta.events.register(
            "before-send.s3", lambda request, **_: sent.append((request.method, request.url))
        )

    monkeypatch.setattr(ObjectStore, "__init__", watched)
    push = pushing(results)
    push()
    sent.clear()
    for seed in range(10):
        record.add(1e-1, 10 + seed, [(100, 0.4, 0.3), (300, 0.9, 0.4)])
    record.write()
    push()
    assert {method for method, _ in sent} == {"PUT"}
    assert len(set(sent)) == len(sent)
    assert sum("/runs/" in url or "/curves/" in url for _, url in sent) == 20
    assert len(sent) <= 25
    sent.clear()
    push()
    assert sent == []
