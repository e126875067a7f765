"""What is saved of things that a training function passes, and that it is restored in place."""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from lr_sweep.trainables.own.saved import Saved
from lr_sweep.trainables.own.state import AS_RANK_0, StateError, by_rank, saved_values, state_of


def carried(saved: Saved, resumed: Saved, spent: tuple[torch.Tensor, ...] = ()) -> set[str]:
    """Load into `resumed` what a checkpoint has of `saved`; return the names of what it has."""
    tensors, values = state_of(saved.values(spent), {}, {})
    resumed.load(saved_values(tensors, json.loads(json.dumps(values))))
    return set(values["saved"])


class Average:
    """Has no `state_dict`, and holds what it averages."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.count, self.means = model, 0, [torch.zeros(2)]
        self.seen = deque[int]([1])


def test_an_object_without_a_state_is_saved_by_its_attributes() -> None:
    model, other = nn.Linear(1, 1), nn.Linear(1, 1)
    first, second = Average(model), Average(other)
    means = second.means[0]
    first.count, first.means = 3, [torch.ones(2), torch.ones(1)]
    first.seen.append(2)
    carried(Saved({"average": first}), Saved({"average": second}))
    assert (second.count, second.seen) == (3, deque([1, 2]))
    assert second.means[0] is means  # so that another name of the tensor has the same values
    assert torch.equal(means, torch.ones(2))
    assert torch.equal(second.means[1], torch.ones(1))
    assert torch.equal(other.weight, model.weight)


@pytest.mark.parametrize(
    ("new", "draw"),
    [
        (lambda: torch.Generator().manual_seed(1), lambda own: torch.rand(1, generator=own).item()),
        (lambda: np.random.default_rng(1), lambda own: own.random()),
        (lambda: np.random.RandomState(1), lambda own: own.rand()),
        (lambda: random.Random(1), lambda own: own.random()),
    ],
)
def test_generators(new: Callable[[], Any], draw: Callable[[Any], float]) -> None:
    first, second = new(), new()
    draw(first)
    carried(Saved({"own": first}), Saved({"own": second}))
    assert draw(first) == draw(second)


def test_gradients_are_saved_until_an_optimizer_has_used_them() -> None:
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    saved = Saved({"model": model})
    assert carried(saved, Saved({"model": other})) == {"model"}
    model(torch.ones(1, 2)).sum().backward()
    other.weight.grad = torch.zeros(1, 2)
    assert carried(saved, Saved({"model": other}), spent=(model.bias,)) == {"model", "model's gradients"}
    assert torch.equal(other.weight.grad, torch.ones(1, 2))
    assert other.bias.grad is None
    assert carried(saved, Saved({"model": other}), spent=(model.bias, model.weight)) == {"model"}
    assert other.weight.grad is None


def test_plain_attributes_are_saved_if_they_have_changed() -> None:
    """The attributes of modules, such as the mode and a rate of dropout, and whether a parameter is trained."""

    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(1, 1), nn.Dropout(0.5))

    model, other = network(), network()
    saved = Saved({"model": model})
    model[1].p = 0.1  # type: ignore[index]
    model[0].eval().weight.requires_grad_(False)  # type: ignore[index]
    assert saved.values(())["model's attributes"] == {"1.p": 0.1, "0.training": False, "0.weight.requires_grad": False}
    carried(saved, Saved({"model": other}))
    assert (other[1].p, other[0].training, other[1].training) == (0.1, False, True)  # type: ignore[index]
    assert [parameter.requires_grad for parameter in other.parameters()] == [False, True]


def test_containers_and_tensors_are_restored_in_place() -> None:
    counts, mean, numbers = {"steps": 3}, torch.ones(2), np.ones(2)
    new = {"counts": {"steps": 0, "more": 1}, "mean": torch.zeros(2), "numbers": np.zeros(2)}
    carried(Saved({"counts": counts, "mean": mean, "numbers": numbers}), Saved(new))
    assert new["counts"] == {"steps": 3}
    assert torch.equal(new["mean"], mean)  # type: ignore[arg-type]
    assert np.array_equal(new["numbers"], numbers)  # type: ignore[arg-type]


def test_what_cannot_be_restored_is_refused_all_at_once() -> None:
    with pytest.raises(StateError, match=r"got count \(int\), name \(str\), function \(function\), want an object"):
        Saved({"count": 3, "name": "x", "function": lambda: None, "counts": SimpleNamespace(count=0)})
    with pytest.raises(StateError, match=r"the checkpoint has a, session.steps got b"):
        Saved({"b": {}}).load({"a": {}, "a's attributes": {}})


@pytest.mark.parametrize(
    ("dtype", "is_saved"),
    [
        (torch.bfloat16, True),
        (torch.float8_e4m3fn, True),
        (torch.uint64, True),
        (torch.complex128, False),
        (torch.uint4, False),
    ],
)
def test_only_types_that_safetensors_has_are_saved(dtype: torch.dtype, is_saved: bool) -> None:
    numbers = torch.arange(16, dtype=torch.uint8).view(dtype) if is_saved else torch.empty(1, dtype=dtype)
    if not is_saved:
        with pytest.raises(StateError, match=rf"numbers: got a tensor of layout torch.strided, type {dtype} on cpu"):
            state_of({"numbers": numbers}, {}, {})
        return
    tensors, values = state_of({"numbers": numbers}, {}, {})
    restored = saved_values(load(save(tensors)), json.loads(json.dumps(values)))["numbers"]
    assert restored.view(torch.uint8).tolist() == numbers.view(torch.uint8).tolist()


def test_another_rank_lacks_tensors_or_by_an_earlier_version_things_with_the_bits_of_rank_0() -> None:
    model, own = torch.ones(1), torch.zeros(1)
    first = {"saved": {"model": {"tensor": "0"}, "own": {"tensor": "1"}}}
    earlier = {"saved": {"model": AS_RANK_0, "own": {"tensor": "1"}}}
    for other in (first, earlier):
        _, (tensors, values) = by_rank({"0": model, "1": model, "rank1.1": own}, first | {"ranks": [other]})
        assert saved_values(tensors, values) == {"model": model, "own": own}
