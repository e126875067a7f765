"""MLflow's stores: a database of a results directory, and one that several share."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from mlflow import MlflowClient

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.sweep.mirror.client import EXPERIMENT, MirrorError, open_client, tracking_uri
from lr_sweep.sweep.mirror.content import metric_names
from lr_sweep.sweep.mirror.mirror import OWNER_TAG
from lr_sweep.sweep.mirror.pages import runs_page
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.mirrored_record import find, new_mirror, one_complete_run, points, write_curve, write_study
from lr_sweep.tests.support.servers.postgres import postgres_database
from lr_sweep.tests.support.tiny_study import refused, said, succeeds


@pytest.fixture
def report(tmp_path: Path) -> Path:
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "report.md").write_text("what we found")
    return folder


def test_any_path_of_the_results_will_do(results: Path, tmp_path: Path, report: Path) -> None:
    moved = results.rename(tmp_path / "50%20? a#b;c ü&x=1")
    mirror = new_mirror(moved)
    mirror.sync_all()
    for _ in range(2):
        mirror.log_report(report)
    assert len(points(tracking_uri(moved), "aa", "test_loss")) == 4
    (stored,) = (moved / "mlflow-artifacts").rglob("report.md")
    assert stored.read_text() == "what we found"
    assert sorted(path.name for path in tmp_path.iterdir()) == [moved.name, "report"]
    again = Path(shutil.copytree(moved, tmp_path / "moved"))
    with pytest.raises(MirrorError, match="was moved"):
        new_mirror(again).log_report(report)
    (again / "mlflow.db").unlink()
    with pytest.raises(MirrorError, match="there is no MLflow store at .*; `run` makes one"):
        runs_page(tracking_uri(again))


def test_the_report_is_put_into_mlflow(results: Path, report: Path) -> None:
    report.rename(Results(results).report("small"))
    succeeds("export", "--mlflow", "--results", results)
    uri = tracking_uri(results)
    (parent,) = find(uri, "sweep.study", "small")
    (file,) = open_client(uri).list_artifacts(parent.info.run_id, "report")
    assert file.path == "report/report.md"


@pytest.mark.parametrize("content", [b"", b"study: [", b"study: other\n", b"a: &a [1]\nstudy: *a\n", b"\xff", None])
def test_a_damaged_file_is_named(results: Path, content: bytes | None) -> None:
    """The study's, or a run's curve that is cut."""
    path = Paths(results).curve("aa") if content is None else Paths(results).options("small")
    path.write_bytes(path.read_bytes()[:-1] if content is None else content)
    assert str(path) in refused("export", "--mlflow", "--results", results)


def test_a_database_that_refuses_is_tried_once(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow alone would try ten times, with pauses of 101 s together."""
    monkeypatch.setattr("mlflow.store.db.utils.time.sleep", lambda seconds: pytest.fail(f"slept {seconds} s"))
    with pytest.raises(MirrorError, match="onnection"):
        new_mirror(results, uri="postgresql://me:secret@127.0.0.1:9/x").sync_all()


def test_what_mlflow_and_its_drivers_raise_is_a_mirror_error(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)  # not installed
    databases = ("postgresql://me:secret@127.0.0.1:9/x", "sqlite:////proc/x/mlflow.db")
    for uri in (*databases, "http://me:secret@127.0.0.1:9", "nonsense://x", "http://["):
        with pytest.raises(MirrorError) as caught:
            new_mirror(results, uri=uri).sync_all()
        assert "secret" not in str(caught.value)


@pytest.mark.slow
def test_a_study_is_mirrored_into_postgresql(results: Path) -> None:
    with postgres_database() as address:
        with pytest.raises(MirrorError, match="password authentication failed"):
            new_mirror(results, uri=address.replace("a-secret", "another")).sync_all()
        new_mirror(results, uri=address).sync_all()
        assert len(points(address, "aa", "test_loss")) == 4
        assert find(address, "sweep.run_id", "aa")[0].data.tags["sweep.studies"] == ",small,"


def test_the_database_follows_the_umask(store: Path) -> None:
    assert oct(store.stat().st_mode & 0o777) == "0o664"


def test_a_damaged_database_is_named_with_what_rebuilds_it(results: Path) -> None:
    (results / "mlflow.db").write_bytes(b"no database " * 1000)
    with pytest.raises(MirrorError, match="mlflow.db: .* `export --mlflow` adds what is missing"):
        new_mirror(results).sync_all()


