"""The fast engine: runs of one cell trained as one program; each run's numbers are those it would have alone.

The plain engine defines a step. Runs are added and removed between steps, may be at different steps, and pass from one
engine to the other through `state`.

Shape legend: `R` runs, `K` distinct (seed, step) among them, `B` batch, `N` examples, `S` steps a chunk, `T` tokens,
`Q` answers an example, `C` classes.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from lr_sweep.datasets.task import Split, TaskData
from lr_sweep.trainables.engine import Evaluation, Pace, Progress
from lr_sweep.trainables.factors import learning_rate_at, query_factor
from lr_sweep.trainables.numerics import State, Tensors, products_in
from lr_sweep.trainables.plain.engine import CHUNK_STEPS, CPU_THREADS
from lr_sweep.trainables.plain.evaluation import (
    evaluated_splits,
    example_losses,
    in_batches,
    named_scores,
    wants_test,
)
from lr_sweep.trainables.plain.optimizers import moments_of
from lr_sweep.trainables.run import Run, gpt2_size
from lr_sweep.trainables.worker.memory import keep_freed_memory

from .batches import Batches
from .model import StackedBatch, StackedModel
from .weights import (
    Rows,
    Start,
    shared_layers,
    stacked_constants,
    start_of,
)


@dataclass(kw_only=True, eq=False)
class StackedSlot:
    """One run of the stack."""

    run: Run
    start: Start
    progress: Progress = field(default_factory=Progress)
    best: Tensor | None = None
    """(P,), its row at `progress.best_step`."""

    @property
    def steps_to_evaluation(self) -> int:
        """Steps from here to the next evaluation."""
        every = self.run.protocol.evaluate_every
        return every - self.progress.step % every


class StackedTraining:
    """Runs of one cell between step 0 and their ends."""

    def __init__(
        self,
        data: TaskData,
        weights: Tensors | None,
        device: torch.device,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Start with no run; arguments as of `Training`."""
        if device.type == "cpu":
            torch.set_num_threads(CPU_THREADS)
            keep_freed_memory()
        self.data, self.weights, self.device, self.wall_clock = data, weights, device, wall_clock
        self.pace = Pace()
        self.slots: list[StackedSlot] = []
        """Slots in the order of their rows."""
        self._batches = Batches(data, device)
        self._starts: dict[int, Start] = {}
        """By seed, of those in the stack."""
        self._rows: Rows
        """Rows of the slots, where there are any."""
        self._model: StackedModel | None = None
        self._stopped = torch.zeros(0, device=device)
        """(R,), 1 where a run is over; float, because torch's kernels take it so."""

    def add(self, runs: Sequence[Run]) -> list[StackedSlot]:
        """Take runs in at step 0; all runs of a stack differ in learning rate and seed alone."""
        added = [
            StackedSlot(run=run, start=self._start(run))
            for run in sorted(runs, key=lambda run: run.seed)
        ]
        rows = Rows([slot.start for slot in added], runs[0].protocol)
        if self.slots:
            self._model = None  # it holds on to the buffers
            self._rows.join(rows)
        else:
            self._rows = rows
        self.slots += added
        # Runs that share a frozen body stand side by side.
        self._keep(sorted(range(len(self.slots)), key=lambda row: self.slots[row].start.body_key))
        return added

    def remove(self, gone: Sequence[StackedSlot]) -> None:
        """Let runs go and close the gaps."""
        self._keep([row for row, slot in enumerate(self.slots) if slot not in gone])

    def _start(self, run: Run) -> Start:
        """Return what a run begins with; runs of one cell and seed begin alike, and those of one body share it."""
        if run.seed not in self._starts:
            start = start_of(run, self.data.shape, self.weights, self.device)
            for neighbour in self._starts.values():
                if neighbour.body_key == start.body_key:
                    start = replace(start, body=neighbour.body)
            self._starts[run.seed] = start
        return self._starts[run.seed]

    def _keep(self, order: Sequence[int]) -> None:
        self.slots = [self.slots[row] for row in order]
        self._starts = {slot.run.seed: slot.start for slot in self.slots}
        self._model = None
        if not self.slots:
            del self._rows
            return
        self._rows.keep(order)
        self._model = self._model_of(self.slots, dict(self._rows.parameters))
        self._stopped = torch.tensor(
            [float(slot.progress.diverged) for slot in self.slots], device=self.device
        )

    def _model_of(self, slots: Sequence[StackedSlot], trained: Tensors) -> StackedModel:
        starts, run = [slot.start for slot in slots], slots[0].run
        return StackedModel(
            gpt2_size(run),
            run.protocol,
            self.data.shape,
            trained | stacked_constants(starts),
            shared_layers(starts),
            query_factor(run),
        )

    def advance(self, *, for_s: float = math.inf) -> list[tuple[StackedSlot, Evaluation]]:
        """Train as `Engine.advance` says; the caller removes runs that diverged."""
        started = time.monotonic()
        living = [slot for slot in self.slots if not slot.progress.diverged]
        left = total = min(slot.steps_to_evaluation for slot in living)
        while left and time.monotonic() - started < for_s:
            if any(slot.progress.diverged for slot in living):
                break
            chunk = min(CHUNK_STEPS, left)
            self.train_chunk(chunk)
            left -= chunk
        trained = time.monotonic()
        every = self.slots[0].run.protocol.evaluate_every
        due = [
            slot
            for slot in living
            if not left and not slot.progress.diverged and slot.steps_to_evaluation == every
        ]
        scores = self.scores(due) if due else []
        self.pace.steps.add(trained - started, (total - left) * len(living))
        if due:
            self.pace.evaluations.add(time.monotonic() - trained, len(due))
        share_s = (time.monotonic() - started) / len(living)  # of the device's time
        for slot in living:
            slot.progress.elapsed_s += share_s
        evaluations = [self._record(*pair) for pair in zip(due, scores, strict=True)]
        return [
            (slot, evaluation)
            for slot, evaluation in zip(due, evaluations, strict=True)
            if evaluation is not None
        ]

    def train_chunk(self, num_steps: int) -> None:
        """Take gradient steps of every run, then read their losses."""
        keys = list(dict.fromkeys((slot.run.seed, slot.progress.step) for slot in self.slots))
        of_run = [keys.index((slot.run.seed, slot.progress.step)) for slot in self.slots]
        self._batches.follow(keys, of_run, self.slots[0].run.protocol.batch_size)
        losses = [self._step(number) for number in range(1, num_steps + 1)]
        by_run = torch.stack(losses, 1).tolist()  # (R, S)
        for slot, run_losses in zip(self.slots, by_run, strict=True):
            if not slot.progress.diverged:
                slot.progress.count(run_losses)

    def _step(self, number: int) -> Tensor:
        """Take the chunk's step `number` (from 1) of every run; return the losses before it, (R,)."""
        assert self._model is not None
        protocol = self.slots[0].run.protocol
        batch, labels = self._batches.batch(number)
        masks = self._model.masks(batch, self._batches.generators("dropout", number))
        with products_in(protocol.precision, self.device):
            losses = example_losses(self._model.logits(batch, masks), labels).mean(1)  # (R,)
        losses.sum().backward()  # a sum: no run's gradient knows of the others
        with torch.no_grad():
            if protocol.gradient_clip_norm is not None:
                self._rows.clip(protocol.gradient_clip_norm)
            self._stopped = self._stopped.maximum((~losses.isfinite()).float())
            rates = [learning_rate_at(slot.run, slot.progress.step + number) for slot in self.slots]
            self._rows.step(rates, self._stopped)
        return losses.detach()

    @torch.no_grad()
    def scores(self, due: Sequence[StackedSlot]) -> list[dict[str, float]]:
        """Return losses and accuracies of an evaluation by name, of each of these runs."""
        protocol = due[0].run.protocol
        scores: list[dict[str, tuple[float, float]]] = [{} for _ in due]
        for name, split in evaluated_splits(self.data, protocol).items():
            chosen = [
                (slot, run_scores)
                for slot, run_scores in zip(due, scores, strict=True)
                if name != "test" or wants_test(protocol, slot.progress, run_scores)
            ]
            evaluated = self._evaluate([slot for slot, _ in chosen], split)
            for (_, run_scores), loss_and_accuracy in zip(chosen, evaluated, strict=True):
                run_scores[name] = loss_and_accuracy
        return [named_scores(run_scores) for run_scores in scores]

    def _evaluate(self, slots: Sequence[StackedSlot], split: Split) -> list[tuple[float, float]]:
        assert self._model is not None
        if not slots:
            return []
        model = self._model
        if len(slots) < len(self.slots):
            chosen = torch.tensor([self.slots.index(slot) for slot in slots], device=self.device)
            parameters = {name: p[chosen] for name, p in self._rows.parameters.items()}
            model = self._model_of(slots, parameters)
        with products_in(slots[0].run.protocol.precision, self.device):
            return _evaluate_stacked(model, self.data, split)

    def _record(self, slot: StackedSlot, scores: dict[str, float]) -> Evaluation | None:
        """Append to the run's curve, and keep its row if it is the best; None: it has diverged."""
        progress = slot.progress
        evaluation = progress.record(scores, slot.run.protocol.evaluate_every, self.wall_clock())
        if evaluation is not None and progress.best_step == progress.step:
            slot.best = self._row(slot, "values").clone()
        return evaluation

    def _row(self, slot: StackedSlot, buffer: str) -> Tensor:
        return self._rows.buffers()[buffer][self.slots.index(slot)]

    def state(self, slot: StackedSlot) -> State:
        """Return what `Training.state` would of this run, so that either engine can resume it."""
        start = slot.start
        groups = {"model.": start.whole(self._row(slot, "values"), fill_unused=True)}
        if slot.best is not None:
            groups["best."] = start.whole(slot.best, fill_unused=True)
        steps, kind = self._row(slot, "steps"), slot.run.protocol.optimizer
        moments = moments_of(slot.run.protocol) if steps > 0 else ()
        for name in moments:
            groups[f"{kind}.{name}."] = start.whole(self._row(slot, name), fill_unused=False)
        if moments and kind in ("adam", "adamw"):  # torch's state of these counts the steps
            groups[f"{kind}.step."] = dict.fromkeys(start.layout.spans, steps)
        tensors: Tensors = {}
        for prefix, group in groups.items():
            # Copies: safetensors refuses tensors that share memory, and the rows change.
            tensors |= {prefix + name: tensor.clone() for name, tensor in group.items()}
        return tensors, slot.progress.as_dict()

    @torch.no_grad()
    def load_state(self, slot: StackedSlot, tensors: Tensors, progress: dict[str, Any]) -> None:
        """Resume a run from what either engine's `state` returned."""
        layout = slot.start.layout
        groups: dict[str, Tensors] = defaultdict(dict)
        for key, tensor in tensors.items():
            kind, name = key.removeprefix(f"{slot.run.protocol.optimizer}.").split(".", 1)
            groups[kind][name] = tensor.to(self.device)
        self._row(slot, "values").copy_(layout.row(groups["model"]))
        slot.best = layout.row(groups["best"]) if groups["best"] else None
        slot.progress = Progress.from_dict(progress)
        steps = next(iter(groups["step"].values()), None)
        self._row(slot, "steps").fill_(slot.progress.step if steps is None else steps)
        for name in moments_of(slot.run.protocol):
            if groups[name]:
                self._row(slot, name).copy_(layout.row(groups[name]))


TOKENS_A_BATCH = 2**8
"""Tokens of a run in an evaluation batch: few, because R runs read them at once; fixed, as last bits depend on it."""


@torch.no_grad()
def _evaluate_stacked(
    model: StackedModel, data: TaskData, split: Split
) -> list[tuple[float, float]]:
    """Return each run's mean cross-entropy in nats and accuracy as a fraction, in evaluation mode."""
    losses, hits = [], []
    for batch in in_batches(split, data.shape.num_tokens, TOKENS_A_BATCH):
        tokens = data.tokens(batch.inputs).unsqueeze(0)  # (1, B, T) or (1, B, T, token_dim)
        logits = model.logits(StackedBatch(tokens=tokens, num_runs=model.num_runs))
        labels = batch.labels.expand(model.num_runs, *batch.labels.shape)  # (R, B) or (R, B, Q)
        losses.append(example_losses(logits, labels).double())
        hits.append((logits.argmax(-1) == labels).double().flatten(1))
    mean = torch.cat(losses, 1).mean(1)  # (R,)
    accuracy = torch.cat(hits, 1).mean(1)  # (R,)
    return list(zip(mean.tolist(), accuracy.tolist(), strict=True))
