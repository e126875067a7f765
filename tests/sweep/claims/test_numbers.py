from __future__ import annotations

from lr_sweep.sweep.claims.bundle import VERSIONS
from lr_sweep.sweep.claims.numbers import count_numbers, report_problems

COMPUTED = {
    "report/runs.csv": b"a beats b-2 by 1.5 points (p 2e-08)\n",
    "report/index.html": b'<img src="data:image/png;base64,AAAA"> 94.61\n',
    VERSIONS: b'{"numpy": "2.0"}',
    "README.md": b"of 5 runs\n",
}


def problems(**changes: bytes) -> list[str]:
    files = {"md": "report/runs.csv", "html": "report/index.html", "readme": "README.md", "versions": VERSIONS}
    claimed = COMPUTED | {files.get(name, name): content for name, content in changes.items()}
    return [problem.partition(":")[0] for problem in report_problems(claimed, COMPUTED)]


def test_a_number_is_compared_up_to_rounding_and_a_word_as_it_is() -> None:
    assert problems() == []
    assert problems(md=b"a beats b-2 by 1.5000001 points (p 2e-08)\n") == []
    assert problems(md=b"a beats b-2 by 1.6 points (p 2e-08)\n") == ["report/runs.csv"]
    assert problems(md=b"a beats b-3 by 1.5 points (p 2e-08)\n") == ["report/runs.csv"]
    assert problems(md=b"a beats b-2 by 1.5 points (p 2e-08)\nb is worse\n") == ["report/runs.csv"]
    assert problems(readme=b"of 6 runs\n", more=b"text") == ["README.md", "more"]


def test_figures_are_compared_where_the_same_versions_drew_them() -> None:
    page = b'<img src="data:image/png;base64,BBBB"> 94.61\n'
    assert problems(html=page) == ["report/index.html"]
    assert problems(html=page, versions=b'{"numpy": "1.9"}') == []
    assert problems(html=page.replace(b"94.61", b"95.61"), versions=b"{}") == ["report/index.html"]
    assert problems(html=b"data:image/png;base64,BB wins\n", versions=b"{}") == ["report/index.html"]


def test_the_numbers_of_a_report_are_counted() -> None:
    assert count_numbers(COMPUTED) == 2
