"""At a resume, variables are compared that did not change in a trial; what is back at its first value was lost."""

from __future__ import annotations

import argparse
import json
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch.utils.data import DataLoader, Sampler

from lr_sweep.tests.support.own_study import write_function
from lr_sweep.tests.support.tiny_study import runs_of
from lr_sweep.trainables.own.engine import OwnTraining
from lr_sweep.trainables.own.exactness import Probe
from lr_sweep.trainables.own.loader import follow
from lr_sweep.trainables.own.run import own_run
from lr_sweep.trainables.own.session import OwnSession
from lr_sweep.trainables.own.variables import variables_of

BODY = """
import copy

model = torch.nn.Linear(1, 1)
target = copy.deepcopy(model)
epoch = 0
for step in session.steps(model=model{saved}):
    is_odd = step % 2
    torch.nn.init.constant_(model.weight, epoch + is_odd)
    if step == 4:
        target.load_state_dict(model.state_dict())
        epoch += 1
    if session.due:
        session.report(validation=0.5, test=target.weight.sigmoid())
"""


class Held:
    pass


def test_looking_keeps_nothing_alive() -> None:
    held = Held()
    reference = weakref.ref(held)
    frame = sys._getframe()
    names = variables_of(frame, Path(__file__).parent, (), everywhere=True)
    assert f"reference in {frame.f_code.co_name}" not in names
    del held
    assert reference() is None


def test_what_a_session_has_is_saved_and_not_looked_for() -> None:
    session = OwnSession(cast(Any, None), "cpu", Path(), lambda: None)
    session.stepped.append(torch.optim.SGD([torch.zeros(1)]))
    trainer = argparse.Namespace(session=session, others=[*session.stepped, torch.Generator()])
    frame = sys._getframe()
    names = variables_of(frame, Path(__file__).parent, (), everywhere=True)
    kinds = [name.partition(" in ")[0] for name in names if name.startswith(("trainer", "session"))]
    assert kinds == ["trainer's SGD", "trainer's Namespace's Generator"]
    trainer.others.clear()
    names = variables_of(frame, Path(__file__).parent, (), everywhere=True)
    assert not [name for name in names if name.startswith(("trainer", "session"))]


class Epochs(Sampler[int]):
    """Counts its epochs in an object of another class, which is not saved with a loader."""

    def __init__(self) -> None:
        self.past = SimpleNamespace(epoch=0)

    def __iter__(self) -> Iterator[int]:
        self.past.epoch += 1
        return iter(range(4))


def test_what_a_loader_s_sampler_has_is_looked_at() -> None:
    loader: DataLoader[int] = DataLoader(range(4), sampler=Epochs())  # type: ignore[arg-type]
    assert follow(loader, lambda: None) is not loader
    found = list[str]()
    for _ in range(2):
        next(iter(loader))
        names = variables_of(sys._getframe(), Path(__file__).parent, (), everywhere=False)
        found += [value for name, value in names.items() if name.startswith("loader.Epochs.past.epoch in ")]
    first, second = found
    assert first != second


JUDGED = ("step in train", "is_odd in train")


@pytest.mark.parametrize(
    ("saved", "stop", "resumed", "not_saved"),
    [
        ("", 3, "exactly", []),
        ("", 5, "inexactly", ["epoch in train", "target in train"]),
        (", target=target", 5, "inexactly", ["epoch in train"]),
    ],
)
def test_what_a_resume_resets_is_lost(
    tmp_path: Path, saved: str, stop: int, resumed: str, not_saved: list[str]
) -> None:
    (wanted,) = runs_of(write_function(tmp_path, BODY.format(saved=saved)), tmp_path)
    state: Any = None
    for until in (stop, 10):
        one = OwnTraining(own_run(wanted.run), 10, "cpu")
        if state is not None:
            one.probe = Probe(judged=JUDGED)
            one.load_state(state[0], json.loads(json.dumps(state[1])))
        while one.progress.step < until:
            one.advance(for_s=0.0)
        state = one.state()
        one.close()
    assert (one.progress.resumed, one.progress.not_saved) == (resumed, not_saved)
