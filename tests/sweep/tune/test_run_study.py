"""What `run` does with what trials report, with Ray replaced by a script."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.results.recorder import Recorder
from lr_sweep.sweep.study.only import parse_only
from lr_sweep.sweep.tune import driver
from lr_sweep.sweep.tune.nodes import Share
from lr_sweep.sweep.tune.ray_session import RayLostError
from lr_sweep.sweep.tune.trials import StorageFailed, TrialFailed, TrialInterrupted
from lr_sweep.tests.support.scripted_trials import Bench, Disturbed, Events, NoMirror, Script, new_bench
from lr_sweep.tests.support.tiny_study import rows
from lr_sweep.tests.support.waiting import wait_until
from lr_sweep.trainables.worker.messages import Event, Started


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return new_bench(tmp_path, monkeypatch)


def test_all_go_well(bench: Bench) -> None:
    script = Script()
    outcome = bench.run(script)
    a, b, c, d = bench.ids
    assert script.passes == [[[a, b, c], [d]]]
    assert (outcome.trained, outcome.failed, outcome.stopped) == (4, 0, False)
    assert bench.states() == ["complete"] * 4
    assert set(NoMirror.notified) == set(bench.ids)
    assert bench.results.progress("tiny").exists()
    assert bench.run(Script()).trained == 0


@pytest.mark.parametrize("replaced", [False, True])
def test_a_sweep_whose_results_are_moved_ends_and_makes_nothing_in_their_place(bench: Bench, replaced: bool) -> None:
    root, moved = bench.results.root, bench.folder / "moved"

    def move(cohorts: Any, *arguments: Any) -> Events:
        root.rename(moved)
        if replaced:
            shutil.copytree(moved, root)
        yield Started(run_id=cohorts[0].run_ids[0], step=0)

    script = Disturbed(lambda *given: script.train_first(*given), move)
    with pytest.raises(UserError, match=f"cannot write to {root}: it was moved or removed, or another folder is in"):
        bench.run(script)
    assert root.exists() == replaced
    assert len(list((moved / "runs").iterdir())) == 1
    if replaced:
        shutil.rmtree(root)
    moved.rename(root)
    assert bench.run(Script()).trained == 3


def test_a_run_that_fails_does_not_take_its_neighbours_with_it(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    a, b, c, d = bench.ids
    script = Script(failures={b: 2})
    outcome = bench.run(script)
    assert script.passes == [[[a, b, c], [d]], [[c]]]
    assert (outcome.trained, outcome.failed, outcome.stopped) == (4, 1, False)
    assert bench.states() == ["complete", "failed", "complete", "complete"]
    assert rows(bench.results.root)[b]["failure"] == "RuntimeError: scripted"
    assert bench.said[-2:] == [
        "1 run failed; `status` lists all, `run --retry-failed` trains them again",
        "  digits tiny unfrozen-random 1e-3 seed 0: RuntimeError: scripted",
    ]
    shown = "digits tiny unfrozen-random 1e-3 seed 0 failed: RuntimeError: scripted"
    assert capfd.readouterr().out.splitlines()[0] == shown, "when it happens, not at the end"


def test_a_part_of_a_study_is_trained(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    a, b, *_ = bench.ids
    script = Script()
    only = parse_only("learning_rate=1e-3,learning_rate=0.0001, variant=unfrozen-random")
    assert bench.run(script, only=only).trained == 2
    assert script.passes == [[[a, b]]]
    assert bench.states() == ["complete", "complete", "waiting", "waiting"]
    assert "2/2 runs done" in capfd.readouterr().out  # the others are not done
    assert bench.run(script, only=only).trained == 0
    assert bench.said[-1].startswith("nothing to train: the record holds everything that --only learning_rate=1e-3,")
    assert bench.run(Script()).trained == 2


def test_parts_that_a_study_lacks_are_refused(bench: Bench) -> None:
    with pytest.raises(UserError, match="--only variant=frozen: unknown variant 'frozen'; .*valid: unfrozen-random"):
        bench.run(Script(), only=parse_only("variant=frozen"))


def test_failed_runs_are_trained_again_on_request_only(bench: Bench) -> None:
    _, b, *_ = bench.ids
    bench.run(Script(failures={b: 2}))
    idle = Script()
    assert bench.run(idle).failed == 1  # still
    assert idle.passes == []
    assert bench.said[-1] == "  digits tiny unfrozen-random 1e-3 seed 0: RuntimeError: scripted"
    assert not any("holds everything" in line for line in bench.said)
    again = Script(failures={b: 2})
    outcome = bench.run(again, retry_failed=True)
    assert again.passes == [[[b]]]
    assert (outcome.trained, outcome.failed) == (1, 1)
    outcome = bench.run(Script(), retry_failed=True)
    assert (outcome.trained, outcome.failed) == (1, 0)
    assert bench.states() == ["complete"] * 4
    assert bench.run(Script(), retry_failed=True).trained == 0
    assert "nothing to train" in bench.said[-1]


def test_runs_that_resumed_inexactly_train_anew_on_request_only(bench: Bench) -> None:
    """Those that `--only` names; what they were is gone before they train, and so is a plain `run`'s reason to."""
    a, b, c, d = bench.ids
    bench.run(Script(inexact={a, c, d}))
    assert bench.run(Script()).trained == 0
    script = Script(inexact={c})
    only = parse_only("learning_rate=1e-4,learning_rate=1e-2,learning_rate=1e-3")
    assert bench.run(script, restart_inexact=True, only=only).trained == 2
    assert script.passes == [[[a, c]]]
    assert "tiny: runs that resumed inexactly and train anew: 2" in bench.said
    found = rows(bench.results.root)
    assert [found[run_id]["resumed"] for run_id in (a, b, c, d)] == ["never", "never", "inexactly", "inexactly"]
    bench.run(Script(failures={c: 2, d: 2}), restart_inexact=True)
    assert bench.states() == ["complete", "complete", "failed", "failed"]
    assert not bench.results.curve(c).exists(), "no number of the earlier training is left"


