"""Trains a byte-level language model with GPT-2's architecture and saves it as a `save_pretrained` folder.

The reduced studies' "pretrained": genuinely trained on text, in a minute on a CPU, with nothing to download.

Shape legend: `B` batch, `T` tokens of context.
"""

from __future__ import annotations

import hashlib
import json
import logging
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
from trainables.checkpoint import (
    NUM_KEPT,
    flush,
    keep_newest,
    load_newest_checkpoint,
    remove_partial,
    save_checkpoint,
)
from trainables.corpus import describe_corpus, held_out_from
from trainables.randomness import keyed_generator
from trainables.recipe import NUM_BYTES, PretrainRecipe, pretraining_checkpoints
from trainables.run import ModelSize

WARMUP_SHARE = 0.1
"""Of the steps, while the learning rate rises; then it falls to zero along a half cosine."""
VALIDATION_WINDOWS = 64
"""Windows of held-out text in the reported bits per byte."""

CHECKPOINT_EVERY_S = 30.0
"""Seconds between checkpoints."""
SAVING_SPARSELY = 20
"""Training between two checkpoints takes at least so many times as long as saving one."""
MOMENTS = ("exp_avg", "exp_avg_sq")
"""AdamW's state of a parameter, besides the number of steps."""

log = logging.getLogger(__name__)

OnStep = Callable[[int, float], None]
"""Called with the step and the training loss in nats per byte."""


def pretrain(
    size: ModelSize,
    recipe: PretrainRecipe,
    corpus: bytes,
    folder: Path,
    device: torch.device,
    on_step: OnStep,
    *,
    checkpoint_every_s: float = CHECKPOINT_EVERY_S,
) -> dict[str, Any]:
    """Train and save `config.json`, `model.safetensors` and `pretraining.json` into `folder`, whole or not at all.

    Resumes from the newest checkpoint of an earlier call that did not end, to the same bytes as without a break: on the
    same machine, with as many threads, on which rounding depends.

    Returns:
        What `pretraining.json` holds: the recipe, and bits per byte on held-out text before and after.
    """
    text = torch.frombuffer(bytearray(corpus), dtype=torch.uint8)
    split = held_out_from(len(text))
    train, held_out = text[:split].to(device), text[split:].to(device)
    training = _Training(_language_model(size, recipe).to(device), recipe, pretraining_checkpoints(folder))
    if not training.resume():
        training.bits_per_byte_before = bits_per_byte(training.model, held_out, recipe)
    training.train(train, on_step, checkpoint_every_s)
    facts = {
        "text": describe_corpus(recipe.text),
        "text_sha256": hashlib.sha256(corpus).hexdigest(),
        "text_bytes": len(corpus),
        "recipe": {name: value for name, value in asdict(recipe).items() if name != "text"},
        "size": asdict(size),
        "held_out_bits_per_byte_before": training.bits_per_byte_before,
        "held_out_bits_per_byte": bits_per_byte(training.model, held_out, recipe),
        "duration_s": training.duration_s(),
        "torch": torch.__version__,
    }
    _save(training.model, facts, folder)
    shutil.rmtree(training.checkpoints, ignore_errors=True)
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


class _Training:
    """A model in training: AdamW, and checkpoints that hold all that the next step depends on.

    Args:
        model: at its initial weights, on its device.
        recipe: how to train.
        checkpoints: folder to keep them in.
    """

    def __init__(self, model: Any, recipe: PretrainRecipe, checkpoints: Path) -> None:
        self.model, self.recipe, self.checkpoints = model, recipe, checkpoints
        self.parameters: dict[str, Tensor] = dict(model.named_parameters())
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(), lr=recipe.learning_rate, betas=(0.9, 0.95), fused=True
        )
        self.step = 0
        self.bits_per_byte_before = math.nan
        """On held-out text, at step 0."""
        self._earlier_s, self._began = 0.0, time.monotonic()

    def duration_s(self) -> float:
        """Return the seconds taken up to now, with those before a break."""
        return self._earlier_s + time.monotonic() - self._began

    def train(self, text: Tensor, on_step: OnStep, checkpoint_every_s: float) -> None:
        """Take the steps that are left."""
        self.model.train()
        saved_at, save_s = time.monotonic(), 0.0
        while self.step < self.recipe.num_steps:
            loss = self._take_step(text)
            if time.monotonic() - saved_at >= max(checkpoint_every_s, save_s * SAVING_SPARSELY):
                save_began = time.monotonic()
                self.save()
                saved_at, save_s = time.monotonic(), time.monotonic() - save_began
            on_step(self.step, loss)

    def _take_step(self, text: Tensor) -> float:
        step = self.step + 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.learning_rate * learning_rate_share(step, self.recipe.num_steps)
        loss = _loss(self.model, _windows(text, self.recipe, step, self.recipe.batch_size))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.step = step
        return loss.item()

    def save(self) -> None:
        """Write a checkpoint and remove old ones."""
        states = self.optimizer.state
        tensors = {f"model/{name}": parameter.detach() for name, parameter in self.parameters.items()}
        for moment in MOMENTS:
            tensors |= {f"{moment}/{name}": states[parameter][moment] for name, parameter in self.parameters.items()}
        progress = {"step": self.step, "duration_s": self.duration_s(), "before": self.bits_per_byte_before}
        save_checkpoint(self.checkpoints, tensors, progress)
        keep_newest(self.checkpoints, NUM_KEPT)

    @torch.no_grad()
    def resume(self) -> bool:
        """Load the newest intact checkpoint; False: there is none."""
        remove_partial(self.checkpoints)
        saved = load_newest_checkpoint(self.checkpoints, lambda path: log.warning("%s is damaged", path))
        if saved is None:
            return False
        tensors, progress = saved
        self.step, self.bits_per_byte_before = progress["step"], progress["before"]
        self._earlier_s = progress["duration_s"]
        for name, parameter in self.parameters.items():
            parameter.copy_(tensors[f"model/{name}"])
            taken = torch.tensor(float(self.step), device=parameter.device)
            moments = {m: torch.empty_like(parameter).copy_(tensors[f"{m}/{name}"]) for m in MOMENTS}
            self.optimizer.state[parameter] = {"step": taken} | moments
        return True


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
    for path in partial.iterdir():
        flush(path)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
