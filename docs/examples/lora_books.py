"""LoRA and its variants by `peft`, on Python source text: `trainable: lora_books.py:train` of lora-books.yaml.

The text is the first 1,000,000 bytes of this program's own source files outside tests/ at commit 59fce92, in the order
of the sha256 of their names. It is a file beside the study, so its bytes depend on no version of Python.
"""

import lzma
import math

import torch
from peft import LoraConfig, get_peft_model
from peft.optimizers import create_loraplus_optimizer
from torch.optim.lr_scheduler import LambdaLR
from transformers import GPT2LMHeadModel

from lr_sweep.trainables.pretraining.weights import WeightsSource, find_weights

BODY = WeightsSource(
    shipped="books-2x128", sha256="1eade0b59caab4807f84ff4cba3bd9deee9cc3c2bfe462570477bd89e6dd9b5b"
)
NUM_TOKENS, BATCH = 128, 8
"""Bytes of a sequence, all that the body has positions for, and sequences of a step."""
HELD_OUT = 128
"""Sequences of the validation split, from the text's beginning, and of the test split after it."""
WARM_UP = 0.05
"""Share of the steps in which the rate rises linearly, before a cosine to 0."""
METHODS = {
    "lora": {},
    "lora-plus": {},
    "rslora": {"use_rslora": True},
    "dora": {"use_dora": True},
    "pissa": {"init_lora_weights": "pissa"},
}
"""Options of `LoraConfig`; `lora-plus` is another optimizer."""


def train(run, session):
    """Adapt the body; options: `method`, and of adapters `rank`, `alpha` and `rate_ratio`, that of B's rate to A's."""
    validation, test, text = splits(session.files / "lora-books-text.xz", session.device)
    model = body(run.options).to(session.device)
    optimizer = optimizer_of(model, run)
    schedule = LambdaLR(optimizer, lambda step: rate_factor(step, run.options["schedule_steps"]))
    for _ in session.steps(model=model, optimizer=optimizer, schedule=schedule):
        starts = torch.randint(0, len(text) - NUM_TOKENS, (BATCH,))
        batch = torch.stack([text[start : start + NUM_TOKENS] for start in starts])
        optimizer.zero_grad()
        model(input_ids=batch, labels=batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if session.due:
            session.report(validation=loss(model, validation), test=loss(model, test))


def splits(path, device):
    """Return the validation and test sequences and the training text, as bytes' numbers."""
    text = (
        torch.frombuffer(bytearray(lzma.decompress(path.read_bytes())), dtype=torch.uint8)
        .long()
        .to(device)
    )
    held_out, rest = text.split([2 * HELD_OUT * NUM_TOKENS, len(text) - 2 * HELD_OUT * NUM_TOKENS])
    return *held_out.view(2, HELD_OUT, NUM_TOKENS), rest


def body(options):
    """Return the pretrained body, whole or frozen with adapters in all of its linear layers."""
    model = GPT2LMHeadModel.from_pretrained(find_weights(BODY, download=False))
    if options["method"] == "full":
        return model
    adapters = LoraConfig(
        r=options["rank"],
        lora_alpha=options["alpha"],
        target_modules=["c_attn", "c_proj", "c_fc"],
        fan_in_fan_out=True,
        task_type="CAUSAL_LM",
        **METHODS[options["method"]],
    )
    return get_peft_model(model, adapters)


def optimizer_of(model, run):
    """Return AdamW without decay, of LoRA+ with a larger rate for B."""
    settings = {"lr": run.learning_rate, "weight_decay": 0.0}
    if run.options["method"] == "lora-plus":
        ratio = run.options["rate_ratio"]
        return create_loraplus_optimizer(
            model, torch.optim.AdamW, loraplus_lr_ratio=ratio, **settings
        )
    return torch.optim.AdamW(
        [each for each in model.parameters() if each.requires_grad], **settings
    )


def rate_factor(step, num_steps):
    """Return the learning rate over its peak."""
    warm_up = WARM_UP * num_steps
    return min((step + 1) / warm_up, (1 + math.cos(math.pi * step / num_steps)) / 2)


@torch.no_grad()
def loss(model, sequences):
    """Return the mean loss in nats a byte."""
    model.eval()
    batches = sequences.split(32)
    found = sum(model(input_ids=each, labels=each).loss.item() for each in batches) / len(batches)
    model.train()
    return found
