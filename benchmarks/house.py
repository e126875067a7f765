"""The size and shape of a checkout: lines, words of docs, functions, imports between folders, circles of imports.

    python -m benchmarks.house [CHECKOUT]

Counts the program's packages in this checkout, or in another commit's. A code line is a line that is not blank, comment
or docstring, of a constant or field either. A token is a name, keyword, operator, bracket, number or string of the code
lines, as Python 3.11 splits them: an f-string is one token. An arrow is a module that imports another; imports in
functions count. CHANGELOG.md is no page of docs. Generated pages are counted apart.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from statistics import median

from lr_sweep.benchmarks.shared import parser_of
from lr_sweep.common.source_code import code_of

HERE = Path(__file__).resolve().parent.parent
NUM_DENSEST = 10
PACKAGES = ("analysis", "common", "datasets", "sweep", "trainables")
GENERATED = ("docs/commands.md", "docs/study-file.md")
"""Pages that a benchmark writes from the program."""


def main() -> None:
    """Print the tree of a checkout."""
    parser = parser_of(__doc__)
    parser.add_argument("checkout", nargs="?", type=Path, default=HERE)
    root: Path = parser.parse_args().checkout
    modules = modules_of(root)
    arrows = arrows_of(root, modules)
    print(f"{'folder':<32}{'modules':>8}{'lines':>8}{'code lines':>12}{'tokens':>8}{'a line':>8}")
    for folder in [*sorted({path.parent for path in modules}), None]:
        texts = [text for path, text in modules.items() if folder in (None, path.parent)]
        codes = [code_of(text) for text in texts]
        lines, code_lines = (
            sum(len(text.splitlines()) for text in counted) for counted in (texts, codes)
        )
        tokens = sum(map(num_tokens, codes))
        name = folder.relative_to(root).as_posix() if folder else "all"
        counts = f"{len(texts):>8}{lines:>8}{code_lines:>12}{tokens:>8}"
        print(f"{name:<32}{counts}{tokens / max(code_lines, 1):>8.1f}")
    print("\nthe densest modules, in tokens a code line")
    for density, path in sorted(densities(modules), reverse=True)[:NUM_DENSEST]:
        print(f"{path.relative_to(root).as_posix():<56}{density:>8.1f}")
    lengths = sorted(length for text in modules.values() for length in function_lines(text))
    longest = max(modules, key=lambda path: len(modules[path].splitlines()))
    print(f"\nlines of tests           {num_lines(root / 'tests')}")
    print(f"lines of benchmarks      {num_lines(root / 'benchmarks')}")
    pages = words(root)
    generated = sum(pages.get(page, 0) for page in GENERATED)
    print(
        f"words of docs            {sum(pages.values()) - generated}, of which README.md {pages['README.md']}"
    )
    print(f"words of generated pages {generated}")
    tenth = lengths[len(lengths) * 9 // 10]
    print(
        f"functions                {len(lengths)}, median {median(lengths)} lines, nine of ten within {tenth}"
    )
    print(
        f"longest module           {longest.relative_to(root)}, {len(modules[longest].splitlines())} lines"
    )
    folders = {(user.rpartition(".")[0], used.rpartition(".")[0]) for user, used in arrows}
    print(f"arrows between modules   {len(arrows)}")
    print(f"arrows between folders   {sum(user != used for user, used in folders)}")
    print(f"circles of modules       {circles(arrows) or 'none'}")


def num_lines(folder: Path) -> int:
    """Return how many lines the modules of a folder have."""
    return sum(len(path.read_text().splitlines()) for path in folder.rglob("*.py"))


def num_tokens(code: str) -> int:
    """Return how many tokens a text without comments and docstrings has; new lines and indents are none."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return sum(
        token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
        for token in tokens
    )


def densities(modules: Mapping[Path, str]) -> Iterator[tuple[float, Path]]:
    """Yield tokens a code line of each module that has any."""
    for path, text in modules.items():
        if code := code_of(text):
            yield num_tokens(code) / len(code.splitlines()), path


def function_lines(text: str) -> Iterator[int]:
    """Yield the length of each function, in lines without its docstring and comments."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield len(code_of(ast.unparse(node)).splitlines())


def words(root: Path) -> dict[str, int]:
    """Return how many words each page has, as `wc -w` counts them, by its path in the checkout; no reports of runs."""
    folders = [root, root / "benchmarks", root / "docs", *(root / "docs").glob("*/")]
    pages = [
        page for folder in folders for page in folder.glob("*.md") if page.name != "CHANGELOG.md"
    ]
    return {page.relative_to(root).as_posix(): len(page.read_text().split()) for page in pages}


def modules_of(root: Path) -> dict[Path, str]:
    """Return the text of each module of a checkout."""
    return {
        path: path.read_text()
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
    }


def arrows_of(root: Path, modules: Mapping[Path, str]) -> set[tuple[str, str]]:
    """Return which module imports which."""
    names = {_dotted(path.relative_to(root)): path for path in modules}
    return {
        (name, used)
        for name, path in names.items()
        for used in imported(modules[path], names, _dotted(path.parent.relative_to(root)))
        if used != name
    }


def _dotted(path: Path) -> str:
    """Return a module's name; that of a package's `__init__` is the package's."""
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def imported(text: str, names: Collection[str], package: str) -> Iterator[str]:
    """Yield the modules and packages of the checkout that a module of a package imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules = {alias.name.removeprefix("lr_sweep.") for alias in node.names}
            yield from modules & set(names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            room = f"{package}." if node.level else ""
            base = room + node.module.removeprefix("lr_sweep.")
            for name in (f"{base}.{alias.name}" for alias in node.names):
                module = name if name in names else base
                if module in names:
                    yield module


def circles(arrows: set[tuple[str, str]]) -> list[str]:
    """Return the groups of names that import each other, however far around."""
    reached = {name: {used for user, used in arrows if user == name} for name, _ in arrows}
    before = -1
    while before != (before := sum(map(len, reached.values()))):
        reached = {
            name: all_used.union(*(reached.get(used, ()) for used in all_used))
            for name, all_used in reached.items()
        }
    groups = {
        frozenset({name} | {used for used in all_used if name in reached.get(used, ())})
        for name, all_used in reached.items()
    }
    return sorted(" <-> ".join(sorted(group)) for group in groups if len(group) > 1)


if __name__ == "__main__":
    main()
