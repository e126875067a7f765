"""`python -m analysis.describe`: the record's columns as Markdown, for docs/record.md."""

from __future__ import annotations

from analysis.columns import CURVES, PLANNED, RUNS, WANTED, Columns

TABLES: dict[str, tuple[Columns, str]] = {
    "runs/<run_id>.parquet": (RUNS, "One row a run, written when it ends, never changed but by training it further."),
    "curves/<run_id>.parquet": (CURVES, "One row an evaluation, ordered by step. No row in `runs`: not ended yet."),
    "studies/<study>/wanted.parquet": (WANTED, "One row a run that the study wants, under the study's names."),
    "studies/<study>/planned.parquet": (PLANNED, "One row a run of which it was known beforehand how long it takes."),
}


def markdown() -> str:
    """Return a section a table, with name, type, unit and meaning of every column."""
    return "\n".join(_section(path, *described) for path, described in TABLES.items())


def _section(path: str, columns: Columns, about: str) -> str:
    rows = [f"| `{c.name}` | {c.type}{', or null' if c.nullable else ''} | {c.unit} | {c.doc} |" for c in columns]
    return "\n".join(
        [f"## `{path}`", "", about, "", "| column | type | unit | meaning |", "|---|---|---|---|", *rows, ""]
    )


if __name__ == "__main__":
    print(markdown(), end="")
