"""`judge`: runs of any program."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from lr_sweep.common.errors import UserError
from lr_sweep.common.network import shown_uri
from lr_sweep.common.text import PROGRAM
from lr_sweep.sweep.cli import options as opt

from .app import command

if TYPE_CHECKING:
    from lr_sweep.analysis.judge.reading import Reading

T = TypeVar("T")


@command("judge runs.csv --columns learning_rate=lr,validation=val_acc")
def judge(
    tables: Annotated[
        list[str],
        opt.argument(
            "TABLE",
            "A table, JSON, spreadsheet or log, or `-`; a folder of runs, as of Ray Tune, Hydra, Lightning, W&B, "
            "TensorBoard or MLflow; a database of Optuna or MLflow.",
            opt.location,
        ),
    ],
    columns: opt.Columns = None,
    where: opt.Where = None,
    lower_is_better: opt.LowerIsBetter = False,
    higher_is_better: opt.HigherIsBetter = False,
    select_on_test: opt.SelectOnTest = False,
    equal_within: Annotated[
        float | None,
        opt.option(
            "SIZE",
            "Count smaller differences as equal; SIZE is in percentage points, or as the metric is.",
        ),
    ] = None,
    target: Annotated[
        float | None,
        opt.option(
            "VALUE", "Compare the steps to this value, in percent for an accuracy (docs/laws.md)."
        ),
    ] = None,
    decide: Annotated[
        str | None,
        opt.option(
            "TABLE",
            "Read fresh seeds at the chosen rates, and say what they decide and which seeds to run next.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        opt.option(
            "FOLDER", "The folder of the report; by default ./judged/TABLE.", opt.local_path
        ),
    ] = None,
    save: Annotated[
        Path | None,
        opt.option("FILE", "Keep how the table was read, for --columns FILE.", opt.local_path),
    ] = None,
    strict: opt.Strict = False,
    latex: opt.Latex = False,
    json: opt.Json = False,
) -> int:
    """Judge runs that any program made: write their tables, figures and checks (docs/judge.md)."""
    import pandas

    from lr_sweep.analysis.judge.fresh import fresh_text, on_fresh_seeds
    from lr_sweep.analysis.judge.judge import judged, judged_json, write_judged
    from lr_sweep.analysis.judge.reading import KEPT, Reading, save_reading

    pandas.options.mode.string_storage = "python"  # Arrow's strings are slower in many small frames
    if save is not None and not save.name.endswith(KEPT):
        raise UserError(
            f"--save {save}: want a name that ends in .yaml, as --columns takes the file by"
        )
    if equal_within is not None and not 0 < equal_within < math.inf:
        raise UserError(f"--equal-within: got {equal_within:g}, want a difference above 0")
    reading = reading_of(columns, where, lower_is_better, higher_is_better, select_on_test)
    if target is not None and not math.isfinite(target):
        raise UserError(f"--target: got {target:g}, want a number")
    reading = reading.but(Reading(equal_within=equal_within, target=target))
    words = ["judge", *map(shown_uri, tables)]
    result = named(partial(judged, tables, reading), words, json=json)
    if decide is not None:
        result = on_fresh_seeds(result, decide)
    out = out or Path("judged") / result.study.info.study
    written = write_judged(result.study, out, latex=latex)
    if save is not None:
        save_reading(save, result.reading)
    decided = None if decide is None else fresh_text(result.study.summary)
    code = int(strict and written.num_problems > 0)
    if json:
        opt.print_json(judged_json(result.study, written) | {"decided": decided})
        return code
    read_as, *remarks = result.study.about_table
    opt.say("\n".join([read_as, *result.warnings]))
    opt.say(f"\n{written.text}\n")
    notes = [line for line in remarks if line not in [*result.warnings, *written.text.splitlines()]]
    opt.say("\n".join(f"- {line}" for line in notes))
    if save is not None:
        opt.say(f"saved      {save}: give it as --columns {save}")
    if decided is not None:
        opt.say(decided)
    opt.say(f"report     {written.page}")
    if latex:
        opt.say(f"LaTeX      {written.folder / 'table.tex'}")
    return code


def reading_of(
    columns: Sequence[str] | None,
    where: Sequence[str] | None,
    lower: bool = False,
    higher: bool = False,
    select_on_test: bool = False,
) -> Reading:
    """Return how the options want a table read; raises UserError."""
    from lr_sweep.analysis.judge.reading import KEPT, Reading, columns_in, saved_reading

    opt.not_together(lower_is_better=lower, higher_is_better=higher)
    given = columns or []
    files = [text for text in given if text.endswith(KEPT) and "=" not in text]
    reading = Reading()
    for file in files:
        reading = reading.but(saved_reading(opt.local_path(file)))
    return reading.but(
        Reading(
            columns=columns_in([text for text in given if text not in files]),
            higher_is_better=higher if higher or lower else None,
            select_on_test=select_on_test,
            where=tuple(where or ()),
        )
    )


def named(read: Callable[[], T], words: Sequence[str], *, json: bool) -> T:
    """Read tables; where names leave a doubt, print the listing as JSON, or raise it as an error.

    `words`: the beginning of the command that the listing suggests. Raises ListingError, and Exit with code 2.
    """
    from lr_sweep.analysis.judge.listing import ListingError

    try:
        return read()
    except ListingError as error:
        if not json:
            raise ListingError(error.listing, shlex.join([PROGRAM, *words])) from error
        opt.print_json(error.listing.as_json())
        raise typer.Exit(2) from error
