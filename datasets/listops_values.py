"""What ListOps expressions are worth: operators applied to many groups of arguments at once, and streams of tokens.

The median is the mean of the middle two, truncated; the sum is taken modulo 10.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from datasets.listops_tokens import CLOSER, FIRST_DIGIT, FIRST_OPERATOR, VOCABULARY

MIN, MAX, MEDIAN, SUM = range(4)
"""Operators in the order of the vocabulary."""

assert VOCABULARY[FIRST_OPERATOR : FIRST_OPERATOR + 4] == ("[MIN", "[MAX", "[MED", "[SM")


def apply_operators(operators: np.ndarray, num_args: np.ndarray, args: np.ndarray) -> np.ndarray:
    """Apply each operator to its arguments.

    Args:
        operators: (operators,) uint8, 0 to 3.
        num_args: (operators,) int64, at least 1 each.
        args: (all arguments,) uint8, those of an operator side by side.

    Returns:
        (operators,) uint8 values.
    """
    results = np.empty(len(operators), dtype=np.uint8)
    if len(operators) == 0:
        return results
    first = num_args.cumsum() - num_args
    results[:] = np.minimum.reduceat(args, first)
    is_chosen = operators == MAX
    results[is_chosen] = np.maximum.reduceat(args, first)[is_chosen]
    is_chosen = operators == SUM
    results[is_chosen] = np.add.reduceat(args, first, dtype=np.uint32)[is_chosen] % 10
    is_chosen = operators == MEDIAN
    results[is_chosen] = medians(args[np.repeat(is_chosen, num_args)], num_args[is_chosen])
    return results


def medians(args: np.ndarray, num_args: np.ndarray) -> np.ndarray:
    """Median of each group of neighbours: `int(median)`."""
    groups = np.repeat(np.arange(len(num_args), dtype=np.int32), num_args)
    ordered = np.sort(groups * 16 + args) % 16  # sorts within groups, as values are below 16
    first = num_args.cumsum() - num_args
    return (ordered[first + (num_args - 1) // 2] + ordered[first + num_args // 2]) // 2


@dataclass(frozen=True, kw_only=True)
class Reduced:
    """Expressions after all their operators were applied."""

    values: np.ndarray
    """(expressions,) uint8."""
    openers: np.ndarray
    """(operators,) int64, where each operator was in the stream."""
    num_args: np.ndarray
    """(operators,) int64, of each of `openers`."""


def reduce_expressions(tokens: np.ndarray) -> Reduced:
    """Evaluate a stream of sound expressions, one after the other, innermost operators first.

    Args:
        tokens: (tokens,) uint8 ids without padding; brackets match and no operator is without arguments.
    """
    positions = np.arange(len(tokens))
    openers, counts = [positions[:0]], [positions[:0]]
    tokens = tokens.copy()
    while (brackets := np.flatnonzero(tokens >= FIRST_OPERATOR)).size:
        is_closer = tokens[brackets] == CLOSER
        innermost = np.flatnonzero(~is_closer[:-1] & is_closer[1:])
        starts, ends = brackets[innermost], brackets[innermost + 1]
        num_args = ends - starts - 1
        inside = np.repeat(starts + 1 - (num_args.cumsum() - num_args), num_args) + np.arange(num_args.sum())
        operators, args = tokens[starts] - FIRST_OPERATOR, tokens[inside] - FIRST_DIGIT
        tokens[starts] = FIRST_DIGIT + apply_operators(operators, num_args, args)
        openers.append(positions[starts])
        counts.append(num_args)
        is_left = np.ones(len(tokens), dtype=bool)
        is_left[inside] = is_left[ends] = False
        tokens, positions = tokens[is_left], positions[is_left]
    return Reduced(values=tokens - FIRST_DIGIT, openers=np.concatenate(openers), num_args=np.concatenate(counts))
