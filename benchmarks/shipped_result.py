"""Makes a study's folder of docs/results: `python -m benchmarks.shipped_result RESULTS STUDY`.

RESULTS is the results directory that the study was run into; `lr-sweep report STUDY` has written its report.
`--again` writes every report.md anew from its runs, but for the sections that need the record, and
the reports of the bundles.
Tables as files, the paper's further figures and the page are left out: report.md has the tables, and
`lr-sweep judge runs.csv` writes the page again. One page is kept as a sample.
"""

from __future__ import annotations

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
from lr_sweep.benchmarks.shared import parser_of
from lr_sweep.tests.support.claims import report_again

SHIPPED = Path(__file__).parent.parent / "docs" / "results"
MOST_FILES = 8
COPIED = ("runs.csv", "checks.json")
PAGE, SAMPLE = "index.html", "quickstart"
"""A report's page, and the study whose page is kept."""
SHOWS = (
    f"`{PAGE}`, beside this file, has",
    "The page that `lr-sweep judge runs.csv` writes has",
)
"""Sentences of report.md about the page: where it is there, and where it is not."""
FIGURES = ("law-*.png", "learning-rates-*.png")
"""Of the first that a report has, all; curves of every size would be many."""
FRESH = "fresh.csv"
"""The fresh runs of a study that has some."""
NUMBER_OF_FRESH = {SAMPLE: Fresh(max=5)}
"""Studies with a fixed number of fresh seeds; the others added them until pairs were decided."""
FIGURE = re.compile(r"(?P<image>!\[[^\]]*\]\((?P<file>[^)]+)\)\n\n)(?P<title>[^\n]*)\.\n")
"""A figure of report.md, with the line below it."""


def ship(report: Path, folder: Path) -> Iterator[Path]:
    """Copy what docs/results keeps of a report into a folder, and yield each file; other files there stay."""
    folder.mkdir(parents=True, exist_ok=True)
    figures_by_pattern = (sorted(report.glob(pattern)) for pattern in FIGURES)
    figures = next(filter(None, figures_by_pattern), [])
    kept = {path.name for path in figures}
    copied = [*COPIED, *[PAGE] * (folder.name == SAMPLE)]
    for path in (*figures, *(report / name for name in copied), *report.glob(FRESH)):
        yield Path(shutil.copyfile(path, folder / path.name))
    page = folder / "report.md"
    text = (report / page.name).read_text(encoding="utf-8")
    text = FIGURE.sub(lambda match: _figure(match, kept), text).replace(*SHOWS)
    page.write_text(text, encoding="utf-8")
    yield page


KEPT = re.compile(
    r"Checks|The best learning rate|Steps to a target|What was trained|How it was made|"
    r"Rothermel et al. 2021|Lu et al. 2021, .*"
)
"""Sections of a shipped report that need its record; all others are made of its runs."""
LAW = re.compile(r"^(?:.*: )?[Tt]he best learning rate (?:falls|rises|may) .*$", re.MULTILINE)
"""A sentence on a law, which needs the record."""
STATUS = re.compile(r"^.*\d+ runs? .*Checks: .*$", re.MULTILINE)
"""The paragraph that counts runs and findings."""
READ = "How the table was read"
"""A section of today's report that is of `judge` alone."""


def renewed(folder: Path) -> str:
    """Return the report.md that a shipped study's runs have today, with the sections that need its record.

    Its fresh runs, if there are some, are compared as `judge --fresh` does. The study's name and the chosen figure
    stay.
    """
    shipped = (folder / "report.md").read_text(encoding="utf-8")
    judgement = judged([folder / "runs.csv"], Reading())
    if (table := folder / FRESH).exists():
        fresh = NUMBER_OF_FRESH.get(folder.name, UNTIL_DECIDED)
        judgement = on_fresh_seeds(judgement, str(table), fresh)
    with tempfile.TemporaryDirectory() as out:
        report = write_judged(judgement.study, Path(out) / "judged")
        today = (report.folder / "report.md").read_text(encoding="utf-8")
        for figure in folder.glob("learning-rates-*.png"):
            figure.unlink()
            if (drawn := report.folder / figure.name).exists():
                shutil.copyfile(drawn, figure)
    kept = {path.name for path in folder.iterdir()}
    today = FIGURE.sub(lambda match: _figure(match, kept), today).replace(*SHOWS)
    title, recorded = shipped.partition("\n")[0], dict(_sections(shipped))
    (_, opening), *sections = _sections(today)
    opening = opening.replace(opening.partition("\n")[0], title, 1)
    if status := STATUS.search(shipped):
        opening = STATUS.sub(lambda _: status[0], opening)
    parts = [opening, *(f"{law}\n" for law in LAW.findall(shipped.partition("\n## ")[0]))]
    made = [(name, text) for name, text in sections if name != READ and not KEPT.fullmatch(name)]
    kept_sections = [(name, text) for name, text in recorded.items() if KEPT.fullmatch(name)]
    parts += [f"## {name}\n{text}" for name, text in [*made, *kept_sections]]
    text = "\n".join(part.rstrip("\n") + "\n" for part in parts)
    return text.replace("Best of so many learning rates: on that page.\n\n", "")


def _sections(report: str) -> list[tuple[str, str]]:
    """Split a report at its headings: their names and texts; the opening has no name."""
    opening, *sections = report.split("\n## ")
    split = [section.partition("\n") for section in sections]
    return [("", opening), *((name, text) for name, _, text in split)]


def _figure(match: re.Match[str], kept: set[str]) -> str:
    return (
        f"{match['image']}{match['title']}.\n"
        if match["file"] in kept
        else f"{match['title']}: on that page.\n"
    )


def main() -> None:
    """Write the folder, and print its files."""
    parser = parser_of(__doc__)
    parser.add_argument("results", type=Path, nargs="?", help="a results directory")
    parser.add_argument("study", nargs="?", help="its name there")
    parser.add_argument("--again", action="store_true", help="write all shipped reports anew")
    chosen = parser.parse_args()
    if chosen.again:
        for folder in sorted(path.parent for path in SHIPPED.glob("*/runs.csv")):
            (folder / "report.md").write_text(renewed(folder), encoding="utf-8")
        for folder in sorted(SHIPPED.glob("*/bundle")):
            report_again(folder)
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
