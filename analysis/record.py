"""Reading the record, of which `analysis.columns` says what its columns mean.

Below a results directory: `format.json`, `runs/<run_id>.parquet`, `curves/<run_id>.parquet` and
`studies/<study>/{study.json, wanted.parquet}`. Every file is whole or absent (written beside, then renamed). A large
record has `index.parquet` as well (`analysis.run_index`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:  # takes longer to import than reading a thousand runs does
    import pandas as pd

from analysis.access import closed_folder, unreadable
from analysis.checksum import is_intact
from analysis.columns import CURVES, PLANNED, RUNS, WANTED, Columns, schema, table
from analysis.run_index import index_content, rows_of

FORMAT = 1
"""Raised when an older reader would misread a newer record, or the other way round."""

READ_THREADS = 8
"""Files read at once; small files on a network drive are bound by latency, not by the CPU."""
READ_AHEAD = 1000
"""Files whose content is held at a time."""


class RecordError(Exception):
    """The record is missing, damaged or of another format; the message names the file and says what to do."""


class UnreadableError(RecordError):
    """A file could not be read, which says nothing about what is in it."""


@dataclass(frozen=True, kw_only=True)
class StudyInfo:
    """`studies/<study>/study.json`."""

    study: str
    title: str


def run_path(results: Path, run_id: str) -> Path:
    """Return where a finished run's row lies."""
    return results / "runs" / f"{run_id}.parquet"


def curve_path(results: Path, run_id: str) -> Path:
    """Return where a run's evaluations lie."""
    return results / "curves" / f"{run_id}.parquet"


def study_dir(results: Path, study: str) -> Path:
    """Return a study's folder.

    Raises:
        RecordError: the name is not a plain folder name.
    """
    if study in ("", ".", "..") or Path(study).name != study:
        raise RecordError(f"got {study!r} as the name of a study, want a plain name without slashes")
    return results / "studies" / study


def planned_path(results: Path, study: str) -> Path:
    """Return where what a study's runs were planned to take lies."""
    return study_dir(results, study) / "planned.parquet"


def check_format(results: Path) -> None:
    """Make sure that this code can read the results directory.

    Raises:
        RecordError: there is no such directory, it is not a results directory, its format is another one, or this user
            may not read its folders.
    """
    path = results / "format.json"
    if not _there(results):
        raise RecordError(f"no results directory at {results}: give the one that the study was run with")
    if not _there(path):
        raise RecordError(f"{results} has no format.json, so it is no results directory: give one that a study made")
    found = _read_json(path, f'write {{"format": {FORMAT}}} into it').get("format")
    if found != FORMAT:
        raise RecordError(
            f"{path}: got format {found!r}, want {FORMAT}: read it with the version of this program that wrote it, "
            "or run the study into a new results directory"
        )
    # Else they would seem to be empty.
    if closed := [text for name in ("runs", "curves", "studies") if (text := closed_folder(results / name))]:
        raise UnreadableError("\n".join(closed))


def recorded_studies(results: Path) -> list[str]:
    """Return the names of the studies that were run into a results directory; none if it does not exist.

    Raises:
        UnreadableError: this user may not read a study's folder.
    """
    return sorted(folder.name for folder in results.glob("studies/*") if _there(folder / "study.json"))


def read_study(results: Path, study: str) -> StudyInfo:
    """Read a study's name and title.

    Raises:
        RecordError: no such study, or its file is damaged.
    """
    path = study_dir(results, study) / "study.json"
    if not _there(path):
        if path.parent.is_dir():
            raise RecordError(f"no {path}: run the study again, that writes it")
        known = recorded_studies(results)
        raise RecordError(f"no study {study!r} in {results}: it has {', '.join(known) or 'none; run a study first'}")
    content = _read_json(path)
    if not {"study", "title"} <= content.keys():
        raise RecordError(f"{path}: got keys {sorted(content)}, want study and title: run the study again")
    return StudyInfo(study=content["study"], title=content["title"])


