"""A training function in several processes (gloo): its curve, kills, hangs and errors. No Ray: two CPUs hold four."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest
import torch

from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.own_study import DDP, NOISY, to_end, write_function
from lr_sweep.tests.support.tiny_study import ROOT, cohort_here, environment, evaluations, events_of, runs_of
from lr_sweep.tests.support.waiting import is_alive, wait_until
from lr_sweep.trainables.checkpoint import checkpoints
from lr_sweep.trainables.own import ranks
from lr_sweep.trainables.own.engine import OwnTraining
from lr_sweep.trainables.own.probe import probe
from lr_sweep.trainables.own.ranks import Ranks
from lr_sweep.trainables.own.run import OwnRun, TrainingFunctionError, own_run
from lr_sweep.trainables.own.session import Output
from lr_sweep.trainables.own.state import by_rank

LOSS = "{name: loss, higher_is_better: false}"
ALONE = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


def run_of(folder: Path, body: str, processes: int, **changes: str) -> OwnRun:
    resources = f"{{processes_per_run: {processes}}}"
    study = write_function(folder, body, metric=LOSS, resources=resources, **changes)
    return own_run(runs_of(study, folder / "results")[0].run)


def started(run: OwnRun, num_steps: int = 10, output: Output | None = None) -> OwnTraining:
    return OwnTraining(run, num_steps, "cpu", lambda: 0.0, output)


def pids(one: OwnTraining) -> list[int]:
    assert isinstance(one._function, Ranks)
    return [rank.process.pid for rank in one._function._ranks]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 4])
def test_the_curve_is_that_of_the_same_batches_in_one_process(
    tmp_path: Path, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path, DDP, processes)
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)
    expected = to_end(started(replace(run, processes=1)), 10)
    assert to_end(started(run), 10) == pytest.approx(expected, rel=1e-5)
    assert expected[1] < expected[0]


@pytest.mark.slow
def test_a_checkpoint_has_of_other_ranks_only_what_differs(tmp_path: Path) -> None:
    with closing(started(run_of(tmp_path, NOISY, 2))) as one:
        one.advance(for_s=0.0)
        tensors, progress = one.state()
        (first, _), (second, _) = by_rank(tensors, progress["own"])
        assert first.keys() == second.keys()
        kept = {name for name in first if not torch.equal(first[name], second[name])}
        assert {name for name in tensors if name.startswith("rank1.")} == {f"rank1.{name}" for name in kept}
        assert 0 < len(kept) < len(first) / 2


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 4])
def test_probe_finds_that_it_repeats_and_resumes(tmp_path: Path, processes: int) -> None:
    found = probe(run_of(tmp_path, NOISY, processes), "cpu")
    assert found.resumed == "exactly"


def are_gone(processes: list[int]) -> bool:
    return not any(map(psutil.pid_exists, processes))


@pytest.mark.slow
def test_a_rank_that_is_killed_is_named_and_ends_the_others(tmp_path: Path) -> None:
    """That the run resumes with the same bits: below."""
    with closing(started(run_of(tmp_path, NOISY, 2))) as one:
        one.advance(for_s=0.0)
        first, second = map(psutil.Process, pids(one))
        (rank,) = second.children(recursive=True)[1:]  # below the two supervisors
        second.kill()
        wait_until(lambda: not is_alive(rank.pid), "the end of the rank")
        with pytest.raises(TrainingFunctionError, match="rank 1 of 2 was killed by SIGKILL$"):
            one.advance()
    assert are_gone([first.pid, second.pid])


TRAIN = """
import sys
from pathlib import Path
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.tiny_study import cohort_here, events_of, runs_of
study, results = map(Path, sys.argv[1:])
for event in events_of(cohort_here(runs_of(study, results)[:1], Results(results), every_s=0.0)):
    pass
