from pathlib import Path

from lr_sweep.benchmarks.lu2021_runs import lines

PAGE = Path(__file__).parents[2] / "docs" / "lu2021.md"


def test_the_page_has_the_numbers_of_runs() -> None:
    page = " ".join(PAGE.read_text().split())
    *rows, _, _, sentence = lines()
    for row in rows[2:]:
        table, _, runs, _, swept, _ = row.strip("| ").split(" | ")
        assert f"{table}: {runs}, {swept} " in page
    assert sentence in page
