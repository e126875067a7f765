"""Trains a byte-level language model with GPT-2's architecture and saves it as a `save_pretrained` folder.

The reduced studies' "pretrained": genuinely trained on text, in a minute on a CPU, with nothing to download.

Shape legend: `B` batch, `T` tokens of context.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_

from datasets.files import follow_umask, hash_file
from trainables.corpus import describe_corpus, held_out_from
from trainables.randomness import keyed_generator
from trainables.recipe import PretrainRecipe
from trainables.run import ModelSize

NUM_BYTES = 256
"""The vocabulary: one token a byte."""
WARMUP_SHARE = 0.1
"""Of the steps, while the learning rate rises; then it falls to zero along a half cosine."""
VALIDATION_WINDOWS = 64
"""Windows of held-out text in the reported bits per byte."""

OnStep = Callable[[int, float], None]
"""Called with the step and the training loss in nats per byte."""


def pretrain(
    size: ModelSize, recipe: PretrainRecipe, corpus: bytes, folder: Path, device: torch.device, on_step: OnStep
) -> dict[str, Any]:
    """Train and save `config.json`, `model.safetensors` and `pretraining.json` into `folder`, whole or not at all.

    Returns:
        What `pretraining.json` holds: the recipe, and bits per byte on held-out text before and after.
    """
    started = time.monotonic()
    text = torch.frombuffer(bytearray(corpus), dtype=torch.uint8)
    split = held_out_from(len(text))
    train, held_out = text[:split].to(device), text[split:].to(device)
    model = _language_model(size, recipe).to(device)
    before = bits_per_byte(model, held_out, recipe)
    _train(model, train, recipe, on_step)
    facts = {
        "text": describe_corpus(recipe.text),
        "text_sha256": hashlib.sha256(corpus).hexdigest(),
        "text_bytes": len(corpus),
        "recipe": {name: value for name, value in asdict(recipe).items() if name != "text"},
        "size": asdict(size),
        "held_out_bits_per_byte_before": before,
        "held_out_bits_per_byte": bits_per_byte(model, held_out, recipe),
        "duration_s": time.monotonic() - started,
        "torch": torch.__version__,
    }
    _save(model, facts, folder)
    return facts


def _language_model(size: ModelSize, recipe: PretrainRecipe) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel  # imported late: takes seconds that training need not spend

    config = GPT2Config(
        vocab_size=NUM_BYTES,
        n_positions=size.positions,
        n_embd=size.width,
        n_layer=size.layers,
        n_head=size.heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
        use_cache=False,
    )
    with torch.random.fork_rng(devices=[]):  # the library initialises from the global generator
        torch.manual_seed(recipe.seed)
        return GPT2LMHeadModel(config)


def _train(model: Any, text: Tensor, recipe: PretrainRecipe, on_step: OnStep) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.95), fused=True)
    model.train()
    for step in range(1, recipe.num_steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * learning_rate_share(step, recipe.num_steps)
        loss = _loss(model, _windows(text, recipe, step, recipe.batch_size))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        on_step(step, loss.item())


def learning_rate_share(step: int, num_steps: int) -> float:
    """Return the part of the full learning rate at a step from 1: linear warm-up, then half a cosine."""
    warmup = max(1, round(WARMUP_SHARE * num_steps))
    if step <= warmup:
        return step / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, num_steps - warmup)))


def _windows(text: Tensor, recipe: PretrainRecipe, step: int, number: int) -> Tensor:
    """Return (B, T + 1) int64 windows at random places."""
    generator = keyed_generator(recipe.seed, "pretrain", step)
    starts = torch.randint(len(text) - recipe.num_tokens, (number,), generator=generator)  # (B,)
    places = starts[:, None] + torch.arange(recipe.num_tokens + 1)  # (B, T + 1)
    return text[places.to(text.device)].long()


def _loss(model: Any, windows: Tensor) -> Tensor:
    logits = model(windows[:, :-1]).logits  # (B, T, 256)
    return F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


@torch.no_grad()
def bits_per_byte(model: Any, text: Tensor, recipe: PretrainRecipe) -> float:
    """Return the cross-entropy in bits on fixed windows of a text; 8 is knowing nothing."""
    model.eval()
    return _loss(model, _windows(text, recipe, 0, VALIDATION_WINDOWS)).item() / math.log(2)


@contextmanager
def _without_progress_bars() -> Iterator[None]:
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _save(model: Any, facts: dict[str, Any], folder: Path) -> None:
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    with _without_progress_bars():
        model.save_pretrained(partial)
    follow_umask(partial / "model.safetensors")
    checked = facts | {"weights_sha256": hash_file(partial / "model.safetensors")}
    (partial / "pretraining.json").write_text(json.dumps(checked, indent=2) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
