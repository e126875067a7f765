"""What code and packages produced a result."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from datasets import TASKS
from datasets.sources import source_versions, task_sources

CHECKOUT = Path(__file__).resolve().parent.parent
"""The folder that `sweep`, `trainables`, `datasets` and `analysis` are in."""

ENGINES = {"stacked": "trainables.stacked_training", "plain": "trainables.training"}
"""The module that each engine is in."""

PACKED_STATE = "packed.json"
"""In a checkout that was packed and sent to a cluster: what git said of it where it was packed."""

PACKAGES = ("torch", "torchvision", "transformers", "ray", "numpy", "scikit-learn", "safetensors", "pyarrow")


def package_versions() -> str:
    """Return a JSON object of package to version, Python included."""
    return json.dumps({"python": sys.version.split()[0]} | {name: metadata.version(name) for name in PACKAGES})


def git_state() -> tuple[str | None, bool | None]:
    """Return the commit of the code and whether the checkout had changes; None, None outside a git checkout."""
    if (CHECKOUT / PACKED_STATE).is_file():
        packed = json.loads((CHECKOUT / PACKED_STATE).read_text())
        return packed["git_commit"], packed["git_dirty"]
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no")
    return (commit, None if changes is None else bool(changes)) if commit else (None, None)


def code_of(task: str, engine: str) -> dict[str, str]:
    """Return the versions of the files that a task's data and an engine's numbers come from, by path."""
    engine_code = source_versions([ENGINES[engine]], {"trainables", "datasets"})
    task_code = {file: version for file, version in task_sources(TASKS[task]).items() if (CHECKOUT / file).is_file()}
    return engine_code | task_code


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", CHECKOUT, *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
