"""Lines of the ListOps release: sound ones against a writer and an evaluator written here, others refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lr_sweep.datasets.listops import release as listops_release
from lr_sweep.datasets.listops.examples import VOCABULARY
from lr_sweep.datasets.listops.release import parse
from lr_sweep.datasets.task import DataError
from lr_sweep.tests.support.task_files import evaluate

Tree = int | tuple[str, list["Tree"]]

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
GOOD = "( ( ( [MED 1 ) 4 ) ] )\t2"

digits = st.integers(0, 9)
trees = st.recursive(
    digits, lambda below: st.tuples(st.sampled_from(OPERATORS), st.lists(below, min_size=1, max_size=10)), max_leaves=40
)


def tokens_of(tree: Tree) -> list[str]:
    if isinstance(tree, int):
        return [str(tree)]
    operator, arguments = tree
    return [operator, *(token for argument in arguments for token in tokens_of(argument)), "]"]


def written(tree: Tree) -> str:
    """Write an expression as the Long Range Arena does: a tree of pairs, operator and arguments joined one by one."""
    if isinstance(tree, int):
        return str(tree)
    operator, arguments = tree
    text = operator
    for argument in [*map(written, arguments), "]"]:
        text = f"( {text} {argument} )"
    return text


def value_of(tree: Tree) -> int:
    if isinstance(tree, int):
        return tree
    operator, arguments = tree
    values = [value_of(argument) for argument in arguments]
    return evaluate([operator, *map(str, values), "]"]) if len(values) > 1 else values[0]  # of one, each is the one


def ids(tree: Tree) -> bytes:
    return bytes(VOCABULARY.index(token) for token in tokens_of(tree))


def test_a_line_by_hand() -> None:
    tree: Tree = ("[SM", [1, ("[MIN", [5, 4])])
    assert written(tree) == "( ( ( [SM 1 ) ( ( ( [MIN 5 ) 4 ) ] ) ) ] )"
    assert parse(written(tree)) == (bytes([14, 2, 11, 6, 5, 15, 15]), 5)
    assert parse("7") == (bytes([8]), 7)


@settings(max_examples=100, deadline=None)
@given(trees)
def test_sound_lines_are_read_and_evaluated(tree: Tree) -> None:
    assert parse(written(tree)) == (ids(tree), value_of(tree))


@settings(max_examples=200, deadline=None)
@given(trees, st.data())
def test_a_changed_line_is_another_expression_or_refused(tree: Tree, data: st.DataObject) -> None:
    """A line is sound if and only if it is what some expression is written as."""
    line = written(tree)
    start = data.draw(st.integers(0, len(line)))
    end = data.draw(st.integers(start, min(len(line), start + 6)))
    put = data.draw(
        st.sampled_from(["", " ", "(", ")", "( ", " )", "]", "] ", "[", "1", "1 ", "[MAX ", "[SM", "X", "é"])
    )
    changed = line[:start] + put + line[end:]
    if is_written(changed):
        parse(changed)
    else:
        with pytest.raises(ValueError, match="got .*, want"):
            parse(changed)


def is_written(line: str) -> bool:
    """Return whether a line is what `written` makes of some tree, by taking pairs apart from the inside."""
    pair = re.compile(r"\( (?:(?P<half>\[(?:MIN|MAX|MED|SM)|h) (?P<whole>[0-9w])|(?P<open>h) (?P<end>\])) \)")
    while (match := pair.search(line)) is not None:
        line = line[: match.start()] + ("w" if match["end"] else "h") + line[match.end() :]
    return re.fullmatch("[0-9w]", line) is not None


LEFT = "after its sound operations were evaluated, want a digit"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("( ( ( [MAXX 2 ) 9 ) ] )\t9", f"Source: got '( ( ( [MAXX 2 ) 9 ) ] )' {LEFT}"),
        ("( ( ( [MAX ( ( [MIN 1 ) ] ) ) 12 ) ] )\t9", f"Source: got '( ( ( [MAX 1 ) 12 ) ] )' {LEFT}"),
        ("( ( ( [MAX 2 )  9 ) ] )\t9", f"Source: got '( ( ( [MAX 2 )  9 ) ] )' {LEFT}"),
        (" 9\t9", f"Source: got ' 9' {LEFT}"),
        ("\t9", f"Source: got '' {LEFT}"),
        ("( ( ( [MAX 2 ) 9 ) ] ) 3\t9", f"Source: got '9 3' {LEFT}"),
        ("( [MAX ] )\t9", f"Source: got '( [MAX ] )' {LEFT}"),
        ("( ( ( ( [MAX 2 ) 9 ) ] )\t9", f"Source: got '( ( ( ( [MAX 2 ) 9 ) ] )' {LEFT}"),
        ("( ( ( [MAX 2 ) 9 ) ] )\t10", "Target: got '10', want '9', the value of Source"),
        ("( ( ( [MAX 2 ) 9 ) ] )", "Target: got '', want '9', the value of Source"),
        (written(("[MAX", [2] * 18)) + "\t2", "Source: got 20 tokens, want fewer than 20"),
    ],
)
def test_a_bad_line_is_named_with_what_was_got_and_wanted(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "basic_test.tsv"
    path.write_text(f"Source\tTarget\n{GOOD}\n{line}\n{GOOD}\n")
    with pytest.raises(DataError) as raised:
        listops_release.read(path, max_tree_length=20)
    assert str(raised.value) == (
        f"listops: 1 of 3 examples in {path} are not the Long Range Arena's:\n  line 3: {problem}\n"
        f"Unpack its lra_release.gz again, or set `source: generated`."
    )


def test_the_first_bad_lines_are_shown_and_all_counted(tmp_path: Path) -> None:
    path = tmp_path / "basic_test.tsv"
    path.write_text("Source\tTarget\n" + f"{GOOD}\n" * 1500 + "12\t1\n" * 1500)
    with pytest.raises(DataError) as raised:
        listops_release.read(path, max_tree_length=20)
    lines = str(raised.value).splitlines()
    assert lines[0].startswith("listops: 1500 of 3000 examples in ")
    shown = [f"  line {number}" for number in (1502, 1503, 1504)]
    assert [line.split(":")[0] for line in lines[1:-1]] == [*shown, "  and 1497 more"]


def test_columns_may_stand_in_another_order(tmp_path: Path) -> None:
    path = tmp_path / "basic_test.tsv"
    path.write_bytes(b"Target\tnote\tSource\r\n2\t\t( ( ( [MED 1 ) 4 ) ] )\r\n")
    examples = listops_release.read(path, max_tree_length=6)
    assert examples.inputs.tolist() == [[13, 2, 5, 15, 0, 0]]
    assert examples.labels.dtype == np.uint8
    assert examples.labels.tolist() == [2]
