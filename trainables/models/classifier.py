"""Input layer + body + output layer (Lu et al. 2021, section 2.2), in named parts that can be frozen, and their start.

Shape legend: `B` batch, `T` tokens, `D` width, `M` positions read, `Q` answers an example, `C` classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from lr_sweep.datasets.task import TaskShape
from lr_sweep.trainables.factors import query_factor, width_ratio
from lr_sweep.trainables.models import load_family
from lr_sweep.trainables.numerics import Tensors, keyed_generator
from lr_sweep.trainables.parts import sorted_parts
from lr_sweep.trainables.run import BodySize, Protocol, Run

from .family import Body, Dropout, Parts
from .gpt2 import GPT2


def logits_of(outputs: Tensor, task: TaskShape) -> Tensor:
    """Sort what the output layer gives at B M positions, (..., B M, Q / M * C), into logits (..., B, C or Q, C)."""
    answers = (task.num_answers,) if task.num_answers > 1 else ()
    return outputs.view(*outputs.shape[:-2], -1, *answers, task.num_classes)


class Classifier(nn.Module):
    """Reads a task's tokens, returns class logits."""

    def __init__(self, size: BodySize, task: TaskShape, protocol: Protocol) -> None:
        super().__init__()
        self.task, self.protocol = task, protocol
        self.width_ratio = width_ratio(protocol, size.width)
        self.real_valued = task.token_dim is not None
        self.input_layer: nn.Module
        if task.token_dim is not None:
            self.input_layer = nn.Linear(task.token_dim, size.width)
        else:
            assert task.num_token_ids is not None
            table = torch.empty(task.num_token_ids, size.width)  # filled by `_initialise_randomly`
            self.input_layer = nn.Embedding.from_pretrained(table, freeze=False)
        self.body = load_family(size.family).build(size, task.num_tokens)
        self.output_layer = nn.Linear(size.width, task.num_outputs)

    def forward(self, tokens: Tensor, noise: torch.Generator | None = None) -> Tensor:
        """Return logits (B, C), or (B, Q, C), of tokens (B, T) or (B, T, token_dim); `noise` None: evaluation mode."""
        read = self.features(tokens, noise)
        return logits_of(self.output_layer(read / self.width_ratio), self.task)

    def features(self, tokens: Tensor, noise: torch.Generator | None = None) -> Tensor:
        """Return the states that the output layer reads, (B M, D); arguments as of `forward`."""
        embeddings = self.input_layer(tokens)  # (B, T, D)
        if noise is not None and self.real_valued:
            embeddings = Dropout(self.protocol.input_dropout, noise)(embeddings)
        dropout = (
            None
            if noise is None
            else Dropout(self.protocol.dropout, noise, self.protocol.attention)
        )
        hidden = self.body(embeddings, dropout)  # (B, T, D)
        return hidden[:, -self.task.num_read :].reshape(-1, hidden.shape[-1])

    def parts(self) -> Parts:
        """Return what each part of `PARTS` consists of; `EVERYTHING` holds every parameter once."""
        return {**self.body.parts(), "input": [self.input_layer], "output": [self.output_layer]}

    def freeze_all_but(self, trained: Iterable[str]) -> None:
        """Let gradients reach the named parts only; raises ValueError as `sorted_parts`."""
        trained, parts = sorted_parts(trained), self.parts()
        self.requires_grad_(False)
        for part in trained:
            for module in parts.get(part, []):
                module.requires_grad_()

    def trained_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield name and parameter of everything that is trained, in a fixed order."""
        return ((name, p) for name, p in self.named_parameters() if p.requires_grad)


def build_classifier(run: Run, task: TaskShape, weights: Tensors | None) -> Classifier:
    """Return the run's model at step 0 on the CPU, with its frozen parts frozen.

    Random numbers are keyed by the run's seed and drawn on the CPU in a fixed order. Variants and learning rates of one
    seed therefore share their input and output layers. `weights` fit (`check_weights_fit`).
    """
    model = Classifier(run.model, task, run.protocol)
    _initialise_randomly(model, run)
    if run.initialisation != "random":
        assert weights is not None, "the run starts from pretrained weights"
        put_weights(
            model.body, weights if run.initialisation == "pretrained" else alike(weights, run.seed)
        )
    if isinstance(model.body, GPT2):
        model.body.multiply_queries(query_factor(run))
    model.freeze_all_but(run.trained)
    return model


@torch.no_grad()
def _initialise_randomly(model: Classifier, run: Run) -> None:
    model.body.draw(run.protocol, keyed_generator(run.seed, "body"))
    generator = keyed_generator(run.seed, "input and output")
    width = run.model.width
    base_width = width / model.width_ratio
    if isinstance(model.input_layer, nn.Linear):
        # An orthogonal matrix's numbers shrink as its larger side grows: here they are as large as the base's.
        token_dim = model.input_layer.in_features
        shrunk = max(width, token_dim) / max(base_width, token_dim)
        gain = run.protocol.input_gain * math.sqrt(shrunk)
        nn.init.orthogonal_(model.input_layer.weight, gain=gain, generator=generator)
        model.input_layer.bias.zero_()
    else:
        assert isinstance(model.input_layer, nn.Embedding)
        model.input_layer.weight.normal_(0.0, 1.0, generator=generator)
    bound = 1.0 / math.sqrt(base_width)  # torch.nn.Linear's default, as in Lu et al.'s code
    model.output_layer.weight.uniform_(-bound, bound, generator=generator)
    model.output_layer.bias.uniform_(-bound, bound, generator=generator)


@torch.no_grad()
def put_weights(body: Body, weights: Tensors) -> None:
    """Copy pretrained tensors over the body's, also of a deeper one; position rows beyond them keep their start."""
    for name, parameter in body.named_parameters():
        if name not in body.always_new:
            target = parameter[: len(weights[name])] if name == body.position_table else parameter
            target.copy_(weights[name])


def alike(weights: Tensors, seed: int) -> Tensors:
    """Draw tensors from normal distributions of the mean and deviation of each (Lu et al. 2021, section 3.8)."""
    generator = keyed_generator(seed, "statistics")
    return {
        name: torch.empty_like(tensor).normal_(
            tensor.mean().item(), tensor.std(correction=0).item(), generator=generator
        )
        for name, tensor in sorted(weights.items())
    }
