"""The plain engine: one run, eager. This file is the definition of the experiment.

No Ray, no MLflow, no files. Everything a step depends on is keyed by (seed, step) or held in `state()`, so a run that
goes on from a state has, on a CPU, the same numbers bit for bit as one that was never stopped.

Shape legend: `B` batch, `N` examples of a split, `S` steps a chunk, `T` tokens, `C` classes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_

from datasets.task import Split, TaskData
from trainables.classifier import Classifier
from trainables.evaluation import evaluate
from trainables.initialise import build_classifier
from trainables.pace import Pace, steps_per_evaluation
from trainables.precision import products_in, widened
from trainables.randomness import keyed_generator, rekey
from trainables.run import Run

CHUNK_STEPS = 50
"""Gradient steps between looks at the clock and at the losses; on a GPU each look is a synchronisation."""

CPU_THREADS = 1
"""Threads of a run on a CPU. Fixed, because the order of a sum, hence its last bits, follows the number of threads."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One row of a run's curve; accuracies are fractions, losses mean cross-entropies in nats."""

    step: int
    train_loss: float
    """Mean over the steps since the last evaluation, in training mode."""
    train_accuracy: float
    validation_loss: float
    validation_accuracy: float
    test_loss: float
    test_accuracy: float
    time_ms: int
    """Unix time."""
    elapsed_s: float
    """Seconds of training and evaluation since step 0, over all starts of the run."""


@dataclass(kw_only=True)
class Progress:
    """Where a run is. Plain values, saved with its tensors."""

    step: int = 0
    curve: list[Evaluation] = field(default_factory=list)
    best_step: int | None = None
    """Step of the highest validation accuracy so far, the earliest of equals; None before the first evaluation."""
    diverged_at_step: int | None = None
    """First step whose loss was not finite, or after which an evaluation's was not."""
    loss_sum: float = 0.0
    """Of the steps since the last evaluation."""
    elapsed_s: float = 0.0


