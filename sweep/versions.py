"""Whether the libraries here are of versions that this program was tried with."""

from __future__ import annotations

from importlib import metadata

from packaging.requirements import Requirement

PROGRAM = "lr-sweep"


def untried_versions() -> list[str]:
    """Return a line for each library whose version is outside pyproject.toml's bounds, which `make test` was run at."""
    requirements = [Requirement(text) for text in metadata.requires(PROGRAM) or ()]
    needed = [each for each in requirements if not each.marker or each.marker.evaluate({"extra": ""})]
    return [
        f"{each.name} {version} is installed, but this program was tried with {each.specifier}: "
        f"if anything fails, `pip install '{each.name}{each.specifier}'`"
        for each in needed
        if (version := metadata.version(each.name)) not in each.specifier
    ]
