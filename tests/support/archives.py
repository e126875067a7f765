"""Results carried between directories in archives."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.archive.exporter import export
from lr_sweep.sweep.archive.importer import import_archive
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.records import files


def packed(results: Results, *names: str, checkpoints: bool = True) -> Path:
    """Export into a new archive beside the results directory."""
    number = len(list(results.root.parent.glob("*.tar")))
    target = results.root.parent / f"{number}.tar"
    export(results, target, names, checkpoints=checkpoints)
    return target


def refusal(archive: Path, into: Results) -> str:
    """Import what must be refused, make sure that nothing changed, and return the message."""
    before = files(into.root), mtimes_ns(into.root)
    with pytest.raises(UserError) as caught:
        import_archive(archive, into)
    assert (files(into.root), mtimes_ns(into.root)) == before
    assert not list(into.root.glob(".import-*"))
    return str(caught.value)


def mtimes_ns(folder: Path) -> dict[str, int]:
    return {path: (folder / path).stat().st_mtime_ns for path in files(folder)}
