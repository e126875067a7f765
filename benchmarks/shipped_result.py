"""Makes a study's folder of docs/results: `python -m benchmarks.shipped_result RESULTS STUDY`.

RESULTS is the results directory that the study was run into; `lr-sweep report STUDY` has written its report.
`--again` gives every report the verdict and the comparisons that `judge` has of its runs today.
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

from lr_sweep.analysis.judge.fresh import UNTIL_DECIDED, on_fresh_seeds
from lr_sweep.analysis.judge.judge import judged, write_judged
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.record.study import Fresh

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
FURTHER_FIGURES = ("target.png",)
FRESH = "fresh.csv"
"""The fresh runs of a study that has some."""
NUMBER_OF_FRESH = {SAMPLE: Fresh(max=5)}
"""Studies with a fixed number of fresh seeds; the others added them until pairs were decided."""
LAW = re.compile(r"(.*: )?[Tt]he best learning rate (falls|rises|may|changes)")
"""How a sentence on a law begins."""
TABLE = " at the chosen learning rates, "
"""Part of the title of a table of the variants."""
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
    for path in (*figures, *(report / name for name in copied), *report.glob(FRESH)):
        yield Path(shutil.copyfile(path, folder / path.name))
    page = folder / "report.md"
    text = (report / page.name).read_text(encoding="utf-8")
    text = FIGURE.sub(lambda found: _figure(found, kept), text).replace(*SHOWS)
    page.write_text(text, encoding="utf-8")
    yield page


RENEWED = ("How sure", "Conclusions over the learning rate")
"""Sections of a shipped report that are those of today's program."""
OUTDATED = "Decided with fresh seeds"
"""A section of earlier versions: the verdict has what it said."""


def renewed(folder: Path) -> str:
    """Return a shipped report.md with the verdict and the comparisons that its runs have today.

    Its fresh runs, if there are some, are compared as `judge --decide` does.
    """
    shipped = (folder / "report.md").read_text(encoding="utf-8")
    judgement = judged([folder / "runs.csv"], Reading())
    if (table := folder / FRESH).exists():
        fresh = NUMBER_OF_FRESH.get(folder.name, UNTIL_DECIDED)
        judgement = on_fresh_seeds(judgement, str(table), fresh)
    with tempfile.TemporaryDirectory() as out:
        report = write_judged(judgement.study, Path(out) / "judged")
        today = (report.folder / "report.md").read_text(encoding="utf-8")
    new, (opening, *sections) = dict(_sections(today)), _sections(shipped)
    kept = [(name, new.get(name, text) if name in RENEWED else text) for name, text in sections]
    parts = [f"## {name}\n{text}" for name, text in kept if name != OUTDATED]
    return "\n".join([_with_verdict(opening[1], new[""]), *parts])


def _sections(report: str) -> list[tuple[str, str]]:
    """Split a report at its headings: their names and texts; the opening has no name."""
    opening, *sections = report.split("\n## ")
    split = [section.partition("\n") for section in sections]
    return [("", opening), *((name, text) for name, _, text in split)]


def _with_verdict(opening: str, today: str) -> str:
    """Replace the verdict of an opening, a list, and the tables of the variants below it; laws are first."""
    title, *paragraphs = opening.split("\n\n")
    before = set(_verdict(opening))
    others = [text for text in paragraphs if text not in before]
    laws = [text for text in others if LAW.match(text)]
    rest = [text for text in others if text not in laws]
    return "\n\n".join([title, *laws, *_verdict(today), *rest])


def _verdict(opening: str) -> list[str]:
    """Return the paragraphs of the verdict, and of the tables of the variants."""
    paragraphs = opening.split("\n\n")
    follows = [False, *(TABLE in text for text in paragraphs)]
    return [
        text
        for text, is_table in zip(paragraphs, follows, strict=False)
        if text.startswith("- **") or TABLE in text or is_table
    ]


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
