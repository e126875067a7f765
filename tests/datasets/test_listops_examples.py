"""ListOps expressions: generated ones against a recursive generator, lines of a release against a writer."""

from __future__ import annotations

import hashlib
import math
import random
import re
import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lr_sweep.datasets.listops import parse, read_release
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


def length_probabilities(longest: int) -> np.ndarray:
    """Exact P(length) of a tree whose root is an operator, up to `longest`, by convolution from depth 10 up."""
    node = np.zeros(longest + 1)
    node[1] = 1
    for _ in range(9):
        powers, total = node, np.zeros(longest + 1)
        for _ in range(2, 11):
            powers = np.fft.irfft(np.fft.rfft(powers, 4096) * np.fft.rfft(node, 4096), 4096)[: longest + 1]
            total += powers / 9
        operator = np.concatenate([[0, 0], total[:-2]])
        node = 0.25 * operator
        node[1] += 0.75
    return operator


def standard_error(probability: float, n: int) -> float:
    return math.sqrt(probability * (1 - probability) / n)


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


@pytest.mark.parametrize(("longer_than", "expected"), [(512, 0.984), (1024, 0.441)])
def test_length_distribution_is_exact(examples: Examples, longer_than: int, expected: float) -> None:
    probabilities = length_probabilities(1999)[501:]
    exact = probabilities[longer_than + 1 - 501 :].sum() / probabilities.sum()
    assert exact == pytest.approx(expected, abs=1e-3)
    got = (examples.lengths > longer_than).mean()
    assert abs(got - exact) < 4 * standard_error(exact, NUM_EXAMPLES)


def test_constant_guess(examples: Examples) -> None:
    best = np.bincount(examples.labels).max() / NUM_EXAMPLES
    assert abs(best - 0.17) < 4 * standard_error(0.17, NUM_EXAMPLES)


def test_digits_and_operators_are_uniform(examples: Examples) -> None:
    counts = np.bincount(examples.inputs.reshape(-1), minlength=16)
    for tokens in (counts[1:11], counts[11:15]):
        n, share = tokens.sum(), 1 / len(tokens)
        assert (np.abs(tokens / n - share) < 4.5 * standard_error(share, n)).all()
    assert counts[11:15].sum() == counts[15]  # as many closers as openers


def features(tokens: list[str]) -> list[float]:
    """Operators a token, arguments of the root, mean nesting of digits: what the length tests don't see."""
    depth, root_args = 0, 0
    digit_depths = []
    for token in tokens:
        root_args += depth == 1 and token != "]"
        depth += token.startswith("[") - (token == "]")
        if token.isdigit():
            digit_depths.append(depth)
    return [tokens.count("]") / len(tokens), root_args, statistics.mean(digit_depths)]


def test_structure_is_that_of_the_recursive_generator(examples: Examples) -> None:
    source = random.Random(0)
    wanted: list[list[float]] = []
    while len(wanted) < 500:
        tree = reference_tree(1, source)
        if 500 < len(tree) < 2000:
            wanted.append(features(tree))
    want, got = np.array(wanted), np.array([features(words(ids)) for ids in examples.inputs[:1000]])
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


def test_seed_gives_the_same_examples_for_ever() -> None:
    """Fails if numpy's stream or the generator changes; then GENERATOR_VERSION must be raised."""
    made = generate(200, seed=0, min_tree_length=20, max_tree_length=100)
    got = hashlib.sha256(made.inputs.tobytes() + made.labels.tobytes()).hexdigest()[:16]
    assert got == "7bc0ff50bf2defa7"
    assert (made.inputs != generate(200, seed=1, min_tree_length=20, max_tree_length=100).inputs).any()


Tree = int | tuple[str, list["Tree"]]

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
GOOD = "( ( ( [MED 1 ) 4 ) ] )\t2"

digits = st.integers(0, 9)
trees = st.recursive(
    digits, lambda below: st.tuples(st.sampled_from(OPERATORS), st.lists(below, min_size=1, max_size=10)), max_leaves=40
)


def tokens_of(tree: Tree) -> list[str]:
    if isinstance(tree, int):
        return [str(tree)]
    operator, arguments = tree
    return [operator, *(token for argument in arguments for token in tokens_of(argument)), "]"]


def written(tree: Tree) -> str:
    """Write an expression as the Long Range Arena does: a tree of pairs, operator and arguments joined one by one."""
    if isinstance(tree, int):
        return str(tree)
    operator, arguments = tree
    text = operator
    for argument in [*map(written, arguments), "]"]:
        text = f"( {text} {argument} )"
    return text


def value_of(tree: Tree) -> int:
    if isinstance(tree, int):
        return tree
    operator, arguments = tree
    values = [value_of(argument) for argument in arguments]
    return evaluate([operator, *map(str, values), "]"]) if len(values) > 1 else values[0]  # of one, each is the one


def ids(tree: Tree) -> bytes:
    return bytes(VOCABULARY.index(token) for token in tokens_of(tree))


