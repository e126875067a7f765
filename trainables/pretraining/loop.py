"""Pretrains a model by a recipe: steps with checkpoints between them, then a folder of weights that is there whole."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_

from lr_sweep.common.files import (
    Fields,
    flush,
    follow_umask,
    hash_file,
    partial_path,
    remove_dead_partials,
    remove_tree,
    sealed,
)
from lr_sweep.datasets import TASKS
from lr_sweep.datasets.loaded import load_checked
from lr_sweep.trainables import checkpoint
from lr_sweep.trainables.models.published import GPT2
from lr_sweep.trainables.numerics import State, Tensors, keyed_generator
from lr_sweep.trainables.plain.engine import Training
from lr_sweep.trainables.plain.evaluation import evaluate
from lr_sweep.trainables.run import ModelSize

from .recipe import (
    NO_FILES,
    NUM_BYTES,
    PretrainRecipe,
    Recipe,
    TaskRecipe,
    held_out_from,
    pretraining_checkpoints,
)
from .weights import CONFIG, FACTS, FILES, WEIGHTS, WeightsError

WARMUP_SHARE = 0.1
"""Part of the steps in which the learning rate rises; then it falls to zero along half a cosine."""
VALIDATION_WINDOWS = 64
"""Windows of held-out text in the reported bits per byte."""
NUM_EVALUATIONS = 50
"""Evaluations of the held-out text, at about equal distances; the last is after the last step."""

MOMENTS = ("exp_avg", "exp_avg_sq")
"""AdamW's state of a parameter, besides the number of steps."""


def _language_model(size: ModelSize, recipe: PretrainRecipe) -> Any:
    # Imported late: takes seconds that training need not spend.
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=NUM_BYTES,
        n_positions=size.positions,
        n_embd=size.width,
        n_layer=size.layers,
        n_head=size.heads,
        activation_function="gelu_pytorch_tanh",  # GPT-2's "gelu_new", by one operation in place of eight
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


class TextTrainee:
    """A model in training by AdamW on the first part of a text, evaluated on the rest."""

    def __init__(
        self, size: ModelSize, recipe: PretrainRecipe, corpus: bytes, device: torch.device
    ) -> None:
        self.size, self.recipe, self.corpus = size, recipe, corpus
        whole = torch.frombuffer(bytearray(corpus), dtype=torch.uint8)
        split = held_out_from(len(corpus))
        self.text, self.held_out = whole[:split].to(device), whole[split:].to(device)  # (N,), (M,)
        self.model = _language_model(size, recipe).to(device)
        self.parameters: Tensors = dict(self.model.named_parameters())
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(), lr=recipe.learning_rate, betas=(0.9, 0.95), fused=True
        )
        self.step = 0
        self.curve: list[tuple[int, float]] = []
        """Steps, and bits per byte of held-out text after them."""
        self.evaluated_at = _evaluation_steps(recipe.num_steps)
        self._earlier_s, self._began = 0.0, time.monotonic()

    def _duration_s(self) -> float:
        return self._earlier_s + time.monotonic() - self._began

    def measure(self) -> None:
        """Add the bits per byte of the held-out text to the curve."""
        self.curve.append((self.step, _bits_per_byte(self.model, self.held_out, self.recipe)))

    def take_step(self) -> float:
        """Take the next gradient step and return its loss."""
        self.model.train()
        self.step += 1
        share = learning_rate_share(self.step, self.recipe.num_steps)
        self.optimizer.param_groups[0]["lr"] = self.recipe.learning_rate * share
        windows = _windows(self.text, self.recipe, self.step, self.recipe.batch_size)
        loss = _loss(self.model, windows)
        self.optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        if self.step in self.evaluated_at:
            self.measure()
        return loss.item()

    def facts(self) -> Fields:
        """Return what `pretraining.json` says of the training, after its last step."""
        return {
            "text": self.recipe.corpus_name(),
            "text_sha256": hashlib.sha256(self.corpus).hexdigest(),
            "text_bytes": len(self.corpus),
            "recipe": {
                name: value for name, value in self.recipe.content().items() if name != "text"
            },
            "size": asdict(self.size),
            "held_out_bits_per_byte_before": self.curve[0][1],
            "held_out_bits_per_byte": self.curve[-1][1],
            "curve": self.curve,
            "duration_s": self._duration_s(),
            "torch": torch.__version__,
        }

    def save(self, folder: Path) -> None:
        """Write `config.json` and `model.safetensors` into a new folder."""
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # of this process for good: nothing else here shows one of the library's
        self.model.save_pretrained(folder)

    def state(self) -> State:
        """Return what is needed to resume: tensors by name, and plain JSON values."""
        states = self.optimizer.state
        tensors = {
            f"model/{name}": parameter.detach() for name, parameter in self.parameters.items()
        }
        for moment in MOMENTS:
            tensors |= {
                f"{moment}/{name}": states[parameter][moment]
                for name, parameter in self.parameters.items()
            }
        return tensors, {"step": self.step, "duration_s": self._duration_s(), "curve": self.curve}

    @torch.no_grad()
    def load_state(self, tensors: Tensors, progress: Fields) -> None:
        """Resume from what `state` returned."""
        self.step, self._earlier_s = progress["step"], progress["duration_s"]
        self.curve = [
            (step, bits) for step, bits in progress.get("curve") or [(0, progress["before"])]
        ]
        for name, parameter in self.parameters.items():
            parameter.copy_(tensors[f"model/{name}"])
            taken = torch.tensor(float(self.step), device=parameter.device)
            moments = {
                m: torch.empty_like(parameter).copy_(tensors[f"{m}/{name}"]) for m in MOMENTS
            }
            self.optimizer.state[parameter] = {"step": taken} | moments


