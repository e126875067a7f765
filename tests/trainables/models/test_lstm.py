"""Our LSTM against torch's, and what is different about it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lr_sweep.tests.support.small_bodies import embeddings_of
from lr_sweep.trainables.models.family import Dropout
from lr_sweep.trainables.models.lstm import LSTM, ReferenceNorm, Size
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


def reference_states(body: LSTM, embeddings: np.ndarray) -> np.ndarray:
    """One layer as Lu et al.'s code computes it, token by token: (T, D) to (T, D)."""
    weights = {name: tensor.double().numpy() for name, tensor in body.layers[0].state_dict().items()}

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    def normed(name: str, x: np.ndarray) -> np.ndarray:
        scaled = (x - x.mean()) / np.sqrt(x.var(ddof=1) + 1e-6)
        return weights[f"norms.{name}.weight"] * scaled + weights[f"norms.{name}.bias"]

    state = cell = np.zeros(body.size.width)
    states = []
    for token in embeddings:
        gates = normed("ih", weights["ih.weight"] @ token + weights["ih.bias"])
        gates = gates + normed("hh", weights["hh.weight"] @ state + weights["hh.bias"])
        taken, kept, shown, new = np.split(gates, 4)
        cell = normed("cell", sigmoid(kept) * cell + sigmoid(taken) * np.tanh(new))
        state = sigmoid(shown) * np.tanh(cell)
        states.append(state)
    return np.stack(states)


def test_the_default_cell_is_that_of_lu_et_al_s_code() -> None:
    body = body_of(Size(layers=1, width=8))
    embeddings = embeddings_of(body.size, num_examples=1)
    with torch.no_grad():
        ours, library = (
            body_with(body, cell)(embeddings)[0].double().numpy() for cell in ("reference-2021", "library")
        )
    expected = reference_states(body, embeddings[0].double().numpy())
    np.testing.assert_allclose(ours, expected, atol=1e-6)
    assert np.abs(library - expected).max() > 1e-4


def body_with(body: LSTM, cell: str) -> LSTM:
    """A body of the same weights with another cell."""
    other = LSTM(Size(layers=body.size.layers, width=body.size.width, cell=cell), 9)  # type: ignore[arg-type]
    other.load_state_dict(body.state_dict())
    return other


def test_its_norms_start_near_0_and_so_its_states_are_small() -> None:
    """Scales and shifts of n numbers are drawn within 1 / sqrt(n); torch's layer norms start at 1 and 0."""
    body = body_of(Size(layers=3, width=64))
    norms = [module for module in body.modules() if isinstance(module, ReferenceNorm)]
    assert len(norms) == 9
    for parameter in (parameter for norm in norms for parameter in norm.parameters()):
        bound = parameter.numel() ** -0.5
        assert 0.8 * bound < parameter.abs().max() <= bound
        assert parameter.min() < 0
    with torch.no_grad():
        deviations = [b(embeddings_of(b.size)).std() for b in (body, body_of(Size(layers=3, width=64, cell="library")))]
    assert 3 * deviations[0] < deviations[1]


class FirstCall(Dropout):
    """Sets all numbers of the first call to 0, and changes none after it."""

    def __init__(self) -> None:
        super().__init__(0.5, torch.Generator())
        self.calls = 0

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        return torch.zeros_like(x) if self.calls == 1 else x


def test_its_dropout_acts_on_the_recurrent_state() -> None:
    """With the first token's state set to 0, the second token's differs: the cell is kept, the state is not."""
    body = body_of(Size(layers=1, width=8))
    embeddings = embeddings_of(body.size)
    with torch.no_grad():
        whole, dropped = body(embeddings), body(embeddings, dropout := FirstCall())
    assert dropout.calls == embeddings.shape[1]  # a mask for each token, none for the embeddings
    assert dropped[:, 0].abs().max() == 0
    assert (dropped[:, 1] - whole[:, 1]).abs().max() > 1e-4


def test_dropout_of_the_library_s_cell_leaves_the_state() -> None:
    body = body_of(Size(layers=1, width=8, cell="library"))
    embeddings = embeddings_of(body.size)
    with torch.no_grad():
        zeros, dropped = body(torch.zeros_like(embeddings)), body(embeddings, dropout := FirstCall())
    assert dropout.calls == 2  # the embeddings, and what the layer passes up
    torch.testing.assert_close(dropped, zeros)
