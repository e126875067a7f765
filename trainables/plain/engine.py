"""The plain engine: one run, eager. This file is the definition of the experiment.

No Ray, no MLflow, no files. Everything a step depends on is keyed by (seed, step) or held in `state()`. On a CPU, a run
that resumes from a state therefore has the bits of one that was never stopped.

Shape legend: `B` batch, `N` examples of a split, `S` steps a chunk, `T` tokens, `Q` answers an example, `C` classes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from lr_sweep.datasets.task import Split, TaskData
from lr_sweep.trainables.engine import Evaluation, Pace, Progress
from lr_sweep.trainables.factors import learning_rate_at
from lr_sweep.trainables.models.classifier import build_classifier
from lr_sweep.trainables.numerics import State, Tensors, keyed_generator, products_in, rekey
from lr_sweep.trainables.run import Run

from .evaluation import (
    can_cache,
    evaluate,
    evaluated_splits,
    mean_loss,
    named_scores,
    to_features,
    wants_test,
)
from .optimizers import optimizers_of

CHUNK_STEPS = 50
"""Gradient steps between looks at the clock and at the losses; on a GPU each look is a synchronisation."""

CPU_THREADS = 1
"""Threads of a run on a CPU. Fixed, because the order of a sum, hence its last bits, follows the number of threads."""


class Training:
    """One run between step 0 and its end."""

    def __init__(
        self,
        run: Run,
        data: TaskData,
        weights: Tensors | None,
        device: torch.device,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Start a run at step 0; `data` is on `device`, `weights` are of `load_weights`, `wall_clock` is Unix time."""
        if device.type == "cpu":
            torch.set_num_threads(CPU_THREADS)
        self.run, self.data, self.device, self.wall_clock = run, data, device, wall_clock
        self.model = build_classifier(run, data.shape, weights).to(device)
        self.products = products_in(run.protocol.precision, device)
        self.progress = Progress()
        if can_cache(run, data):
            began = time.monotonic()
            with self.products:
                self.data = to_features(run, self.model, data)
            self.progress.elapsed_s = time.monotonic() - began
        self.trained = dict(self.model.trained_parameters())
        self.optimizers = optimizers_of(run.protocol, run.learning_rate, self.model)
        groups = [
            (optimizer, group) for optimizer in self.optimizers for group in optimizer.param_groups
        ]
        self._optimizer_of = {
            parameter: optimizer for optimizer, group in groups for parameter in group["params"]
        }
        self.noise = torch.Generator(device)
        self.pace = Pace()
        self.best: Tensors = {}
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.int64)

    def advance(self, *, for_s: float = math.inf) -> Evaluation | None:
        """Train to the next evaluation, to divergence, or for `for_s` seconds; return the evaluation, if reached."""
        started = time.monotonic()
        first, every = self.progress.step, self.run.protocol.evaluate_every
        stop_at = (first // every + 1) * every
        while (
            not self.progress.diverged
            and self.progress.step < stop_at
            and time.monotonic() - started < for_s
        ):
            self.train_chunk(min(CHUNK_STEPS, stop_at - self.progress.step))
        trained = time.monotonic()
        self.pace.steps.add(trained - started, self.progress.step - first)
        reached = self.progress.step == stop_at and not self.progress.diverged
        scores = self.scores() if reached else {}
        if reached:
            self.pace.evaluations.add(time.monotonic() - trained, 1)
        self.progress.elapsed_s += time.monotonic() - started
        return self._record(scores) if reached else None

    def train_chunk(self, num_steps: int) -> None:
        """Take gradient steps, then read their losses."""
        first = self.progress.step + 1
        losses = [self._step(step) for step in range(first, first + num_steps)]
        self.progress.count(torch.stack(losses).tolist())  # (S,)

    def _step(self, step: int) -> Tensor:
        """Take gradient step `step` (from 1); return the loss before it, a scalar on the device."""
        tokens, batch = self._batch(step)
        noise = rekey(self.noise, self.run.seed, "dropout", step)
        with self.products:
            logits = self.model(tokens, noise)  # (B, C) or (B, Q, C)
        loss = mean_loss(logits, batch.labels)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.run.protocol.gradient_clip_norm is not None:
            clip_grad_norm_(self.trained.values(), self.run.protocol.gradient_clip_norm)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate_at(self.run, step) * group["rate_factor"]
            optimizer.step()
        return loss.detach()

    def _batch(self, step: int) -> tuple[Tensor, Split]:
        """Return the tokens a model reads at a step, and the examples they are of; each epoch is a new permutation."""
        split, size = self.data.train, self.run.protocol.batch_size
        if self.data.draw is not None:
            examples = keyed_generator(self.run.seed, "examples", step, device=self.device)
            batch = self.data.draw(size, examples)
        else:
            epoch, position = divmod(step - 1, split.num_batches(size))
            if epoch != self._epoch:
                generator = keyed_generator(self.run.seed, "order", epoch)
                order = torch.randperm(len(split), generator=generator)  # (N,)
                self._order, self._epoch = order.to(self.device), epoch
            first = position * size
            batch = split[self._order[first : first + size]]
        tokens = self.data.tokens(batch.inputs)  # (B, T) or (B, T, token_dim)
        if self.data.augment is not None:
            noise = keyed_generator(self.run.seed, "augment", step, device=self.device)
            tokens = self.data.augment(tokens, noise)
        return tokens, batch

    def scores(self) -> dict[str, float]:
        """Return losses and accuracies of an evaluation by name."""
        scores: dict[str, tuple[float, float]] = {}
        for name, split in evaluated_splits(self.data, self.run.protocol).items():
            if name != "test" or wants_test(self.run.protocol, self.progress, scores):
                with self.products:
                    scores[name] = evaluate(self.model, self.data, split)
        return named_scores(scores)

    def _record(self, scores: dict[str, float]) -> Evaluation | None:
        """Append to the curve; keep the trained tensors if no earlier evaluation was as good on validation."""
        progress = self.progress
        evaluation = progress.record(scores, self.run.protocol.evaluate_every, self.wall_clock())
        if evaluation is not None and progress.best_step == progress.step:
            self.best = {name: p.detach().clone() for name, p in self.trained.items()}
        return evaluation

    def state(self) -> State:
        """Return what is needed to resume: tensors by name, plain JSON values. Frozen tensors are rebuilt instead."""
        tensors = {f"model.{name}": p.detach() for name, p in self.trained.items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        kind = self.run.protocol.optimizer
        for name, parameter in self.trained.items():
            for key, value in self._optimizer_state(parameter).items():
                tensors[f"{kind}.{key}.{name}"] = value
        return tensors, self.progress.as_dict()

    def _optimizer_state(self, parameter: nn.Parameter) -> Tensors:
        """Return what the optimizer of a parameter keeps of it, which may be changed; empty before the first step."""
        return self._optimizer_of[parameter].state[parameter]

    @torch.no_grad()
    def load_state(self, tensors: Tensors, progress: dict[str, Any]) -> None:
        """Resume from what `state` returned."""
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
                self._optimizer_state(self.trained[name])[moment] = tensor.to(self.device)
        self.progress = Progress.from_dict(progress)

    def close(self) -> None:
        """Do nothing: nothing is left open."""


class PlainEngine:
    """One run at a time as an `Engine`: each a `Training`, or another class that has what is used of it here."""

    def __init__(self, training_of: Callable[[Any], Any]) -> None:
        self._training_of = training_of
        self.slots: list[Any] = []

    @property
    def pace(self) -> Pace:
        """How long a gradient step and an evaluation take here, lately."""
        return self.slots[0].pace

    def add(self, runs: Sequence[Any]) -> list[Any]:
        """Start one run at step 0."""
        assert not self.slots, "the run before has ended and was removed"
        (run,) = runs
        self.slots = [self._training_of(run)]
        return self.slots

    def advance(self, *, for_s: float = math.inf) -> list[tuple[Any, Evaluation]]:
        """Train the run as `Training.advance` does."""
        evaluation = self.slots[0].advance(for_s=for_s)
        return [(self.slots[0], evaluation)] if evaluation is not None else []

    def remove(self, slots: Sequence[Any]) -> None:
        """Let the run go; raises what its `close` does."""
        self.slots = [slot for slot in self.slots if slot not in slots]
        for slot in slots:
            slot.close()

    def state(self, slot: Any) -> State:
        """Return what is needed to resume the run."""
        return slot.state()

    def load_state(self, slot: Any, tensors: Tensors, progress: dict[str, Any]) -> None:
        """Resume the run from what `state` returned."""
        slot.load_state(tensors, progress)