def _evaluation_steps(num_steps: int) -> frozenset[int]:
    """Return the steps after which held-out text is evaluated: `NUM_EVALUATIONS`, or all of fewer steps."""
    return frozenset(
        math.ceil(num_steps * n / NUM_EVALUATIONS) for n in range(1, NUM_EVALUATIONS + 1)
    )


def learning_rate_share(step: int, num_steps: int) -> float:
    """Return the part of the full learning rate at a step from 1: linear warm-up, then half a cosine."""
    warmup = max(1, round(WARMUP_SHARE * num_steps))
    if step <= warmup:
        return step / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, num_steps - warmup)))


def _windows(text: Tensor, recipe: PretrainRecipe, step: int, number: int) -> Tensor:
    """Return windows (B, T + 1) int64 at random offsets."""
    generator = keyed_generator(recipe.seed, "pretrain", step)
    starts = torch.randint(len(text) - recipe.num_tokens, (number,), generator=generator)  # (B,)
    offsets = starts[:, None] + torch.arange(recipe.num_tokens + 1)  # (B, T + 1)
    return text[offsets.to(text.device)].long()


def _loss(model: Any, windows: Tensor) -> Tensor:
    logits = model(windows[:, :-1]).logits  # (B, T, 256)
    return F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


@torch.no_grad()
def _bits_per_byte(model: Any, text: Tensor, recipe: PretrainRecipe) -> float:
    """Return the cross-entropy in bits per byte on fixed windows of a text; 8 is that of a uniform guess."""
    model.eval()
    return _loss(model, _windows(text, recipe, 0, VALIDATION_WINDOWS)).item() / math.log(2)