def test_new_runs_are_trained_beside_old_failures_and_the_mirror_is_notified_of_all(bench: Bench) -> None:
    """Of runs that ended without a curve, too: another sweep's mirror may have been out of reach."""
    _, b, _, d = bench.ids
    bench.run(Script(failures={b: 2}))
    assert not bench.results.curve(b).exists()
    bench.results.run(d).unlink()
    bench.results.curve(d).unlink()
    outcome = bench.run(Script())
    assert (outcome.trained, outcome.failed) == (1, 1)
    assert bench.states() == ["complete", "failed", "complete", "complete"]
    assert set(NoMirror.notified) == set(bench.ids)


def test_a_full_disk_of_the_driver_stops_trials_and_is_reported(bench: Bench) -> None:
    stopped = []

    def reporting(*arguments: Any) -> Events:
        try:
            yield from Script().train_cohorts(*arguments)
        finally:
            stopped.append(True)

    def full(self: Recorder, event: Event) -> None:
        raise OSError(28, "No space left on device", "/results/runs/a")

    with bench.monkeypatch.context() as patch:
        patch.setattr(Recorder, "event", full)
        with pytest.raises(UserError, match="cannot write to /results/runs/a: No space left on device"):
            bench.run(Disturbed(reporting))
    assert stopped
    assert bench.run(Script()).trained == 4  # nothing is locked, the same command resumes


@pytest.mark.parametrize(
    ("reason", "mend"),
    [
        ("[Errno 28] No space left on device", "Free space there"),
        ("[Errno 113] s3://bucket/lab for 120 s: Unable to locate credentials", "Check that machine's network and its"),
    ],
)
def test_a_worker_that_cannot_write_is_reported(bench: Bench, reason: str, mend: str) -> None:
    def full(*_: object) -> Events:
        yield StorageFailed(reason=reason)

    with pytest.raises(UserError, match=re.escape(f"a worker cannot write checkpoints: {reason}. {mend}")):
        bench.run(Disturbed(full))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_answered_before_runs_are_saved_and_the_rest_is_left_for_later(
    bench: Bench, capfd: pytest.CaptureFixture[str], number: int
) -> None:
    def is_stopped(cohorts: Any, *arguments: Any) -> Events:
        """Be stopped while the first run trains; the run ends before its trial has read of it."""
        leave = arguments[3]
        yield Started(run_id=cohorts[0].run_ids[0], step=0)
        os.kill(os.getpid(), number)
        while not leave.is_set():
            yield None
        assert not leave.at_once, "a run is saved first"
        wait_until(bench.results.sweep_stop.exists, "the file that has the live page say so")
        yield from script.train_first(cohorts, *arguments)

    script, before = Disturbed(is_stopped), signal.getsignal(number)
    outcome = bench.run(script)
    assert signal.getsignal(number) is before
    assert capfd.readouterr().out.splitlines()[0] == "saving 1 run; press Ctrl-C again to leave at once"
    assert bench.said[-1] == "stopped; the same command resumes from here"
    assert (outcome.trained, outcome.stopped) == (1, True)
    assert not bench.results.sweep_stop.exists()
    assert bench.states() == ["complete", "waiting", "waiting", "waiting"]


@pytest.mark.parametrize("kind", [TrialFailed, TrialInterrupted])
def test_a_process_that_ends_by_the_signal_of_the_sweep_has_not_failed(bench: Bench, kind: Any) -> None:
    def is_stopped(cohorts: Any, *arguments: Any) -> Events:
        yield Started(run_id=cohorts[0].run_ids[0], step=0)
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(bench.results.sweep_stop.exists, "the driver's answer")
        yield kind(run_ids=cohorts[0].run_ids, reason="the command was killed by SIGTERM")

    assert bench.run(Disturbed(is_stopped)).stopped
    assert bench.states() == ["waiting"] * 4
    log = bench.results.log(bench.ids[0]).read_text()
    assert log.splitlines()[-1].endswith("  1 run to be trained anew")


@pytest.mark.parametrize("ends_ray", [False, True])
def test_a_signal_while_ray_starts_breaks_that_off_and_prints_no_empty_tables(
    bench: Bench, capfd: pytest.CaptureFixture[str], ends_ray: bool
) -> None:
    """With `ends_ray`, the signal went to the whole process group."""

    @contextlib.contextmanager
    def starts(placement: Placement, log: Path, excluded: Any, starting: Any) -> Iterator[Share]:
        with contextlib.nullcontext() if ends_ray else starting():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.3)
            if not ends_ray:
                pytest.fail("Ray's start is not broken off")
        raise RayLostError("Ray did not start")
        yield Share(placement, list, None)

    bench.monkeypatch.setattr(driver, "ray_session", starts)
    script = Script()
    outcome = bench.run(script)
    assert (outcome.stopped, outcome.report) == (True, None)
    assert (script.passes, bench.states()) == ([], ["waiting"] * 4)
    assert bench.said[-1] == "stopped; the same command resumes from here"
    assert capfd.readouterr().out == "stopping; press Ctrl-C again to leave at once\n"


def test_a_sweep_in_which_nothing_trains_yet_is_left_at_once(bench: Bench) -> None:
    def workers_start(*arguments: Any) -> Events:
        leave = arguments[4]
        os.kill(os.getpid(), signal.SIGINT)
        while not leave.is_set():
            yield None
        assert leave.at_once, "there is nothing to save"

    assert bench.run(Disturbed(workers_start)).stopped
    assert bench.states() == ["waiting"] * 4
