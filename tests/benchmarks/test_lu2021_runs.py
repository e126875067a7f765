from pathlib import Path

from lr_sweep.benchmarks.lu2021_runs import lines

PAGE = Path(__file__).parents[2] / "docs" / "lu2021.md"


def test_the_page_has_the_numbers_of_runs() -> None:
    page = " ".join(PAGE.read_text().split())
    *rows, _, _, sentence = lines()
    counts = [[int(cell) for cell in row.strip("| ").split(" | ")[2::2]] for row in rows[2:]]
    assert all(swept == 9 * runs for runs, swept in counts)
    assert f"A table has {min(counts)[0]} to {max(counts)[0]} runs at the paper's rates, and nine times" in page
    assert sentence in page
