"""`judge`: runs of any program."""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from lr_sweep.common.errors import UserError
from lr_sweep.common.text import PROGRAM, counted
from lr_sweep.sweep.cli import options as opt
from lr_sweep.sweep.cli.app import command

if TYPE_CHECKING:
    from lr_sweep.analysis.judge.reading import Reading

WIDTH = 110
GATE_CODES = {"accept": 0, "reject": 1, "run": 3, "open": 3}
T = TypeVar("T")


@command("judge runs.csv --columns learning_rate=lr,validation=val_acc")
def judge(
    tables: Annotated[
        list[str],
        opt.argument(
            "TABLE",
            "A table, JSON, spreadsheet or log, or `-`; a folder of runs, as of Ray Tune, Hydra, Lightning, W&B, "
            "TensorBoard or MLflow; a database of Optuna or MLflow, or the address of an MLflow server.",
            opt.location,
        ),
    ],
    columns: Annotated[
        list[str] | None,
        opt.option(
            "MEANING=NAME,...",
            "Name the columns that are not guessed right. MEANING is task, model, variant, learning_rate, seed, step, "
            "num_steps, run, status, validation, test, train, nuisance (an option that is tuned as the rate is) or "
            "ignored. A+B names several columns, #2 the second one, an empty NAME none. Or give the file that --save "
            "wrote.",
        ),
    ] = None,
    where: Annotated[
        list[str] | None, opt.option("COLUMN=VALUE", "Read these rows alone; COLUMN!=VALUE leaves rows out.")
    ] = None,
    metric: Annotated[
        str | None, opt.option("NAME", "The name of the metric; by default that of validation's column.")
    ] = None,
    lower_is_better: Annotated[bool, opt.flag("Lower values are better; by default the name decides.")] = False,
    higher_is_better: Annotated[bool, opt.flag("Higher values are better; by default the name decides.")] = False,
    select_on_test: Annotated[
        bool, opt.flag("Choose on test data if a table has no validation data; the report says so.")
    ] = False,
    paired: Annotated[
        bool, opt.flag("Compare variants by seed, where the data show that a seed moves them alike.")
    ] = False,
    equal_within: Annotated[
        float | None,
        opt.option("SIZE", "Count smaller differences as equal; SIZE is in percentage points, or as the metric is."),
    ] = None,
    decide: Annotated[
        str | None,
        opt.option(
            "TABLE", "Read fresh seeds at the chosen rates, and say what they decide and which seeds to run next."
        ),
    ] = None,
    out: Annotated[
        Path | None, opt.option("FOLDER", "The folder of the report; by default ./judged/TABLE.", opt.local_path)
    ] = None,
    save: Annotated[
        Path | None, opt.option("FILE", "Keep how the table was read, for --columns FILE.", opt.local_path)
    ] = None,
    strict: opt.Strict = False,
    gate: Annotated[
        bool,
        opt.flag(
            "Compare two tables, BASELINE and CANDIDATE, or TABLE#VARIANT twice: accept (exit code 0), reject (1), or "
            "name the seeds to run (3). No report is written."
        ),
    ] = False,
    min_gain: Annotated[
        float, opt.option("SIZE", "With --gate: the candidate has to gain more than this; SIZE as of --equal-within.")
    ] = 0.0,
    max_seeds: Annotated[int, opt.number("With --gate: fresh seeds of each variant, at most.", least=4, most=200)] = 20,
    json: opt.Json = False,
) -> int:
    """Judge runs that any program made: write their tables, figures and checks (docs/judge.md)."""
    import pandas

    from lr_sweep.analysis.judge.fresh import decided_text
    from lr_sweep.analysis.judge.judge import SHARED_SEEDS, check_apart, judged, judged_json, write_judged
    from lr_sweep.analysis.judge.reading import KEPT, Reading, save_reading

    pandas.options.mode.string_storage = "python"  # Arrow's strings are slower in many small frames
    opt.not_together(lower_is_better=lower_is_better, higher_is_better=higher_is_better)
    opt.not_with("gate", gate, out=out, save=save, strict=strict, paired=paired, equal_within=equal_within)
    if save is not None and not save.name.endswith(KEPT):
        raise UserError(f"--save {save}: want a name that ends in .yaml, as --columns takes the file by")
    if equal_within is not None and not 0 < equal_within < math.inf:
        raise UserError(f"--equal-within: got {equal_within:g}, want a difference above 0")
    reading = _reading(columns or []).but(
        Reading(
            metric=metric,
            higher_is_better=higher_is_better if higher_is_better or lower_is_better else None,
            select_on_test=select_on_test,
            paired=paired,
            equal_within=equal_within,
            where=tuple(where or ()),
        )
    )
    if gate:
        return _gate(tables, reading, min_gain, max_seeds, json)
    found = answered(partial(judged, tables), reading, ["judge", *tables])
    out = out or Path("judged") / found.study.info.study
    check_apart([*tables, *filter(None, [decide])], out)
    written = write_judged(found.study, out)
    if save is not None:
        save_reading(save, found.reading, found.study.about_table)
    decided = None if decide is None else decided_text(found, decide, reading.equal_within or 0.0)
    code = int(strict and written.num_problems > 0)
    if json:
        opt.print_json(judged_json(found.study, written) | {"decided": decided})
        return code
    read_as, *remarks = found.study.about_table
    warnings = [line for line in remarks if line.isupper() or line.startswith("NO ") or line == SHARED_SEEDS]
    print("\n".join(textwrap.fill(line, WIDTH, break_on_hyphens=False) for line in (read_as, *warnings)))
    print(f"\n{written.text}\n")
    print("\n".join(f"  {line}" for line in remarks if line not in warnings))
    if save is not None:
        print(f"saved      {save}: give it as --columns {save}")
    if decided is not None:
        print(decided)
    print(f"report     {written.page}")
    return code


