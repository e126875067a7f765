"""Which options of a cell's protocol go together; each option by itself is checked where it is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lr_sweep.datasets import TASKS
from lr_sweep.sweep.study.cells import StudyCell
from lr_sweep.sweep.study.validation import Loc, Mistakes, shown
from lr_sweep.sweep.study.variants import own_protocol
from lr_sweep.trainables.parts import Variant
from lr_sweep.trainables.run import Protocol
from lr_sweep.trainables.schedules import depends_on_budget

_ADAM = ("adam", "adamw", "muon")
READ_WITH = {
    "adam_beta1": ("optimizer", _ADAM),
    "adam_beta2": ("optimizer", _ADAM),
    "adam_eps": ("optimizer", _ADAM),
    "momentum": ("optimizer", ("sgd",)),
    "lion_beta1": ("optimizer", ("lion",)),
    "lion_beta2": ("optimizer", ("lion",)),
    "muon_momentum": ("optimizer", ("muon",)),
    "decay_fraction": ("schedule", ("warmup-stable-decay",)),
}
"""Options that have an effect only with some values of another."""
MATRICES = {"attention", "feedforward", "last_attention"}
"""Parts with matrices for Muon."""


def check_protocols(cells: Sequence[StudyCell], tasks: Mapping[str, Any], variants: Mapping[str, Variant]) -> None:
    """Raise what is wrong with the protocols of cells, each once, at the variant's options or the study's.

    `tasks` are of `StudyTask`.
    """
    found: dict[tuple[Loc, str], list[str]] = defaultdict(list)
    for task, _, name, _, protocol in cells:
        loc: Loc = ("variants", name) if own_protocol(variants[name]) else ("protocol",)
        for problem in [
            *_unread_options(protocol),
            *_of_task(protocol, tasks[task].num_steps, TASKS[task].num_train(tasks[task].options)),
            *_of_parts(protocol, variants[name].trained),
        ]:
            found[loc, problem].append(f"{task}, {name}")
    mistakes = Mistakes()
    for (loc, problem), where in found.items():
        mistakes.add(problem if len(where) == len(cells) else f"{problem} ({where[0]})", *loc)
    mistakes.raise_all()


def _unread_options(protocol: Protocol) -> Iterator[str]:
    for option, (other, values) in READ_WITH.items():
        chosen, given = getattr(protocol, other), getattr(protocol, option)
        if chosen not in values and given != getattr(Protocol(), option):
            wanted = f"leave it out, or want {other}: {' or '.join(values)}"
            yield f"{option}: {shown(given)} has no effect with {other}: {chosen}; {wanted}"
    if protocol.attention is not None and not protocol.dropout:
        yield f"attention: {shown(protocol.attention)} has no effect with dropout: 0; leave it out"


def _of_task(protocol: Protocol, num_steps: int, num_train: int) -> Iterator[str]:
    if num_steps % protocol.evaluate_every:
        yield f"evaluate_every: {num_steps} steps are no multiple of {protocol.evaluate_every}"
    if protocol.batch_size > num_train:
        yield f"batch_size: the training split has {num_train} examples; want that or less"
    if protocol.warmup_steps + _decay_steps(protocol, num_steps) > num_steps:
        yield f"warmup_steps: {protocol.warmup_steps} leave no room for the schedule in {num_steps} steps; want fewer"


def _decay_steps(protocol: Protocol, num_steps: int) -> int:
    if protocol.schedule == "warmup-stable-decay":
        return max(1, round(protocol.decay_fraction * num_steps))
    return int(depends_on_budget(protocol))


def _of_parts(protocol: Protocol, trained: Sequence[str]) -> Iterator[str]:
    if protocol.optimizer == "muon" and MATRICES.isdisjoint(trained):
        yield "optimizer: muon trains matrices of attention and feedforward, which are frozen; want another optimizer"
