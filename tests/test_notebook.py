"""The notebook of the docs runs from top to bottom, and shows what it shows there.

After a change: `jupyter execute --inplace docs/tour.ipynb`, and the paths of your machine shortened in what it shows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent / "docs" / "tour.ipynb"


def kinds(notebook: Any) -> list[list[str]]:
    """Kinds of what each cell of code shows, leaving out how many lines of progress there are."""
    cells = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    return [
        sorted({kind for output in cell for kind in output.get("data", {output.get("name"): ""})} - {"stderr"})
        for cell in cells
    ]


@pytest.mark.slow
@pytest.mark.cluster
def test_the_notebook_runs_and_shows_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # with it, the kernel does not capture what libraries print
    stored = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    executed = NotebookClient(
        nbformat.from_dict(stored), timeout=300, kernel_name="python3", resources=resources
    ).execute()
    assert kinds(executed) == kinds(stored)
    trained, *_ = executed.cells[3].outputs[-1]["text"].split(" runs trained, ")
    assert trained == "16"
    assert len(list((tmp_path / "tour-results" / "runs").iterdir())) == 16