def read_wanted(results: Path, study: str) -> pd.DataFrame:
    """Read which runs a study wants: the columns of `WANTED`, in the study's order.

    Raises:
        RecordError: the file is missing, damaged or has no rows.
    """
    return _frame(_read_wanted(results, study), WANTED)


def read_planned(results: Path, study: str) -> pd.DataFrame:
    """Read what runs were planned to take: the columns of `PLANNED`; no rows if nothing was planned.

    Raises:
        RecordError: the file is damaged.
    """
    return _frame(_read_file(planned_path(results, study), PLANNED) or table([], PLANNED), PLANNED)


def read_wanted_rows(results: Path, study: str) -> list[dict[str, Any]]:
    """Read the same as plain values; raises as `read_wanted`."""
    return _read_wanted(results, study).to_pylist()


def _read_wanted(results: Path, study: str) -> pa.Table:
    path = study_dir(results, study) / "wanted.parquet"
    found = _read_file(path, WANTED)
    if found is None:
        raise RecordError(f"no {path}: run the study again, that writes it")
    if not found.num_rows:
        raise RecordError(f"{path} wants no runs: give the study at least one task, model, variant, rate and seed")
    return found


def read_runs(
    results: Path, run_ids: Iterable[str] | None = None, names: Collection[str] | None = None
) -> pd.DataFrame:
    """Read the rows of finished runs, with the columns of `RUNS`; times are in UTC and know it.

    Args:
        results: the results directory.
        run_ids: which runs; those without a row are left out. None: all.
        names: which columns of `RUNS`; None: all. Fewer are read faster.

    Raises:
        RecordError: a file is damaged.
    """
    columns = _named(RUNS, names)
    return _frame(_read_run_files(results, run_ids, columns), columns)


def read_run_rows(results: Path, run_ids: Iterable[str] | None, names: Collection[str]) -> list[dict[str, Any]]:
    """Read some columns of finished runs as plain values: quick, as it needs no pandas.

    Args:
        results: the results directory.
        run_ids: which runs; those without a row are left out. None: all.
        names: which columns of `RUNS`.

    Raises:
        RecordError: a file is damaged.
    """
    return _read_run_files(results, run_ids, _named(RUNS, names)).to_pylist()


def read_curves(
    results: Path, run_ids: Iterable[str] | None = None, names: Collection[str] | None = None
) -> pd.DataFrame:
    """Read evaluations, with the columns of `CURVES`, ordered by step within a run.

    Read them after `read_runs`: a run's curve is written before its row, so every row then has its curve.

    Args:
        results: the results directory.
        run_ids: which runs; those without evaluations are left out. None: all.
        names: which columns of `CURVES`; None: all. Fewer are read faster and take less memory.

    Raises:
        RecordError: a file is damaged.
    """
    columns = _named(CURVES, names)
    return _frame(_read_files(results / "curves", run_ids, columns), columns)


def read_rows(path: Path, columns: Columns) -> list[dict[str, Any]] | None:
    """Read one file of the record as plain values; None if there is none.

    Raises:
        RecordError: it is damaged.
    """
    found = _read_file(path, columns)
    try:
        return None if found is None else found.to_pylist()
    except (OverflowError, ValueError) as error:  # a time that no calendar has
        raise _damaged(path, error) from error


def _named(columns: Columns, names: Collection[str] | None) -> Columns:
    return columns if names is None else tuple(column for column in columns if column.name in names)


def new_index(results: Path, now_ns: int) -> bytes | None:
    """Return what `index_path` should hold: the rows that are now; None: what it holds will do, or nothing.

    Damaged rows are left out: they are found when they are read.

    Args:
        results: a results directory, of which the caller is the one writer.
        now_ns: Unix time.
    """
    return index_content(results, now_ns, partial(_read_each, results / "runs", columns=RUNS, pass_over=True))


