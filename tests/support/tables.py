"""Tables of texts as one line, so that a test can say what it expects of a reader."""

from __future__ import annotations

from pathlib import Path

from lr_sweep.analysis.judge.readers.files import table_of_content
from lr_sweep.analysis.judge.table_file import TableFile


def texts_of(table: TableFile) -> dict[str, list[str]]:
    """Return the texts of a table by the names of their columns."""
    return table.frame.to_dict("list")


def shown_columns(text: str, name: str) -> str:
    """Return the columns of a file's text as `lr: 0.1 0.2; acc: - 1`, with `-` for an empty field."""
    columns = texts_of(table_of_content(Path(name), text.encode(), name))
    return "; ".join(f"{name}: {' '.join(field or '-' for field in fields)}" for name, fields in columns.items())
