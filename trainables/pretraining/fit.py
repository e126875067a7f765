"""Whether pretrained weights are those of a body: what `config.json` and the header of `model.safetensors` say.

GPT-2's are read without torch, so that a look at a study stays quick; other families' bodies need torch anyway.
"""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import safe_open

from lr_sweep.trainables.models import load_family
from lr_sweep.trainables.models.published import GPT2, shown
from lr_sweep.trainables.run import BodySize, ModelSize

MAX_SHOWN = 5
"""Tensors named in a message, of those that share a mistake."""
Shapes = dict[str, tuple[int, ...]]
"""Shapes of a body's tensors, by name."""


def config_mistakes(folder: Path, family: str, size: BodySize | None) -> list[str]:
    """Return what is wrong with the `config.json` of a `save_pretrained` folder, field by field; None: any size."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        return [
            f"config.json cannot be read ({error}): put the one there that was saved with the weights"
        ]
    if not isinstance(config, dict):
        return [f"config.json: got {shown(config)}, want an object with model_type and so on"]
    mistakes_of = GPT2.mistakes if family == "gpt2" else load_family(family).config_mistakes
    return [f"config.json: {mistake}" for mistake in mistakes_of(config, size)]


def tensor_mistakes(folder: Path, size: BodySize) -> list[str]:
    """Return which tensors of a body are missing or misshapen."""
    try:
        shapes = _shapes_in(folder / "model.safetensors", size.family)
    # safetensors raises its own type, OSError or ValueError by what is wrong.
    except Exception as error:
        return [f"model.safetensors cannot be read as safetensors: {error}"]
    wanted = body_shapes(size)
    misshapen = [name for name in wanted if shapes.get(name, wanted[name]) != wanted[name]]
    return [
        *listed(" lacks", [name for name in wanted if name not in shapes]),
        *listed(
            ":", [f"{name} has shape {shapes[name]}, want {wanted[name]}" for name in misshapen]
        ),
    ]


def _shapes_in(path: Path, family: str) -> Shapes:
    with safe_open(path, framework="numpy") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    if family == "gpt2":
        return {name.removeprefix("transformer."): shape for name, shape in shapes.items()}
    import torch

    tensors = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    return {
        name: tuple(tensor.shape)
        for name, tensor in load_family(family).body_tensors(tensors).items()
    }


def body_shapes(size: BodySize) -> Shapes:
    """Return the tensors that a body takes from pretrained weights; GPT-2's without torch."""
    if isinstance(size, ModelSize):
        return _gpt2_shapes(size)
    import torch

    with torch.device("meta"):
        body = load_family(size.family).build(size, 0)
    return {
        name: tuple(p.shape) for name, p in body.named_parameters() if name not in body.always_new
    }


def _gpt2_shapes(size: ModelSize) -> Shapes:
    width = size.width
    block: Shapes = {
        "ln_1": (width,),
        "attn.c_attn": (width, 3 * width),
        "attn.c_proj": (width, width),
        "ln_2": (width,),
        "mlp.c_fc": (width, 4 * width),
        "mlp.c_proj": (4 * width, width),
    }
    layers = {
        f"h.{layer}.{name}": shape for layer in range(size.layers) for name, shape in block.items()
    }
    shapes: Shapes = {"wpe.weight": (size.positions, width)}
    for name, weight in (layers | {"ln_f": (width,)}).items():
        shapes |= {f"{name}.weight": weight, f"{name}.bias": weight[-1:]}
    return shapes


def listed(verb: str, mistakes: list[str]) -> list[str]:
    """Return mistakes of tensors as one, a few of them by name; none if there are none."""
    more = f" and {len(mistakes) - MAX_SHOWN} more" if len(mistakes) > MAX_SHOWN else ""
    return [f"model.safetensors{verb} {', '.join(mistakes[:MAX_SHOWN])}{more}"] if mistakes else []
