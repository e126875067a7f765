"""What several commands share: arguments and options, how their text is read, what it names, questions and JSON."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.study.only import Only as OnlyRuns
from lr_sweep.sweep.study.only import parse_only

if TYPE_CHECKING:
    from lr_sweep.sweep.results.directory import Results as Directory
    from lr_sweep.sweep.study.study import Study as LoadedStudy


def location(text: str) -> str:
    """Return a path, or the URI of a store, as it was given; raises ValueError."""
    try:
        Path(text).expanduser().resolve()
    except (RuntimeError, OSError) as error:  # `~nouser`, a circle of links, a closed folder
        raise ValueError(f"got {text!r}: {error}; write the path out") from error
    return text


def local_path(given: str | Path) -> Path:
    """Return a path, with `~` replaced by the user's home folder; raises ValueError."""
    return Path(location(str(given))).expanduser()


def argument(metavar: str | None, does: str, parser: Callable[[str], Any] | None = None) -> Any:
    """Return an argument; without a metavar, its help lists the words that it may be."""
    return typer.Argument(metavar=metavar, help=does, parser=parser)


def option(metavar: str, does: str, parser: Callable[[Any], Any] | None = None) -> Any:
    """Return an option with a value, named as the parameter."""
    return typer.Option(metavar=metavar, help=does, parser=parser)


def number(does: str, least: float = 1, most: float | None = None, metavar: str = "N") -> Any:
    """Return an option with a number between two bounds, both included."""
    return typer.Option(metavar=metavar, help=does, min=least, max=most)


def flag(does: str) -> Any:
    """Return an option without a value, named as the parameter."""
    return typer.Option(help=does)