def test_a_line_by_hand() -> None:
    tree: Tree = ("[SM", [1, ("[MIN", [5, 4])])
    assert written(tree) == "( ( ( [SM 1 ) ( ( ( [MIN 5 ) 4 ) ] ) ) ] )"
    assert parse(written(tree)) == (bytes([14, 2, 11, 6, 5, 15, 15]), 5)
    assert parse("7") == (bytes([8]), 7)


@settings(max_examples=100, deadline=None)
@given(trees)
def test_sound_lines_are_read_and_evaluated(tree: Tree) -> None:
    assert parse(written(tree)) == (ids(tree), value_of(tree))


@settings(max_examples=200, deadline=None)
@given(trees, st.data())
def test_a_changed_line_is_another_expression_or_refused(tree: Tree, data: st.DataObject) -> None:
    """A line is sound if and only if it is what some expression is written as."""
    line = written(tree)
    start = data.draw(st.integers(0, len(line)))
    end = data.draw(st.integers(start, min(len(line), start + 6)))
    put = data.draw(
        st.sampled_from(["", " ", "(", ")", "( ", " )", "]", "] ", "[", "1", "1 ", "[MAX ", "[SM", "X", "é"])
    )
    changed = line[:start] + put + line[end:]
    if is_written(changed):
        parse(changed)
    else:
        with pytest.raises(ValueError, match="got .*, want"):
            parse(changed)


def is_written(line: str) -> bool:
    """Return whether a line is what `written` makes of some tree, by taking pairs apart from the inside."""
    pair = re.compile(r"\( (?:(?P<half>\[(?:MIN|MAX|MED|SM)|h) (?P<whole>[0-9w])|(?P<open>h) (?P<end>\])) \)")
    while (match := pair.search(line)) is not None:
        line = line[: match.start()] + ("w" if match["end"] else "h") + line[match.end() :]
    return re.fullmatch("[0-9w]", line) is not None


LEFT = "after its sound operations were evaluated, want a digit"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("( ( ( [MAXX 2 ) 9 ) ] )\t9", f"Source: got '( ( ( [MAXX 2 ) 9 ) ] )' {LEFT}"),
        ("( ( ( [MAX ( ( [MIN 1 ) ] ) ) 12 ) ] )\t9", f"Source: got '( ( ( [MAX 1 ) 12 ) ] )' {LEFT}"),
        ("( ( ( [MAX 2 )  9 ) ] )\t9", f"Source: got '( ( ( [MAX 2 )  9 ) ] )' {LEFT}"),
        (" 9\t9", f"Source: got ' 9' {LEFT}"),
        ("\t9", f"Source: got '' {LEFT}"),
        ("( ( ( [MAX 2 ) 9 ) ] ) 3\t9", f"Source: got '9 3' {LEFT}"),
        ("( [MAX ] )\t9", f"Source: got '( [MAX ] )' {LEFT}"),
        ("( ( ( ( [MAX 2 ) 9 ) ] )\t9", f"Source: got '( ( ( ( [MAX 2 ) 9 ) ] )' {LEFT}"),
        ("( ( ( [MAX 2 ) 9 ) ] )\t10", "Target: got '10', want '9', the value of Source"),
        ("( ( ( [MAX 2 ) 9 ) ] )", "Target: got '', want '9', the value of Source"),
        (written(("[MAX", [2] * 18)) + "\t2", "Source: got 20 tokens, want fewer than 20"),
    ],
)
def test_a_bad_line_is_named_with_what_was_got_and_wanted(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "basic_test.tsv"
    path.write_text(f"Source\tTarget\n{GOOD}\n{line}\n{GOOD}\n")
    with pytest.raises(DataError) as raised:
        read_release(path, max_tree_length=20)
    assert str(raised.value) == (
        f"listops: 1 of 3 examples in {path} are not the Long Range Arena's:\n  line 3: {problem}\n"
        f"Unpack its lra_release.gz again, or set `source: generated`."
    )


def test_the_first_bad_lines_are_shown_and_all_counted(tmp_path: Path) -> None:
    path = tmp_path / "basic_test.tsv"
    path.write_text("Source\tTarget\n" + f"{GOOD}\n" * 1500 + "12\t1\n" * 1500)
    with pytest.raises(DataError) as raised:
        read_release(path, max_tree_length=20)
    lines = str(raised.value).splitlines()
    assert lines[0].startswith("listops: 1500 of 3000 examples in ")
    shown = [f"  line {number}" for number in (1502, 1503, 1504)]
    assert [line.split(":")[0] for line in lines[1:-1]] == [*shown, "  and 1497 more"]


def test_columns_may_stand_in_another_order(tmp_path: Path) -> None:
    path = tmp_path / "basic_test.tsv"
    path.write_bytes(b"Target\tnote\tSource\r\n2\t\t( ( ( [MED 1 ) 4 ) ] )\r\n")
    examples = read_release(path, max_tree_length=6)
    assert examples.inputs.tolist() == [[13, 2, 5, 15, 0, 0]]
    assert examples.labels.dtype == np.uint8
    assert examples.labels.tolist() == [2]
