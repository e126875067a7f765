"""How parameters start: the random rules, and pretrained weights put in place."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from datasets.task import TaskShape
from trainables.classifier import Classifier
from trainables.gpt2 import Conv1D
from trainables.pretrained import WeightsError
from trainables.randomness import keyed_generator
from trainables.run import Run

WEIGHT_STD = 0.02
"""Of every random GPT-2 weight (Radford et al. 2019; Hugging Face `initializer_range`)."""


def build_classifier(run: Run, task: TaskShape, weights: dict[str, Tensor] | None) -> Classifier:
    """Return the run's model at step 0 on the CPU, with its frozen parts frozen.

    Random numbers are keyed by the run's seed and drawn on the CPU in a fixed order, so that variants and learning
    rates of one seed share their input and output layers, on every device.

    Args:
        run: what to build.
        task: shape of the task.
        weights: the body's pretrained tensors by name (`load_weights`); None for random initialisation.

    Raises:
        WeightsError: the weights do not fit the model.
    """
    model = Classifier(run.model, task, run.protocol)
    initialise_randomly(model, run)
    if run.initialisation == "pretrained":
        assert weights is not None, "a pretrained run needs weights"
        put_weights(model, weights)
    model.freeze_all_but(run.trained)
    return model


@torch.no_grad()
def initialise_randomly(model: Classifier, run: Run) -> None:
    """Draw every parameter: body by `Protocol.random_init`, then input and output layers."""
    generator = keyed_generator(run.seed, "body")
    for name, module in model.body.named_modules():
        if isinstance(module, Conv1D):
            module.weight.normal_(0.0, _weight_std(name, run), generator=generator)
        elif isinstance(module, nn.Embedding):
            _draw_positions(module, run, generator)
    generator = keyed_generator(run.seed, "input and output")
    if isinstance(model.input_layer, nn.Linear):
        nn.init.orthogonal_(model.input_layer.weight, gain=run.protocol.input_gain, generator=generator)
        model.input_layer.bias.zero_()
    else:
        assert isinstance(model.input_layer, nn.Embedding)
        model.input_layer.weight.normal_(0.0, 1.0, generator=generator)
    bound = 1.0 / math.sqrt(run.model.width)  # torch.nn.Linear's default, as in Lu et al.'s code
    model.output_layer.weight.uniform_(-bound, bound, generator=generator)
    model.output_layer.bias.uniform_(-bound, bound, generator=generator)


def _weight_std(name: str, run: Run) -> float:
    scaled = run.protocol.random_init == "library" and name.endswith("c_proj")
    return WEIGHT_STD / math.sqrt(2 * run.model.layers) if scaled else WEIGHT_STD


def _draw_positions(table: nn.Embedding, run: Run, generator: torch.Generator) -> None:
    own = run.model.positions
    table.weight[:own].normal_(0.0, WEIGHT_STD, generator=generator)
    table.weight[own:].normal_(0.0, run.protocol.position_std, generator=generator)


@torch.no_grad()
def put_weights(model: Classifier, weights: dict[str, Tensor]) -> None:
    """Copy pretrained tensors over the body's; position rows beyond the pretrained ones keep their random start."""
    wanted = model.body.state_dict()
    missing = sorted(wanted.keys() - weights.keys())
    if missing:
        raise WeightsError(f"the weights lack {len(missing)} of {len(wanted)} tensors: {', '.join(missing[:5])} ...")
    for name, parameter in model.body.named_parameters():
        target = parameter[: len(weights[name])] if name == "wpe.weight" else parameter
        if target.shape != weights[name].shape:
            raise WeightsError(f"{name} has shape {tuple(weights[name].shape)}, the model {tuple(target.shape)}")
        target.copy_(weights[name])


def load_weights(folder: Path) -> dict[str, Tensor]:
    """Read the body's tensors from a `save_pretrained` folder, float32, named as in `GPT2` without a prefix.

    Raises:
        WeightsError: no `model.safetensors` there, or not a readable one.
    """
    path = folder / "model.safetensors"
    if not path.is_file():
        raise WeightsError(f"no model.safetensors in {folder}")
    try:
        tensors = load_file(path)
    except Exception as error:  # safetensors raises its own type, OSError or ValueError by what is wrong
        raise WeightsError(f"{path} cannot be read as safetensors: {error}") from error
    named = {name.removeprefix("transformer."): tensor.float() for name, tensor in tensors.items()}
    return {name: tensor for name, tensor in named.items() if name.split(".")[0] in ("wpe", "h", "ln_f")}