class Training:
    """One run between step 0 and its end."""

    def __init__(
        self,
        run: Run,
        data: TaskData,
        weights: dict[str, Tensor] | None,
        device: torch.device,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Start a run at step 0.

        Args:
            run: what to train.
            data: the task, on `device`.
            weights: pretrained tensors (`load_weights`) for a pretrained run.
            device: where to train.
            wall_clock: unix time in seconds, for `Evaluation.time_ms`.
        """
        if device.type == "cpu":
            torch.set_num_threads(CPU_THREADS)
        self.run, self.data, self.device, self.wall_clock = run, data, device, wall_clock
        self.model: Classifier = build_classifier(run, data.shape, weights).to(device)
        self.trained = dict(self.model.trained_parameters())
        p = run.protocol
        self.optimizer = torch.optim.Adam(
            self.trained.values(), lr=run.learning_rate, betas=(p.adam_beta1, p.adam_beta2), eps=p.adam_eps, fused=True
        )
        self.products = products_in(p.precision, device)
        self.noise = torch.Generator(device)
        self.progress = Progress()
        self.pace = Pace(steps_per_evaluation=steps_per_evaluation(p, data))
        self.best: dict[str, Tensor] = {}
        self._epoch = -1
        self._order = torch.empty(0, dtype=torch.int64)

    @property
    def diverged(self) -> bool:
        """Whether a loss was not finite; such a run is over."""
        return self.progress.diverged_at_step is not None

    def advance(self, num_steps: int, *, for_s: float = math.inf) -> Evaluation | None:
        """Train towards step `num_steps` and stop at the next evaluation, at divergence, or after `for_s` seconds.

        Returns:
            The evaluation that was reached, if one was.
        """
        started = time.monotonic()
        every = self.run.protocol.evaluate_every
        assert num_steps % every == 0, "a step budget is a multiple of evaluate_every"
        stop_at = (self.progress.step // every + 1) * every
        assert stop_at <= num_steps, "the run is already at its budget"
        first = self.progress.step
        while not self.diverged and self.progress.step < stop_at and time.monotonic() - started < for_s:
            self._train_chunk(min(CHUNK_STEPS, stop_at - self.progress.step))
        trained = time.monotonic()
        self.pace.steps.add(trained - started, self.progress.step - first)
        reached = self.progress.step == stop_at and not self.diverged
        scores = self._scores() if reached else {}
        if reached:
            self.pace.evaluations.add(time.monotonic() - trained, 1)
        self.progress.elapsed_s += time.monotonic() - started
        if not all(math.isfinite(score) for score in scores.values()):
            self.progress.diverged_at_step = stop_at  # the last step's update went wrong, after its loss was taken
            return None
        return self._record(scores) if reached else None

    def _train_chunk(self, num_steps: int) -> None:
        first = self.progress.step + 1
        losses = [self._step(step) for step in range(first, first + num_steps)]
        for step, loss in enumerate(torch.stack(losses).tolist(), start=first):  # (S,)
            if not math.isfinite(loss):
                self.progress.diverged_at_step = step
                return
            self.progress.loss_sum += loss
        self.progress.step += num_steps

    def _step(self, step: int) -> Tensor:
        """Take gradient step `step` (from 1); return the loss before it, a scalar on the device."""
        tokens, batch = self._batch(step)
        noise = rekey(self.noise, self.run.seed, "dropout", step)
        with self.products:
            logits = self.model(tokens, batch.lengths, noise)  # (B, C)
        loss = F.cross_entropy(widened(logits), batch.labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.run.protocol.gradient_clip_norm is not None:
            clip_grad_norm_(self.trained.values(), self.run.protocol.gradient_clip_norm)
        self.optimizer.step()
        return loss.detach()

    def _batch(self, step: int) -> tuple[Tensor, Split]:
        """Return the tokens a model reads at a step, and the examples they are of.

        Every epoch is a fresh permutation of the training split; a last partial batch is left out.
        """
        split, size = self.data.train, self.run.protocol.batch_size
        epoch, position = divmod(step - 1, split.num_batches(size))
        if epoch != self._epoch:
            order = torch.randperm(len(split), generator=keyed_generator(self.run.seed, "order", epoch))  # (N,)
            self._order, self._epoch = order.to(self.device), epoch
        batch = split[self._order[position * size : (position + 1) * size]]
        tokens = self.data.tokens(batch.inputs)  # (B, T) or (B, T, token_dim)
        if self.data.augment is not None:
            tokens = self.data.augment(tokens, keyed_generator(self.run.seed, "augment", step, device=self.device))
        return tokens, batch

    def _scores(self) -> dict[str, float]:
        scores: dict[str, float] = {}
        for name, split in self._evaluated_splits().items():
            with self.products:
                loss, accuracy = evaluate(self.model, self.data, split)
            scores |= {f"{name}_loss": loss, f"{name}_accuracy": accuracy}
        del scores["train_loss"]  # the curve's train loss is the one trained on
        return scores

    def _evaluated_splits(self) -> dict[str, Split]:
        train = self.data.train[: self.run.protocol.train_examples_evaluated]
        return {"train": train, "validation": self.data.validation, "test": self.data.test}

    def _record(self, scores: dict[str, float]) -> Evaluation:
        """Append to the curve; keep the trained tensors if no earlier evaluation was as good on validation."""
        progress = self.progress
        evaluation = Evaluation(
            step=progress.step,
            train_loss=progress.loss_sum / self.run.protocol.evaluate_every,
            time_ms=int(self.wall_clock() * 1000),
            elapsed_s=progress.elapsed_s,
            **scores,
        )
        if all(evaluation.validation_accuracy > earlier.validation_accuracy for earlier in progress.curve):
            progress.best_step = progress.step
            self.best = {name: p.detach().clone() for name, p in self.trained.items()}
        progress.curve.append(evaluation)
        progress.loss_sum = 0.0
        return evaluation

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what is needed to go on: tensors by name and plain JSON values. Frozen tensors are rebuilt instead."""
        tensors = {f"model.{name}": p.detach() for name, p in self.trained.items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        for name, parameter in self.trained.items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                tensors[f"adam.{key}.{name}"] = value
        return tensors, asdict(self.progress)

    @torch.no_grad()
    def load_state(self, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.best = {}
        for key, tensor in tensors.items():
            kind, name = key.split(".", 1)
            if kind == "model":
                self.trained[name].copy_(tensor)
            elif kind == "best":
                self.best[name] = tensor.to(self.device)
            else:
                moment, name = name.split(".", 1)
                # Adam counts steps on the device of its parameters when fused
                self.optimizer.state[self.trained[name]][moment] = tensor.to(self.device)
        curve = [Evaluation(**evaluation) for evaluation in progress["curve"]]
        self.progress = Progress(**progress | {"curve": curve})
