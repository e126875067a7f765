"""Ten optimizers on small images and on text: `trainable: league.py:train` of league.yaml.

The images are the published files of MNIST and CIFAR-10, in folders beside it; the text is that of lora-books.yaml.
"""

import gzip
import lzma
import math
import pickle

import torch
from pytorch_optimizer import MARS, SCION, SOAP, Kron
from pytorch_optimizer.optimizer.scion import LMONorm
from torch import nn
from torch.nn.functional import avg_pool2d, cross_entropy
from torch.optim.lr_scheduler import LambdaLR

from lr_sweep.trainables.plain.optimizers import Lion

NUM_TRAIN, NUM_HELD_OUT = 20_000, 5_000
"""Images of the training split at most; of the validation split and of the test split."""
NUM_TOKENS, NUM_SEQUENCES = 32, 256
"""Bytes of a sequence; sequences of the validation split and of the test split."""
WIDTH = 48
"""Hidden size of the model of text; images have 64."""
WARM_UP = 0.05
"""Share of the steps in which the rate rises linearly, before a cosine to 0."""


def train(run, session):
    """Train one run; options: `optimizer`, `weight_decay`, `batch_size` and `schedule_steps`."""
    parts = SPLITS[run.task](session.files)
    (inputs, labels), validation, test = (
        tuple(each.to(session.device) for each in part) for part in parts
    )
    model = (TextModel() if run.task == "text" else image_model(inputs.shape[1])).to(session.device)
    optimizers = OPTIMIZERS[run.options["optimizer"]](
        model, run.learning_rate, run.options["weight_decay"]
    )
    num_steps = run.options["schedule_steps"]
    schedules = [LambdaLR(each, lambda step: rate_factor(step, num_steps)) for each in optimizers]
    saved = {f"optimizer_{number}": each for number, each in enumerate(optimizers)}
    saved |= {f"schedule_{number}": each for number, each in enumerate(schedules)}
    for _ in session.steps(model=model, **saved):
        batch = torch.randint(0, len(inputs), (run.options["batch_size"],))
        model.zero_grad()
        cross_entropy(model(inputs[batch]).flatten(0, -2), labels[batch].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for each in (*optimizers, *schedules):
            each.step()
        if session.due:
            session.report(validation=accuracy(model, *validation), test=accuracy(model, *test))


def rate_factor(step, num_steps):
    """Return the learning rate over its peak."""
    return min((step + 1) / (WARM_UP * num_steps), (1 + math.cos(math.pi * step / num_steps)) / 2)


@torch.no_grad()
def accuracy(model, inputs, labels):
    """Return the share of labels, of images or of next bytes, that the model gives the highest score."""
    return (model(inputs).argmax(-1) == labels).float().mean().item()


def mnist(files):
    """Return the splits, each (images (N, 196), labels (N,)): training images, then halves of the test images."""

    def read(name, header, number):
        with gzip.open(files / "mnist" / "MNIST" / "raw" / name) as file:
            return torch.frombuffer(
                bytearray(file.read(header + number)[header:]), dtype=torch.uint8
            )

    def split(name, number):
        images = read(f"{name}-images-idx3-ubyte.gz", 16, number * 28 * 28).view(-1, 1, 28, 28)
        return smaller(images, 2), read(f"{name}-labels-idx1-ubyte.gz", 8, number).long()

    return split("train", NUM_TRAIN), *halves(*split("t10k", 2 * NUM_HELD_OUT))


def cifar10(files):
    """Return the splits, each (images (N, 192), labels (N,)): a training file, then halves of the test images."""

    def split(name):
        content = (files / "cifar10" / "cifar-10-batches-py" / name).read_bytes()
        file = pickle.loads(content, encoding="latin1")  # noqa: S301  # as published; runs have its sha256
        return smaller(torch.from_numpy(file["data"]).view(-1, 3, 32, 32), 4), torch.tensor(
            file["labels"]
        )

    return split("data_batch_1"), *halves(*split("test_batch"))


def text(files):
    """Return the splits, each (bytes (N, T), the bytes after them (N, T)), with the validation and test text first."""
    content = bytearray(lzma.decompress((files / "lora-books-text.xz").read_bytes()))
    sequences = (
        torch.frombuffer(content, dtype=torch.uint8).long().unfold(0, NUM_TOKENS + 1, NUM_TOKENS)
    )  # (N, T + 1)
    held_out, rest = sequences[: 2 * NUM_SEQUENCES], sequences[2 * NUM_SEQUENCES :]
    parts = rest, held_out[::2], held_out[1::2]
    return [(part[:, :-1], part[:, 1:]) for part in parts]


def smaller(images, factor):
    """Return images (N, C, H, W) uint8 as numbers around 0 (N, D), of averages over squares of pixels."""
    return avg_pool2d(images.float() / 255 - 0.5, factor).flatten(1) * 2


def halves(images, labels):
    """Return the validation split and the test split."""
    return [(images[first::2], labels[first::2]) for first in (0, 1)]


SPLITS = {"mnist": mnist, "cifar10": cifar10, "text": text}


def image_model(num_inputs):
    """Return a network with two hidden layers of 64."""
    return nn.Sequential(
        nn.Linear(num_inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    )


class TextModel(nn.Module):
    """A causal transformer of one block, which predicts the next byte."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(256, WIDTH), nn.Embedding(NUM_TOKENS, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.qkv, self.mixed = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, 256)

    def forward(self, tokens):
        """Return the scores of the next bytes (N, T, 256) of (N, T)."""
        x = self.tokens(tokens) + self.positions.weight
        heads = (
            self.qkv(self.norms[0](x)).unflatten(-1, (3, 3, -1)).permute(2, 0, 3, 1, 4)
        )  # (3, N, heads, T, D)
        attended = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.mixed(attended.transpose(1, 2).flatten(2))
        x = x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))
        return self.output(self.norms[2](x))


def matrices(model):
    """Return the hidden matrices, the matrices at the ends (embeddings and the output layer), and the vectors."""
    ends = [
        *(each.weight for each in model.modules() if isinstance(each, nn.Embedding)),
        list(model.parameters())[-2],
    ]
    hidden = [
        each
        for each in model.parameters()
        if each.ndim == 2 and not any(each is end for end in ends)
    ]
    return hidden, ends, [each for each in model.parameters() if each.ndim == 1]


def muon(model, rate, decay):
    """Return Muon of the hidden matrices and AdamW of the others, with updates of one size."""
    hidden, ends, vectors = matrices(model)
    first = torch.optim.Muon(hidden, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
    return [first, torch.optim.AdamW([*ends, *vectors], lr=rate, weight_decay=decay)]


def scion(model, rate, decay):
    """Return Scion with the norms and radii of its authors' language models."""
    hidden, ends, vectors = matrices(model)
    groups = [
        {"params": hidden, "norm_type": int(LMONorm.SPECTRAL), "scale": 50.0},
        {"params": ends, "norm_type": int(LMONorm.SIGN), "scale": 3000.0},
        {"params": vectors, "norm_type": int(LMONorm.BIAS), "scale": 50.0},
    ]
    return [SCION(groups, lr=rate, weight_decay=decay)]


class CautiousAdamW(torch.optim.AdamW):
    """AdamW whose updates against the gradient's sign are left out (Liang et al. 2024), the others scaled up."""

    @torch.no_grad()
    def step(self):
        """Take a step of every parameter."""
        trained = [(group, each) for group in self.param_groups for each in group["params"]]
        before = [each.clone() for _, each in trained]
        super().step()
        for (group, parameter), old in zip(trained, before, strict=True):
            old.mul_(1 - group["lr"] * group["weight_decay"])
            update = parameter - old
            agrees = (update * parameter.grad < 0).to(update.dtype)
            parameter.copy_(old + update * agrees / agrees.mean().clamp(min=1e-3))


OPTIMIZERS = {
    "sgd": lambda model, rate, decay: [
        torch.optim.SGD(model.parameters(), rate, 0.9, weight_decay=decay)
    ],
    "adamw": lambda model, rate, decay: [
        torch.optim.AdamW(model.parameters(), rate, weight_decay=decay)
    ],
    "lion": lambda model, rate, decay: [Lion(model.parameters(), rate, 0.9, 0.99, decay)],
    "muon": muon,
    "nadamw": lambda model, rate, decay: [
        torch.optim.NAdam(model.parameters(), rate, weight_decay=decay, decoupled_weight_decay=True)
    ],
    "cautious": lambda model, rate, decay: [
        CautiousAdamW(model.parameters(), rate, weight_decay=decay)
    ],
    "mars": lambda model, rate, decay: [
        MARS(model.parameters(), rate, optimize_1d=True, weight_decay=decay)
    ],
    "scion": scion,
    "soap": lambda model, rate, decay: [SOAP(model.parameters(), rate, weight_decay=decay)],
    "kron": lambda model, rate, decay: [
        Kron(model.parameters(), rate, weight_decay=decay, precondition_dtype=None)
    ],
}
"""The optimizers of a model by name, from the learning rate and the weight decay; other settings are the defaults."""