class TaskTrainee:
    """A plain run, step by step, that knows how accurate it was at step 0."""

    def __init__(self, size: ModelSize, recipe: TaskRecipe, device: torch.device) -> None:
        data = load_checked(recipe.task, TASKS[recipe.task], recipe.options, NO_FILES).to(device)
        self.recipe, self.training = recipe, Training(recipe.run(size), data, None, device)
        self.accuracy_before = math.nan

    @property
    def step(self) -> int:
        """Gradient steps taken."""
        return self.training.progress.step

    def measure(self) -> None:
        """Note how accurate the model is; called before its first step."""
        self.accuracy_before = self._accuracy()

    def take_step(self) -> float:
        """Take the next gradient step and return its loss; raises WeightsError if training diverged."""
        began, progress = time.monotonic(), self.training.progress
        loss_sum = progress.loss_sum
        self.training.train_chunk(1)
        if progress.diverged:
            raise WeightsError(
                f"pretraining on {self.recipe.task} diverged at step {progress.diverged_at_step}: the loss is not "
                f"finite. Lower learning_rate = {self.recipe.learning_rate:g} in the study's `pretrain` recipe."
            )
        progress.elapsed_s += time.monotonic() - began
        return progress.loss_sum - loss_sum

    def facts(self) -> Fields:
        """Return what `pretraining.json` says of the training, after its last step."""
        return {
            "recipe": asdict(self.recipe),
            "size": asdict(self.training.run.model),
            "accuracy_before": self.accuracy_before,
            "accuracy": self._accuracy(),
            "duration_s": self.training.progress.elapsed_s,
            "torch": torch.__version__,
        }

    def save(self, folder: Path) -> None:
        """Write the body by GPT-2's names; it has no token table."""
        folder.mkdir(parents=True)
        sizes = {
            name: getattr(self.training.run.model, attribute)
            for name, attribute in GPT2.sizes.items()
        }
        config = {
            "architectures": ["GPT2Model"],
            "model_type": GPT2.model_type,
            "vocab_size": 1,
        } | sizes
        (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
        tensors = {
            name: tensor.cpu() for name, tensor in self.training.model.body.state_dict().items()
        }
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})

    def state(self) -> State:
        """Return what is needed to resume: tensors by name, and plain JSON values."""
        tensors, progress = self.training.state()
        return tensors, progress | {"accuracy_before": self.accuracy_before}

    def load_state(self, tensors: Tensors, progress: Fields) -> None:
        """Resume from what `state` returned."""
        self.accuracy_before = progress["accuracy_before"]
        self.training.load_state(
            tensors, {name: x for name, x in progress.items() if name != "accuracy_before"}
        )

    def _accuracy(self) -> float:
        return evaluate(self.training.model, self.training.data, self.training.data.test)[1]


Trainee = TextTrainee | TaskTrainee
OnStep = Callable[[int, float], None]
"""Called with each step and its training loss in nats."""

log = logging.getLogger(__name__)


def pretrain(
    size: ModelSize,
    recipe: Recipe,
    corpus: bytes,
    folder: Path,
    device: torch.device,
    on_step: OnStep,
    *,
    checkpoint_every_s: float = 60.0,
) -> Fields:
    """Train and save `config.json`, `model.safetensors` and `pretraining.json` into `folder`, whole or not at all.

    Resumes from the newest checkpoint of an earlier call, to the bytes of a training without a break; they do not
    depend on how many threads this process has. Returns what `pretraining.json` holds: the recipe, and how good the
    model was before and after. Raises WeightsError if the training diverged.
    """
    with _threads_kept(recipe.threads):
        if isinstance(recipe, TaskRecipe):
            trainee: Trainee = TaskTrainee(size, recipe, device)
        else:
            trainee = TextTrainee(size, recipe, corpus, device)
        checkpoints = pretraining_checkpoints(folder)
        saved = checkpoint.newest_checkpoint(
            checkpoints, None, lambda path: log.warning("%s is damaged", path)
        )
        if saved is None:
            trainee.measure()
        else:
            trainee.load_state(*saved)
        _train(trainee, recipe.num_steps, checkpoints, on_step, checkpoint_every_s)
        facts = trainee.facts()
    _save(trainee, facts, folder)
    return facts


def _train(
    trainee: Trainee, num_steps: int, checkpoints: Path, on_step: OnStep, checkpoint_every_s: float
) -> None:
    saved_at = time.monotonic()
    while trainee.step < num_steps:
        loss = trainee.take_step()
        if time.monotonic() - saved_at >= checkpoint_every_s:
            checkpoint.save_checkpoint(checkpoints, *trainee.state())
            checkpoint.keep_newest(checkpoints, checkpoint.NUM_KEPT)
            saved_at = time.monotonic()
        on_step(trainee.step, loss)


@contextmanager
def _threads_kept(number: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(number or before)
        yield
    finally:
        torch.set_num_threads(before)


def _save(trainee: Trainee, facts: Fields, folder: Path) -> None:
    remove_dead_partials(folder.parent)
    partial = partial_path(folder)
    remove_tree(partial)
    with checkpoint.disk_errors(partial):
        trainee.save(partial)
    follow_umask(partial / WEIGHTS)
    others = {
        path.name: hash_file(path) for path in sorted(partial.iterdir()) if path.name != WEIGHTS
    }
    checked = sealed(facts | {"weights_sha256": hash_file(partial / WEIGHTS), FILES: others})
    (partial / FACTS).write_text(json.dumps(checked, indent=2) + "\n")
    for path in partial.iterdir():
        flush(path)
    remove_tree(folder)
    partial.rename(folder)
    remove_tree(pretraining_checkpoints(folder))
