"""A script that nothing has changed, swept by a study's command: killed, interrupted, resumed, to its verdict."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from lr_sweep.tests.support.background import Background
from lr_sweep.tests.support.chaos import victims_of
from lr_sweep.tests.support.own_study import write_command, write_torchrun
from lr_sweep.tests.support.tiny_study import as_text, curves, in_process, rows, swept
from lr_sweep.tests.support.waiting import wait_until

SCRIPT = '''\
"""Learn a line from noisy points, and print how well it predicts others."""

import argparse
import json
import random
import time
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--lr", type=float, required=True, help="learning rate")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--momentum", type=float, default=0.0)
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--save", type=Path, help="folder to save to, and to resume from")
parser.add_argument("--epoch-s", type=float, default=0.4, help="seconds that an epoch takes")


def points(number, generator):
    inputs = [generator.uniform(-1, 1) for _ in range(number)]
    return [(each, 3 * each + 1 + generator.gauss(0, 0.1)) for each in inputs]


def error(model, examples):
    slope, offset = model
    return sum((slope * each + offset - wanted) ** 2 for each, wanted in examples) / len(examples)


def epoch(model, velocity, examples, options):
    for each, wanted in examples:
        miss = model[0] * each + model[1] - wanted
        for index, gradient in enumerate((miss * each, miss)):
            velocity[index] = options.momentum * velocity[index] + gradient
            model[index] -= options.lr * velocity[index]


def main():
    options = parser.parse_args()
    data = random.Random(0)
    train, validation, test = (points(number, data) for number in (100, 50, 50))
    generator = random.Random(options.seed)
    model, velocity, first = [generator.gauss(0, 1), generator.gauss(0, 1)], [0.0, 0.0], 1
    if options.save and (options.save / "state.json").exists():
        model, velocity, first = json.loads((options.save / "state.json").read_text())
        print(f"resuming at epoch {first}")
    for number in range(first, options.epochs + 1):
        time.sleep(options.epoch_s)
        epoch(model, velocity, train, options)
        print(f"epoch={number} val_loss={error(model, validation):.6f} test_loss={error(model, test):.6f}")
        if options.save:
            partial = options.save / "partial.json"
            partial.write_text(json.dumps([model, velocity, number + 1]))
            partial.rename(options.save / "state.json")


if __name__ == "__main__":
    main()
'''
STUDY = {
    "metrics": r"{validation: 'val_loss=([0-9.]+)', test: 'test_loss=([0-9.]+)', step: 'epoch=(\d+)'}",
    "metric": "{name: loss, higher_is_better: false}",
    "num_steps": "6",
    "variants": "{plain: {momentum: 0}, momentum: {momentum: 0.9}}",
    "learning_rates": "[1e-3, 1e-2]",
    "seeds": "2",
}
OPTIONS = "--lr {learning_rate} --seed {seed} --momentum {momentum} --epochs {num_steps}"
SHELL = f"{sys.executable} train.py --lr $1 --seed $2 --momentum $3 --epochs $4 --save $5\n"


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["python", "shell"])
def test_an_unchanged_script_is_swept_through_a_kill_and_ctrl_c(kind: str, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(SHELL)
    command = {
        "python": f"python train.py {OPTIONS} --epoch-s {{pause}}",
        "shell": "bash train.sh {learning_rate} {seed} {momentum} {num_steps} {checkpoint}",
    }[kind]
    changes = STUDY | {"command": command, "code": "[train.py, train.sh]"}
    if kind == "python":
        changes["models"] = "{line: {pause: 0.4}}"
    study, results = write_command(tmp_path, SCRIPT, **changes), tmp_path / "results"
    arguments = (study, "--results", results, "--cpus", "2")
    assert in_process("plan", study, "--results", results)[0] == 0

    with Background(tmp_path / "killed", *arguments) as run:
        run.wait_until(lambda: len(curves(results)) >= 2)
    with Background(tmp_path / "stopped", *arguments) as run:
        run.wait_until(lambda: rows(results))
        os.killpg(run.process.pid, signal.SIGINT)
        code, output = run.ends()
    assert (code, "Traceback" in output) == (130, False)
    wait_until(lambda: not scripts(), "the end of all scripts", 60)
    output = swept("run", *arguments)
    assert "8 runs wanted: all complete" in output
    assert "After tuning, " in output
    assert ("trained anew" in output) == (kind == "python")
    found = curves(results)
    swept("run", study, "--results", tmp_path / "undisturbed", "--cpus", "2")
    assert as_text(found) == as_text(curves(tmp_path / "undisturbed"))


@pytest.mark.slow
@pytest.mark.cluster
def test_of_a_run_by_torchrun_that_is_stopped_in_four_ways_one_trains_at_a_time(tmp_path: Path) -> None:
    study, results = write_torchrun(tmp_path, epoch_s=0.3, num_steps="40"), tmp_path / "results"
    arguments = (study, "--results", results, "--cpus", "1")
    seen: list[int] = []

    def is_further() -> bool:
        return len(max(curves(results).values(), key=len, default=())) > max(seen, default=0)

    def stop(run: Background, victim: int, number: signal.Signals) -> None:
        run.wait_until(is_further)
        trainers = victims_of(run.process.pid)["command"]
        os.kill(victim or victims_of(run.process.pid)["worker"][0], number)
        wait_until(lambda: not any(map(psutil.pid_exists, trainers)), "the end of all trainers", 60)
        seen.append(len(max(curves(results).values(), key=len)))

    with Background(tmp_path / "killed", *arguments) as run:
        stop(run, 0, signal.SIGKILL)
        stop(run, run.process.pid, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM):
        with Background(tmp_path / number.name, *arguments) as run:
            stop(run, run.process.pid, number)
            assert run.ends()[0] == 130
    assert "1 run wanted: all complete" in swept("run", *arguments)
    assert not (tmp_path / "two-trainers").exists()
    assert seen == sorted(set(seen))
    found = curves(results)
    swept("run", study, "--results", tmp_path / "undisturbed", "--cpus", "1")
    assert as_text(found) == as_text(curves(tmp_path / "undisturbed"))


def scripts() -> list[set[str]]:
    """The words of the scripts of this test that run on this machine."""
    words = [set(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
    return [each for each in words if {"train.py", "--momentum", "--epochs"} <= each]
