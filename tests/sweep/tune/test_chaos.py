"""Killed at random, again and again, a study ends with the record and the MLflow store of one that never was.

`make chaos` is the long form; CHAOS_KILLS and CHAOS_SEED change it. The short form is one of the slow tests.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest

from lr_sweep.analysis.record.study import Judgement
from lr_sweep.sweep.cli.parser import main
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.run_state import checkpoint_step
from lr_sweep.tests.support.chaos import COMMAND_DECK, DECK, PAGE_DECK, RANKS_DECK, Sweep, whole_content
from lr_sweep.tests.support.own_study import NOISY, write_function, write_own_study, write_torchrun
from lr_sweep.tests.support.tiny_study import ROOT, command_line, environment, write_study

pytestmark = pytest.mark.cluster
SEED = int(os.environ.get("CHAOS_SEED") or time.time())
KILLS = int(os.environ.get("CHAOS_KILLS") or 40)
"""Of all studies together."""
STEPS_PER_KILL = 150
VARIANTS = ("frozen-random", "frozen-pretrained", "unfrozen-random")
PROTOCOL = "{evaluate_every: 50, train_examples_evaluated: 100}"
WITHOUT_FAILURES = {"protocol": PROTOCOL, "resources": "{runs_per_trial: 2, retries: 100}"}
"""A failed run is a result, which a search and a choice of winners heed: here a killed worker makes none."""


def grid(folder: Path, num_steps: int, seeds: int = 2) -> Path:
    """Six runs a seed."""
    resources = "{runs_per_trial: 2, retries: 2}"
    return write_study(
        folder, variants=VARIANTS, num_steps=num_steps, seeds=seeds, protocol=PROTOCOL, resources=resources
    )


def searched(folder: Path, num_steps: int) -> Path:
    search = {"learning_rates": "null", "search": "{sampler: tpe, low: 1e-4, high: 1e-1, rates: 6}"}
    return write_study(folder, num_steps=num_steps, **WITHOUT_FAILURES, **search)


def refined(folder: Path, num_steps: int) -> Path:
    return write_study(folder, rates=(1e-4, 1e-3, 1e-2), num_steps=num_steps, refine="3", **WITHOUT_FAILURES)


def stopped(folder: Path, num_steps: int) -> Path:
    """A cohort a cell, whose runs reach a rung together; long enough for a request to stop to arrive."""
    changes = WITHOUT_FAILURES | {"resources": "{runs_per_trial: 6, retries: 100}"}
    rates = (1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 1e-1)
    return write_study(folder, rates=rates, num_steps=1000 + num_steps, stop_early="median", **changes)


def winners(folder: Path, num_steps: int) -> Path:
    return write_study(folder, rates=(1e-4, 1e-3, 1e-2), seeds=3, num_steps=num_steps, winners="1", **WITHOUT_FAILURES)


def own(folder: Path, num_steps: int) -> Path:
    study = write_own_study(folder / "own", num_steps=num_steps, rates="1e-3, 1e-2")
    study.write_text(study.read_text().replace("retries: 0", "retries: 100"))
    return study


def ranks(folder: Path, num_steps: int) -> Path:
    """Two runs of an own function, each in two processes."""
    changes = {"protocol": "{evaluate_every: 50}", "metric": "{name: loss, higher_is_better: false}"}
    resources = "{processes_per_run: 2, retries: 100}"
    rates = "[1e-3, 1e-2]"
    return write_function(
        folder, NOISY, num_steps=str(5 * num_steps), learning_rates=rates, resources=resources, **changes
    )


def torchrun(folder: Path, num_steps: int) -> Path:
    """Two runs of a command that trains in two processes by `torchrun`, which hide in sessions of their own."""
    resources = "{cpus_per_trial: 2, retries: 100}"
    return write_torchrun(folder, num_steps=str(num_steps // 15), resources=resources, learning_rates="[1e-3, 1e-2]")


def hf_trainer(folder: Path, num_steps: int) -> Path:
    """The study that `init --kind hf-trainer` writes; its own number of steps."""
    subprocess.run(command_line("init", "--kind", "hf-trainer", folder / "hf"), cwd=ROOT, env=environment(), check=True)
    return folder / "hf" / "mine.yaml"


def quickstart(folder: Path, num_steps: int) -> Path:
    """The shipped study."""
    return Path(shutil.copy(ROOT / "sweep" / "studies" / "quickstart.yaml", folder))


STUDIES: tuple[Callable[[Path, int], Path], ...] = (
    *(grid, searched, refined, stopped, winners, own, ranks),
    *(hf_trainer, quickstart, torchrun),
)
DECKS = {"ranks": RANKS_DECK, "quickstart": PAGE_DECK, "torchrun": COMMAND_DECK}


@pytest.mark.chaos
@pytest.mark.parametrize("number", range(len(STUDIES)), ids=[write.__name__ for write in STUDIES])
def test_kills_at_random_change_nothing(tmp_path: Path, number: int) -> None:
    """Driver, workers, raylet, GCS or all at once; a study that ends before its kills are made is started anew.

    Each start has shorter pauses before its kills: the undisturbed run may have met a slower machine.
    """
    name = STUDIES[number].__name__
    cards = DECKS.get(name, DECK)
    dice, deck = random.Random(f"{SEED} {number}"), random.Random(SEED).sample(cards, len(cards))
    targets = [deck[(number + kill) % len(deck)] for kill in range(len(range(number, KILLS, len(STUDIES))))]
    if not targets:
        pytest.skip(f"CHAOS_KILLS={KILLS} leaves no kill for it")
    print(f"\nCHAOS_SEED={SEED} CHAOS_KILLS={KILLS}, {name}: {len(targets)} kills; everything is in {tmp_path}")
    study = STUDIES[number](tmp_path, STEPS_PER_KILL * len(targets))
    undisturbed = Sweep(study, tmp_path / "undisturbed")
    reference = whole_content(undisturbed.undisturbed(), study.stem)
    lives = 0
    while targets:
        lives += 1
        sweep = Sweep(study, tmp_path / f"disturbed-{lives}", has_page="page" in cards)
        try:
            pause_s = 2 * undisturbed.span_s / (len(targets) + 2) / lives
            del targets[: sweep.disturb(targets, dice, pause_s)]
            code = sweep.finish()
        finally:
            sweep.end()
        account = f"CHAOS_SEED={SEED} CHAOS_KILLS={KILLS}, {name}, killed: {'; '.join(sweep.kills)}; {sweep.results}"
        print(f"  ended after {sweep.starts} starts")
        assert code == 0, f"{account}\n{sweep.log.read_text()[-3000:]}"
        assert tracebacks(sweep.log) == "", account
        assert not (tmp_path / "two-trainers").exists(), account
        assert main(["verify", "--results", str(sweep.results)]) == 0, account
        found = whole_content(sweep.results, study.stem)
        if name == "stopped":
            check_stopped(found, reference, sweep, account)
        else:
            check_equal(found, reference, account)


def check_equal(found: dict[str, Any], reference: dict[str, Any], account: str = "") -> None:
    assert found.keys() == reference.keys(), account
    for name, content in found.items():
        assert content == reference[name], f"{name} differs; {account}"
    assert {run["status"] for run in found["MLflow"].values()} == {"FINISHED"}, account


def check_stopped(found: dict[str, Any], reference: dict[str, Any], sweep: Sweep, account: str) -> None:
    """Check what docs/rates-and-seeds.md promises: a death may change when runs reach a rung, and the decisions there.

    Numbers are those of the undisturbed runs as far as both were trained, decisions stay, and each is the rule's. Where
    all decisions are the same, so are the chosen rates.
    """
    judged = sweep.judgements()
    assert all(judged[: len(before)] == before for before in sweep.decisions), account
    curves = defaultdict(dict)
    for point in found["curves"]:
        curves[point["run_id"]][point["step"]] = point
    for point in reference["curves"]:
        assert curves[point["run_id"]].get(point["step"], point) == point, account
    theirs = {row["run_id"]: row for row in reference["runs"]}
    of_rate, saved = {}, Results(sweep.results)
    stops = {each.key[2:]: each.step for each in judged if not each.kept}
    assert "stopped" in {row["status"] for row in found["runs"]}, account
    for row in found["runs"]:
        rate = row["variant"], row["learning_rate"]
        of_rate[rate] = [(step, point["validation"]) for step, point in curves[row["run_id"]].items()]
        mirrored = found["MLflow"][row["run_id"]]
        assert mirrored["points"]["validation_accuracy"] == of_rate[rate], account
        assert mirrored["status"] == ("KILLED" if row["status"] == "stopped" else "FINISHED"), account
        assert checkpoint_step(saved, row["run_id"]) == row["num_steps"], account
        if row["status"] == "stopped":
            assert row["stopped_at_step"] == stops[rate], account
        else:  # one that is stopped late may reach its end before
            assert stops.get(rate, row["num_steps"]) > row["num_steps"] / 2, account
        if "stopped" not in (row["status"], theirs[row["run_id"]]["status"]):
            assert row == theirs[row["run_id"]], account
            assert found["weights"][row["run_id"]] == reference["weights"][row["run_id"]], account
    check_rule(judged, of_rate, account)
    decided, undisturbed = (sorted(each["rungs.parquet"], key=str) for each in (found, reference))
    print(f"  {sum(each in undisturbed for each in decided)} of {len(decided)} decisions are those without a kill")
    assert decided != undisturbed or found["cells.csv"] == reference["cells.csv"], account


def check_rule(
    judged: list[Judgement], of_rate: dict[tuple[str, float], list[tuple[int, float]]], account: str
) -> None:
    """Each decision is the median rule's on the curves, among the rates that were at the rung by then."""
    at_rung = defaultdict(list)
    for each in judged:
        at_rung[each.variant, each.step].append(each)
    for (_, rung), group in at_rung.items():
        so_far = {each.key: [value for step, value in of_rate[each.key[2:]] if step <= rung] for each in group}
        for each in group:
            others = [fmean(so_far[other.key]) for other in group[: each.num_compared] if other.key != each.key]
            assert each.value == max(so_far[each.key]), account
            assert each.kept == (len(others) < 3 or each.value >= median(others)), account


def tracebacks(log: Path) -> str:
    """Return what a log says from its first traceback on: a killed process leaves none, a crashed one does."""
    return "".join(log.read_text().partition("Traceback")[1:])


@pytest.mark.slow  # one kill and one Ctrl-C are quick: tests/sweep/tune/test_sweep_killed.py
def test_a_worker_ray_and_the_driver_killed_in_turn_change_nothing(tmp_path: Path) -> None:
    """The short form: each kind once, while a run trains; no dead GCS, which takes a while."""
    study = grid(tmp_path, num_steps=1000, seeds=1)
    sweep = Sweep(study, tmp_path / "disturbed")
    try:
        sweep.start()
        sweep.kill_when_training("worker")
        sweep.kill_when_training("raylet")
        sweep.wait_until_it_says("Ray died (raylet ended unexpectedly); starting it again")
        sweep.kill_when_training("driver")
        assert sweep.finish() == 0, sweep.log.read_text()
    finally:
        sweep.end()
    assert sweep.starts == 2, sweep.log.read_text()
    check_equal(
        whole_content(sweep.results, "tiny"), whole_content(Sweep(study, tmp_path / "other").undisturbed(), "tiny")
    )
