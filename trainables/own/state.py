"""The state of a training function between two steps: what it asks to have saved, and the random generators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lr_sweep.common.scratch import scratch_folder
from lr_sweep.trainables.own.values import Encoder, StateError, decode, folder_bytes, write_folder

PAIRS = (("state_dict", "load_state_dict"), ("save", "load"))
"""Methods of what is saved: by values, or by files in a folder."""


def check_savable(saved: Mapping[str, Any]) -> None:
    """Raise StateError for things that cannot be saved, all of them in one message."""
    wrong = [f"{name} ({type(thing).__name__})" for name, thing in saved.items() if _pair(thing) is None]
    if wrong:
        raise StateError(
            f"session.steps got {', '.join(wrong)}, want things with state_dict and load_state_dict, or with "
            f"save(folder) and load(folder)"
        )


def _pair(thing: Any) -> tuple[str, str] | None:
    return next((pair for pair in PAIRS if all(callable(getattr(thing, method, None)) for method in pair)), None)


def state_of(saved: Mapping[str, Any], generators: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the state of things and of random generators: tensors by name, and JSON values that refer to them.

    Raises:
        StateError: something in it cannot be saved without pickle.
    """
    encoder = Encoder()
    things = {name: encoder.encode(_state(thing), name) for name, thing in saved.items()}
    values = {"saved": things, "generators": encoder.encode(generators, "random generators")}
    return encoder.tensors, values


def _state(thing: Any) -> Any:
    if _pair(thing) == PAIRS[0]:
        return thing.state_dict()
    with scratch_folder("state-") as folder:
        thing.save(folder)
        return folder_bytes(folder)


def restore(saved: Mapping[str, Any], tensors: dict[str, Tensor], values: Mapping[str, Any]) -> dict[str, Any]:
    """Restore what `state_of` returned but for the random generators, whose states are returned.

    Raises:
        StateError: the state is of other things.
    """
    if saved.keys() != values["saved"].keys():
        raise StateError(f"the checkpoint has {', '.join(values['saved'])}, session.steps got {', '.join(saved)}")
    for name, thing in saved.items():
        _restore(thing, decode(values["saved"][name], tensors))
    generators: dict[str, Any] = decode(values["generators"], tensors)
    return generators


def _restore(thing: Any, state: Any) -> None:
    if _pair(thing) == PAIRS[0]:
        thing.load_state_dict(state)
        return
    with scratch_folder("state-") as folder:
        write_folder(folder, state)
        thing.load(folder)
