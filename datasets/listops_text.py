"""Expressions as the Long Range Arena writes them, `( ( ( [MAX 2 ) 9 ) ] )`: read, checked and evaluated.

Words between single spaces. The round parentheses bracket in pairs and follow from the tokens: k + 1 open before an
operator with k arguments, one closes after each argument and one after `]`. They are dropped once they are checked.

Shape legend: `L` lines, `M` tokens of all lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

import numpy as np

from datasets.listops_tokens import CLOSER, FIRST_OPERATOR, VOCABULARY
from datasets.listops_values import reduce_expressions

_OPENING, _CLOSING, _UNKNOWN = 16, 17, 255
_WORDS = {word: index for index, word in enumerate((*VOCABULARY[1:], "(", ")"), start=1)}
"""Token ids, and codes of the parentheses."""
_CHARACTERS = "".join({*"".join(_WORDS), " "}).encode()
_LONG = [(word.encode(), bytes([code])) for word, code in _WORDS.items() if len(word) > 1]
"""Operators are replaced by bytes that no text has, so that all words are one byte: faster than a list of words."""
_SINGLE = {ord(word): code for word, code in _WORDS.items() if len(word) == 1} | {code[0]: code[0] for _, code in _LONG}
_TABLE = bytes(_SINGLE.get(byte, _UNKNOWN) for byte in range(256))
_STEPS = np.array([0] * FIRST_OPERATOR + [1] * 4 + [-1], dtype=np.int8)
"""What each token adds to the number of open operators."""


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """Expressions of lines. Of a line that is not sound there are no tokens and no value."""

    is_sound: np.ndarray
    """(L,) bool."""
    tokens: list[bytes]
    """Token ids of each line, a byte each."""
    values: np.ndarray
    """(L,) uint8."""


def parse(lines: Sequence[bytes]) -> Parsed:
    """Turn expressions into token ids, and evaluate them."""
    words = [_code(line) for line in lines]
    tokens = [line.translate(None, bytes([_OPENING, _CLOSING])) for line in words]
    tokens = _keep(tokens, _have_brackets(tokens))
    wanted, results = _as_written(tokens)
    is_sound = np.array([bool(w) and w == g for w, g in zip(wanted, words, strict=True)], dtype=bool)
    values = np.zeros(len(lines), dtype=np.uint8)
    values[[bool(line) for line in tokens]] = results
    return Parsed(is_sound=is_sound, tokens=_keep(tokens, is_sound), values=values * is_sound)


def _code(line: bytes) -> bytes:
    """Turn a line into codes of its words, a byte each; empty if it is not words between single spaces."""
    if line.translate(None, _CHARACTERS):
        return b""
    for word, code in _LONG:
        line = line.replace(word, code)
    words = line[::2].translate(_TABLE)
    is_spaced = len(line) % 2 == 1 and line[1::2].count(b" ") == len(line) // 2
    return words if is_spaced and _UNKNOWN not in words else b""


def _keep(lines: list[bytes], is_kept: np.ndarray) -> list[bytes]:
    return [line if kept else b"" for line, kept in zip(lines, is_kept, strict=True)]


def _have_brackets(lines: list[bytes]) -> np.ndarray:
    """Tell which lines are one expression whose operators are closed and have arguments: (L,) bool."""
    ends = np.cumsum([len(line) for line in lines])  # (L,)
    starts = np.concatenate([[0], ends[:-1]])  # (L,)
    tokens = np.frombuffer(b"".join(lines), dtype=np.uint8)  # (M,)
    depths = np.concatenate([[0], _STEPS[tokens].cumsum(dtype=np.int32)])  # (M + 1,), before each token
    depths = depths[1:] - np.repeat(depths[starts], ends - starts)  # (M,), after each, of its line alone
    is_last = np.zeros(len(tokens), dtype=bool)
    is_last[ends[ends > starts] - 1] = True
    is_wrong = np.where(is_last, depths != 0, depths <= 0)
    is_closer = tokens == CLOSER
    is_wrong[:-1] |= (tokens[:-1] >= FIRST_OPERATOR) & ~is_closer[:-1] & is_closer[1:]
    is_right = ends > starts
    is_right[np.searchsorted(ends, np.flatnonzero(is_wrong), side="right")] = False
    return is_right


def _as_written(lines: list[bytes]) -> tuple[list[bytes], np.ndarray]:
    """Return each line's tokens with their parentheses, in codes of words, and the values of those with any."""
    tokens = np.frombuffer(b"".join(lines), dtype=np.uint8)  # (M,)
    reduced = reduce_expressions(tokens)
    num_opening = np.zeros(len(tokens), dtype=np.int64)  # (M,)
    num_opening[reduced.openers] = reduced.num_args + 1
    return _bracketed(tokens, num_opening, [len(line) for line in lines]), reduced.values


