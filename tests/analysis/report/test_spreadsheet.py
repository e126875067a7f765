"""CSV files whose text no spreadsheet runs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from lr_sweep.analysis.report.spreadsheet import as_written, quoted_text, write_csv


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-x", "@sum", "\tx", "-1.2 ± 0.3", "-", "--1", "＝1+1", "＠x"])
def test_formulas_are_quoted_and_read_back(text: str) -> None:
    assert quoted_text(text) == f"'{text}"
    assert as_written(f"'{text}") == text


@pytest.mark.parametrize("text", ["a=1", "-1.5", "+2e-3", "-40%", "", "'a", "–", "1e-3"])
def test_other_text_is_left(text: str) -> None:
    assert (quoted_text(text), as_written(text)) == (text, text)


def test_numbers_and_headings(tmp_path: Path) -> None:
    """Headings are names of tasks, which may be alike."""
    frame = pd.DataFrame([["=a", -1.5, None, True]], columns=["=t", "x", "x", "+b"])
    write_csv(frame, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "'=t,x,x,'+b\n'=a,-1.5,,True\n"
