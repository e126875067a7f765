"""Names in backticks, in docstrings and comments, are those of something that exists."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from lr_sweep.benchmarks.house import modules_of
from lr_sweep.common.source_code import code_of

ROOT = Path(__file__).parent.parent
NAME = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[a-z]\w*_\w+|[A-Z]\w*[a-z]\w*)(?:\(\))?`")
"""A dotted name, a name with an underscore, or one with capitals: what cannot be a plain word."""
OTHER_FILES = ("*.md", "*.yaml", "*.toml", "*.html", "*.js", "Makefile")
FOREIGN = [
    "Grayscale",
    "Record",
    "add_hparams",
    "empty_table",
    "initializer_range",
    "local_files_only",
    "n_inner",
    "set_state_dict",
    "wandb_internal",
    "proto",
    "best_val_acc",
    "loss_weight",
    "min_accuracy",
    "test_accuracy",
    "train_accuracy",
    "seed_0",
    "seed_1",
]
"""Names of libraries that the code does not use, and of columns that stand as examples."""
TEST = re.compile(r"def (test_\w+)")
WORD = re.compile(r"\w+")


def words_of_code(modules: dict[Path, str]) -> set[str]:
    """Return all words of the code without docstrings and comments, of file names and of files beside the code."""
    texts = [code_of(text) for text in modules.values()]
    texts += [str(path) for path in modules]
    texts += [path.read_text() for pattern in OTHER_FILES for path in ROOT.glob(pattern)]
    texts += [path.read_text() for path in (ROOT / "sweep").rglob("*.yaml")]
    for path in (ROOT / "tests").rglob("*.py"):  # docstrings name the tests of what they explain
        texts += [path.name, *TEST.findall(path.read_text())]
    return {word for text in texts for word in WORD.findall(text)} | set(FOREIGN)


def prose_of(text: str) -> Iterator[str]:
    """Yield the comments and the strings of a module; docstrings are among them."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.string


def stale_names(modules: dict[Path, str], words: set[str]) -> list[str]:
    """Return the names in backticks of which a part is no word of the code."""
    return sorted(
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in modules.items()
        for prose in prose_of(text)
        for name in NAME.findall(prose)
        if not set(name.split(".")) <= words
    )


def test_names_in_backticks_exist() -> None:
    modules = modules_of(ROOT)
    assert stale_names(modules, words_of_code(modules)) == []


def test_a_stale_name_is_seen() -> None:
    path = ROOT / "analysis" / "some.py"
    text = '"""Sorts as `pairs.most_equal` and `best_of`, which `sort` is not."""\n'
    assert stale_names({path: text}, {"best_of", "pairs"}) == ["analysis/some.py: pairs.most_equal"]
