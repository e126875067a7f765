"""Asks on a terminal which of several readings of a table is meant; elsewhere the commands for them are printed."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from lr_sweep.analysis.judge.reading import Choice, QuestionError, Reading, options_text
from lr_sweep.common.errors import UserError
from lr_sweep.common.program import PROGRAM

MOST_QUESTIONS = 10
T = TypeVar("T")


def answered(read: Callable[[Reading], T], reading: Reading, words: Sequence[str]) -> T:
    """Read tables, and ask the user where two readings are equally good; raises UserError where no one can answer.

    `words`: of the command without a reading, for the message.
    """
    for _ in range(MOST_QUESTIONS):
        try:
            return read(reading)
        except QuestionError as question:
            if not (sys.stdin.isatty() and sys.stdout.isatty()):
                raise UserError(_commands(words, reading, question)) from question
            reading = reading.but(_asked(question).reading)
    raise UserError(f"{MOST_QUESTIONS} questions and no answer: give --columns")


def _commands(words: Sequence[str], reading: Reading, question: QuestionError) -> str:
    start = shlex.join([PROGRAM, *words])
    lines = [
        f"  {choice.says}:\n    {start} {options_text(reading.but(choice.reading))}" for choice in question.choices
    ]
    return "\n".join([f"{question.text}. One of:", *lines])


def _asked(question: QuestionError) -> Choice:
    print(question.text)
    for number, choice in enumerate(question.choices, 1):
        print(f"  {number}  {choice.says}")
    while True:
        try:
            answer = input(f"which? [1-{len(question.choices)}] ").strip()
        except EOFError as end:
            raise UserError(f"no answer to: {question}") from end
        if answer.isdecimal() and 1 <= int(answer) <= len(question.choices):
            return question.choices[int(answer) - 1]
