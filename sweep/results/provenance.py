"""Which commit and which packages produced a result, and whether the program was tried with them."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata

from packaging.requirements import Requirement

from lr_sweep.common.source_code import CHECKOUT

PACKED_STATE = "packed.json"
"""In a checkout that was packed and sent to a cluster: the commit and whether it had changes, where it was packed."""

PACKAGES = ("torch", "torchvision", "transformers", "ray", "numpy", "scikit-learn", "safetensors", "pyarrow")


def package_versions() -> str:
    """Return a JSON object of package to version, Python included."""
    return json.dumps({"python": sys.version.split()[0]} | {name: metadata.version(name) for name in PACKAGES})


def git_state() -> tuple[str | None, bool | None]:
    """Return the commit of the code and whether the checkout had changes; None, None outside a git checkout."""
    if (CHECKOUT / PACKED_STATE).is_file():
        packed = json.loads((CHECKOUT / PACKED_STATE).read_text())
        return packed["git_commit"], packed["git_dirty"]
    if not (CHECKOUT / ".git").exists():  # an installation may be below a folder of another repository
        return None, None
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no")
    return (commit, None if changes is None else bool(changes)) if commit else (None, None)


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", CHECKOUT, *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def untried_versions() -> list[str]:
    """Return a line for each library whose version is outside pyproject.toml's bounds, which `make test` was run at."""
    requirements = [Requirement(text) for text in metadata.requires("lr-sweep") or ()]
    needed = [each for each in requirements if not each.marker or each.marker.evaluate({"extra": ""})]
    return [
        f"{each.name} {version} is installed, but this program was tried with {each.specifier}: "
        f"if anything fails, `pip install '{each.name}{each.specifier}'`"
        for each in needed
        if (version := metadata.version(each.name)) not in each.specifier
    ]
