"""ListOps examples: token ids, tokenisations, the generator, and the file that keeps examples on disk.

Expressions are drawn as in the Long Range Arena (Tay et al. 2020, public code): a node is an operator with probability
0.25, else a digit; an operator has 2 to 10 arguments; the root has depth 1 and nodes of depth 10 are digits. Many trees
are drawn at once, a depth at a time: recursion in Python takes minutes for 100k examples.

Shape legend: `N` examples, `T` tokens an example.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from filelock import FileLock

from lr_sweep.common.files import whole_file
from lr_sweep.common.text import command
from lr_sweep.datasets import files

from .task import DataError

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
VOCABULARY = ("<pad>", *"0123456789", *OPERATORS, "]")
"""A token's id is its index. The closer is last, so that dropping it leaves ids 0 to 14."""
PAD, FIRST_DIGIT, FIRST_OPERATOR, CLOSER = 0, 1, 11, 15
LU2021_NUM_TOKENS = 512

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Tokenised expressions with their values."""

    inputs: np.ndarray
    """(N, T) uint8 token ids, padded on the right."""
    labels: np.ndarray
    """(N,) uint8, values 0 to 9."""
    lengths: np.ndarray
    """(N,) int16, tokens of each example."""

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, chosen: slice) -> Examples:
        return Examples(
            inputs=self.inputs[chosen], labels=self.labels[chosen], lengths=self.lengths[chosen]
        )


def to_lu2021(examples: Examples) -> Examples:
    """Drop the closers and cut at 512 tokens, as Lu et al.'s public code did; such examples can't be solved."""
    width = min(LU2021_NUM_TOKENS, examples.inputs.shape[1])
    inputs = np.zeros((len(examples), width), dtype=np.uint8)  # (N, T)
    for row, ids in zip(inputs, examples.inputs, strict=True):
        kept = ids[(ids != CLOSER) & (ids != PAD)][:width]
        row[: len(kept)] = kept
    lengths = np.count_nonzero(inputs != PAD, axis=1).astype(np.int16)  # (N,)
    return Examples(inputs=inputs, labels=examples.labels, lengths=lengths)


def read_or_make(data_dir: Path, name: str, make: Callable[[], Examples]) -> Examples:
    """Read the examples that a file of the data directory keeps, or make them; raises DataError if that fails."""
    files.require_folder(data_dir)
    path = data_dir / "listops" / f"{name}.npz"
    if not path.exists():
        if not files.is_writable(data_dir):
            raise DataError(
                f"listops: {data_dir} is not writable. Run `{command('data', 'listops')}` where it is."
            )
        with FileLock(data_dir / ".listops.lock"):
            if not path.exists():
                _log.info("making ListOps examples in %s", path)
                arrays = vars(make())
                with whole_file(path) as partial, partial.open("wb") as file:
                    np.savez(file, **arrays)
    return _read(path)


def _read(path: Path) -> Examples:
    try:
        # The archive has a checksum of each array, which is compared where the array is read.
        with np.load(path, allow_pickle=False) as arrays:
            return Examples(**arrays)
    except (OSError, ValueError, TypeError, BadZipFile) as error:
        raise DataError(
            f"listops: {path} is corrupted: it is not as it was written. Delete it and run again: the same examples "
            "will be made."
        ) from error


GENERATOR_VERSION = 1
"""Part of the data's checksum; raise it when the same seed gives other examples."""
MAX_DEPTH = 10
MAX_ARGS = 10
_TREES_AT_ONCE = 2048
"""Changes what a seed gives, as everything below that draws numbers does."""
_MAX_BARREN_FORESTS = 20


@dataclass(frozen=True, kw_only=True)
class _Level:
    """The nodes of one depth in a forest, ordered by parent: siblings are neighbours."""

    is_operator: np.ndarray
    """(nodes,) bool."""
    num_args: np.ndarray
    """(operators,) int64, arguments of each operator of this level, in order."""


def _starts(sizes: np.ndarray) -> np.ndarray:
    """Return the index of each group's first member, of neighbouring groups of these sizes."""
    return sizes.cumsum() - sizes


def generate(num_examples: int, seed: int, min_tree_length: int, max_tree_length: int) -> Examples:
    """Draw distinct examples; fewer examples of the same seed are the first ones of more.

    Lengths lie between the two bounds, in tokens; examples are padded to the upper one, T. Uses `RandomState`, whose
    stream numpy froze. Raises DataError if there are not so many distinct examples, or next to none.
    """
    random = np.random.RandomState(seed)
    inputs = np.zeros((num_examples, max_tree_length), dtype=np.uint8)  # (N, T)
    labels = np.zeros(num_examples, dtype=np.uint8)  # (N,)
    lengths = np.zeros(num_examples, dtype=np.int16)  # (N,)
    seen: set[bytes] = set()
    num_found = num_barren = 0
    while num_found < num_examples:
        forest = _draw_forest(random, min_tree_length, max_tree_length)
        new = _find_new(forest.inputs, seen)[: num_examples - num_found]
        rows = slice(num_found, num_found + len(new))
        inputs[rows] = forest.inputs[new]
        labels[rows] = forest.labels[new]
        lengths[rows] = forest.lengths[new]
        num_found += len(new)
        num_barren = 0 if len(new) else num_barren + 1
        if num_barren == _MAX_BARREN_FORESTS:
            raise DataError(
                f"listops: found only {num_found} distinct examples longer than {min_tree_length} and shorter than "
                f"{max_tree_length} tokens, wanted {num_examples}. Widen min_tree_length and max_tree_length, or want "
                "fewer examples."
            )
    return Examples(inputs=inputs, labels=labels, lengths=lengths)