def test_a_database_is_made_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.store.db import utils

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def interrupted(engine: Any) -> None:
        utils.InitialBase.metadata.create_all(engine)
        raise KeyboardInterrupt

    monkeypatch.setattr(utils, "_initialize_tables", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_client(tracking_uri(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_the_command_fills_an_empty_store_with_all_studies(
    results: Path, store: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_study(results, ["aa", "bb"], study="second")
    other = Path(shutil.copy(store, tmp_path / "other.db"))
    monkeypatch.setattr("lr_sweep.sweep.mirror.client._MAX_METRICS", 15)  # two evaluations of 7 metrics are a batch
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{other}")
    code, printed = said("export", "--mlflow", "--results", results)
    assert (code, "second: 1 runs\nsmall: 1 runs\n" in printed) == (0, True)
    assert all(len(points(f"sqlite:///{other}", "aa", metric)) == 4 for metric in metric_names(ACCURACY))
    assert find(f"sqlite:///{other}", "sweep.run_id", "aa")[0].data.tags["sweep.studies"] == ",second,small,"
    printed = refused("export", "--mlflow", "smal", "--results", results)
    assert "unknown study 'smal'; did you mean 'small'?" in printed
    with Results(results).writing("small"):
        assert "is being written to by process" in refused("export", "--mlflow", "--results", results)


@pytest.fixture
def shared(store: Path, tmp_path: Path) -> str:
    """An empty store's address."""
    return f"sqlite:///{shutil.copy(store, tmp_path / 'shared.db')}"


@pytest.fixture
def first(results: Path) -> Path:
    Results(results).prepare()
    return results


@pytest.fixture
def second(store: Path, tmp_path: Path) -> Path:
    """A directory with the same study, whose second run trains."""
    second = one_complete_run(tmp_path / "second", store)
    write_study(second, ["aa", "bb"])
    write_curve(second, "bb", 2)
    Results(second).prepare()
    return second


def by_owner(uri: str, tag: str, value: str) -> dict[str, Any]:
    found = find(uri, tag, value)
    assert len({run.data.tags[OWNER_TAG] for run in found}) == len(found)
    return {run.data.tags[OWNER_TAG]: run for run in found}


def test_a_study_of_the_same_name_elsewhere_is_another_one(first: Path, second: Path, shared: str) -> None:
    new_mirror(first, uri=shared).sync_all()
    new_mirror(second, uri=shared).sync_run("bb")
    for _ in range(2):
        new_mirror(first, uri=shared).sync_all()
    studies, ids = by_owner(shared, "sweep.study", "small"), [Results(each).id for each in (first, second)]
    assert [studies[each].info.status for each in ids] == ["FINISHED", "RUNNING"]
    assert [studies[each].data.tags["sweep.results"].partition(":")[2] for each in ids] == [str(first), str(second)]
    new_mirror(second, uri=shared).sync_all()
    runs = by_owner(shared, "sweep.run_id", "aa")
    assert [runs[each].data.tags["mlflow.parentRunId"] for each in ids] == [studies[each].info.run_id for each in ids]
    tags = open_client(shared).get_experiment_by_name(EXPERIMENT).tags
    views = [json.loads(tags[f"mlflow.sharedViewState.small-{each}"]) for each in ids]
    assert [view["searchFilter"].rpartition("=")[2] for view in views] == [f" '{each}'" for each in ids]


def test_a_database_that_keeps_files_in_the_first_directory_is_named_for_what_it_is(
    first: Path, second: Path, shared: str, report: Path
) -> None:
    new_mirror(first, uri=shared).log_report(report)
    with pytest.raises(MirrorError) as caught:
        new_mirror(second, uri=shared).log_report(report)
    assert f"keeps files at file://{first}/mlflow-artifacts/" in str(caught.value)
    assert "An MLflow server" in str(caught.value)
    assert "moved" not in str(caught.value)


def test_two_first_contacts_at_one_moment(
    first: Path, second: Path, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, create = Barrier(2, timeout=60), MlflowClient.create_experiment

    def together(self: MlflowClient, *arguments: Any, **options: Any) -> Any:
        both.wait()
        return create(self, *arguments, **options)

    monkeypatch.setattr(MlflowClient, "create_experiment", together)
    problems: list[MirrorError] = []

    def sync(results: Path) -> None:
        try:
            new_mirror(results, uri=shared).sync_run("aa")
        except MirrorError as problem:
            problems.append(problem)

    threads = [Thread(target=sync, args=(each,)) for each in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert problems == []
    assert len(find(shared, "sweep.run_id", "aa")) == 2
