"""How parameters start: the random rules, and pretrained weights put in place."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from lr_sweep.datasets.task import TaskShape
from lr_sweep.trainables.models import load_family
from lr_sweep.trainables.models.classifier import Classifier
from lr_sweep.trainables.models.family import Body
from lr_sweep.trainables.models.gpt2 import GPT2
from lr_sweep.trainables.models.parametrization import query_factor, width_ratio
from lr_sweep.trainables.pretraining.weights import WeightsError
from lr_sweep.trainables.randomness import keyed_generator
from lr_sweep.trainables.run import Run


def build_classifier(run: Run, task: TaskShape, weights: dict[str, Tensor] | None) -> Classifier:
    """Return the run's model at step 0 on the CPU, with its frozen parts frozen.

    Random numbers are keyed by the run's seed and drawn on the CPU in a fixed order. Variants and learning rates of one
    seed therefore share their input and output layers, on every device.

    `weights`: the body's pretrained tensors by name (`load_weights`); raises WeightsError where they do not fit.
    """
    model = Classifier(run.model, task, run.protocol)
    initialise_randomly(model, run)
    if run.initialisation != "random":
        assert weights is not None, "the run starts from pretrained weights"
        put_weights(model.body, weights if run.initialisation == "pretrained" else alike(weights, run.seed))
    if isinstance(model.body, GPT2):
        model.body.multiply_queries(query_factor(run))
    model.freeze_all_but(run.trained)
    return model


@torch.no_grad()
def initialise_randomly(model: Classifier, run: Run) -> None:
    """Draw every parameter: the body by its family's rule, then input and output layers."""
    model.body.draw(run.protocol, keyed_generator(run.seed, "body"))
    generator = keyed_generator(run.seed, "input and output")
    width, base_width = run.model.width, run.model.width / width_ratio(run.protocol, run.model.width)
    if isinstance(model.input_layer, nn.Linear):
        # An orthogonal matrix's numbers shrink as its larger side grows: here they are as large as the base's.
        token_dim = model.input_layer.in_features
        gain = run.protocol.input_gain * math.sqrt(max(width, token_dim) / max(base_width, token_dim))
        nn.init.orthogonal_(model.input_layer.weight, gain=gain, generator=generator)
        model.input_layer.bias.zero_()
    else:
        assert isinstance(model.input_layer, nn.Embedding)
        model.input_layer.weight.normal_(0.0, 1.0, generator=generator)
    bound = 1.0 / math.sqrt(base_width)  # torch.nn.Linear's default, as in Lu et al.'s code
    model.output_layer.weight.uniform_(-bound, bound, generator=generator)
    model.output_layer.bias.uniform_(-bound, bound, generator=generator)


@torch.no_grad()
def put_weights(body: Body, weights: dict[str, Tensor]) -> None:
    """Copy pretrained tensors over the body's; position rows beyond the pretrained ones keep their random start.

    Weights of further layers are left out: a shallower body has the first layers of a deeper one.
    """
    wanted = {name: p for name, p in body.named_parameters() if name not in body.always_new}
    if missing := sorted(wanted.keys() - weights.keys()):
        raise WeightsError(f"the weights lack {len(missing)} of {len(wanted)} tensors: {', '.join(missing[:5])} ...")
    for name, parameter in wanted.items():
        target = parameter[: len(weights[name])] if name == body.position_table else parameter
        if target.shape != weights[name].shape:
            raise WeightsError(f"{name} has shape {tuple(weights[name].shape)}, the model {tuple(target.shape)}")
        target.copy_(weights[name])


def alike(weights: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Draw tensors from normal distributions of the mean and deviation of each (Lu et al. 2021, section 3.8)."""
    generator = keyed_generator(seed, "statistics")
    return {
        name: torch.empty_like(tensor).normal_(
            tensor.mean().item(), tensor.std(correction=0).item(), generator=generator
        )
        for name, tensor in sorted(weights.items())
    }


def load_weights(folder: Path, family: str = "gpt2") -> dict[str, Tensor]:
    """Read the body's tensors from a `save_pretrained` folder, float32, by name; raises WeightsError if unreadable."""
    path = folder / "model.safetensors"
    if not path.is_file():
        raise WeightsError(f"no model.safetensors in {folder}")
    try:
        tensors = load_file(path)
    except Exception as error:  # safetensors raises its own type, OSError or ValueError by what is wrong
        raise WeightsError(f"{path} cannot be read as safetensors: {error}") from error
    return {name: tensor.float() for name, tensor in load_family(family).body_tensors(tensors).items()}
