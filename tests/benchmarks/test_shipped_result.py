"""Folders of docs/results: how they are made, and what they hold."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lr_sweep.analysis.report.blocks import Image
from lr_sweep.benchmarks.shipped_result import MOST_FILES, SAMPLE, SHIPPED, main, renewed, ship
from lr_sweep.tests.support.tiny_study import succeeds

KINDS = {".html", ".md", ".csv", ".json", ".png", ".yaml"}
STUDIES = sorted(path for path in SHIPPED.iterdir() if path.is_dir())


def a_report(folder: Path) -> Path:
    """Write a report of two figures, with one of its tables as files, and return its folder."""
    report = folder / "studies" / "small" / "report"
    report.mkdir(parents=True)
    drawn = {"learning-rates-tiny": "Figure 3", "figure2-left-tiny": "Figure 2, left"}
    images = [Image(title, report / f"{stem}.png") for stem, title in drawn.items()]
    for path in (*(image.png for image in images), report / "cells.csv"):
        path.touch()
    for name in ("index.html", "runs.csv", "checks.json"):
        (report / name).write_text(name)
    text = "# Small\n\n`index.html`, beside this file, has it.\n\n" + "\n".join(image.markdown() for image in images)
    (report / "report.md").write_text(text + "\nEnd.\n")
    return report


def test_a_folder_has_the_report_the_sweep_the_runs_and_the_checks(tmp_path: Path) -> None:
    made = list(ship(a_report(tmp_path), tmp_path / "shipped"))
    names = {"report.md", "learning-rates-tiny.png", "runs.csv", "checks.json"}
    assert {path.name for path in made} == {path.name for path in (tmp_path / "shipped").iterdir()} == names
    assert (tmp_path / "shipped" / "runs.csv").read_text() == "runs.csv"
    assert (tmp_path / "shipped" / "report.md").read_text() == (
        "# Small\n\nThe page that `lr-sweep judge runs.csv` writes has it.\n\n"
        "![Figure 3](learning-rates-tiny.png)\n\nFigure 3.\n\nFigure 2, left: on that page.\n\nEnd.\n"
    )
    assert tmp_path / "quickstart" / "index.html" in ship(tmp_path / "studies" / "small" / "report", tmp_path / SAMPLE)


def test_fresh_runs_are_shipped_too(tmp_path: Path) -> None:
    report = a_report(tmp_path)
    (report / "fresh.csv").touch()
    assert "fresh.csv" in {path.name for path in ship(report, tmp_path / "shipped")}


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("lr_sweep.benchmarks.shipped_result.SHIPPED", tmp_path / "shipped")
    monkeypatch.setattr("sys.argv", ["shipped_result", str(tmp_path), "small"])
    with pytest.raises(SystemExit):
        main()
    assert "run `lr-sweep report small` first" in capsys.readouterr().err
    a_report(tmp_path)
    main()
    assert len(capsys.readouterr().out.splitlines()) == 4
    for number in range(MOST_FILES):
        (tmp_path / "shipped" / "small" / f"{number}.csv").touch()
    with pytest.raises(SystemExit):
        main()
    assert "has 12 files, of at most 8" in capsys.readouterr().err


@pytest.mark.parametrize("folder", STUDIES, ids=lambda folder: folder.name)
def test_a_shipped_folder_is_small_and_whole(folder: Path) -> None:
    found = {path.name for path in folder.iterdir() if path.is_file()}
    assert len(found) <= MOST_FILES
    assert {Path(name).suffix for name in found} <= KINDS
    if (folder / "report.md").exists():
        assert {"runs.csv", "checks.json"} <= found
        assert ("index.html" in found) == (folder.name == SAMPLE)
        assert json.loads((folder / "checks.json").read_text())["study"] == folder.name


@pytest.mark.slow
@pytest.mark.parametrize(
    "folder", [each for each in STUDIES if (each / "runs.csv").exists()], ids=lambda each: each.name
)
def test_judge_makes_the_page_of_a_shipped_folder(folder: Path, tmp_path: Path) -> None:
    """With the numbers that its report has: of each learning rate, but for their digits, which earlier versions cut."""
    succeeds("judge", folder / "runs.csv", "--out", tmp_path / "new")
    assert (tmp_path / "new" / "index.html").is_file()
    shipped, judged = (_rates(path / "report.md") for path in (folder, tmp_path / "new"))
    assert shipped
    assert shipped.keys() == judged.keys()
    assert all(abs(judged[place] - value) <= 0.051 for place, value in shipped.items())


def _rates(report: Path) -> dict[tuple[int, int], float]:
    """The means of the tables of learning rates, by row and column."""
    parts = re.split(r"\n(?=\*\*|## )", report.read_text())
    lines = [line for part in parts if " by learning rate" in part.split(".")[0] for line in part.splitlines()]
    rows = [line.split("|")[2:-1] for line in lines if line.startswith("|") and "±" in line]
    cells = {(n, m): cell.split()[0] for n, row in enumerate(rows) for m, cell in enumerate(row) if "±" in cell}
    return {place: float(text.replace("−", "-")) for place, text in cells.items()}


@pytest.mark.slow
@pytest.mark.parametrize("folder", [path.parent for path in SHIPPED.glob("*/runs.csv")], ids=lambda path: path.name)
def test_a_shipped_report_opens_with_the_verdict_of_today(folder: Path) -> None:
    assert renewed(folder) == (folder / "report.md").read_text()
