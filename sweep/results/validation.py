"""Rules for the record of a run or a study: the one definition, for `verify` and `gc`.

Rows of the record come in as plain values; phrases come out, each about one problem. None of them: it is sound.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from lr_sweep.analysis.record.columns import CURVES, PROPOSALS, RUNS, Columns
from lr_sweep.analysis.record.paths import RecordError, UnreadableError, unreadable
from lr_sweep.analysis.record.read import (
    JSON_COLUMNS,
    is_sound,
    read_judgements,
    read_rows,
    read_study,
    read_wanted_table,
)
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import Fields, is_changed_text, is_sealed, read_plain

from .directory import Results
from .run_state import STATUSES, Row

MAX_OPTIONS, MAX_PARSED = 10_000_000, 100_000
"""Bytes of the YAML of a study, and of one without a checksum that is looked into: a second for 30,000."""
MAX_CONTENT = 1_000_000
_AGAIN = "run the study again to write it"
CUT_SHORT = ("failed", "stopped")
"""Statuses of runs that did not end by themselves."""
SHARED_WITH_CONTENT = (
    "task",
    "learning_rate",
    "seed",
    "protocol_version",
    "weights_checksum",
    "data_checksum",
)
"""Columns of a row that its `content` has, too."""


def row_problems(run_id: str, rows: Sequence[Row]) -> list[str]:
    """Check the rows of `runs/<run_id>.parquet`."""
    if len(rows) != 1:
        return [f"got {len(rows)} rows, want 1"]
    row = rows[0]
    return _null_problems(rows, RUNS) or [
        *_identity_problems(run_id, row),
        *_end_problems(row),
        *_json_problems(row),
    ]


def read_sound_row(results: Results, run_id: str) -> Row | None:
    """Read a run's row (None: there is none); raises RecordError if anything is wrong with it."""
    path = results.run(run_id)
    rows = read_rows(path, RUNS)
    if rows is None:
        return None
    if problems := row_problems(run_id, rows):
        raise RecordError(f"{path}: {'; '.join(problems)}: delete it and run the study again")
    return rows[0]


def _null_problems(rows: Sequence[Row], columns: Columns) -> list[str]:
    names = [c.name for c in columns if not c.nullable and any(row[c.name] is None for row in rows)]
    return [f"nothing in columns {', '.join(names)}, which are never empty"] if names else []


def _identity_problems(run_id: str, row: Row) -> Iterator[str]:
    if row["run_id"] != run_id:
        yield f"got the row of run {row['run_id']}, want that of the file's name"
    # Hashed as text: it holds for every protocol version, whatever a run was made of in it.
    hashed = hashlib.sha256(row["content"].encode()).hexdigest()[:16]
    if hashed != row["run_id"]:
        yield f"its content is that of run {hashed}, not of {row['run_id']}"
    content = _content(row)
    for name in SHARED_WITH_CONTENT:
        if row[name] != content.get(name):
            yield f"{name}: got {row[name]}, content has {content.get(name)}"


def _end_problems(row: Row) -> Iterator[str]:
    status, num_steps, diverged_at = row["status"], row["num_steps"], row["diverged_at_step"]
    if status not in STATUSES:
        yield f"got status {status!r}, want one of {', '.join(STATUSES)}"
    if num_steps < 0 or (status == "complete" and num_steps == 0):
        yield f"{status} after {num_steps} steps"
    if diverged_at != (num_steps if status == "diverged" else None):
        yield f"{status} after {num_steps} steps, and diverged_at_step is {diverged_at}"


def _json_problems(row: Row) -> Iterator[str]:
    for name in JSON_COLUMNS:
        if not is_sound(name, row.get(name)):
            yield f"got {row[name][:80]!r} as {name}, want what docs/record.md says"


def _content(row: Row | None) -> Fields:
    """Return a row's `content`; empty if it is not JSON of an object, or there is no row."""
    if row is None or len(row["content"]) > MAX_CONTENT:
        return {}
    with suppress(ValueError, RecursionError):
        if isinstance(content := json.loads(row["content"]), dict):
            return content
    return {}


def curve_problems(run_id: str, points: Sequence[Row] | None, row: Row | None) -> list[str]:
    """Check the rows of `curves/<run_id>.parquet` (None: no file), and that they fit the run's row if that is sound."""
    if points is None:
        missing = (
            _last_evaluation(row, _evaluate_every(row) or 1)
            if row and row["status"] not in CUT_SHORT
            else 0
        )
        return [f"it has no evaluations, want some up to step {missing}"] if missing else []
    if not points:
        return ["got no evaluations, want one at least"]
    if nulls := _null_problems(points, CURVES):
        return nulls
    if others := sorted({str(point["run_id"]) for point in points} - {run_id}):
        return [f"got evaluations of run {', '.join(others)}, want those of the file's name alone"]
    every = _evaluate_every(row) or points[0]["step"]
    return _step_problems(points, every) or [
        *_length_problems(points, row, every),
        *_best_problems(points, row),
    ]


