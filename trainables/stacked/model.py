"""`Classifier` for R runs at once: the same function of the same tensors, with less work.

The last block computes queries, projection and feedforward at the positions that are read, which is exact: no other
position of it reaches the output layer. Dropout masks are drawn as the plain engine draws them, unused parts included.

Shape legend: `R` runs, `K` distinct batches among them, `B` batch, `T` tokens, `N` = B T, `D` width, `H` heads,
`M` positions read, `Q` answers an example, `C` classes; `J` and `S` as in `trainables.stacked.attention`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from lr_sweep.datasets.task import TaskShape
from lr_sweep.trainables.factors import width_ratio
from lr_sweep.trainables.models.classifier import logits_of
from lr_sweep.trainables.models.gpt2 import AttentionNoise, attend_in_blocks
from lr_sweep.trainables.run import ModelSize, Protocol

from .attention import (
    attend,
    attend_causally,
    joined_masks,
    num_joined,
    same_example,
)
from .layers import (
    Shared,
    add_positions,
    affine,
    embed,
    gelu,
    linear,
    shared_linear,
)


@dataclass(frozen=True, kw_only=True)
class StackedBatch:
    """What runs read: each distinct batch once, and which run reads which."""

    tokens: Tensor
    """(K, B, T) ids or (K, B, T, token_dim)."""
    num_runs: int
    of_run: Tensor | None = None
    """(R,), index of each run's batch; None: K is 1, or R with a batch for each run in order."""
    readers: tuple[tuple[int, ...], ...] = ()
    """For each distinct batch, the runs that read it; empty in evaluation mode."""

    def spread(self, x: Tensor) -> Tensor:
        """Turn (K, ...) into (R, ...)."""
        if self.of_run is not None:
            # An index in brackets takes several times as long on a CPU.
            return x.index_select(0, self.of_run)
        return x.expand(self.num_runs, *x.shape[1:])


Mask = Tensor | AttentionNoise


@dataclass(frozen=True, kw_only=True)
class StackedDropout:
    """`family.Dropout` for runs, with masks (`StackedModel.masks`) that come in the order of use."""

    batch: StackedBatch
    masks: Iterator[Mask]

    def keep(self) -> Tensor:
        """Return the next masks, (K, ...), in fp32: bf16 would round what scales the rest up."""
        masks = next(self.masks)
        assert isinstance(masks, Tensor)
        return masks

    def noise(self) -> AttentionNoise:
        """Return what the next masks of attention follow from, which draws them itself."""
        noise = next(self.masks)
        assert isinstance(noise, AttentionNoise)
        return noise

    def keep_of_runs(self) -> Tensor:
        """Return the next masks, (R, ...)."""
        return self.batch.spread(self.keep())

    def __call__(self, x: Tensor) -> Tensor:
        """Drop entries of (R, B, T, D)."""
        return (x * self.keep_of_runs()).to(x.dtype)


