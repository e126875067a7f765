"""`judge`: a report on a table of runs; needs neither torch nor ray."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from lr_sweep.common.errors import UserError, unknown

FOLDER = Path("judged")
"""Where reports go by default, each below its table's name."""


def judge(chosen: Namespace) -> int:
    """Write the report of tables."""
    from lr_sweep.analysis.judge.columns import Reading
    from lr_sweep.analysis.judge.judge import judge as read_tables
    from lr_sweep.analysis.judge.write import write_judged

    reading = Reading(
        columns=_mapping(chosen.columns or ()),
        metric=chosen.metric,
        higher_is_better=chosen.higher_is_better,
        select_on_test=chosen.select_on_test,
    )
    study = read_tables(chosen.tables, reading)
    written = write_judged(study, chosen.out or FOLDER / chosen.tables[0].stem)
    print("\n".join(study.about_table))
    print(f"\n{written.text}\n\nreport     {written.page}")
    return int(chosen.strict and written.num_problems > 0)


def _mapping(given: Sequence[str]) -> dict[str, str]:
    """Read `learning_rate=lr,validation=val_acc`, possibly several times."""
    from lr_sweep.analysis.judge.columns import ROLES, SPLITS

    known, mistakes = [*ROLES, *SPLITS], []
    found: dict[str, str] = {}
    for pair in (pair for text in given for pair in text.split(",")):
        role, equals, name = (part.strip() for part in pair.partition("="))
        if not equals:
            mistakes.append(f"--columns: got {pair!r}, want MEANING=NAME, as in learning_rate=lr")
        elif role not in known:
            mistakes.append(f"--columns: {unknown('meaning', role, known)}")
        elif role in found:
            mistakes.append(f"--columns: {role} is given twice, as {found[role]!r} and {name!r}")
        found[role] = name
    if mistakes:
        raise UserError("\n".join(mistakes))
    return found