"""


def trains(process: subprocess.Popen[bytes], folder: Path, step: int) -> list[int]:
    """The ranks of a process that has saved a later step, else none."""
    assert process.poll() is None
    below = psutil.Process(process.pid).children(recursive=True)
    return [each.pid for each in below if is_rank(each)] if newest(folder) > step else []


def is_rank(process: psutil.Process) -> bool:
    """Whether it is no supervisor; processes of the trial before a resume may end just now."""
    with suppress(psutil.Error):
        return "-c" in process.cmdline()[:3]
    return False


@pytest.mark.slow
def test_ranks_end_with_the_process_that_started_them_and_the_run_resumes_with_the_same_bits(tmp_path: Path) -> None:
    """Killed at random moments, once while a rank is stopped and cannot see it."""
    run, moments, results = run_of(tmp_path, NOISY, 2, num_steps="2000"), random.Random(36), tmp_path / "results"
    command = [sys.executable, "-c", TRAIN, str(tmp_path / "mine.yaml"), str(results)]
    folder = Results(results).checkpoints(run.run_id)
    for stopped in (False, False, True):
        process = subprocess.Popen(command, cwd=ROOT, env=environment())
        ranks = wait_until(partial(trains, process, folder, newest(folder)), "a checkpoint")
        if stopped:
            os.kill(ranks[1], signal.SIGSTOP)
        time.sleep(moments.uniform(0, 0.3))
        process.kill()
        process.wait()
        wait_until(partial(are_gone, ranks), "the end of the ranks")
    assert 0 < newest(folder) < 2000
    resumed = events_of(cohort_here(runs_of(tmp_path / "mine.yaml", results), Results(results)))
    points = [point.validation for event in resumed for point in evaluations(event)]
    assert points == to_end(started(run, 2000), 2000)


def newest(folder: Path) -> int:
    """The step of the newest checkpoint."""
    return max((int(path.name.split("-")[1]) for path in checkpoints(folder)), default=0)


HANGS = """\
    if step == 3 and rank == 1:
        os.kill(os.getpid(), 19)
    optimizer.zero_grad()"""


@pytest.mark.slow
def test_ranks_end_when_one_of_them_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(started(run_of(tmp_path, DDP.replace("    optimizer.zero_grad()", HANGS), 2))) as one:
        monkeypatch.setattr(ranks, "ANSWER_S", 4.0)  # its start takes longer, as it imports
        processes, began = pids(one), time.monotonic()
        with pytest.raises(TrainingFunctionError, match=r"no answer in 4 s .* to step \d from these ranks: 0, 1\. One"):
            to_end(one, 10)
    assert 4 < time.monotonic() - began < 60
    assert are_gone(processes)


@pytest.mark.slow
def test_a_rank_that_raises_gives_the_reason(tmp_path: Path) -> None:
    body = DDP.replace(
        "    optimizer.zero_grad()", "    if step == 3 and rank == 1:\n        raise ValueError('boom')\n"
    )
    with pytest.raises(TrainingFunctionError) as raised:
        to_end(started(run_of(tmp_path, body, 2)), 10)
    assert str(raised.value).splitlines() == [
        "the training function failed:",
        "Rank 1 of 2, most recent call last:",
        '  File "train.py", line 18, in train',
        "    raise ValueError('boom')",
        "ValueError: boom",
    ]


@pytest.mark.slow  # each starts two processes that import torch
def test_a_rank_that_ends_before_the_group_is_whole_ends_the_others(tmp_path: Path) -> None:
    body = DDP.replace("dist.init", "if rank == 1:\n    os._exit(3)\ndist.init", 1)
    with pytest.raises(TrainingFunctionError, match="rank 1 of 2 ended with exit code 3$"):
        started(run_of(tmp_path, body, 2))


VARIABLES = """
import os
print({name: os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")})
for step in session.steps():
    session.log(rank=int(os.environ["RANK"]))
    if session.due:
        session.report(validation=(5.0 if step == 5 else float("nan")) + int(os.environ["RANK"]), test=0.0)
"""


def test_ranks_see_what_torchrun_sets_and_rank_0_reports_up_to_a_divergence(tmp_path: Path) -> None:
    output = Output()
    one = started(run_of(tmp_path, VARIABLES, 2), output=output)
    assert to_end(one, 10) == [5.0]
    assert one.progress.diverged_at_step == 10
    assert one.progress.curve[0].logged == [{"step": step, "name": "rank", "value": 0.0} for step in range(1, 6)]
    lines = sorted(line for printed in output.take() for line in printed.text.splitlines())
    same = "'WORLD_SIZE': '2', 'LOCAL_WORLD_SIZE': '2', 'MASTER_ADDR': '127.0.0.1'}"
    own = [f"{{'RANK': '{rank}', 'LOCAL_RANK': '{rank}', {same}" for rank in range(2)]
    assert lines == [f"[rank 1] {own[1]}", own[0]]


def test_one_process_has_the_id_it_always_had(tmp_path: Path) -> None:
    one, two = run_of(tmp_path, DDP, 1), run_of(tmp_path, DDP, 2)
    plain = own_run(runs_of(write_function(tmp_path, DDP, metric=LOSS), tmp_path / "results")[0].run)
    assert plain.run_id == one.run_id != two.run_id
    assert "processes" not in one.content()
    assert two.content()["processes"] == 2
