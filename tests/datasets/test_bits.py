"""Bit memory and bit XOR: examples by hand, shares of bits, and streams of random numbers."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lr_sweep.datasets import TASKS, bit_memory, bit_xor
from lr_sweep.datasets.loaded import load_checked
from lr_sweep.datasets.task import Split, TaskData

NOWHERE = Path("no data directory")
SIZES: dict[str, Any] = {"num_validation": 20, "num_test": 30, "num_train_evaluated": 40}
SMALL: dict[str, dict[str, Any]] = {
    "bit-memory": SIZES | {"num_patterns": 3, "num_bits": 40, "bits_per_token": 10},
    "bit-xor": SIZES | {"num_bits": 40},
}


def small(task: str, **changes: Any) -> TaskData:
    return load_checked(task, TASKS[task], TASKS[task].Options(**SMALL[task] | changes), NOWHERE)


def drawn(data: TaskData, number: int, seed: int) -> Split:
    assert data.draw is not None
    return data.draw(number, torch.Generator().manual_seed(seed))


def contents(split: Split) -> set[bytes]:
    return {example.tobytes() for example in split.inputs.numpy()}


def assert_share(flags: torch.Tensor, probability: float) -> None:
    """The share of set flags is within 5 standard deviations of independent ones."""
    sigma = (probability * (1 - probability) / flags.numel()) ** 0.5
    assert abs(flags.double().mean().item() - probability) <= 5 * sigma


def test_bit_memory_by_hand() -> None:
    """Patterns 1100 and 0110, the second shown again without its first and its third bit, two bits a token."""
    is_one = torch.tensor([[[1, 1, 0, 0], [0, 1, 1, 0]]]).bool()
    is_masked = torch.tensor([[1, 0, 1, 0]]).bool()
    split = bit_memory.lay_out(is_one, torch.tensor([1]), is_masked, bits_per_token=2)
    assert split.inputs.tolist() == [[[1, 1], [-1, -1], [-1, 1], [1, -1], [0, 1], [0, -1]]]
    assert split.labels.tolist() == [[0, 1, 1, 0]]


def test_bit_xor_by_hand() -> None:
    """110 and 101 differ in the second and the third bit."""
    split = bit_xor.lay_out(torch.tensor([[[1, 1, 0], [1, 0, 1]]]).bool())
    assert split.inputs.tolist() == [[[1], [1], [0], [1], [0], [1]]]
    assert split.labels.tolist() == [[0, 1, 1]]


def test_the_paper_s_shapes() -> None:
    memory, xor = bit_memory.shape(bit_memory.Options()), bit_xor.shape(bit_xor.Options())
    assert (memory.num_tokens, memory.token_dim, memory.num_answers, memory.num_read) == (120, 50, 1000, 20)
    assert memory.num_outputs == 100  # 50 bits of 2 classes at each of 20 positions
    assert (xor.num_tokens, xor.token_dim, xor.num_answers, xor.num_read, xor.num_outputs) == (10, 1, 5, 5, 2)
    assert bit_xor.shape(bit_xor.Options(num_bits=256)).num_tokens == 512


def test_default_options_load() -> None:
    for task in SMALL:
        data = load_checked(task, TASKS[task], TASKS[task].Options(), NOWHERE)
        assert [len(split) for split in (data.train, data.validation, data.test)] == [1000] * 3
        assert data.tokens(data.test.inputs).equal(data.test.inputs.float())


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_a_masked_pattern_is_its_original_where_it_is_not_masked(
    num_patterns: int, tokens_per_pattern: int, bits_per_token: int, data_seed: int
) -> None:
    num_bits = tokens_per_pattern * bits_per_token
    sizes = {"num_patterns": num_patterns, "num_bits": num_bits, "bits_per_token": bits_per_token}
    data = small("bit-memory", **sizes, data_seed=data_seed)
    for split in (data.train, drawn(data, 25, data_seed)):
        patterns = split.inputs.reshape(len(split), num_patterns + 1, num_bits).long()
        shown, masked = patterns[:, :-1], patterns[:, -1]
        answers = 2 * split.labels - 1
        assert ((masked == answers) | (masked == 0)).all()
        assert (shown.abs() == 1).all()
        assert (shown == answers.unsqueeze(1)).all(-1).any(1).all()  # the answer is one of the patterns


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 256), st.integers(0, 2**32 - 1))
def test_an_answer_is_the_xor_of_the_bit_at_its_position_and_the_one_before(num_bits: int, data_seed: int) -> None:
    data = small("bit-xor", num_bits=num_bits, data_seed=data_seed)
    for split in (data.validation, drawn(data, 25, data_seed)):
        tokens = split.inputs.squeeze(-1)
        assert ((tokens == 0) | (tokens == 1)).all()
        for bit in range(num_bits):
            assert split.labels[:, bit].equal((tokens[:, bit] + tokens[:, num_bits + bit]).long() % 2)


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 1.0])
def test_shares_of_bits(probability: float) -> None:
    """Of fixed sets and of drawn batches: masked bits, ones, and how often each pattern is shown again."""
    sizes = {"num_patterns": 4, "num_bits": 200, "bits_per_token": 50, "num_test": 400}
    data = small("bit-memory", **sizes, mask_probability=probability)
    for split in (data.test, drawn(data, 400, 1)):
        patterns = split.inputs.reshape(400, 5, 200)
        assert_share(patterns[:, -1] == 0, probability)
        assert_share(patterns[:, :-1] == 1, 0.5)
        for pattern in range(4):
            assert_share((patterns[:, pattern] == 2 * split.labels - 1).all(-1), 0.25)


def test_the_first_masked_token_is_enough_to_answer() -> None:
    """The output at a position sees no later tokens: its answer must follow from those before."""
    data = load_checked("bit-memory", TASKS["bit-memory"], bit_memory.Options(), NOWHERE)
    shown, masked = data.test.inputs[:, :100].reshape(1000, 5, 20, 50).long(), data.test.inputs[:, 100].long()
    agreements = (shown[:, :, 0] * masked.unsqueeze(1)).sum(-1)  # (1000, 5)
    best = shown.flatten(2)[torch.arange(1000), agreements.argmax(1)]
    assert best.equal(2 * data.test.labels - 1)


@pytest.mark.parametrize("task", SMALL)
def test_draws_follow_from_the_generator(task: str) -> None:
    data = small(task)
    first, again, other = drawn(data, 8, 1), drawn(data, 8, 1), drawn(data, 8, 2)
    assert first.inputs.equal(again.inputs)
    assert first.labels.equal(again.labels)
    assert not contents(first) & contents(other)
    assert data.draw is not None
    generator = torch.Generator().manual_seed(1)
    assert not contents(data.draw(8, generator)) & contents(data.draw(8, generator))
    assert first.inputs.equal(drawn(small(task, data_seed=7), 8, 1).inputs)  # `data_seed` picks the fixed sets alone


@pytest.mark.parametrize("task", SMALL)
def test_fixed_sets_have_streams_of_their_own(task: str) -> None:
    """Strings of 40 bits are never drawn twice, unless by the same stream."""
    data, again, other = small(task), small(task), small(task, data_seed=1)
    sets = [data.train, data.validation, data.test, other.train, other.validation, other.test, drawn(data, 40, 0)]
    assert len(set.union(*map(contents, sets))) == sum(map(len, sets)) == 220
    assert data.test.inputs.equal(again.test.inputs)
    more = small(task, num_validation=25)
    assert more.test.inputs.equal(data.test.inputs)  # a set's size changes no other set


@pytest.mark.parametrize(("task", "want"), [("bit-memory", "f6634ace80ddee1d"), ("bit-xor", "8f335d251eea9a45")])
def test_fixed_sets_are_the_same_for_ever(task: str, want: str) -> None:
    """The frozen stream of RandomState: another answer would silently change every result on these tasks."""
    data = small(task)
    got = [hashlib.sha256(split.inputs.numpy().tobytes()).digest() for split in (data.validation, data.test)]
    assert hashlib.sha256(b"".join(got)).hexdigest()[:16] == want


@pytest.mark.parametrize(
    ("task", "options", "want"),
    [
        ("bit-memory", {"num_bits": 1001}, "num_bits is 1001, wanted a multiple of bits_per_token 50"),
        ("bit-memory", {"bits_per_token": 2000}, "bits_per_token is 2000, wanted 1 to 1000"),
        ("bit-memory", {"mask_probability": 1.5}, "mask_probability is 1.5, wanted 0 to 1"),
        ("bit-memory", {"mask_probability": float("nan")}, "mask_probability is nan, wanted 0 to 1"),
        ("bit-memory", {"num_test": 0}, "num_test is 0, wanted 1 to 1000000"),
        ("bit-xor", {"num_bits": 257}, "num_bits is 257, wanted 2 to 256"),
        ("bit-xor", {"data_seed": 2**32}, "data_seed is 4294967296, wanted 0 to 4294967295"),
    ],
)
def test_options_out_of_limits(task: str, options: dict[str, Any], want: str) -> None:
    with pytest.raises(ValueError, match=want):
        TASKS[task].Options(**options)