def agreed(question: str, unasked: str) -> bool:
    """Return whether the user answers yes; raises UserError with the text `unasked` where there is no terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise UserError(unasked)
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def not_together(**given: object) -> None:
    """Raise UserError if more than one of these options was given."""
    names = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if len(names) > 1:
        raise UserError(f"{' and '.join(names)} exclude each other: leave one of them out")


MAX_WIDTH = 110
"""Most characters of a line of prose on a terminal."""
_PROSE = re.compile(r"^( *)(\S+(?: \S+)? {2,})?(?!lr-sweep )\S+(?: \S+)+$", re.MULTILINE)
"""A line of a text that is no row of a table, and no command."""


def say(text: str, file: TextIO | None = None) -> None:
    """Print text at once; on a terminal its prose fits the width, while programs get whole lines."""
    stream = file or sys.stdout
    print(folded(text) if stream.isatty() else text, file=stream, flush=True)


def folded(text: str) -> str:
    """Break lines of prose between words, to fit the terminal; tables and commands stay whole.

    Prose behind a name and several spaces, as in a list of facts, is aligned below its beginning.
    """
    width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
    fit = partial(textwrap.fill, width=width, break_long_words=False, break_on_hyphens=False)
    return _PROSE.sub(
        lambda line: fit(line[0], subsequent_indent=line[1] + " " * len(line[2] or "  ")), text
    )


STUDY_HELP = "The name of a shipped study, or the path of a .yaml file."
RESULTS_HELP = "The results directory, or s3://BUCKET/PREFIX (docs/storage.md)."

Study = Annotated[str, argument("STUDY", STUDY_HELP)]
Studies = Annotated[list[str], argument("STUDY", STUDY_HELP)]
SomeStudies = list[str] | None
Results = Annotated[str, option("DIR", RESULTS_HELP, location)]
DataDir = Annotated[
    Path | None,
    option(
        "DIR",
        "The folder of data sets; by default $SWEEP_DATA_DIR, else lr-sweep/data in your cache folder.",
        local_path,
    ),
]
Run = Annotated[
    str, argument("RUN", "The run's id, or at least its first 4 letters; `ls` lists all ids.")
]
Json = Annotated[bool, flag("Print JSON, as docs/gate.md describes it.")]
Columns = Annotated[
    list[str] | None,
    option(
        "MEANING=NAME,...",
        "Say what columns mean: variant, task, model, learning_rate, validation, test, train, seed, run, step, status, "
        "tuned (chosen as the rate is) or ignored. A+B joins columns, A* is a pattern, #2 the second column, A.2 the "
        "second part of its texts, an empty NAME none; seed=rows counts each row as a seed. Or give the file that "
        "--save wrote (docs/judge.md).",
    ),
]
Where = Annotated[
    list[str] | None,
    option("COLUMN=VALUE", "Read these rows alone; COLUMN!=VALUE leaves rows out."),
]
LowerIsBetter = Annotated[bool, flag("Lower values are better; by default the name decides.")]
HigherIsBetter = Annotated[bool, flag("Higher values are better; by default the name decides.")]
SelectOnTest = Annotated[
    bool, flag("Choose on test data if a table has no validation data; the report says so.")
]
Strict = Annotated[bool, flag("Exit with code 1 if a report's checks find a problem.")]

Latex = Annotated[bool, flag("Also write table.tex, a table for a paper, and the figures as PDF.")]

NewFolder = Annotated[
    Path | None,
    option(
        "FOLDER",
        "Also write what a reader needs to check the study, and print a hash to publish (docs/challenge.md).",
        local_path,
    ),
]

GpusPerTrial = Annotated[
    float | None,
    option("G", "GPUs of a trial, instead of the study's number; a fraction shares a GPU.", float),
]
Only = Annotated[
    OnlyRuns | None,
    option(
        "AXIS=VALUE,...",
        "Take a part of the study's runs: variant=frozen-random,learning_rate=1e-3. Several values of an axis are "
        "alternatives.",
        parse_only,
    ),
]
Fresh = Annotated[
    int | None,
    number("Fresh seeds at each chosen rate, instead of the study's number.", least=2, most=200),
]
RetryFailed = Annotated[bool, flag("Train failed runs again.")]
RestartInexact = Annotated[
    bool, flag("Train runs that resumed inexactly anew, from their first step.")
]
CheckpointEveryS = Annotated[
    float, number("Seconds between two checkpoints.", least=0.01, metavar="S")
]


def open_results(location: str, *, weights: bool = False, curves: bool = True) -> Directory:
    """Return the results directory that `--results` names; of one in a store, the copy here."""
    from lr_sweep.sweep.store.results import results_here

    return results_here(location, weights=weights, curves=curves)


def study_names(given: list[str] | None, results: Directory) -> list[str]:
    """Return the names of the given studies: recorded ones, or ones that could be."""
    from lr_sweep.analysis.record.read import check_format, recorded_studies

    if given and results.uri is None:
        check_format(results.root)  # first: without a record, every study would be unknown
    recorded = recorded_studies(results.root)
    return [_study_name(name, recorded) for name in given or ()]


def _study_name(given: str, recorded: Collection[str]) -> str:
    path = Path(given)
    is_file = path.suffix in (".yaml", ".yml")
    name = path.stem if is_file else given
    if name in recorded and (path.is_file() or not is_file):
        return name
    from lr_sweep.sweep.study.file import load_study  # late: a recorded study needs no YAML

    return load_study(given, recorded).study


def data_folder(given: Path | None) -> Path:
    """Return the folder of data sets that a command was given, or the default one."""
    from lr_sweep.datasets.files import default_data_dir

    try:
        return Path(given or default_data_dir()).expanduser().resolve()
    except RuntimeError as error:  # `~nouser`, or links that lead to themselves
        raise UserError(
            f"{given or '$SWEEP_DATA_DIR'}: {error}: give another --data-dir"
        ) from error


def load_studies(
    names: list[str], gpus_per_trial: float | None = None, fresh: int | None = None
) -> list[LoadedStudy]:
    """Load all studies before anything is done for the first, with what the command line says instead of them."""
    from pydantic import ValidationError

    from lr_sweep.sweep.study.file import load_study

    studies = [load_study(name) for name in names]
    try:
        return [study.with_options(gpus_per_trial, fresh) for study in studies]
    except ValidationError as error:
        first = error.errors()[0]
        option = "gpus-per-trial" if first["loc"] else "fresh"
        raise UserError(f"--{option}: {first['msg']}") from error


def print_json(content: object) -> None:
    """Print content as JSON: times as ISO 8601, numbers that are not finite as null."""
    print(json.dumps(_plain(content), indent=1, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(entry) for entry in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if hasattr(value, "tolist"):  # an array of pandas
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
