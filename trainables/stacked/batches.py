"""The batches of runs that train together: drawn once for all runs of one seed at one step.

Shape legend: `R` runs, `K` distinct (seed, step) among them, `B` batch, `T` tokens, `Q` answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lr_sweep.datasets.task import Split, TaskData
from lr_sweep.trainables.numerics import keyed_generator, rekey

from .model import StackedBatch


class Batches:
    """What each run reads at each step, as `Training._batch` has it."""

    def __init__(self, data: TaskData, device: torch.device) -> None:
        self.data = data
        self.device = device
        self._keys: Sequence[tuple[int, int]] = ()
        self._readers: tuple[tuple[int, ...], ...] = ()
        self._of_run: Tensor | None = None
        self._size = 0
        self._num_runs = 0
        self._orders: dict[tuple[int, int], Tensor] = {}
        """By seed and epoch: (N,), those in use."""
        self._generators: list[torch.Generator] = []

    def follow(
        self, keys: Sequence[tuple[int, int]], of_run: Sequence[int], batch_size: int
    ) -> None:
        """Prepare a chunk of steps, from K distinct pairs of seed and steps taken, and R indices into them."""
        self._keys = keys
        self._size = batch_size
        self._num_runs = len(of_run)
        in_order = list(of_run) == list(range(len(keys)))
        if in_order or len(keys) == 1:
            self._of_run = None
        else:
            self._of_run = torch.tensor(of_run, device=self.device)
        readers: list[list[int]] = [[] for _ in keys]
        for run, key in enumerate(of_run):
            readers[key].append(run)
        self._readers = tuple(map(tuple, readers))
        if self.data.draw is None:
            needed = {(seed, self._position(step)[0]) for seed, step in keys}
            self._orders = {key: order for key, order in self._orders.items() if key in needed}
        while len(self._generators) < len(keys):
            self._generators.append(torch.Generator(self.device))

    def generators(self, purpose: str, number: int) -> list[torch.Generator]:
        """Return K generators keyed by seed, purpose and the step that is the chunk's `number` (from 1)."""
        pairs = zip(self._generators, self._keys, strict=False)
        return [rekey(generator, seed, purpose, step + number) for generator, (seed, step) in pairs]

    def batch(self, number: int) -> tuple[StackedBatch, Tensor]:
        """Return the batches of the chunk's step `number` (from 1), and each run's labels (R, B) or (R, B, Q)."""
        split = self._examples(number)
        tokens = self.data.tokens(split.inputs)  # (K, B, T) or (K, B, T, token_dim)
        if self.data.augment is not None:
            generators = self.generators("augment", number)
            pairs = zip(tokens, generators, strict=True)
            tokens = torch.stack([self.data.augment(*pair) for pair in pairs])
        batch = StackedBatch(
            tokens=tokens, num_runs=self._num_runs, of_run=self._of_run, readers=self._readers
        )
        return batch, batch.spread(split.labels)

    def _examples(self, number: int) -> Split:
        """Return the examples of the chunk's step `number`: tensors (K, B, ...)."""
        if self.data.draw is None:
            rows = [self._rows(seed, step + number - 1) for seed, step in self._keys]
            return self.data.train[torch.stack(rows)]  # (K, B)
        generators = self.generators("examples", number)
        return Split.stack([self.data.draw(self._size, generator) for generator in generators])

    def _position(self, steps_taken: int) -> tuple[int, int]:
        """Return the epoch of the next batch and its position in it; a last partial batch is left out."""
        return divmod(steps_taken, self.data.train.num_batches(self._size))

    def _rows(self, seed: int, steps_taken: int) -> Tensor:
        """Return the next batch's examples, (B,)."""
        epoch, position = self._position(steps_taken)
        if (seed, epoch) not in self._orders:
            generator = keyed_generator(seed, "order", epoch)
            order = torch.randperm(len(self.data.train), generator=generator)  # (N,)
            self._orders[seed, epoch] = order.to(self.device)
        order = self._orders[seed, epoch]
        first = position * self._size
        return order[first : first + self._size]
