"""Products by oneDNN, on any CPU; and, where stacks use them, that a run's bits do not depend on the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lr_sweep.tests.support.small_runs import alone_of, assert_same_in, run_of, stacked, sweep_of
from lr_sweep.trainables.run import ModelSize
from lr_sweep.trainables.stacked import layers
from lr_sweep.trainables.stacked.layers import batched, is_zen_5, onednn_is_faster

USED_HERE = onednn_is_faster()
pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@pytest.fixture(autouse=True, scope="module")
def taken() -> Iterator[None]:
    """oneDNN for products of any size, on any CPU."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(layers, "ONEDNN_FROM", 0)
        patched.setattr(layers, "onednn_is_faster", lambda: True)
        yield


def drawn(shape: tuple[int, int, int], layout: str, seed: int) -> Tensor:
    """Draw a batch of matrices, in memory as they are, transposed, or some columns of larger ones."""
    numbers = torch.randn(*shape[:2], shape[2] + 5, generator=torch.Generator().manual_seed(seed))
    part = numbers[..., 3:-2]
    return {"whole": part.contiguous(), "transposed": part.mT.contiguous().mT, "columns": part}[layout]


sizes = st.integers(1, 40)
layouts = st.sampled_from(["whole", "transposed", "columns"])


@settings(max_examples=60, deadline=None)
@given(sizes, sizes, sizes, layouts, layouts, st.booleans())
def test_they_are_products(rows: int, num_in: int, num_out: int, a_layout: str, b_layout: str, biased: bool) -> None:
    a, b = drawn((3, rows, num_in), a_layout, 0), drawn((3, num_in, num_out), b_layout, 1)
    bias = drawn((3, 1, num_out), "whole", 2) if biased else None
    exact = a.double() @ b.double() + (0.0 if bias is None else bias.double())
    out = torch.full((3, rows, num_out), torch.nan)
    found = batched(a, b, bias, out=out)
    assert found is out
    torch.testing.assert_close(found, exact.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("maker", "family", "expected"),
    [("AuthenticAMD", 25, False), ("AuthenticAMD", 26, True), ("GenuineIntel", 6, False), ("GenuineIntel", 26, False)],
)
def test_zen_5_is_amd_s_family_26(maker: str, family: int, expected: bool) -> None:
    lines = ["processor\t: 0", f"vendor_id\t: {maker}", f"cpu family\t: {family}", "model\t\t: 17", ""]
    assert is_zen_5("\n".join(lines)) is expected


@pytest.mark.skipif(not USED_HERE, reason="stacks use MKL on this CPU")
@pytest.mark.parametrize("variant", ["frozen-random", "frozen-pretrained", "unfrozen-random"])
@pytest.mark.parametrize("width", [20, 64])
def test_a_run_has_the_bits_that_it_has_alone(variant: str, width: int) -> None:
    pretrained = variant.endswith("pretrained")
    size = {} if pretrained else {"size": ModelSize(layers=2, heads=2, width=width, positions=8)}
    runs = sweep_of(variant, **size)
    alone = alone_of(runs)
    for group in (runs, runs[1:3]):
        assert_same_in(group, alone)


def test_a_run_is_trained_as_by_torch_s_products() -> None:
    run = run_of("unfrozen-random")
    _, (by_onednn,) = stacked([run], 20)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(layers, "onednn_is_faster", lambda: False)
        _, (by_torch,) = stacked([run], 20)
    losses = [[point.train_loss for point in slot.progress.curve] for slot in (by_onednn, by_torch)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
