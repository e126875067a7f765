"""`run` into S3 with Ray: its machine is lost in the middle, another resumes from nothing but what is in the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.common.object_store import ObjectStore
from lr_sweep.sweep.store.results import StoredResults, results_here
from lr_sweep.sweep.store.writing import LOCK, current_writer
from lr_sweep.tests.support.background import Background
from lr_sweep.tests.support.servers.s3_server import SECRET, Machines, environment_of
from lr_sweep.tests.support.tiny_study import curves, rows, succeeds, swept, trained_here, write_study
from lr_sweep.tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
URI = "s3://bucket/killed"
NUM_STEPS = 6000
"""A run of so many lasts some 15 s, three of the store's passes, so that the machine is lost before it ends."""


def test_a_machine_is_lost_and_another_resumes_its_runs(machines: Machines, tmp_path: Path) -> None:
    study = write_study(tmp_path, rates=(1e-2,), num_steps=NUM_STEPS, protocol="{evaluate_every: 300}")
    store = _lose_a_machine(machines, study, tmp_path)
    assert not store.names("runs")
    assert {Path(name).name for name in store.names("studies")} >= {"study.json", "wanted.parquet", "tiny.yaml"}
    assert 300 <= _newest_step(store) < NUM_STEPS
    env = environment_of(machines.server, machines.be("second"))
    with pytest.raises(UserError, match=r"is being written to by process \d+ on \S+ \(study tiny\)"):
        StoredResults(URI).writing("tiny").__enter__()
    store.remove(LOCK)  # known to be dead: no need to wait until the lock is stale
    output = swept("run", study, "--results", URI, env=env, timeout_s=PATIENCE_S)
    assert f"store      {URI}" in output
    assert SECRET not in output
    machines.be("third")
    read = results_here(URI)
    assert {(row["status"], row["num_steps"]) for row in rows(read.root).values()} == {("complete", NUM_STEPS)}
    assert curves(read.root) == trained_here(study, tmp_path / "undisturbed")
    assert len(store.names("checkpoints")) == 2
    assert not current_writer(store)
    logs = [path for path in (tmp_path / "machines").rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in path.read_bytes() for path in logs)
    plan = succeeds("plan", study, "--results", URI)
    assert "2 wanted: 2 complete" in plan
    assert f"results    {URI}" in plan
    whole = "2 runs, 40 evaluations, 2 checkpoints, 0 weights: no problems\n"
    assert succeeds("verify", "--results", URI) == whole


def _lose_a_machine(machines: Machines, study: Path, folder: Path) -> ObjectStore:
    """Start a sweep and kill all of it once runs have checkpoints in the store."""
    env, store = environment_of(machines.server, machines.be("first")), ObjectStore(URI)
    with Background(folder / "first.txt", study, "--results", URI, "--checkpoint-every-s", "0.5", env=env) as run:
        run.wait_until(lambda: _newest_step(store) >= 300 and store.names("curves"), PATIENCE_S)
    return store


def _newest_step(store: ObjectStore) -> int:
    """Return the step of the checkpoint that is furthest; 0: there is none."""
    return max((int(Path(name).name.split("-")[1]) for name in store.names("checkpoints")), default=0)
