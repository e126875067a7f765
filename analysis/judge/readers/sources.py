"""Which reader a source is for: a file, a folder, standard input, an address, or several files by a pattern."""

from __future__ import annotations

import glob
import shutil
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from lr_sweep.analysis.judge.names import is_rate
from lr_sweep.analysis.judge.readers import folders, json_rows, mlflow_store, optuna_storage, tensorboard, wandb_chart
from lr_sweep.analysis.judge.readers.from_rows import labels_of
from lr_sweep.analysis.judge.table_file import MOST_BYTES, TableFile, read_table_file, table_of
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import open_plain
from lr_sweep.common.network import shown_uri

STDIN = "-"
SQLITE = b"SQLite format 3\0"
FOLDERS = (folders.read_hydra, folders.read_ray_tune, folders.read_lightning, tensorboard.read_tensorboard)
"""Readers of folders, in the order in which they are tried."""
TRIES = 5
JOURNALS = ("-wal", "-journal")
"""Endings of the files beside a database of SQLite that hold its last changes."""
KINDS = "of Ray Tune, Hydra, Lightning or TensorBoard"


def read_sources(sources: Sequence[str | Path]) -> list[TableFile]:
    """Read every source; raises UserError with what is wrong with the first that cannot be read."""
    tables = [_read(each) for source in sources for each in expanded(str(source))]
    return tables if len(tables) == 1 else [_with_name(table) for table in tables]


def _with_name(table: TableFile) -> TableFile:
    """Add the settings in a file's name, as `lr=0.1,seed=1.csv`, to a table without learning rates."""
    labels = labels_of(table.path.stem)
    if any(map(is_rate, table.columns)) or not any(map(is_rate, labels)):
        return table
    columns = {f"config.{name}": [value] * len(table.lines) for name, value in labels.items()}
    return replace(table, columns=columns | table.columns)


def expanded(source: str) -> list[str]:
    """Return the files that a pattern names, as a shell would."""
    if not glob.has_magic(source) or source == STDIN or Path(source).exists():
        return [source]
    if found := sorted(glob.glob(source, recursive=True)):  # noqa: PTH207 - pathlib's takes no whole path
        return found
    raise UserError(f"no file fits {source}: name a table, or a folder")


def _read(source: str) -> TableFile:
    if source == STDIN:
        return _read_stdin()
    if source.startswith(("http://", "https://")):
        return mlflow_store.read_mlflow_server(source, shown_uri(source))
    path = Path(source.removeprefix("sqlite:///"))
    if path.is_dir():
        return _read_folder(path)
    if tensorboard.is_events(path) and (found := tensorboard.read_tensorboard(path)):
        return found
    head = _head(path)
    if head == SQLITE:
        return _read_database(path)
    if head.lstrip()[:1] in (b"{", b"["):
        return _read_journal(path) if optuna_storage.is_journal(path) else json_rows.read_json_file(path)
    return wandb_chart.without_chart(read_table_file(path))


def _head(path: Path) -> bytes:
    """Return how a file begins; nothing where it cannot be read, which its reader says."""
    try:
        with open_plain(path) as file:
            return file.read(len(SQLITE))
    except OSError:
        return b""


def _read_stdin() -> TableFile:
    content = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise UserError(f"standard input has more than {MOST_BYTES:,} bytes: write a file with fewer columns")
    path = Path("stdin")
    if content.lstrip()[:1] in (b"{", b"["):
        return json_rows.read_json(path, content)
    return wandb_chart.without_chart(table_of(path, content))


def _read_folder(path: Path) -> TableFile:
    try:
        for read in FOLDERS:
            if found := read(path):
                return found
        if (path / "mlflow.db").is_file():
            return _read_database(path / "mlflow.db")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({reason(error)})") from error
    raise UserError(f"{path} cannot be read (it is a folder, and none {KINDS}): name a table, such as a CSV file")


def _read_journal(path: Path) -> TableFile:
    with copied(path) as copy:
        return optuna_storage.read_optuna(path, copy)


def _read_database(path: Path) -> TableFile:
    try:
        with copied(path) as copy, closing(sqlite3.connect(copy)) as database:
            names = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if {"studies", "trials"} <= names:
                return optuna_storage.read_optuna(path, copy)
            if {"experiments", "runs"} <= names:
                return mlflow_store.read_mlflow_database(path, database)
    except (OSError, sqlite3.Error, ValueError, TypeError) as error:  # the last two: of a value that is no number
        raise UserError(f"{path} cannot be read as a database ({reason(error)})") from error
    raise UserError(f"{path} is a database of neither Optuna nor MLflow: write its runs as a CSV file")


@contextmanager
def copied(path: Path) -> Iterator[Path]:
    """Copy a file, a database with its journals, into a temporary folder: libraries may write to what they open.

    Raises UserError while another program writes it.
    """
    path = path.resolve()  # SQLite, too, has the journals beside the file that a link leads to
    with TemporaryDirectory(prefix="lr-sweep-") as folder:
        copy = Path(folder) / "copy"
        copies = {path.with_name(path.name + end): Path(f"{copy}{end}") for end in ("", *JOURNALS)}
        for _ in range(TRIES):
            before = _states(copies)
            for file, to in copies.items():
                to.unlink(missing_ok=True)
                if file.is_file():
                    shutil.copyfile(file, to)
            if _states(copies) == before:
                break
        else:
            raise UserError(f"{path} changed while it was copied, {TRIES} times: read it once no program writes to it")
        yield copy


def _states(files: Iterable[Path]) -> list[tuple[int, int] | None]:
    found = [file.stat() if file.is_file() else None for file in files]
    return [stat and (stat.st_size, stat.st_mtime_ns) for stat in found]
