"""Whatever a test judges: its bytes, and the files beside it, are the same afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from lr_sweep.analysis.judge import judge, sides
from lr_sweep.analysis.judge.readers.sources import read_sources
from lr_sweep.analysis.judge.table_file import TableFile
from lr_sweep.tests.support.judged import contents_of


@pytest.fixture(autouse=True)
def inputs_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(sources: Sequence[str | Path]) -> list[TableFile]:
        before = contents_of(tmp_path)
        try:
            return read_sources(sources)
        finally:
            assert contents_of(tmp_path) == before

    for module in (sides, judge):
        monkeypatch.setattr(module, "read_sources", read)