def _evaluate_every(row: Row | None) -> int | None:
    protocol = _content(row).get("protocol")
    every = protocol.get("evaluate_every") if isinstance(protocol, dict) else None
    return every if isinstance(every, int) and every > 0 else None


def _last_evaluation(row: Row, every: int) -> int:
    """Return the last step that a run evaluated before it ended; 0: it ended before any."""
    num_steps: int = row["num_steps"] - (
        row["status"] == "diverged"
    )  # it is not evaluated where it diverges
    return num_steps // every * every


def _step_problems(points: Sequence[Row], every: int) -> list[str]:
    for index, point in enumerate(points, start=1):
        if point["step"] != every * index or every < 1:
            return [f"evaluation {index} is at step {point['step']}, want {every * index}"]
    return []


def _length_problems(points: Sequence[Row], row: Row | None, every: int) -> Iterator[str]:
    """A curve may be longer than the row of a complete, failed or stopped run says: it was being trained further."""
    if row is None or row["status"] in CUT_SHORT:
        return
    last, wanted = points[-1]["step"], _last_evaluation(row, every)
    if last < wanted or (row["status"] == "diverged" and last > wanted):
        end = f"{row['status']} at step {row['num_steps']}"
        yield f"its last evaluation is at step {last}, want {wanted}: its row says {end}"


def _best_problems(points: Sequence[Row], row: Row | None) -> Iterator[str]:
    """Compare the values of a row's best evaluation: they differ if row and curve were copied from two records."""
    best = next((point for point in points if row and point["step"] == row["best_step"]), None)
    if row is None or best is None:
        return
    for of_row, of_curve in (
        ("validation_at_best", "validation"),
        ("test_at_best", "test"),
    ):
        if repr(row[of_row]) != repr(best[of_curve]):
            step = row["best_step"]
            yield f"its {of_curve} at step {step} is {best[of_curve]}, {row[of_row]} in its row"


def checkpoint_problem(name: str, sha256: str) -> str | None:
    """Compare the sha256 of a checkpoint with its name, `step-<step>-<sha256 prefix>.safetensors`."""
    want = name.removesuffix(".safetensors").split("-")[-1]
    got = sha256[: len(want)]
    if got == want:
        return None
    problem = f"its sha256 begins with {got}, its name says {want}"
    return f"{name}: {problem}: delete it; its run resumes from an earlier one, or from step 0"


def check_options(path: Path) -> bytes | None:
    """Read the YAML of a study as it was last run; None: there is none. Raises RecordError if it is damaged."""
    try:
        text = read_plain(path, MAX_OPTIONS, through_link=False)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not path.is_symlink():
            return None
        raise UnreadableError(unreadable(path, error)) from error
    if is_changed_text(text):
        raise RecordError(f"cannot read {path} (its checksum is not that of its content): {_AGAIN}")
    if not is_sealed(text) and len(text) <= MAX_PARSED:  # of an earlier version
        _parsed(path, text)
    return text


def read_options(path: Path) -> Fields:
    """Return what `check_options` reads; empty: there is no file. Raises RecordError if it is damaged."""
    text = check_options(path)
    return {} if text is None else _parsed(path, text)


def _parsed(path: Path, text: bytes) -> Fields:
    from lr_sweep.sweep.study.file import read_yaml  # imported late: few commands need it

    try:
        content = read_yaml(text.decode())
    except (UserError, UnicodeDecodeError) as error:
        raise RecordError(f"cannot read {path} ({error}): {_AGAIN}") from error
    if not isinstance(content, dict) or content.get("study") != path.stem:
        raise RecordError(f"{path}: it is not of a study {path.stem}: {_AGAIN}")
    return content


def study_problems(results: Results, name: str) -> list[str]:
    """Check a study's tables and facts, which are named with what to do; raises RecordError if they cannot be read."""
    problems: list[str] = []
    study = read_study(results.root, name).study
    ids = Counter(read_wanted_table(results.root, name)["run_id"].to_pylist())
    read_rows(results.proposals(name), PROPOSALS)
    read_judgements(results.root, name)
    if study != name:
        problems.append(f"{results.facts(name)}: got study {study!r}, want {name!r}: {_AGAIN}")
    if twice := sorted(run_id for run_id, number in ids.items() if number > 1):
        problems.append(
            f"{results.wanted(name)}: wants {', '.join(twice)} more than once: {_AGAIN}"
        )
    return problems
