"""Tensors of pretrained weights: their names and shapes without torch, and what is refused of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from lr_sweep.tests.support.small_runs import SIZE, random_weights
from lr_sweep.trainables.backbones.gpt2 import GPT2
from lr_sweep.trainables.pretraining.fit import EXPONENTS, body_shapes, tensor_mistakes
from lr_sweep.trainables.run import ModelSize

Tensors = dict[str, Tensor]


@pytest.mark.parametrize("size", [SIZE, ModelSize(layers=12, heads=12, width=768)])
def test_shapes_are_those_of_the_body(size: ModelSize) -> None:
    with torch.device("meta"):
        body = GPT2(size)
    assert body_shapes(size) == {name: tuple(tensor.shape) for name, tensor in body.state_dict().items()}


def mistakes(folder: Path, tensors: Tensors) -> list[str]:
    save_file(tensors, folder / "model.safetensors")
    return tensor_mistakes(folder, SIZE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_sound_tensors_are_accepted_in_every_type(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {f"transformer.{name}": tensor.to(dtype) for name, tensor in random_weights().items()}
    tensors["lm_head.weight"] = torch.full((3,), torch.nan)  # not of the body
    tensors["transformer.h.0.attn.bias"] = torch.ones(2, dtype=torch.bool)  # a mask, as old checkpoints have it
    assert mistakes(tmp_path, tensors) == []


def without(prefix: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: tensor for name, tensor in tensors.items() if not name.startswith(prefix)}


def narrow(tensors: Tensors) -> Tensors:
    """A feedforward of twice the width, as `n_inner` makes it."""
    return tensors | {"h.1.mlp.c_fc.weight": torch.ones(16, 32), "h.1.mlp.c_proj.weight": torch.ones(32, 16)}


LAST_ATTENTION = "h.1.attn.c_attn.weight, h.1.attn.c_attn.bias"
WIDE = ": h.1.mlp.c_fc.weight has shape (16, 32), want (16, 64)"


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        (without("h.1.attn.c_attn"), [f"lacks {LAST_ATTENTION}"]),
        (without("h.1.attn"), [f"lacks {LAST_ATTENTION}, h.1.attn.c_proj.weight, h.1.attn.c_proj.bias"]),
        (without("h.1."), [f"lacks h.1.ln_1.weight, h.1.ln_1.bias, {LAST_ATTENTION},"]),
        (without("wpe"), ["lacks wpe.weight"]),
        (lambda t: t | {"wpe.weight": torch.ones(3)}, [": wpe.weight has shape (3,), want ("]),
        (narrow, [f"{WIDE}, h.1.mlp.c_proj.weight has shape (32, 16)"]),
        (lambda t: t | {"ln_f.bias": torch.ones(16).char()}, [": ln_f.bias is of I8; want F32, F16, BF16"]),
        (lambda t: narrow(without("ln_f")(t)), ["lacks ln_f.weight, ln_f.bias", WIDE]),
    ],
)
def test_tensors_that_do_not_make_the_body(
    tmp_path: Path, change: Callable[[Tensors], Tensors], messages: list[str]
) -> None:
    found = mistakes(tmp_path, change(random_weights()))
    assert len(found) == len(messages)
    for mistake, start in zip(found, messages, strict=True):
        assert mistake.startswith(f"model.safetensors{'' if start[0] == ':' else ' '}{start}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_numbers_that_are_not_finite_are_counted(tmp_path: Path, dtype: torch.dtype, value: float) -> None:
    tensors = {name: tensor.to(dtype) for name, tensor in random_weights().items()}
    tensors["ln_f.bias"][[0, 15]] = value
    tensors["h.0.mlp.c_fc.weight"][3, 4] = value
    assert mistakes(tmp_path, tensors) == [
        "model.safetensors: h.0.mlp.c_fc.weight has 1 of 1024 numbers that are NaN or infinite, "
        "ln_f.bias has 2 of 16 numbers that are NaN or infinite"
    ]


def test_the_largest_numbers_are_finite() -> None:
    for dtype, (unsigned, exponent) in zip(
        (torch.float32, torch.float16, torch.bfloat16), EXPONENTS.values(), strict=True
    ):
        raw = torch.tensor([torch.finfo(dtype).max], dtype=dtype).view(torch.uint8).numpy().view(unsigned)
        assert (raw & exponent) != exponent


@pytest.mark.parametrize("content", [b"", b"no safetensors", b"\xff" * 100, None])
def test_files_that_are_no_safetensors(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "model.safetensors").write_bytes(content)
    (mistake,) = tensor_mistakes(tmp_path, SIZE)
    assert mistake.startswith("model.safetensors cannot be read as safetensors: ")