def _read_run_files(results: Path, run_ids: Iterable[str] | None, columns: Columns) -> pa.Table:
    folder = results / "runs"
    try:
        return rows_of(results, run_ids, columns, partial(_read_each, folder, columns=columns))
    except OSError as error:
        raise UnreadableError(unreadable(folder, error)) from error


def _read_files(folder: Path, run_ids: Iterable[str] | None, columns: Columns) -> pa.Table:
    if run_ids is None:
        run_ids = sorted(path.stem for path in folder.glob("*.parquet") if not path.name.startswith("."))
    empty = pa.Table.from_batches([], schema(columns))  # `empty_table()` would import pandas
    found = _read_each(folder, list(dict.fromkeys(run_ids)), columns)
    return pa.concat_tables([empty, *(rows for _, rows in found)])


def _read_each(
    folder: Path, run_ids: Sequence[str], columns: Columns, pass_over: bool = False
) -> Iterator[tuple[str, pa.Table]]:
    """Yield runs with the content of their files, those that have one; `pass_over`: and an undamaged one."""

    def fetch(path: Path) -> bytes | RecordError | None:
        try:
            return _read_bytes(path)
        except RecordError as error:
            return error

    with ThreadPoolExecutor(READ_THREADS) as pool:
        for start in range(0, len(run_ids), READ_AHEAD):
            paths = [folder / f"{run_id}.parquet" for run_id in run_ids[start : start + READ_AHEAD]]
            # Threads fetch bytes and no more: decoding holds Python's lock, and is slower in many threads than in one.
            for path, content in zip(paths, pool.map(fetch, paths), strict=True):
                try:
                    if isinstance(content, RecordError):
                        raise content
                    if content is not None:
                        yield path.stem, _decode(path, content, columns)
                except RecordError:
                    if not pass_over:
                        raise


def _read_file(path: Path, columns: Columns) -> pa.Table | None:
    """Read one file; None if there is none."""
    content = _read_bytes(path)
    return None if content is None else _decode(path, content, columns)


def _read_bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableError(unreadable(path, error)) from error


def _there(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise UnreadableError(unreadable(path, error)) from error
    return True


def _damaged(path: Path, error: Exception) -> RecordError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    # A row without its curve would count as done.
    row = run_path(path.parent.parent, path.stem)
    also = f", and {row} if there is one," if path.parent.name == "curves" else ""
    return RecordError(
        f"cannot read {path} ({reason}): delete it{also} and run the study again; "
        f"a run goes on from its checkpoint, so what it has trained is not trained again"
    )


def _decode(path: Path, content: bytes, columns: Columns) -> pa.Table:
    if not is_intact(content):
        raise _damaged(path, ValueError("its checksum is not that of its content"))
    try:
        with pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True) as file:
            found = file.read([column.name for column in columns], use_threads=False)
            found.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(path, error) from error
    for column in columns:
        if column.later and column.name not in found.column_names:
            found = found.append_column(pa.field(column.name, column.type), pa.nulls(found.num_rows, column.type))
    types = {field.name: field.type for field in found.schema}
    wrong = [
        f"{c.name}: got {types.get(c.name, 'no column')}, want {c.type}" for c in columns if types.get(c.name) != c.type
    ]
    if wrong:
        raise RecordError(f"{path} is not of format {FORMAT} ({'; '.join(wrong)}): delete it and run the study again")
    return pa.Table.from_arrays([found.column(column.name) for column in columns], schema=schema(columns))


def _frame(found: pa.Table, columns: Columns) -> pd.DataFrame:
    # Plain pandas turns integers and truth values with gaps into floats and objects.
    gaps = {pa.int64(): "Int64", pa.bool_(): "boolean"}
    return found.to_pandas().astype({c.name: gaps[c.type] for c in columns if c.nullable and c.type in gaps})


def _read_json(path: Path, mend: str = "run the study again, that writes it") -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableError(unreadable(path, error)) from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"cannot read {path} ({error}): {mend}") from error
    if not isinstance(content, dict):
        raise RecordError(f"{path}: got {type(content).__name__}, want a JSON object: {mend}")
    return content
