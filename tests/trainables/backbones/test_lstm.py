"""Our LSTM against torch's, and what is different about it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from lr_sweep.tests.support.small_bodies import embeddings_of
from lr_sweep.trainables.backbones.lstm import LSTM, Size
from lr_sweep.trainables.run import Protocol


def body_of(size: Size) -> LSTM:
    body = LSTM(size, 9)
    with torch.no_grad():
        body.draw(Protocol(), torch.Generator().manual_seed(0))
    return body


def torch_s(body: LSTM) -> nn.LSTM:
    """torch's LSTM of the same weights, whose gates come in another order: input, forget, new, output."""
    width = body.size.width
    model = nn.LSTM(width, width, body.size.layers, batch_first=True)

    def ordered(tensor: Tensor) -> Tensor:
        taken, kept, shown, new = tensor.chunk(4)
        return torch.cat([taken, kept, new, shown])

    with torch.no_grad():
        for index, layer in enumerate(body.layers):
            for own in ("ih", "hh"):
                linear = layer.get_submodule(own)
                model.get_parameter(f"weight_{own}_l{index}").copy_(ordered(linear.weight))
                model.get_parameter(f"bias_{own}_l{index}").copy_(ordered(linear.bias))
    return model


@pytest.mark.parametrize(("layers", "width"), [(1, 8), (3, 16)])
def test_without_layer_norms_it_is_torch_s(layers: int, width: int) -> None:
    size = Size(layers=layers, width=width, layer_norm=False)
    body, embeddings = body_of(size), embeddings_of(size)
    with torch.no_grad():
        torch.testing.assert_close(body(embeddings), torch_s(body)(embeddings)[0], atol=1e-5, rtol=0)


def test_residual_connections_add_each_layer_s_input() -> None:
    plain, residual = (body_of(Size(layers=1, width=8, residual=residual)) for residual in (False, True))
    embeddings = embeddings_of(plain.size)
    with torch.no_grad():
        torch.testing.assert_close(residual(embeddings), plain(embeddings) + embeddings)


def test_positions_are_added_to_the_embeddings() -> None:
    plain, placed = (body_of(Size(layers=2, width=8, positions=positions)) for positions in (False, True))
    embeddings = embeddings_of(plain.size)
    with torch.no_grad():
        torch.testing.assert_close(placed(embeddings), plain(embeddings + placed.wpe))
    assert plain.wpe.numel() == 0
