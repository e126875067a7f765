from pathlib import Path

from lr_sweep.benchmarks.lu2021_runs import lines

PAGE = Path(__file__).parents[2] / "docs" / "lu2021.md"


def test_the_page_has_the_numbers_of_runs() -> None:
    wanted, page = ("\n".join(lines()), PAGE.read_text())
    assert " ".join(wanted.split()) in " ".join(page.split()), "run: python -m benchmarks.lu2021_runs, put it in"