def _bracketed(tokens: np.ndarray, num_opening: np.ndarray, lengths: Sequence[int]) -> list[bytes]:
    """Write each line's tokens with their parentheses, in codes of words.

    Args:
        tokens: (M,) uint8 of sound expressions, line after line.
        num_opening: (M,) int64, parentheses that open before each.
        lengths: (L,) tokens of each line.
    """
    is_closer = tokens == CLOSER
    is_opener = (tokens >= FIRST_OPERATOR) & ~is_closer
    num_closing = is_closer.astype(np.int64) + ~is_opener  # after `]`, and after each argument
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)  # (L + 1,)
    num_closing[bounds[1:][np.diff(bounds) > 0] - 1] -= 1  # the whole is no argument
    ends = np.cumsum(num_opening + 1 + num_closing)  # (M,), in words
    places = ends - num_closing - 1
    words = np.full(ends[-1] if len(ends) else 0, _OPENING, dtype=np.uint8)
    words[places] = tokens
    words[places[num_closing > 0] + 1] = _CLOSING
    words[places[num_closing > 1] + 2] = _CLOSING
    text, in_words = words.tobytes(), np.concatenate([[0], ends])[bounds].tolist()
    return [text[start:end] for start, end in pairwise(in_words)]


def explain(line: bytes) -> str | None:
    """Return what was got and what was wanted in a line that is not sound; None: it is sound."""
    words = line.decode(errors="replace").split(" ")
    for number, word in enumerate(words, start=1):
        if word not in _WORDS:
            return f"word {number}: got {word[:20]!r}, want one of {' '.join(_WORDS)}, between single spaces"
    tokens = [word for word in words if word not in "()"]
    if problem := _bracket_problem(tokens):
        return problem
    ((wanted,), _) = _as_written([bytes(_WORDS[token] for token in tokens)])
    names = {code: word for word, code in _WORDS.items()}
    for number, (got, code) in enumerate(zip_longest(words, wanted), start=1):
        if got != names.get(code):
            return (
                f"word {number}: got {_or_end(got)}, want {_or_end(names.get(code))}: brackets follow from the tokens"
            )
    return None


def _or_end(word: str | None) -> str:
    return "the end" if word is None else repr(word)


def _bracket_problem(tokens: Sequence[str]) -> str | None:
    """Return where tokens are not one expression whose operators are closed and have arguments."""
    if not tokens:
        return "got no tokens, want an expression"
    num_args: list[int] = []  # of each operator that is open
    for number, token in enumerate(tokens, start=1):
        if number > 1 and not num_args:
            return f"token {number}: got {token!r}, want the end: the expression is complete"
        if token.startswith("["):
            num_args.append(0)
            continue
        if token == "]" and (not num_args or num_args.pop() == 0):
            return (
                f"token {number}: got ']', want {'an argument' if number > 1 else 'an operator or a digit'} before it"
            )
        if num_args:
            num_args[-1] += 1
    return f"got {len(num_args)} more operators than ']', want as many" if num_args else None
