"""A GPU that is not there: tensors with a device and without numbers, for tests of what CUDA code asks of it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "equal")
"""Operations that wait until a GPU has finished, to hand numbers or sizes to Python."""


class _Generator(torch.Generator):
    """A generator that says it is on any device; without a driver, there are none of CUDA's."""

    def __new__(cls, device: torch.device | str = "cpu") -> _Generator:
        made = super().__new__(cls, "cpu")
        made.claimed = torch.device(device)
        return made

    claimed: torch.device

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.claimed


def _moved(module: nn.Module, device: torch.device) -> nn.Module:
    """Do what `nn.Module.to` does, which cannot exchange fake tensors in place."""
    for each in module.modules():
        for name, parameter in each._parameters.items():
            if parameter is not None:
                moved = nn.Parameter(parameter.detach().to(device), requires_grad=parameter.requires_grad)
                each._parameters[name] = moved
        for name, buffer in each._buffers.items():
            each._buffers[name] = None if buffer is None else buffer.to(device)
    return module


class Traffic(TorchDispatchMode):
    """Records operations that wait for the device, and copies between it and the host."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []
        self.copies = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function._schema.name.removeprefix("aten::")
        if name in WAITS:
            self.waits.append(name)
        devices = {x.device.type for x in (*args, result) if isinstance(x, torch.Tensor)}
        self.copies += len(devices) > 1 and name in ("_to_copy", "copy_")
        return result


@contextmanager
def fake_device(kind: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """Make `cuda` or `meta` usable: operations on tensors of two devices raise, numbers cannot be read.

    Fake CUDA tensors have no backward pass without a driver; meta tensors have.
    """
    with FakeTensorMode():
        torch.ones(2) + 1  # what torch imports at first use is not to see the generator below
    importlib.import_module("torch.distributed.tensor")  # likewise
    monkeypatch.setattr(torch, "Generator", _Generator)
    monkeypatch.setattr(nn.Module, "to", _moved)
    if kind == "meta":
        monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
        monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
        adam = sys.modules["torch.optim.adam"]  # `torch.optim` hides it
        monkeypatch.setattr(adam, "_device_dtype_check_for_fused", lambda *_: None)
        yield torch.device("meta")
        return
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield torch.device(kind)
