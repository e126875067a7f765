"""One MLflow store for several results directories: each has its own runs there, also of a study of the same name."""

from __future__ import annotations

import shutil
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from mlflow import MlflowClient

from lr_sweep.sweep.mirror.client import EXPERIMENT, MirrorError, open_client
from lr_sweep.sweep.mirror.mirror import OWNER_TAG
from lr_sweep.sweep.mirror.pages import study_pages
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.mirrored_record import find, new_mirror, one_complete_run, write_curve, write_study


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
    pages = study_pages(shared, "", ids[0])
    assert pages.keys() == {"small", f"small-{ids[1]}", ""}
    views = open_client(shared).get_experiment_by_name(EXPERIMENT).tags
    assert f"= '{ids[1]}'" in views[f"mlflow.sharedViewState.small-{ids[1]}"]


def test_what_an_earlier_version_mirrored_is_taken_over_by_the_first_directory(
    first: Path, second: Path, shared: str
) -> None:
    new_mirror(first, uri=shared).sync_all()
    client = open_client(shared)
    for tag, value in (("sweep.study", "small"), ("sweep.run_id", "aa")):
        client.delete_tag(find(shared, tag, value)[0].info.run_id, OWNER_TAG)
    for each in (first, second):
        new_mirror(each, uri=shared).sync_all()
    assert by_owner(shared, "sweep.study", "small").keys() == {Results(each).id for each in (first, second)}
    assert len(find(shared, "sweep.run_id", "aa")) == 2


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
