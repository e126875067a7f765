"""Which source code a task's data comes from, read from files: nothing that is looked at is imported.

A version of a file is a hash of its code alone: comments, docstrings and blank lines change no number.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import sys
import tokenize
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from datasets import SHIPPED, TASKS
from datasets.task import Task

CHECKOUT = Path(__file__).resolve().parent.parent
"""The folder that `datasets` and `trainables` are in."""
INTERFACE = "datasets/task.py"
"""Every task imports it; `PROTOCOL_VERSION` covers it in a run's id."""
_DEFINING = ("shape", "checksum", "origin", "fetch", "load")


def data_checksum(name: str, options: Any, data_dir: Path) -> str:
    """Identify what a task loads, for the ids of its runs.

    That is the task's own `checksum` and, of a task that is not shipped, the version of its source: the modules that
    define it, and what they import of `datasets` and of their own package.

    Raises:
        DataError: data files are there but cannot be identified.
    """
    checksum = TASKS[name].checksum(options, data_dir)
    if name in SHIPPED:
        return checksum
    sources = {file: version for file, version in task_sources(TASKS[name]).items() if file != INTERFACE}
    return f"{checksum}+{_hash(json.dumps(sources, sort_keys=True))}"


def task_sources(task: Task) -> dict[str, str]:
    """Return the versions of the files that define a task, by path."""
    modules = {getattr(getattr(task, name, None), "__module__", None) for name in _DEFINING}
    modules.add(getattr(task, "__name__", None))
    found = sorted(module for module in modules if isinstance(module, str))
    return source_versions(found, {"datasets", *(module.split(".")[0] for module in found)})


def source_versions(modules: Iterable[str], packages: Collection[str]) -> dict[str, str]:
    """Return the versions of modules and of what they import of some packages, however far.

    Args:
        modules: dotted names.
        packages: top-level names; imports from elsewhere are not followed, nor is a package's own `__init__.py`.

    Returns:
        By path, relative to the folder that the top-level package is in.
    """
    left, found = list(modules), dict[str, Path]()
    while left:
        module = left.pop()
        path = _file_of(module)
        if path is None or module in found:
            continue
        found[module] = path
        imported = _imported(path, module if path.name == "__init__.py" else module.rpartition(".")[0])
        left += [name for name in imported if "." in name and name.split(".")[0] in packages]
    return {_relative(module, path): file_version(path) for module, path in sorted(found.items())}


def version_here(file: str) -> str | None:
    """Return the version of a source file of this checkout by its path in it; None: it is the name of none."""
    if not file.endswith(".py"):
        return None
    path = CHECKOUT / file
    return file_version(path) if path.is_file() else "gone"


def file_version(path: Path) -> str:
    """Return 16 hex digits of the sha256 of a file's code."""
    stat = path.stat()
    return _file_version(path, stat.st_mtime_ns, stat.st_size)


@lru_cache
def _file_version(path: Path, mtime_ns: int, size: int) -> str:
    return _hash(code_of(path.read_text(encoding="utf-8", errors="replace")))


def code_of(source: str) -> str:
    """Return a source text without comments, docstrings, blank lines and spaces at the ends of lines."""
    lines = source.splitlines()
    try:
        spans = list(_spans_without_code(source))
    except (SyntaxError, tokenize.TokenError):  # half an edit
        return source
    for (row, column), (end_row, end_column) in reversed(spans):
        lines[row - 1 : end_row] = [lines[row - 1][:column] + lines[end_row - 1][end_column:]]
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _spans_without_code(source: str) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield start and end of comments and of strings that are statements, as (row from 1, column)."""
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type != tokenize.NL]
    kinds = [tokenize.NEWLINE, *(token.type for token in tokens if token.type != tokenize.COMMENT)]
    place = 0  # in `kinds`, which has no comments and one more in front
    for token in tokens:
        if token.type == tokenize.COMMENT:
            yield token.start, token.end
            continue
        place += 1
        begins = kinds[place - 1] in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        if token.type == tokenize.STRING and begins and kinds[place + 1] == tokenize.NEWLINE:
            yield token.start, token.end


def _imported(path: Path, package: str) -> Iterator[str]:
    """Yield the dotted names that a file imports, anywhere in it; names of attributes are among them."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _file_of(module: str) -> Path | None:
    """Return the file of a module of this checkout, or of another folder if its top-level package was imported."""
    folder = _folder_of(module.split(".")[0])
    if folder is None:
        return None
    path = folder.joinpath(*module.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _folder_of(top: str) -> Path | None:
    if (CHECKOUT / top).is_dir() or (CHECKOUT / f"{top}.py").is_file():
        return CHECKOUT
    file = getattr(sys.modules.get(top), "__file__", None)
    if file is None:
        return None
    path = Path(file).resolve()
    return path.parent.parent if path.name == "__init__.py" else path.parent


def _relative(module: str, path: Path) -> str:
    folder = _folder_of(module.split(".")[0])
    assert folder is not None, "it was found there"
    return path.relative_to(folder).as_posix()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
