"""Makes a study's folder of docs/results: `python -m benchmarks.shipped_result RESULTS STUDY`.

RESULTS is the results directory that the study was run into; `lr-sweep report STUDY` has written its report.
`--again` gives every folder the verdict that `judge` has of its runs.csv today; what fresh seeds decided, and the small
print on the choice, stay.
Tables as files, copies of figures as SVG, the paper's further figures and the page are left out: report.md has the
tables, and `lr-sweep judge runs.csv` writes the page again. One page is kept as a sample.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lr_sweep.analysis.judge.judge import judged, write_judged
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.record.paths import Paths

SHIPPED = Path(__file__).parent.parent / "docs" / "results"
MOST_FILES = 8
COPIED = ("runs.csv", "checks.json")
PAGE, SAMPLE = "index.html", "quickstart"
"""A report's page, and the study whose page is kept."""
SHOWS = (
    f"`{PAGE}`, beside this file, shows",
    "The page that `lr-sweep judge runs.csv` writes shows",
)
"""Sentences of report.md about the page: where it is there, and where it is not."""
FIGURES = ("law-*.png", "learning-rates-*.png")
"""Of the first that a report has, all; curves of every size would be many."""
FURTHER_FIGURES = ("decided.png", "target.png")
OF_DECIDE = "fresh.csv"
"""Of a study with `decide` alone."""
FIGURE = re.compile(
    r"(?P<image>!\[[^\]]*\]\((?P<file>[^)]+)\)\n\n)(?P<title>[^\n]*), also as \[SVG\]\([^)]*\)\.\n"
)
"""A figure of report.md, with the line below it."""


def ship(report: Path, folder: Path) -> Iterator[Path]:
    """Copy what docs/results keeps of a report into a folder, and yield each file; other files there stay."""
    folder.mkdir(parents=True, exist_ok=True)
    found = (sorted(report.glob(pattern)) for pattern in FIGURES)
    figures = [
        *next(filter(None, found), []),
        *(report / name for name in FURTHER_FIGURES if (report / name).exists()),
    ]
    kept = {path.name for path in figures}
    copied = [*COPIED, *[PAGE] * (folder.name == SAMPLE)]
    for path in (*figures, *(report / name for name in copied), *report.glob(OF_DECIDE)):
        yield Path(shutil.copyfile(path, folder / path.name))
    page = folder / "report.md"
    text = (report / page.name).read_text(encoding="utf-8")
    text = FIGURE.sub(lambda found: _figure(found, kept), text).replace(*SHOWS)
    page.write_text(text, encoding="utf-8")
    yield page


OPENING = re.compile(
    r"- \*\*(?P<name>.*?)\*\*: (?P<fresh>On fresh seeds.* rates say: )?(?P<said>.*?)"
    r"(?P<small> Learning rates chosen .*)?"
)
"""A line of the list that a report opens with."""


def renewed(folder: Path) -> str:
    """Return a shipped report.md with the sentences of today's verdict, from its runs.csv."""
    text, runs = (folder / "report.md").read_text(encoding="utf-8"), folder / "runs.csv"
    with tempfile.TemporaryDirectory() as out:
        report = write_judged(judged([runs], Reading()).study, Path(out) / "judged")
        today = (report.folder / "report.md").read_text(encoding="utf-8").splitlines()
    said = {found["name"]: found["said"] for found in map(OPENING.fullmatch, today) if found}

    def line(text: str) -> str:
        if not (found := OPENING.fullmatch(text)):
            return text
        return f"- **{found['name']}**: {found['fresh'] or ''}{said[found['name']]}{found['small'] or ''}"

    return "\n".join(map(line, text.split("\n")))


def _figure(found: re.Match[str], kept: set[str]) -> str:
    return (
        f"{found['image']}{found['title']}.\n"
        if found["file"] in kept
        else f"{found['title']}: on that page.\n"
    )


def main() -> None:
    """Write the folder, and print its files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, nargs="?", help="a results directory")
    parser.add_argument("study", nargs="?", help="its name there")
    parser.add_argument(
        "--again", action="store_true", help="give all shipped reports today's verdict"
    )
    chosen = parser.parse_args()
    if chosen.again:
        for folder in sorted(path.parent for path in SHIPPED.glob("*/runs.csv")):
            (folder / "report.md").write_text(renewed(folder), encoding="utf-8")
        return
    if chosen.study is None:
        parser.error("want RESULTS and STUDY, or --again")
    report, folder = Paths(chosen.results).report(chosen.study), SHIPPED / chosen.study
    if not report.is_dir():
        parser.error(f"{report} is not there: run `lr-sweep report {chosen.study}` first")
    print("\n".join(map(str, ship(report, folder))))
    if (number := sum(1 for _ in folder.iterdir())) > MOST_FILES:
        parser.error(
            f"{folder} has {number} files, of at most {MOST_FILES}: remove those of an earlier result"
        )


if __name__ == "__main__":
    main()
