"""The functions of docs/own-training.md, as they are there: they train, and resume exactly."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.tests.support.own_study import resumes_exactly, to_end, write_own_study
from lr_sweep.tests.support.tiny_study import ROOT, runs_of
from lr_sweep.trainables.own.engine import OwnTraining
from lr_sweep.trainables.own.probe import probe
from lr_sweep.trainables.own.run import own_run

PAGE = (ROOT / "docs" / "own-training.md").read_text()
PLAIN, RANKS, SHARDED, LIGHTNING, TRAINER, _, ACCELERATE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
NO_ACCELERATE = "Accelerate is not installed: pip install 'lr-sweep[hf]'"


def of_page(tmp_path: Path, function: str, more: str = "") -> list[WantedRun]:
    """The runs of the page's study, with a function of the page, and more lines of the study."""
    folder = tmp_path / "own"
    write_own_study(folder).unlink()
    (folder / "train.py").write_text(function)
    study, _ = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (folder / "mine.yaml").write_text(study + more)
    return runs_of(folder / "mine.yaml", tmp_path)


def check(wanted: WantedRun) -> None:
    """Train 100 steps; the validation loss falls. A stop and a resume change no bit."""
    run = own_run(wanted.run)
    assert probe(run, "cpu").resumed == "exactly"
    one = OwnTraining(run.sibling(0.03, 1), 200, "cpu")
    to_end(one, 200)
    first, second = one.progress.curve
    assert (first.step, second.step) == (100, 200)
    assert second.validation < first.validation


def without(function: str, name: str) -> str:
    """The function, which passes one thing less to the session."""
    changed = re.sub(rf', (?:{name}={name}|"{name}": {name})', "", function)
    assert changed != function
    return changed


@pytest.mark.parametrize("passes", [True, False])
@pytest.mark.parametrize(("function", "forgotten"), [(PLAIN, "loader"), (ACCELERATE, "accelerator")])
def test_a_function_resumes_in_mid_epoch_and_between_accumulated_batches(
    tmp_path: Path, function: str, forgotten: str, passes: bool
) -> None:
    """The stops are neither ends of epochs, of 32 or 40 steps, nor steps of an optimizer that accumulates four batches.

    Evaluations come each 100 steps.
    """
    if function == ACCELERATE:
        pytest.importorskip("accelerate", reason=NO_ACCELERATE)
    function = function if passes else without(function, forgotten)
    run = replace(of_page(tmp_path, function)[0], num_steps=200)
    assert resumes_exactly(run, 3, 147) == passes


def sharded() -> str:
    """The function of several processes, with sharded tensors."""
    ddp = "model = DistributedDataParallel(model, find_unused_parameters=True)"
    fsdp = "from torch.distributed.fsdp import fully_shard; fully_shard(model)"
    function = RANKS.replace(ddp, fsdp).replace("model=model, optimizer=optimizer", "sharded=Sharded(model, optimizer)")
    function = function.replace("session.due and rank == 0", "session.due").replace("optim.SGD", "optim.AdamW")
    return f"{SHARDED}\n\n{function.replace('model.module.weight', 'model.weight.full_tensor()')}"


@pytest.mark.parametrize(("function", "variant"), [(PLAIN, "adamw"), (PLAIN, "sgd"), (ACCELERATE, "adamw")])
def test_functions_of_one_process(tmp_path: Path, function: str, variant: str) -> None:
    if function == ACCELERATE:
        pytest.importorskip("accelerate", reason=NO_ACCELERATE)
    check(next(run for run in of_page(tmp_path, function) if run.variant == variant))


@pytest.mark.slow
@pytest.mark.parametrize("function", [RANKS, ACCELERATE, sharded()], ids=["plain", "accelerate", "sharded"])
def test_functions_of_two_processes(tmp_path: Path, function: str) -> None:
    if function == ACCELERATE:
        pytest.importorskip("accelerate", reason=NO_ACCELERATE)
    check(of_page(tmp_path, function, "resources: {processes_per_run: 2}\n")[0])


@pytest.mark.parametrize(("starter", "recipe"), [("hf-trainer", TRAINER), ("lightning", LIGHTNING)])
def test_the_recipe_for_a_trainer_is_the_starter_s(starter: str, recipe: str) -> None:
    assert (ROOT / "sweep" / "starters" / starter / "train.py").read_text().endswith(recipe)


def test_the_study_of_the_page_has_the_grid_that_it_shows(tmp_path: Path) -> None:
    runs = of_page(tmp_path, PLAIN)
    assert len(runs) == 2 * 7 * 3
    assert runs[0].cell == ("digits", "train", "adamw")