def _draw_forest(
    random: np.random.RandomState, min_tree_length: int, max_tree_length: int
) -> Examples:
    levels = _draw_structure(random)
    lengths = _count_tokens(levels)[0]
    levels = _prune(levels, (lengths > min_tree_length) & (lengths < max_tree_length))
    sizes = _count_tokens(levels)
    tokens, labels = _draw_tokens(random, levels)
    inputs = _lay_out(levels, sizes, tokens, max_tree_length)
    return Examples(inputs=inputs, labels=labels, lengths=sizes[0].astype(np.int16))


def _find_new(inputs: np.ndarray, seen: set[bytes]) -> list[int]:
    """Return the rows of (N, T) not seen before, and add them to `seen`, by a hash of 16 bytes."""
    new = []
    for row, example in enumerate(inputs):
        digest = hashlib.blake2b(example.tobytes(), digest_size=16).digest()
        if digest not in seen:
            seen.add(digest)
            new.append(row)
    return new


def _draw_structure(random: np.random.RandomState) -> list[_Level]:
    """Draw which nodes are operators, and their numbers of arguments, given that every root is an operator."""
    levels: list[_Level] = []
    is_operator = np.ones(_TREES_AT_ONCE, dtype=bool)
    for depth in range(1, MAX_DEPTH + 1):
        num_operators = is_operator.sum()
        drawn = random.randint(2, MAX_ARGS + 1, size=num_operators, dtype=np.uint8)
        num_args = drawn.astype(np.int64)
        levels.append(_Level(is_operator=is_operator, num_args=num_args))
        is_operator = np.zeros(num_args.sum(), dtype=bool)
        if depth + 1 < MAX_DEPTH:  # with probability 0.25
            is_operator = random.randint(0, 4, size=len(is_operator), dtype=np.uint8) == 0
    return levels


def _count_tokens(levels: list[_Level]) -> list[np.ndarray]:
    """Count the tokens below and including each node: one array (nodes,) int64 a level."""
    sizes = [np.ones(len(levels[-1].is_operator), dtype=np.int64)]
    for level in reversed(levels[:-1]):
        size = np.ones(len(level.is_operator), dtype=np.int64)
        of_args = np.add.reduceat(sizes[0], _starts(level.num_args))
        size[level.is_operator] = 2 + of_args  # opener and closer
        sizes.insert(0, size)
    return sizes


def _prune(levels: list[_Level], is_kept: np.ndarray) -> list[_Level]:
    """Keep the trees whose root is flagged in (trees,) bool."""
    pruned = []
    for level in levels:
        is_operator, num_args = level.is_operator, level.num_args
        are_operators_kept = is_kept[is_operator]
        kept = _Level(is_operator=is_operator[is_kept], num_args=num_args[are_operators_kept])
        pruned.append(kept)
        is_kept = np.repeat(are_operators_kept, num_args)
    return pruned


def _draw_tokens(
    random: np.random.RandomState, levels: list[_Level]
) -> tuple[list[np.ndarray], np.ndarray]:
    """Draw digits and operators; returns token ids, (nodes,) uint8 a level, and the roots' values (trees,) uint8."""
    tokens: list[np.ndarray] = []
    values = np.zeros(0, dtype=np.uint8)
    for level in reversed(levels):
        operators = random.randint(0, 4, size=len(level.num_args), dtype=np.uint8)
        results = _apply(operators, level.num_args, values)
        values = random.randint(0, 10, size=len(level.is_operator), dtype=np.uint8)
        token = FIRST_DIGIT + values
        token[level.is_operator] = FIRST_OPERATOR + operators
        values[level.is_operator] = results
        tokens.insert(0, token)
    return tokens, values


def _apply(operators: np.ndarray, num_args: np.ndarray, args: np.ndarray) -> np.ndarray:
    """Apply each operator, an index into `OPERATORS`, to its neighbouring `args` (all arguments,) uint8."""
    first = _starts(num_args)
    results = np.minimum.reduceat(args, first)
    results[operators == 1] = np.maximum.reduceat(args, first)[operators == 1]
    is_median = operators == 2
    results[is_median] = medians(args[np.repeat(is_median, num_args)], num_args[is_median])
    results[operators == 3] = np.add.reduceat(args, first, dtype=np.uint32)[operators == 3] % 10
    return results


def medians(args: np.ndarray, num_args: np.ndarray) -> np.ndarray:
    """Return the median of each group of neighbours: the mean of the middle two, truncated."""
    groups = np.repeat(np.arange(len(num_args), dtype=np.int32), num_args)
    ordered = np.sort(groups * 16 + args) % 16  # sorts within groups, as values are below 16
    first = _starts(num_args)
    return (ordered[first + (num_args - 1) // 2] + ordered[first + num_args // 2]) // 2


def _lay_out(
    levels: list[_Level], sizes: list[np.ndarray], tokens: list[np.ndarray], width: int
) -> np.ndarray:
    """Write token ids in prefix order, with closers, into rows (trees, width) uint8."""
    inputs = np.zeros((len(sizes[0]), width), dtype=np.uint8)
    flat = inputs.reshape(-1)
    positions = np.arange(len(sizes[0]), dtype=np.int64) * width
    for depth, level in enumerate(levels):
        flat[positions] = tokens[depth]
        openers = positions[level.is_operator]
        flat[openers + sizes[depth][level.is_operator] - 1] = CLOSER
        if len(openers) == 0:
            break
        before = _starts(sizes[depth + 1])  # tokens of all earlier nodes of the next level
        first = openers + 1 - before[_starts(level.num_args)]
        positions = np.repeat(first, level.num_args) + before
    return inputs
