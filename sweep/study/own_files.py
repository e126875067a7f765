"""The files that a study of one's own training function names: patterns expanded, contents read and hashed."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationInfo

from lr_sweep.common.files import hash_file
from lr_sweep.sweep.study.validation import Mistakes, mistake, shown
from lr_sweep.trainables.own.code import module_name
from lr_sweep.trainables.own.run import OwnFiles

MAX_CODE_BYTES = 2_000_000
"""Of all code files: they travel with every run."""
WANTED = "a list of paths and patterns that start from the study file's folder, such as [train.py, parts/*.py]"


def code_files(value: Any, info: ValidationInfo) -> OwnFiles:
    """Read the code files that a study names, by default the trainable's alone, or raise all mistakes in them."""
    trainable = info.data.get("trainable")
    if trainable is None:  # it is a mistake itself
        return OwnFiles(trainable="", code={}, folders=())
    folder, main = _folder(info), trainable.partition(":")[0]
    paths = _expanded((main,) if value is None else value, folder)
    if main not in paths:
        raise ValueError(f"it lacks {main}, the file of `trainable`")
    if (size := sum(path.stat().st_size for path in paths.values())) > MAX_CODE_BYTES:
        raise ValueError(f"these files have {size:,} bytes, want {MAX_CODE_BYTES:,} at most; data belongs in `data`")
    code = {name: path.read_bytes() for name, path in paths.items()}
    files = OwnFiles(trainable=trainable, code=code, folders=(folder,))
    _check_modules(files, folder)
    return files


def data_files(value: Any, info: ValidationInfo) -> dict[str, str]:
    """Return the sha256 of the data files that a study names, or raise all mistakes in them.

    A mapping of names to sha256, as `run` writes it, may name files that are not beside the study.
    """
    folder = _folder(info)
    if not isinstance(value, Mapping):
        return {name: _hash_at(path, path.stat().st_mtime_ns) for name, path in _expanded(value, folder).items()}
    mistakes = Mistakes()
    for name, sha256 in value.items():
        with mistakes.below(name):
            path = _below(folder, name)
            if path.is_file() and (got := _hash_at(path, path.stat().st_mtime_ns)) != sha256:
                raise ValueError(f"{path} has sha256 {got}, the study says {shown(sha256)}")
    mistakes.raise_all()
    return dict(value)


def _folder(info: ValidationInfo) -> Path:
    assert info.context, "a study of one's own function is read from a file"
    folder: Path = info.context["folder"]
    return folder


@lru_cache
def _hash_at(path: Path, mtime_ns: int) -> str:
    return hash_file(path)


def _expanded(patterns: Any, folder: Path) -> dict[str, Path]:
    """Return the files that patterns stand for, by their names relative to the folder, sorted."""
    if not isinstance(patterns, tuple):
        raise ValueError(f"got {shown(patterns)}, want {WANTED}")
    mistakes, found = Mistakes(), dict[str, Path]()
    for index, pattern in enumerate(patterns):
        with mistakes.below(index):
            found |= _matches(pattern, folder)
    mistakes.raise_all()
    return dict(sorted(found.items()))


def _matches(pattern: Any, folder: Path) -> dict[str, Path]:
    if not isinstance(pattern, str) or not pattern:
        raise ValueError(f"got {shown(pattern)}, want a path or a pattern")
    path = _below(folder, pattern)
    paths = [path] if path.is_file() else [each for each in folder.glob(pattern) if each.is_file()]
    if not paths:
        raise ValueError(f"no file {pattern} in {folder}; paths start from the study file's folder")
    return {each.relative_to(folder).as_posix(): each for each in paths}


def _below(folder: Path, name: str) -> Path:
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\0" in name:
        raise ValueError(f"got {shown(name)}, want a path below the study file's folder, without '..'")
    return folder / name


def _check_modules(files: OwnFiles, folder: Path) -> None:
    """Raise mistakes in what the code defines and imports, as far as its text shows them."""
    main, _, function = files.trainable.partition(":")
    mistakes = Mistakes()
    for name, text in files.code.items():
        if not name.endswith(".py"):
            continue
        if module_name(name) in sys.stdlib_module_names:
            mistakes.add(f"{name} would hide a module of Python's own; rename it")
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError) as error:
            mistakes.add(f"{name} is no Python: {error}")
            continue
        unlisted = {module for module in imported_beside(tree, folder) if module not in files.code}
        mistakes_of = [f"{name} imports {module}, which is not listed; add it" for module in sorted(unlisted)]
        for text_of in mistakes_of:
            mistakes.add(text_of)
        if name == main and function not in (defined := sorted(_names_of(tree))):
            mistakes.add(f"{main} defines no {function!r}; it has {', '.join(defined) or 'no function'}")
    mistakes.raise_all()


def imported_beside(tree: ast.Module, folder: Path) -> Iterator[str]:
    """Yield the files below a folder that a module imports, anywhere in it."""
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            stem = name.replace(".", "/")
            yield from (file for file in (f"{stem}.py", f"{stem}/__init__.py") if (folder / file).is_file())


def _names_of(tree: ast.Module) -> Iterator[str]:
    """Yield the names of functions and classes, and of what is imported or assigned at the top of a module."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom | ast.Import):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def trainable_text(value: str) -> str:
    """Check the form `train.py:train`."""
    file, _, name = value.partition(":")
    parts = PurePosixPath(file).with_suffix("").parts
    if not file.endswith(".py") or not name.isidentifier() or not all(part.isidentifier() for part in parts):
        raise mistake(f"got {shown(value)}, want a file and a function in it, such as train.py:train")
    return value