class StackedModel:
    """The forward pass of R runs."""

    def __init__(
        self,
        size: ModelSize,
        protocol: Protocol,
        task: TaskShape,
        parameters: dict[str, Tensor],
        shared: dict[str, list[Shared]],
        query_factor: float,
    ) -> None:
        """Take parameters (R, ...) by `Classifier`'s names, the trained ones with `.grad`, and frozen linear layers."""
        self.query_factor, self.width_ratio = query_factor, width_ratio(protocol, size.width)
        self.size, self.protocol, self.task = size, protocol, task
        self.parameters, self.shared = parameters, shared
        self.num_runs = len(parameters["output_layer.bias"])
        self.real_valued = "input_layer.bias" in parameters
        last, width = f"body.h.{size.layers - 1}.attn.c_attn", size.width
        self._take_columns(last, "queries", slice(0, width))
        self._take_columns(last, "keys_values", slice(width, 3 * width))
        for name in ("input_layer", "output_layer") if self.real_valued else ("output_layer",):
            self.parameters[f"{name}.weight.T"] = _part(
                parameters[f"{name}.weight"], lambda whole: whole.mT
            )

    def _take_columns(self, name: str, suffix: str, columns: slice) -> None:
        """Make columns of a layer's outputs a layer of their own."""
        if name in self.shared:
            self.shared[name + suffix] = [layer.columns(columns) for layer in self.shared[name]]
            return
        for kind in (".weight", ".bias"):
            whole = self.parameters[name + kind]
            self.parameters[name + suffix + kind] = _part(whole, lambda whole: whole[..., columns])

    def masks(self, batch: StackedBatch, generators: Sequence[torch.Generator]) -> Iterator[Mask]:
        """Draw the masks of a step, as `Classifier` does, from a generator for each distinct batch: (K, ...) each."""
        examples, tokens, width = *batch.tokens.shape[1:3], self.size.width
        keys, protocol = tuple(generator.initial_seed() for generator in generators), self.protocol
        like = self.parameters["output_layer.bias"].detach()

        def drawn(probability: float, *shape: int) -> Tensor:
            masks = like.new_empty(len(generators), examples, *shape)
            for mask, generator in zip(masks, generators, strict=True):
                mask.bernoulli_(1.0 - probability, generator=generator)
            return masks.div_(1.0 - probability)

        if self.real_valued and protocol.input_dropout > 0.0:
            yield drawn(protocol.input_dropout, tokens, width)
        if (probability := protocol.dropout) == 0.0:
            return
        yield drawn(probability, tokens, width)
        for layer in range(self.size.layers):
            if protocol.attention == "blocked":
                yield AttentionNoise(
                    keys=keys, readers=batch.readers, layer=layer, probability=probability
                )
            else:
                yield drawn(probability, self.size.heads, tokens, tokens)
            yield drawn(probability, tokens, width)
            yield drawn(probability, tokens, width)

    def logits(self, batch: StackedBatch, masks: Iterable[Mask] | None = None) -> Tensor:
        """Return (R, B, C), or (R, B, Q, C); without masks in evaluation mode."""
        x = self._embedded(batch)  # (R, B, T, D)
        dropout = None if masks is None else StackedDropout(batch=batch, masks=iter(masks))
        if dropout and self.real_valued and self.protocol.input_dropout > 0.0:
            x = dropout(x)
        if self.protocol.dropout == 0.0:
            dropout = None
        x = add_positions(x, self.parameters["body.wpe.weight"])
        x = dropout(x) if dropout else x
        for block in range(self.size.layers - 1):
            x = self._block(f"body.h.{block}", x, dropout)
        read = self._last_block(f"body.h.{self.size.layers - 1}", x, batch, dropout)  # (R, B M, D)
        normed = self._normed("body.ln_f", read)
        normed = normed if self.width_ratio == 1.0 else normed / self.width_ratio
        out = linear(
            normed, self.parameters["output_layer.weight.T"], self.parameters["output_layer.bias"]
        )
        return logits_of(out, self.task)

    def _embedded(self, batch: StackedBatch) -> Tensor:
        size, tokens = batch.tokens.shape[1:3], batch.spread(batch.tokens)
        if self.real_valued:
            rows = tokens.reshape(self.num_runs, -1, tokens.shape[-1])  # (R, N, token_dim)
            x = linear(
                rows, self.parameters["input_layer.weight.T"], self.parameters["input_layer.bias"]
            )
        else:
            x = embed(self.parameters["input_layer.weight"], tokens.reshape(self.num_runs, -1))
        return x.view(self.num_runs, *size, -1)  # (R, B, T, D)

    def _layer(self, name: str, x: Tensor) -> Tensor:
        if name in self.shared:
            return shared_linear(x, self.shared[name])
        return linear(x, self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"])

    def _normed(self, name: str, x: Tensor) -> Tensor:
        """Normalise (R, ..., D) into (R, N, D)."""
        rows = F.layer_norm(x, x.shape[-1:]).view(self.num_runs, -1, x.shape[-1])
        return affine(rows, self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"])

    def _block(self, name: str, x: Tensor, dropout: StackedDropout | None) -> Tensor:
        normed = self._normed(f"{name}.ln_1", x)  # (R, N, D)
        mixed = self._attended(name, normed, x.shape[1:3], dropout)  # (R, N, D)
        attended = self._layer(f"{name}.attn.c_proj", mixed)  # (R, N, D)
        x = _added(x, attended, dropout.keep_of_runs() if dropout else None)
        return _added(x, self._fed(name, x), dropout.keep_of_runs() if dropout else None)

    def _attended(
        self, name: str, normed: Tensor, sizes: Sequence[int], dropout: StackedDropout | None
    ) -> Tensor:
        """Mix values at all positions: (R, N, D) of (R, N, D); `sizes`: B and T."""
        qkv = self._layer(f"{name}.attn.c_attn", normed)  # (R, N, 3 D)
        (batch, tokens), heads, width = sizes, self.size.heads, self.size.width
        in_blocks = dropout is not None and self.protocol.attention == "blocked"
        joined = 1 if in_blocks else num_joined(batch, tokens, normed.device)
        qkv = qkv.view(-1, joined * tokens, 3, heads, width // heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # (S, H, J T, D / H)
        mixed = self._mixed(self._queries(q), k, v, joined, dropout)  # (S, H, J T, D / H)
        return mixed.transpose(1, 2).reshape(self.num_runs, -1, width)  # (R, N, D)

    def _queries(self, q: Tensor) -> Tensor:
        return q if self.query_factor == 1.0 else q * self.query_factor

    def _mixed(
        self, q: Tensor, k: Tensor, v: Tensor, joined: int, dropout: StackedDropout | None
    ) -> Tensor:
        if dropout and self.protocol.attention == "blocked":
            return attend_in_blocks(q, k, v, dropout.noise())
        keep = None
        if dropout:
            masks = joined_masks(dropout.keep(), joined)  # (K, B / J, H, J T, J T)
            keep = dropout.batch.spread(masks).flatten(0, 1)  # (S, H, J T, J T)
        return attend_causally(q, k, v, joined, keep, num_runs=self.num_runs)

    def _fed(self, name: str, x: Tensor) -> Tensor:
        inner = gelu(self._layer(f"{name}.mlp.c_fc", self._normed(f"{name}.ln_2", x)))
        return self._layer(f"{name}.mlp.c_proj", inner)  # (R, N, D)

    def _last_block(
        self, name: str, x: Tensor, batch: StackedBatch, dropout: StackedDropout | None
    ) -> Tensor:
        """Map (R, B, T, D) to the hidden states that are read, (R, B M, D)."""
        normed = self._normed(f"{name}.ln_1", x)  # (R, N, D)
        read = self._read(normed.view(x.shape))  # (R, B M, D)
        q = self._queries(self._layer(f"{name}.attn.c_attnqueries", read))  # (R, B M, D)
        kv = self._layer(f"{name}.attn.c_attnkeys_values", normed)  # (R, N, 2 D)
        mixed = self._read_attention(q, kv, x.shape[2], batch, dropout)  # (R, B M, D)
        attended = self._layer(f"{name}.attn.c_proj", mixed)  # (R, B M, D)
        h = _added(self._read(x), attended, self._keep_of_read(dropout))  # (R, B M, D)
        return _added(h, self._fed(name, h), self._keep_of_read(dropout))

    def _read(self, x: Tensor) -> Tensor:
        """Return (R, B M, D) out of (R, B, T, D)."""
        return x[:, :, -self.task.num_read :].reshape(len(x), -1, x.shape[-1])

    def _keep_of_read(self, dropout: StackedDropout | None) -> Tensor | None:
        """Return the next masks (R, B, M, D), drawn for all positions."""
        if dropout is None:
            return None
        masks = dropout.keep()  # (K, B, T, D)
        return dropout.batch.spread(masks[:, :, -self.task.num_read :])

    def _read_attention(
        self,
        q: Tensor,
        kv: Tensor,
        tokens: int,
        batch: StackedBatch,
        dropout: StackedDropout | None,
    ) -> Tensor:
        heads, num_read = self.size.heads, self.task.num_read
        inner = self.size.width // heads
        examples = q.shape[1] // num_read
        joined = num_joined(examples, tokens, q.device)
        q = q.view(-1, joined * num_read, heads, inner).transpose(1, 2)  # (S, H, J M, D / H)
        kv = kv.view(-1, joined * tokens, 2, heads, inner)
        k, v = kv.permute(2, 0, 3, 1, 4)  # (S, H, J T, D / H)
        keep = None
        if dropout:
            if self.protocol.attention == "blocked":
                like = k[:1].expand(examples, -1, -1, -1)
                masks = dropout.noise().last_rows(num_read, like, tokens)
            else:
                masks = dropout.keep()[..., -num_read:, :]  # (K, B, H, M, T)
            keep = batch.spread(joined_masks(masks, joined)).flatten(0, 1)  # (S, H, J M, J T)
        pairs = torch.ones(num_read, tokens, dtype=torch.bool, device=q.device)
        seen = pairs.tril(tokens - num_read).repeat(joined, joined)  # (J M, J T)
        seen &= same_example(joined, num_read, tokens, q.device)
        mixed = attend(q, k, v, ~seen, keep, num_runs=self.num_runs)
        return mixed.transpose(1, 2).reshape(self.num_runs, -1, self.size.width)  # (R, B M, D)


def _part(whole: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
    """Return a view that is a parameter of its own; what is written to its gradient is in the whole's."""
    part = of(whole.detach())
    if whole.grad is not None:
        part.requires_grad_().grad = of(whole.grad)
    return part


def _added(x: Tensor, rows: Tensor, keep: Tensor | None) -> Tensor:
    """Add rows, dropped by masks of the shape of x, to x; all have as many numbers."""
    rows = rows.view(x.shape)
    return x + rows if keep is None else torch.addcmul(x, rows, keep.reshape(x.shape))
