"""A store whose answers are cut off, or which is overloaded: what was fetched is kept, the rest is asked for again."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.common.object_store import ObjectStore, StoreError
from lr_sweep.common.working_copy import INCOMING, refresh
from lr_sweep.sweep.store.results import StoredResults, results_here
from lr_sweep.tests.support.servers.s3_server import Machines, faulty
from lr_sweep.tests.support.synthetic import URI, add_runs
from lr_sweep.tests.support.tiny_study import curves, rows, succeeds

RATES = tuple(1e-3 * (1 + number) for number in range(40))


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lr_sweep.common.object_store._PAUSES_S", (0.01, 0.1))


@pytest.fixture
def written(machines: Machines) -> Path:
    """Forty runs in the store; then this is another machine."""
    results = StoredResults(URI)
    results.prepare()
    with results.writing("small"):
        add_runs(results.root, RATES)
    return results.root


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_every_body_that_is_cut_is_asked_for_again(machines: Machines, written: Path, share: float) -> None:
    with faulty(machines.server, cut=share) as server:
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
        if len(asked) == 60:
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
    assert len(first | set(asked)) >= 80
    assert (rows(copy), curves(copy)) == (rows(written), curves(written))


def test_ls_and_status_fetch_no_curve_of_an_ended_run(machines: Machines, written: Path) -> None:
    ObjectStore(URI).write("curves/0123456789abcdef.parquet", b"of a run that trains")
    with faulty(machines.server) as server:
        machines.be("second", server)
        succeeds("ls", "--results", URI)
        assert "40" in succeeds("status", "small", "--results", URI)
        assert server.seen["GET", "runs", "whole"] == 40
        assert server.seen["GET", "curves", "whole"] == 1
        results_here(URI, curves=False).fetch_curves()  # `status` of a study with `decide`
        row = written / "runs" / f"{min(rows(written))}.parquet"
        ObjectStore(URI).write("runs/0123456789abcdef.parquet", row.read_bytes())
        assert server.seen["GET", "curves", "whole"] == 41
        ObjectStore(URI).write("curves/0123456789abcdef.parquet", b"longer, now that it has ended")
        refresh(URI, curves=False)  # `report` may be reading: the copy has all curves and keeps them
        assert server.seen["GET", "curves", "whole"] == 42


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
    assert len(rows(refresh(URI))) == 41


def test_a_reader_does_not_wait_for_ever(machines: Machines, written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with faulty(machines.server, overloaded=1.0) as server:
        machines.be("second", server)
        with pytest.raises(StoreError, match=r"Please reduce your rate\. Check"):
            refresh(URI, patience_s=0.2)
