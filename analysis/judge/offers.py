"""Choices of a question that work: each reading is tried, as a command line gives it, before it is printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lr_sweep.analysis.judge.reading import QuestionError, Reading, columns_in, columns_text, options_text
from lr_sweep.common.errors import UserError

MOST_QUESTIONS = 4
"""Questions in a row, with as many answers, that are followed to see whether an answer leads to a report."""
T = TypeVar("T")


def asking(read: Callable[[Reading], T], reading: Reading, most: int = MOST_QUESTIONS) -> T:
    """Read, and leave out of a question the choices that do not work.

    Raises:
        UserError: as `read`, or none of the choices works.
        QuestionError: with those that work, which may lead to a further question.
    """
    try:
        return read(reading)
    except QuestionError as question:
        if not most:
            raise UserError(f"{question.text}: still open after {MOST_QUESTIONS} answers") from question
        tried = [(each, _mistake(read, reading.but(each.reading), most - 1)) for each in question.choices]
        if working := [each for each, mistake in tried if not mistake]:
            raise QuestionError(question.text, working) from question
        lines = [f"  not {options_text(each.reading)}: {mistake}" for each, mistake in tried]
        raise UserError("\n".join([question.text, *lines])) from question


def _mistake(read: Callable[[Reading], T], reading: Reading, most: int) -> str:
    """Return the first line of what is wrong with a reading; empty: it works, or leads to a question that does."""
    try:
        if columns_in([columns_text(reading)]) != reading.columns:
            return "a name has a character that --columns cannot hold"
        asking(read, reading, most)
    except QuestionError:
        pass
    except UserError as error:
        return str(error).partition("\n")[0]
    return ""
