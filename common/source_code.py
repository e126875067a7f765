"""Which source code numbers come from, read from files without importing them.

A version of a file is a hash of its code alone: comments, docstrings and blank lines change no number.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import io
import sys
import tokenize
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

PROGRAM, DATASETS = "lr_sweep.", "lr_sweep.datasets"
CHECKOUT = Path(__file__).resolve().parent.parent
"""The folder that `datasets` and `trainables` are in: the checkout, or `lr_sweep` where it is installed."""
_STARTS = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def source_versions(modules: Iterable[str]) -> dict[str, str]:
    """Return the versions, by path, of modules and of what they import of `datasets` and of their own packages.

    Top-level packages that are not ours must have been imported.
    """
    left, files = list(modules), dict[str, Path]()
    packages = {DATASETS, *map(_package, left)}
    while left:
        module = left.pop()
        path = None if module in files else _file_of(module)
        if path is not None:
            files[module] = path
            package = module if path.name == "__init__.py" else module.rpartition(".")[0]
            left += [
                name for name in _imported(path, package) if name != _package(name) in packages
            ]
    return {_name_of(module, path): _version(path) for module, path in sorted(files.items())}


def version_here(file: str) -> str | None:
    """Return the version of a source file of this checkout by its path in it; None: it is the name of none."""
    if not file.endswith(".py"):
        return None
    path = CHECKOUT / file
    return _version(path) if path.is_file() else "gone"


def code_of(source: str) -> str:
    """Return a source text without comments, docstrings, blank lines and spaces at the ends of lines."""
    lines = source.splitlines()
    try:
        spans = _spans_without_code(source)
    except (SyntaxError, tokenize.TokenError):  # half an edit
        return source
    for (row, column), (end_row, end_column) in reversed(spans):
        lines[row - 1 : end_row] = [lines[row - 1][:column] + lines[end_row - 1][end_column:]]
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _spans_without_code(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return start and end of comments and of strings that are statements, in order, as (row from 1, column)."""
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type != tokenize.NL
    ]
    ignored = [token for token in tokens if token.type == tokenize.COMMENT]
    code = [token for token in tokens if token.type != tokenize.COMMENT]
    types = [tokenize.NEWLINE, *(token.type for token in code)]
    for token, before, after in zip(code, types, types[2:], strict=False):
        if before in _STARTS and token.type == tokenize.STRING and after == tokenize.NEWLINE:
            ignored.append(token)
    return sorted((token.start, token.end) for token in ignored)


def _version(path: Path) -> str:
    stat = path.stat()
    return _version_at(path, stat.st_mtime_ns, stat.st_size)


@lru_cache
def _version_at(path: Path, mtime_ns: int, num_bytes: int) -> str:
    return code_hash(code_of(path.read_text(encoding="utf-8", errors="replace")))


def code_hash(text: str) -> str:
    """Return 16 hexadecimal digits that identify a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _imported(path: Path, package: str) -> Iterator[str]:
    with suppress(SyntaxError):
        yield from imported_names(
            ast.parse(path.read_text(encoding="utf-8", errors="replace")), package
        )


def imported_names(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield the dotted names that a module of a package imports, anywhere in it; names of attributes are among them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # relative, from above the top-level package
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                yield from (base, *(f"{base}.{alias.name}" for alias in node.names))


def _package(module: str) -> str:
    """Return the package that imports are followed in: `lr_sweep.datasets` and the like, or a top-level one."""
    return ".".join(module.split(".")[: 2 if module.startswith(PROGRAM) else 1])


def _file_of(module: str) -> Path | None:
    """Return the file of a module below an imported top-level package; None: it is no module."""
    top, *below = module.split(".")
    package = sys.modules.get(top)
    if not below:
        file = getattr(package, "__file__", None)
        return Path(file) if file else None
    for folder in getattr(package, "__path__", ()):
        for path in (
            Path(folder, *below[:-1], f"{below[-1]}.py"),
            Path(folder, *below, "__init__.py"),
        ):
            if path.is_file():
                return path
    return None


def _name_of(module: str, path: Path) -> str:
    name = module.removeprefix(PROGRAM).replace(".", "/")
    return f"{name}/__init__.py" if path.name == "__init__.py" else f"{name}.py"