def _gate(tables: list[str], reading: Reading, min_gain: float, max_seeds: int, json: bool) -> int:
    from lr_sweep.analysis.judge.gate import gate

    if len(tables) != 2:
        raise UserError(f"--gate: got {counted(len(tables), 'table')}, want two, BASELINE and CANDIDATE")
    if not 0 <= min_gain < math.inf:
        raise UserError(f"--min-gain: got {min_gain:g}, want 0 or more")
    options = [f"--min-gain={min_gain:g}"] * (min_gain > 0) + [f"--max-seeds={max_seeds}"] * (max_seeds != 20)
    found = answered(
        lambda reading: gate(tables[0], tables[1], reading, min_gain=min_gain, max_seeds=max_seeds),
        reading,
        ["judge", "--gate", *tables, *options],
    )
    if json:
        opt.print_json(asdict(found))
    else:
        print("\n".join(textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in found.text().splitlines()))
    return GATE_CODES[found.outcome]


def _reading(given: list[str]) -> Reading:
    from lr_sweep.analysis.judge.reading import KEPT, Reading, columns_in, saved_reading

    files = [text for text in given if text.endswith(KEPT) and ("=" not in text or Path(text).is_file())]
    kept = Reading()
    for file in files:
        kept = kept.but(saved_reading(opt.local_path(file)))
    return kept.but(Reading(columns=columns_in([text for text in given if text not in files])))


def answered(read: Callable[[Reading], T], reading: Reading, words: Sequence[str]) -> T:
    """Read tables; where two readings are equally good, raise UserError with a command for each.

    `words`: of the command without a reading.
    """
    from lr_sweep.analysis.judge.reading import QuestionError, options_text

    try:
        return read(reading)
    except QuestionError as question:
        start, lines = shlex.join([PROGRAM, *words]), [f"{question.text}. One of:"]
        for choice in question.choices:
            lines.append(f"  {choice.says}:\n    {start} {options_text(reading.but(choice.reading))}")
        raise UserError("\n".join(lines)) from question
