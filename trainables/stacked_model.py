"""`Classifier` for R runs at once: the same function of the same tensors, with less work.

The last block computes queries, projection and feedforward at the position that is read, which is exact: no other
position of it reaches the output layer. Dropout masks are drawn as the plain engine draws them, unused parts included.

Shape legend: `R` runs, `K` distinct batches among them, `B` batch, `T` tokens, `N` = B T, `D` width, `H` heads,
`C` classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from trainables.run import ModelSize, Protocol
from trainables.stacked_ops import Shared, add_positions, affine, embed, gelu, linear, shared_linear


@dataclass(frozen=True, kw_only=True)
class StackedBatch:
    """What runs read: each distinct batch once, and which run reads which."""

    tokens: Tensor
    """(K, B, T) ids or (K, B, T, token_dim)."""
    lengths: Tensor | None
    """(K, B), real tokens; None: all, or the final position is read whatever it is."""
    num_runs: int
    of_run: Tensor | None = None
    """(R,), index of each run's batch; None: K is 1, or R with a batch for each run in order."""

    def spread(self, x: Tensor) -> Tensor:
        """Turn (K, ...) into (R, ...)."""
        if self.of_run is not None:
            return x[self.of_run]
        return x.expand(self.num_runs, *x.shape[1:])


class StackedDropout:
    """Draws `gpt2.Dropout`'s masks, once for all runs that share them."""

    def __init__(self, batch: StackedBatch, generators: Sequence[torch.Generator], probability: float) -> None:
        """Take a generator for each of the K batches."""
        self.batch, self.generators, self.probability = batch, generators, probability

    def keep(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Return masks (K, *shape): 0, or what scales the rest up."""
        keep = like.new_empty((len(self.generators), *shape))
        for mask, generator in zip(keep, self.generators, strict=True):
            mask.bernoulli_(1.0 - self.probability, generator=generator)
        return keep.div_(1.0 - self.probability)

    def __call__(self, x: Tensor) -> Tensor:
        """Drop entries of (R, B, T, D)."""
        if self.probability == 0.0:
            return x
        return x * self.batch.spread(self.keep(x.shape[1:], x))


class StackedModel:
    """The forward pass of R runs."""

    def __init__(
        self, size: ModelSize, protocol: Protocol, parameters: dict[str, Tensor], shared: dict[str, list[Shared]]
    ) -> None:
        """Take the tensors of the runs.

        Args:
            size: of the body.
            protocol: that of all runs.
            parameters: (R, ...) by the names of `Classifier`'s; those that are trained have their `.grad` set.
            shared: frozen linear layers by name.
        """
        self.size, self.protocol, self.parameters, self.shared = size, protocol, parameters, shared
        self.num_runs = len(parameters["output_layer.bias"])
        self.real_valued = "input_layer.bias" in parameters
        last, width = f"body.h.{size.layers - 1}.attn.c_attn", size.width
        self._take_columns(last, "queries", slice(0, width))
        self._take_columns(last, "keys_values", slice(width, 3 * width))
        for name in ("input_layer", "output_layer") if self.real_valued else ("output_layer",):
            self.parameters[f"{name}.weight.T"] = _part(parameters[f"{name}.weight"], lambda whole: whole.mT)

    def _take_columns(self, name: str, suffix: str, columns: slice) -> None:
        """Make columns of a layer's outputs a layer of their own."""
        if name in self.shared:
            self.shared[name + suffix] = [layer.columns(columns) for layer in self.shared[name]]
            return
        for kind in (".weight", ".bias"):
            whole = self.parameters[name + kind]
            self.parameters[name + suffix + kind] = _part(whole, lambda whole: whole[..., columns])

    def logits(self, batch: StackedBatch, generators: Sequence[torch.Generator] | None = None) -> Tensor:
        """Return (R, B, C); without generators in evaluation mode."""
        x = self._embedded(batch)  # (R, B, T, D)
        dropout = None
        if generators is not None:
            if self.real_valued:
                x = StackedDropout(batch, generators, self.protocol.input_dropout)(x)
            if self.protocol.dropout > 0.0:
                dropout = StackedDropout(batch, generators, self.protocol.dropout)
        x = add_positions(x, self.parameters["body.wpe.weight"])
        x = dropout(x) if dropout else x
        for block in range(self.size.layers - 1):
            x = self._block(f"body.h.{block}", x, dropout)
        read = self._last_block(f"body.h.{self.size.layers - 1}", x, batch, dropout)  # (R, B, D)
        normed = self._normed("body.ln_f", read)
        return linear(normed, self.parameters["output_layer.weight.T"], self.parameters["output_layer.bias"])

    def _embedded(self, batch: StackedBatch) -> Tensor:
        size, tokens = batch.tokens.shape[1:3], batch.spread(batch.tokens)
        if self.real_valued:
            rows = tokens.reshape(self.num_runs, -1, tokens.shape[-1])  # (R, N, token_dim)
            x = linear(rows, self.parameters["input_layer.weight.T"], self.parameters["input_layer.bias"])
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
        """Map (R, B, T, D) to (R, B, T, D)."""
        qkv = self._layer(f"{name}.attn.c_attn", self._normed(f"{name}.ln_1", x))  # (R, N, 3 D)
        heads = self.size.heads
        q, k, v = qkv.view(-1, x.shape[2], 3, heads, x.shape[3] // heads).permute(2, 0, 3, 1, 4)  # (R B, H, T, D / H)
        if dropout is None:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mixed = _dropped_attention(q, k, v, dropout)
        rows = mixed.transpose(1, 2).reshape(self.num_runs, -1, x.shape[3])  # (R, N, D)
        x = _added(x, self._layer(f"{name}.attn.c_proj", rows), dropout)
        return _added(x, self._fed(name, x), dropout)

    def _fed(self, name: str, x: Tensor) -> Tensor:
        inner = gelu(self._layer(f"{name}.mlp.c_fc", self._normed(f"{name}.ln_2", x)))
        return self._layer(f"{name}.mlp.c_proj", inner)  # (R, N, D)

    def _last_block(self, name: str, x: Tensor, batch: StackedBatch, dropout: StackedDropout | None) -> Tensor:
        """Map (R, B, T, D) to the hidden state that is read, (R, B, D)."""
        read = _Readout(batch, self.protocol)
        normed = self._normed(f"{name}.ln_1", x)  # (R, N, D)
        q = self._layer(f"{name}.attn.c_attnqueries", read.states(normed.view(x.shape)))  # (R, B, D)
        kv = self._layer(f"{name}.attn.c_attnkeys_values", normed)  # (R, N, 2 D)
        mixed = self._read_attention(q, kv, x.shape[2], read, dropout)  # (R, B, D)
        attended = self._layer(f"{name}.attn.c_proj", mixed)  # (R, B, D)
        h = _read_added(read.states(x), attended, x.shape, read, dropout)  # (R, B, D)
        return _read_added(h, self._fed(name, h), x.shape, read, dropout)

    def _read_attention(
        self, q: Tensor, kv: Tensor, tokens: int, read: _Readout, dropout: StackedDropout | None
    ) -> Tensor:
        heads, inner = self.size.heads, self.size.width // self.size.heads
        q = q.view(-1, 1, heads, inner).transpose(1, 2) / math.sqrt(inner)  # (R B, H, 1, D / H)
        k, v = kv.view(-1, tokens, 2, heads, inner).permute(2, 0, 3, 1, 4)  # (R B, H, T, D / H)
        weights = read.without_future(q @ k.mT).softmax(-1)  # (R B, H, 1, T)
        if dropout:
            keep = read.rows(dropout.keep((q.shape[0] // self.num_runs, heads, tokens, tokens), q))  # (K, B, H, T)
            weights = weights * read.batch.spread(keep).reshape(weights.shape)
        return (weights @ v).view(self.num_runs, -1, self.size.width)  # (R, B, D)


def _part(whole: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
    """Return a view that is a parameter of its own; what is written to its gradient is in the whole's."""
    part = of(whole.detach())
    if whole.grad is not None:
        part.requires_grad_().grad = of(whole.grad)
    return part


class _Readout:
    """Picks out the position that the output layer reads."""

    def __init__(self, batch: StackedBatch, protocol: Protocol) -> None:
        self.batch = batch
        ends = None if protocol.readout == "final_position" else batch.lengths
        self.last = None if ends is None else ends - 1
        """(K, B); None: the final position."""

    def states(self, x: Tensor) -> Tensor:
        """Return (R, B, D) out of (R, B, T, D)."""
        if self.last is None:
            return x[:, :, -1]
        last = self.batch.spread(self.last)[..., None, None].expand(-1, -1, 1, x.shape[3])
        return x.gather(2, last).squeeze(2)

    def masks(self, keep: Tensor) -> Tensor:
        """Return (K, B, D) out of masks (K, B, T, D)."""
        if self.last is None:
            return keep[:, :, -1]
        return keep.gather(2, self.last[..., None, None].expand(-1, -1, 1, keep.shape[3])).squeeze(2)

    def rows(self, keep: Tensor) -> Tensor:
        """Return (K, B, H, T) out of masks of attention (K, B, H, T, T)."""
        if self.last is None:
            return keep[:, :, :, -1]
        last = self.last[..., None, None, None].expand(*keep.shape[:3], 1, keep.shape[4])
        return keep.gather(3, last).squeeze(3)

    def without_future(self, scores: Tensor) -> Tensor:
        """Mask (R B, H, 1, T) beyond the position that is read."""
        if self.last is None:
            return scores
        positions = torch.arange(scores.shape[-1], device=scores.device)  # (T,)
        future = positions > self.batch.spread(self.last).reshape(-1, 1, 1, 1)  # (R B, 1, 1, T)
        return scores.masked_fill(future, -torch.inf)


def _dropped_attention(q: Tensor, k: Tensor, v: Tensor, dropout: StackedDropout) -> Tensor:
    """Attend (R B, H, T, D / H) with the plain engine's masks: torch's fused attention draws its own."""
    tokens, num_runs = q.shape[2], dropout.batch.num_runs
    future = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).triu(1)  # (T, T)
    scores = (q / math.sqrt(q.shape[-1])) @ k.mT  # (R B, H, T, T)
    weights = scores.masked_fill_(future, -torch.inf).softmax(-1)
    keep = dropout.keep((q.shape[0] // num_runs, *weights.shape[1:]), q)  # (K, B, H, T, T)
    return (weights.view(num_runs, -1, *weights.shape[1:]) * dropout.batch.spread(keep)).view(weights.shape) @ v


def _added(x: Tensor, rows: Tensor, dropout: StackedDropout | None) -> Tensor:
    """Add rows (R, N, D), dropped, to x (R, B, T, D)."""
    if dropout is None:
        return x + rows.view(x.shape)
    return torch.addcmul(x, rows.view(x.shape), dropout.batch.spread(dropout.keep(x.shape[1:], x)))


def _read_added(x: Tensor, rows: Tensor, whole: torch.Size, read: _Readout, dropout: StackedDropout | None) -> Tensor:
    """Add rows (R, B, D) to x (R, B, D), dropped by masks drawn for all positions (R, B, T, D)."""
    if dropout is None:
        return x + rows
    return torch.addcmul(x, rows, read.batch.spread(read.masks(dropout.keep(whole[1:], x))))
