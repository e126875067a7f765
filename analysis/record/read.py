"""Reading the record, of which `analysis.record.columns` says what its columns mean.

`record.paths` says where the files are. Every file is whole or absent (written beside, then renamed).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

if TYPE_CHECKING:  # takes longer to import than reading a thousand runs does
    import pandas as pd

from lr_sweep.common.files import Fields, is_changed, read_plain
from lr_sweep.common.text import RATES, rates_text

from .columns import (
    CURVES,
    PROPOSALS,
    RUNGS,
    RUNS,
    WANTED,
    Columns,
    in_range,
    table,
)
from .parquet import FORMAT, damaged, read_each, read_table, rows_of
from .paths import (
    Paths,
    RecordError,
    UnreadableError,
    closed_folder,
    unreadable,
)
from .study import (
    NOTHING_STOPPED,
    Judgement,
    RateKey,
    Refinement,
    StoppedRates,
    StudyInfo,
    without_decide,
)

MAX_JSON = 1_000_000
"""Bytes of a file of JSON."""


@dataclass(frozen=True, kw_only=True)
class _CodeVersion:
    """What trained a run from a step on."""

    from_step: int
    files: dict[str, str] | None


JSON_COLUMNS: Mapping[str, TypeAdapter[Any]] = {
    "options": TypeAdapter(Fields),
    "versions": TypeAdapter(dict[str, str]),
    "code": TypeAdapter(list[_CodeVersion]),
}
"""What the JSON of these columns must be, which other programs may have written."""


_STUDY_INFO = TypeAdapter(StudyInfo)


def check_format(results: Path) -> None:
    """Raise RecordError if there is no results directory, of this format, whose folders this user may read."""
    paths = Paths(results)
    path = paths.format
    if not _there(results):
        raise RecordError(
            f"no results directory at {results}: give the one that the study was run with"
        )
    if not _there(path):
        raise RecordError(
            f"{results} has no format.json, so it is no results directory: give one that a study made"
        )
    version = _read_json(path, f'write {{"format": {FORMAT}}} into it').get("format")
    if version not in (1, FORMAT):
        raise RecordError(
            f"{path}: got format {version!r}, want 1 or {FORMAT}: read it with the version of this program "
            "that wrote it, or run the study into a new results directory"
        )
    folders = (paths.runs, paths.curves, paths.studies)
    if closed := [
        text for folder in folders if (text := closed_folder(folder))
    ]:  # else they would seem to be empty
        raise UnreadableError("\n".join(closed))
    if links := [
        str(folder) for folder in (*folders, *paths.study_folders()) if folder.is_symlink()
    ]:
        raise RecordError(
            f"{', '.join(links)}: a link may lead anywhere: put the folder itself in its place"
        )


def recorded_studies(results: Path) -> list[str]:
    """Return the names of the studies in a results directory; raises UnreadableError for a folder that is closed."""
    return sorted(
        folder.name for folder in Paths(results).study_folders() if _there(folder / "study.json")
    )


def read_study(results: Path, study: str) -> StudyInfo:
    """Read a study's name, title and metric; raises RecordError if there is no such study, or its file is damaged."""
    path = Paths(results).facts(study)
    if not _there(path):
        if path.parent.is_dir():
            raise RecordError(f"no {path}: run the study again to write it")
        known = recorded_studies(results)
        raise RecordError(
            f"no study {study!r} in {results}: it has {', '.join(known) or 'none; run a study first'}"
        )
    content = _read_json(path)
    try:
        info = _STUDY_INFO.validate_json(json.dumps(without_decide(content)), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise RecordError(
            f"{path}: got {first['input']!r} as {key}: {first['msg']}: run the study again"
        ) from error
    refinement = None
    if info.refine is not None:
        rows = read_rows(Paths(results).proposals(study), PROPOSALS) or []
        cells = Counter(
            (row["task"], row["model"], row["variant"])
            for row in rows
            if row["sampler"] == "refine"
        )
        refinement = Refinement(rates=info.refine, proposed=cells)
    metric = replace(info.metric, model=info.selection)
    return replace(info, metric=metric, refinement=refinement)


def read_judgements(results: Path, study: str) -> list[Judgement]:
    """Return a study's judgements, in the order in which they were made; raises RecordError if they are damaged."""
    return [Judgement(**row) for row in read_rows(Paths(results).rungs(study), RUNGS) or []]


def read_stopped(results: Path, study: str) -> dict[RateKey, int]:
    """Return the learning rates that a study stopped; raises RecordError if the file is damaged."""
    judgements = read_judgements(results, study)
    return {judgement.key: judgement.step for judgement in judgements if not judgement.kept}


def stopped_of(results: Path, study: str) -> StoppedRates:
    """Return what a recorded study holds as stopped: nothing if it has no rule now. Raises RecordError."""
    return (
        read_stopped(results, study)
        if read_study(results, study).stop_early is not None
        else NOTHING_STOPPED
    )


def read_wanted(results: Path, study: str) -> pd.DataFrame:
    """Read what `read_wanted_table` does as a frame; raises RecordError for a learning rate outside `RATES`, too."""
    wanted = _frame(read_wanted_table(results, study), WANTED)
    rates = wanted["learning_rate"]
    wrong = rates[~rates.between(*RATES)]
    if len(wrong):
        path = Paths(results).wanted(study)
        raise RecordError(
            f"{path}: got the learning rate {wrong.iloc[0]:g}, want {rates_text()}: mend what wrote it"
        )
    return wanted


def read_wanted_rows(results: Path, study: str, names: Sequence[str] = ()) -> list[Fields]:
    """Read what `read_wanted_table` does as plain values; `names`: these columns alone."""
    wanted = read_wanted_table(results, study)
    if names:
        wanted = wanted.select(list(names))
    return list(wanted.to_pylist())


def read_wanted_table(results: Path, study: str) -> pa.Table:
    """Read which runs a study wants, in its order; raises RecordError if the file is missing, damaged or empty."""
    path = Paths(results).wanted(study)
    wanted = read_table(path, WANTED)
    if wanted is None:
        raise RecordError(f"no {path}: run the study again to write it")
    if not wanted.num_rows:
        raise RecordError(
            f"{path} wants no runs: give the study at least one task, model, variant, rate and seed"
        )
    return wanted


def read_runs(
    results: Path, run_ids: Iterable[str] | None = None, names: Collection[str] | None = None
) -> pd.DataFrame:
    """Read the rows of finished runs, those without a row left out: the columns of `RUNS` that are named, or all.

    None as ids: all. Times are in UTC. Fewer columns are read faster. Raises RecordError if a file is damaged.
    """
    columns = _named(RUNS, names)
    return _frame(rows_of(results, run_ids, columns), columns)


def read_run_rows(
    results: Path, run_ids: Iterable[str] | None, names: Collection[str]
) -> list[Fields]:
    """Read as `read_runs`, but plain values: quick, as it needs no pandas."""
    return rows_of(results, run_ids, _named(RUNS, names)).to_pylist()


def read_curves(
    results: Path, run_ids: Iterable[str] | None = None, names: Collection[str] | None = None
) -> pd.DataFrame:
    """Read evaluations, with the columns of `CURVES`, ordered by step within a run; arguments as of `read_runs`.

    Read them after `read_runs`, and every row has its curve. Accuracies are as of `in_range`.
    """
    columns, folder = _named(CURVES, names), Paths(results).curves
    curves = [curve for _, curve in read_each(folder, run_ids, columns)]
    return in_range(_frame(pa.concat_tables([table([], columns), *curves]), columns))


def logged_values(evaluations: pd.DataFrame, labels: Sequence[str]) -> pd.DataFrame:
    """Return what was logged up to these evaluations, a row a value: `labels`, `step`, `name` and `value`."""
    import pandas as pd

    known = evaluations[[*labels, "logged"]].dropna(subset="logged")
    logged = known.explode("logged", ignore_index=True)
    values = pd.DataFrame(logged.pop("logged").tolist(), columns=["step", "name", "value"])
    return logged.join(values)


def read_rows(path: Path, columns: Columns) -> list[Fields] | None:
    """Read one file of the record as plain values; None if there is none. Raises RecordError if it is damaged."""
    rows = read_table(path, columns)
    try:
        return None if rows is None else rows.to_pylist()
    except (OverflowError, ValueError) as error:  # a time that no calendar has
        raise damaged(path, error) from error


def is_sound(name: str, text: str | None) -> bool:
    """Return whether a text is what one of `JSON_COLUMNS` wants, or null."""
    try:
        return text is None or JSON_COLUMNS[name].validate_json(text, strict=True) is not None
    except ValidationError:
        return False


def _named(columns: Columns, names: Collection[str] | None) -> Columns:
    return columns if names is None else tuple(column for column in columns if column.name in names)


def _frame(content: pa.Table, columns: Columns) -> pd.DataFrame:
    # Plain pandas turns integers and truth values with gaps into floats and objects.
    gaps = {pa.int64(): "Int64", pa.bool_(): "boolean"}
    return content.to_pandas().astype(
        {c.name: gaps[c.type] for c in columns if c.nullable and c.type in gaps}
    )


def _there(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise UnreadableError(unreadable(path, error)) from error
    return True


def _read_json(path: Path, mend: str = "run the study again to write it") -> Fields:
    try:
        content = json.loads(read_plain(path, MAX_JSON, through_link=False))
    except OSError as error:
        raise UnreadableError(unreadable(path, error)) from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"cannot read {path} ({error}): {mend}") from error
    if not isinstance(content, dict):
        raise RecordError(f"{path}: got {type(content).__name__}, want a JSON object: {mend}")
    if is_changed(content):
        raise RecordError(f"cannot read {path} (its checksum is not that of its content): {mend}")
    return content
