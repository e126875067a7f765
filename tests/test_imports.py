"""Which way imports run, and what can be imported without what."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.synthetic_record import SyntheticRecord
from tests.tiny_study import runs_of, write_study

ROOT = Path(__file__).parent.parent

BLOCK = """
import importlib, sys
blocked, wanted = sys.argv[1].split(","), sys.argv[2].split(",")
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in blocked:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocker())
for name in wanted:
    importlib.import_module(name)
"""
RUN = """
from sweep.cli import main
sys.exit(main(sys.argv[3:]))
"""
NEEDS_RAY = {"trainables.ray_trainable"}


def modules(package: str) -> list[str]:
    return [f"{package}.{path.stem}" for path in sorted((ROOT / package).glob("*.py")) if path.stem != "__main__"]


def imported(module: str) -> set[str]:
    """Top-level names that a module imports anywhere in it."""
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize(
    ("package", "never"),
    [
        ("datasets", {"trainables", "sweep", "analysis", "ray", "mlflow", "optuna", "pydantic"}),
        ("trainables", {"sweep", "analysis", "mlflow", "optuna", "pydantic"}),
        ("analysis", {"datasets", "trainables", "sweep", "torch", "ray"}),
    ],
)
def test_imports_run_one_way(package: str, never: set[str]) -> None:
    assert len(modules(package)) > 5
    wrong = {module: found for module in modules(package) if (found := imported(module) & never)}
    assert wrong == {}


def test_ray_stays_in_few_modules() -> None:
    everything = [module for package in ("datasets", "trainables", "sweep", "analysis") for module in modules(package)]
    with_ray = {module for module in everything if "ray" in imported(module)}
    training = {"trainables.leaving", "sweep.machines", "sweep.trials", "sweep.tune_callback"}
    training |= {"sweep.ray_session", "sweep.private_ray"}
    clusters = {"sweep.cluster_jobs", "sweep.package", "sweep.tunnels"}
    assert with_ray == NEEDS_RAY | training | clusters


@pytest.mark.parametrize(
    ("blocked", "wanted"),
    [
        (
            ["ray", "mlflow", "optuna", "pydantic"],
            [name for name in modules("datasets") + modules("trainables") if name not in NEEDS_RAY],
        ),
        (["torch", "ray", "mlflow", "sklearn"], modules("analysis")),
        (["torch", "ray", "mlflow", "pandas", "transformers"], ["sweep.cli"]),
    ],
    ids=["training needs no Ray", "analysis needs no torch", "help is quick"],
)
def test_what_can_be_imported_without_what(blocked: list[str], wanted: list[str]) -> None:
    arguments = [sys.executable, "-c", BLOCK, ",".join(blocked), ",".join(wanted)]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


SLOW = ["torch", "ray", "mlflow", "optuna", "matplotlib", "transformers", "sklearn", "huggingface_hub", "torchvision"]


@pytest.mark.parametrize("command", ["plan", "status", "ls", "show"])
def test_looking_is_quick(tmp_path: Path, command: str) -> None:
    """`show` draws a curve by the statistics of the report; the others need not even pandas."""
    study = write_study(tmp_path)
    record = SyntheticRecord(tmp_path / "results", "tiny")
    for run in runs_of(study, record.results):
        record.wanted.append(run.row())
    record.end(record.wanted[0], [(10, 0.5, 0.5)], "complete", 20)
    record.write()
    blocked = SLOW if command == "show" else [*SLOW, "pandas"]
    named = {"ls": [], "show": [record.wanted[0]["run_id"]]}.get(command, [str(study)])
    arguments = [sys.executable, "-c", BLOCK + RUN, ",".join(blocked), "sys", command, *named]
    arguments += ["--results", str(record.results)]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {"plan": "1 complete", "status": "A small study", "ls": "  tiny", "show": "best"}[command] in done.stdout
