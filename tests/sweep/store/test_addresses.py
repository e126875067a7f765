"""Addresses of results directories: which are accepted, by which commands, and no credentials in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.analysis.__main__ import main as analysis
from lr_sweep.common.object_store import ObjectStore, StoreError, local_path
from lr_sweep.common.working_copy import refresh
from lr_sweep.sweep.cli.cluster_commands import plan_elsewhere
from lr_sweep.sweep.cluster.submit import check_paths
from lr_sweep.sweep.store.results import StoredResults
from lr_sweep.sweep.study.file import load_study
from lr_sweep.tests.support.records import files, four_runs
from lr_sweep.tests.support.servers.s3_server import SECRET, Machines
from lr_sweep.tests.support.synthetic import URI, add_runs, filled
from lr_sweep.tests.support.tiny_study import refused, succeeds, write_study


@pytest.mark.parametrize(
    ("uri", "wanted"),
    [
        ("ftp://host/results", "want a directory, file:///PATH, or s3://BUCKET/PREFIX"),
        ("gs://bucket/results", "one writer at a time needs S3's conditional writes"),
        ("s3://bucket/results?region=eu-west-1", "a region with AWS_DEFAULT_REGION"),
        (f"s3://key:{SECRET}@bucket/results", "got credentials in the address of s3://bucket/results"),
        ("s3:///results", "want s3://BUCKET/PREFIX alone"),
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


def test_a_store_is_merged_into_a_directory_unless_a_sweep_writes_to_it(machines: Machines, tmp_path: Path) -> None:
    made, store = four_runs(tmp_path / "made"), ObjectStore(URI)
    for name, content in files(made.root).items():
        store.write(name, content)
    with StoredResults(URI).writing("first"):
        machines.be("second")
        printed = refused("merge", URI, "--results", tmp_path / "into")
        assert f"{URI} is being written to by another process: merge it when that has ended" in printed
        machines.be("first")
    assert "4 runs added, " in succeeds("merge", URI, "--results", tmp_path / "into")
    whole = {name for name in files(made.root) if not name.startswith("checkpoints/")}
    assert files(tmp_path / "into").keys() - {"index.parquet"} == whole


def test_commands_for_directories_alone_say_so(machines: Machines, tmp_path: Path) -> None:
    filled()
    for command in (["gc"], ["merge", str(tmp_path)]):
        refused(*command, "--results", URI)


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
    succeeds("status", "small", "--results", folder.as_uri())
    assert analysis([folder.as_uri()]) == 0


def test_no_secret_is_kept(machines: Machines) -> None:
    results = filled()
    for path in results.root.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()
    store = ObjectStore(URI)
    assert not any(SECRET.encode() in store.find(name).content for name in store.names(""))
