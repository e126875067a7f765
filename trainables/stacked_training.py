"""The fast engine: runs of one cell trained as one program; each run's numbers are those it would have alone.

What a step is stands in `trainables.training`, the plain engine; this one does the same with R runs at a time. Runs are
added and removed between steps, may be at different steps, and pass from one engine to the other through `state`.

Shape legend: `R` runs, `K` distinct (seed, step) among them, `B` batch, `N` examples, `S` steps a chunk, `C` classes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from datasets.task import TaskData
from trainables.freed_memory import keep_freed_memory
from trainables.pace import Pace, steps_per_evaluation
from trainables.precision import products_in
from trainables.run import Run
from trainables.stacked_batches import Batches
from trainables.stacked_evaluation import evaluate_stacked
from trainables.stacked_losses import compiled_losses, losses_of
from trainables.stacked_model import StackedModel
from trainables.stacked_weights import Rows, Start, shared_layers, stacked_constants, start_of
from trainables.training import CHUNK_STEPS, CPU_THREADS, Evaluation, Progress


@dataclass(kw_only=True, eq=False)
class Member:
    """One run of the stack."""

    run: Run
    start: Start
    progress: Progress = field(default_factory=Progress)
    best: Tensor | None = None
    """(P,), its row at `progress.best_step`."""

    @property
    def diverged(self) -> bool:
        """Whether a loss was not finite; such a run is over."""
        return self.progress.diverged_at_step is not None

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
        weights: dict[str, Tensor] | None,
        device: torch.device,
        wall_clock: Callable[[], float] = time.time,
        *,
        compiled: bool = False,
    ) -> None:
        """Start with no run.

        Args:
            data: the task, on `device`.
            weights: pretrained tensors (`load_weights`) for pretrained runs.
            device: where to train.
            wall_clock: unix time in seconds, for `Evaluation.time_ms`.
            compiled: hand the forward and the backward pass of a step to `torch.compile`.
        """
        if device.type == "cpu":
            torch.set_num_threads(CPU_THREADS)
            keep_freed_memory()
        self.compiled = compiled
        self._losses = compiled_losses(device) if compiled else losses_of
        self.data, self.weights, self.device, self.wall_clock = data, weights, device, wall_clock
        self.pace = Pace()
        self.members: list[Member] = []
        """In the order of their rows."""
        self._batches = Batches(data, device)
        self._starts: dict[int, Start] = {}
        """By seed, of those in the stack."""
        self._rows: Rows | None = None
        self._model: StackedModel | None = None

    def add(self, runs: Sequence[Run]) -> list[Member]:
        """Take runs in at step 0; all runs of a stack differ in learning rate and seed alone."""
        self.pace.steps_per_evaluation = steps_per_evaluation(runs[0].protocol, self.data)
        added = [Member(run=run, start=self._start(run)) for run in sorted(runs, key=lambda run: run.seed)]
        rows = Rows([member.start for member in added])
        if self._rows is None:
            self._rows = rows
        else:
            self._model = None  # it holds on to the buffers
            self._rows.join(rows)
        self.members += added
        # Runs that share a frozen body stand side by side.
        self._keep(sorted(range(len(self.members)), key=lambda row: self.members[row].start.body_key))
        return added

    def remove(self, gone: Sequence[Member]) -> None:
        """Let runs go and close the gaps."""
        self._keep([row for row, member in enumerate(self.members) if member not in gone])

    def _start(self, run: Run) -> Start:
        """Return what a run begins with; runs of one cell and seed begin alike, and those of one body share it."""
        if run.seed not in self._starts:
            start = start_of(run, self.data.shape, self.weights, self.device)
            for other in self._starts.values():
                start = replace(start, body=other.body) if other.body_key == start.body_key else start
            self._starts[run.seed] = start
        return self._starts[run.seed]

    def _keep(self, order: Sequence[int]) -> None:
        self.members = [self.members[row] for row in order]
        self._starts = {member.run.seed: member.start for member in self.members}
        if not self.members:
            self._rows = None
            return
        assert self._rows is not None
        self._model = None
        self._rows.keep(order)
        self._model = self._model_of(self.members, dict(self._rows.parameters))
        # Float, because Adam's kernel takes it so; 1 where a run is over.
        self._stopped = torch.tensor([float(m.diverged) for m in self.members], device=self.device)  # (R,)

    def _model_of(self, members: Sequence[Member], trained: dict[str, Tensor]) -> StackedModel:
        starts, run = [member.start for member in members], members[0].run
        return StackedModel(run.model, run.protocol, trained | stacked_constants(starts), shared_layers(starts))

    def advance(self, *, for_s: float = math.inf) -> list[tuple[Member, Evaluation]]:
        """Train until a run reaches an evaluation or diverges, or for `for_s` seconds.

        Returns:
            The runs that reached one. Those that diverged are to be removed by the caller.
        """
        started = time.monotonic()
        living = [member for member in self.members if not member.diverged]
        left = total = min(member.steps_to_evaluation for member in living)
        while left and not any(member.diverged for member in living) and time.monotonic() - started < for_s:
            chunk = min(CHUNK_STEPS, left)
            self._train_chunk(chunk)
            left -= chunk
        trained = time.monotonic()
        due = [m for m in living if not m.diverged and m.steps_to_evaluation == m.run.protocol.evaluate_every]
        due = due if left == 0 else []
        scores = self._scores(due) if due else []
        self.pace.steps.add(trained - started, (total - left) * len(living))
        if due:
            self.pace.evaluations.add(time.monotonic() - trained, len(due))
        share_s = (time.monotonic() - started) / len(living)  # of the device's time
        for member in living:
            member.progress.elapsed_s += share_s
        return [
            (member, evaluation)
            for member, its in zip(due, scores, strict=True)
            if (evaluation := self._record(member, its)) is not None
        ]

    def _train_chunk(self, num_steps: int) -> None:
        keys = list(dict.fromkeys((member.run.seed, member.progress.step) for member in self.members))
        of_run = [keys.index((member.run.seed, member.progress.step)) for member in self.members]
        self._batches.follow(keys, of_run, self.members[0].run.protocol.batch_size)
        losses = torch.stack([self._step(number) for number in range(1, num_steps + 1)], 1).tolist()  # (R, S)
        for member, of_member in zip(self.members, losses, strict=True):
            if not member.diverged:
                _count(member.progress, of_member)

    def _step(self, number: int) -> Tensor:
        """Take the chunk's step `number` (from 1) of every run; return the losses before it, (R,)."""
        assert self._rows is not None
        assert self._model is not None
        protocol = self.members[0].run.protocol
        batch, labels = self._batches.batch(number)
        masks: Iterable[Tensor] = self._model.masks(batch, self._batches.generators("dropout", number))
        if self.compiled:
            masks = list(masks)  # a compiler follows no generator of random numbers
            self._rows.gradients.zero_()  # autograd adds to them
        with products_in(protocol.precision, self.device):
            losses = self._losses(self._model, batch, labels, masks)  # (R,)
        losses.sum().backward()  # a sum: no run's gradient knows of the others
        with torch.no_grad():
            if protocol.gradient_clip_norm is not None:
                self._rows.clip(protocol.gradient_clip_norm)
            self._stopped = self._stopped.maximum((~losses.isfinite()).float())
            self._rows.adam([member.run for member in self.members], self._stopped)
        return losses.detach().clone()  # the next step writes over what a CUDA graph returned

    @torch.no_grad()
    def _scores(self, due: Sequence[Member]) -> list[dict[str, float]]:
        assert self._rows is not None
        assert self._model is not None
        model = self._model
        if len(due) < len(self.members):
            chosen = torch.tensor([self.members.index(member) for member in due], device=self.device)
            model = self._model_of(due, {name: p[chosen] for name, p in self._rows.parameters.items()})
        scores: list[dict[str, float]] = [{} for _ in due]
        train = self.data.train[: due[0].run.protocol.train_examples_evaluated]
        for name, split in {"train": train, "validation": self.data.validation, "test": self.data.test}.items():
            with products_in(due[0].run.protocol.precision, self.device):
                found = evaluate_stacked(model, self.data, split)
            for its, (loss, accuracy) in zip(scores, found, strict=True):
                its |= {f"{name}_loss": loss, f"{name}_accuracy": accuracy}
        return scores

    def _record(self, member: Member, scores: dict[str, float]) -> Evaluation | None:
        """Append to the run's curve, and keep its row if it is the best; None: it has diverged."""
        progress = member.progress
        if not all(math.isfinite(score) for score in scores.values()):
            progress.diverged_at_step = progress.step  # the last step's update went wrong, after its loss was taken
            return None
        del scores["train_loss"]  # the curve's train loss is the one trained on
        evaluation = Evaluation(
            step=progress.step,
            train_loss=progress.loss_sum / member.run.protocol.evaluate_every,
            time_ms=int(self.wall_clock() * 1000),
            elapsed_s=progress.elapsed_s,
            **scores,
        )
        if all(evaluation.validation_accuracy > earlier.validation_accuracy for earlier in progress.curve):
            progress.best_step = progress.step
            member.best = self._row(member, "values").clone()
        progress.curve.append(evaluation)
        progress.loss_sum = 0.0
        return evaluation

    def _row(self, member: Member, buffer: str) -> Tensor:
        return getattr(self._rows, buffer)[self.members.index(member)]

    def state(self, member: Member) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what `Training.state` would of this run, so that either engine can go on from it."""
        start = member.start
        found = {"model.": start.whole(self._row(member, "values"), fill_unused=True)}
        if member.best is not None:
            found["best."] = start.whole(member.best, fill_unused=True)
        steps = self._row(member, "steps")
        if steps > 0:
            found["adam.step."] = dict.fromkeys(start.layout.places, steps)
            found["adam.exp_avg."] = start.whole(self._row(member, "exp_avg"), fill_unused=False)
            found["adam.exp_avg_sq."] = start.whole(self._row(member, "exp_avg_sq"), fill_unused=False)
        tensors = {prefix + name: tensor for prefix, of in found.items() for name, tensor in of.items()}
        # Copies: safetensors refuses tensors that share memory, and the rows go on changing.
        return {name: tensor.clone() for name, tensor in tensors.items()}, asdict(member.progress)

    @torch.no_grad()
    def load_state(self, member: Member, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
        """Let a run go on from what either engine's `state` returned."""
        layout = member.start.layout
        groups: dict[str, dict[str, Tensor]] = {"model": {}, "best": {}, "step": {}, "exp_avg": {}, "exp_avg_sq": {}}
        for key, tensor in tensors.items():
            kind, name = key.removeprefix("adam.").split(".", 1)
            groups[kind][name] = tensor.to(self.device)
        self._row(member, "values").copy_(layout.row(groups["model"]))
        member.best = layout.row(groups["best"]) if groups["best"] else None
        if groups["step"]:
            self._row(member, "steps").copy_(next(iter(groups["step"].values())))
            self._row(member, "exp_avg").copy_(layout.row(groups["exp_avg"]))
            self._row(member, "exp_avg_sq").copy_(layout.row(groups["exp_avg_sq"]))
        curve = [Evaluation(**evaluation) for evaluation in progress["curve"]]
        member.progress = Progress(**progress | {"curve": curve})


def _count(progress: Progress, losses: Sequence[float]) -> None:
    """Count a chunk's steps, or note the first whose loss is not finite."""
    for number, loss in enumerate(losses, start=1):
        if not math.isfinite(loss):
            progress.diverged_at_step = progress.step + number
            return
        progress.loss_sum += loss
    progress.step += len(losses)
