"""ListOps expressions: generated ones against a recursive generator."""

from __future__ import annotations

import hashlib
import random
import statistics
from pathlib import Path

import numpy as np
import pytest

from lr_sweep.datasets.listops import read_release
from lr_sweep.datasets.listops_examples import PAD, VOCABULARY, Examples, generate, medians
from lr_sweep.datasets.task import DataError
from lr_sweep.tests.support.task_files import evaluate

NUM_EXAMPLES = 4000


@pytest.fixture(scope="module")
def examples() -> Examples:
    return generate(NUM_EXAMPLES, seed=0, min_tree_length=500, max_tree_length=2000)


def words(ids: np.ndarray) -> list[str]:
    return [VOCABULARY[token_id] for token_id in ids if token_id != PAD]


def reference_tree(depth: int, source: random.Random) -> list[str]:
    """The recursion of the Long Range Arena: the root has depth 1, nodes of depth 10 are digits."""
    if depth == 10 or source.random() > 0.25:
        return [str(source.randrange(10))]
    num_args = source.randint(2, 10)
    arguments = [token for _ in range(num_args) for token in reference_tree(depth + 1, source)]
    return [source.choice(["[MIN", "[MAX", "[MED", "[SM"]), *arguments, "]"]


def test_evaluator_by_hand() -> None:
    assert evaluate(["[MAX", "2", "9", "[MIN", "4", "7", "]", "0", "]"]) == 9
    assert evaluate(["[SM", "9", "9", "[MED", "1", "4", "]", "]"]) == 0  # the median 2.5 is cut to 2
    assert evaluate(["[MED", "3", "1", "2", "]"]) == 2


def test_labels_are_the_values(examples: Examples) -> None:
    short = generate(3000, seed=3, min_tree_length=3, max_tree_length=12)
    for made in (examples[:300], short):
        assert [evaluate(words(ids)) for ids in made.inputs] == made.labels.tolist()


def test_median_by_hand() -> None:
    # (3 1 2) -> 2; (9 0) -> 4.5 -> 4; (5 5 1 9) -> 5
    assert medians(np.array([3, 1, 2, 9, 0, 5, 5, 1, 9], np.uint8), np.array([3, 2, 4])).tolist() == [2, 4, 5]


def test_lengths_are_those_of_the_tokens(examples: Examples) -> None:
    is_token = examples.inputs != PAD
    assert is_token.sum(axis=1).tolist() == examples.lengths.tolist()
    positions = np.arange(examples.inputs.shape[1])
    assert (is_token == (positions < examples.lengths[:, None])).all()  # padding on the right only
    assert examples.lengths.min() > 500
    assert examples.lengths.max() < 2000


def features(tokens: list[str]) -> list[float]:
    """Tokens, operators a token, arguments of the root, and mean nesting of digits."""
    depth, root_args = 0, 0
    digit_depths = []
    for token in tokens:
        root_args += depth == 1 and token != "]"
        depth += token.startswith("[") - (token == "]")
        if token.isdigit():
            digit_depths.append(depth)
    return [len(tokens), tokens.count("]") / len(tokens), root_args, statistics.mean(digit_depths)]


def test_structure_is_that_of_the_recursive_generator(examples: Examples) -> None:
    source = random.Random(0)
    wanted: list[list[float]] = []
    while len(wanted) < 300:
        tree = reference_tree(1, source)
        if 500 < len(tree) < 2000:
            wanted.append(features(tree))
    want, got = np.array(wanted), np.array([features(words(ids)) for ids in examples.inputs[:600]])
    error = np.sqrt(want.var(axis=0) / len(want) + got.var(axis=0) / len(got))
    assert (np.abs(want.mean(axis=0) - got.mean(axis=0)) < 4 * error).all()


def test_examples_are_distinct() -> None:
    # Only 400 expressions have length 4, [OP a b ]: all are found, each once.
    every = generate(400, seed=0, min_tree_length=3, max_tree_length=5)
    assert len({ids.tobytes() for ids in every.inputs}) == 400
    with pytest.raises(DataError, match="found only 400 distinct examples longer than 3 and shorter than 5"):
        generate(401, seed=0, min_tree_length=3, max_tree_length=5)


def test_fewer_examples_are_the_first_of_more() -> None:
    few, many = (generate(n, seed=1, min_tree_length=10, max_tree_length=40) for n in (7, 3000))
    assert (few.inputs == many.inputs[:7]).all()
    assert (few.labels == many.labels[:7]).all()


def test_seed_gives_the_same_examples_for_ever(examples: Examples) -> None:
    """Fails if numpy's stream or the generator changes; then GENERATOR_VERSION must be raised.

    The distributions of lengths, digits and operators of these examples were compared with the exact ones.
    """
    made = generate(200, seed=0, min_tree_length=20, max_tree_length=100)
    got = [hashlib.sha256(each.inputs.tobytes() + each.labels.tobytes()).hexdigest() for each in (made, examples)]
    assert [digest[:16] for digest in got] == ["7bc0ff50bf2defa7", "94fcf2560624dd46"]
    assert (made.inputs != generate(200, seed=1, min_tree_length=20, max_tree_length=100).inputs).any()


def test_columns_may_stand_in_another_order(tmp_path: Path) -> None:
    path = tmp_path / "basic_test.tsv"
    path.write_bytes(b"Target\tnote\tSource\r\n2\t\t( ( ( [MED 1 ) 4 ) ] )\r\n")
    examples = read_release(path, max_tree_length=6)
    assert examples.inputs.tolist() == [[13, 2, 5, 15, 0, 0]]
    assert examples.labels.dtype == np.uint8
    assert examples.labels.tolist() == [2]
