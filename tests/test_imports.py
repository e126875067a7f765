"""Which way imports run, and what can be imported without what."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from lr_sweep.benchmarks.house import arrows_of, circles, modules_of
from lr_sweep.tests.support.records import SyntheticRecord
from lr_sweep.tests.support.tiny_study import runs_of, write_study

ROOT = Path(__file__).parent.parent
BLOCK = """
import importlib, sys
blocked, wanted = sys.argv[1].split(","), sys.argv[2].split(",")
class Hiding:  # as if the packages were not installed: also for libraries that only ask whether they are
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in blocked else self.finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self.finder, name)
sys.meta_path[:] = map(Hiding, sys.meta_path)
for name in wanted:
    importlib.import_module(name)
"""
RUN = """
import json
from lr_sweep.sweep.cli.parser import main
sys.exit(max(main(words) for words in json.loads(sys.argv[3])))
"""
PACKAGES = ("common", "datasets", "trainables", "sweep", "analysis")
NEEDS_RAY = {"lr_sweep.trainables.worker.ray_trainable"}


def test_no_module_imports_another_that_imports_it() -> None:
    assert circles({("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")}) == ["a <-> b <-> c"]
    arrows = arrows_of(ROOT, modules_of(ROOT))
    assert len(arrows) > 500
    assert circles(arrows) == []


def test_a_circle_through_a_package_is_seen() -> None:
    texts = {
        "sweep/a/__init__.py": "from lr_sweep.sweep.b import thing",
        "sweep/b.py": "def f():\n    from lr_sweep.sweep.a import load",
    }
    arrows = arrows_of(ROOT, {ROOT / path: text for path, text in texts.items()})
    assert circles(arrows) == ["sweep.a <-> sweep.b"]


def modules(package: str) -> list[str]:
    files = [path for path in sorted((ROOT / package).rglob("*.py")) if path.stem not in ("__main__", "__init__")]
    return [".".join(["lr_sweep", *path.relative_to(ROOT).with_suffix("").parts]) for path in files]


@cache
def imported(module: str, package: str = "lr_sweep.") -> set[str]:
    """Top-level names that a module imports anywhere in it; of this program's own, the names below a package."""
    tree = ast.parse((ROOT / f"{module.removeprefix('lr_sweep.').replace('.', '/')}.py").read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    room = module.rpartition(".")[0]
    names |= {
        f"{room}.{node.module}" if node.level else node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
    }
    return {name.removeprefix(package).split(".")[0] for name in names}


@pytest.mark.parametrize(
    ("package", "never"),
    [
        ("common", {"datasets", "trainables", "sweep", "analysis"}),
        ("datasets", {"trainables", "sweep", "analysis", "ray", "mlflow", "optuna", "pydantic"}),
        ("trainables", {"sweep", "analysis", "mlflow", "optuna", "pydantic"}),
        ("analysis", {"trainables", "sweep", "datasets", "torch", "ray"}),
    ],
)
def test_imports_run_one_way(package: str, never: set[str]) -> None:
    assert len(modules(package)) > 3
    wrong = {module: found for module in modules(package) if (found := imported(module) & never)}
    assert wrong == {}


@pytest.mark.parametrize(
    ("room", "below"),
    [
        ("record", {"metric"}),
        ("statistics", {"record", "metric"}),
        ("report", {"record", "statistics", "metric"}),
        ("paper", {"record", "statistics", "report", "metric"}),
    ],
)
def test_the_rooms_of_analysis_import_one_way(room: str, below: set[str]) -> None:
    """Statistics neither format nor draw; the report does not know the paper."""
    found = {module: imported(module, "lr_sweep.analysis.") for module in modules(f"analysis/{room}")}
    assert len(found) > 2
    rooms = {"record", "statistics", "report", "paper", "judge", "metric"}
    rooms |= {"study_report", "study_summary"}
    assert {module: wrong for module, names in found.items() if (wrong := names & rooms - below - {room})} == {}


def test_statistics_write_no_files_and_draw_nothing() -> None:
    never = {"pathlib", "json", "html", "matplotlib"}
    wrong = {module: found for module in modules("analysis/statistics") if (found := imported(module) & never)}
    assert wrong == {}


def test_figures_do_without_pyplot() -> None:
    """It keeps figures, and takes time to import. Optuna's plots need it."""
    files = set((ROOT / "analysis").rglob("*.py")) - {ROOT / "analysis" / "report" / "search_figures.py"}
    assert [path for path in files if re.search(r"import .*pyplot", path.read_text())] == []


def test_ray_stays_in_few_modules() -> None:
    everything = [module for package in PACKAGES for module in modules(package)]
    with_ray = {module for module in everything if "ray" in imported(module)}
    training = {"lr_sweep.trainables.worker.ray_internals"}
    training |= {f"lr_sweep.sweep.tune.{name}" for name in ("nodes", "ray_session", "tuner")}
    clusters = {f"lr_sweep.sweep.cluster.{name}" for name in ("jobs", "ssh")}
    assert with_ray == NEEDS_RAY | training | clusters


def test_what_ray_does_not_document_is_used_in_one_module() -> None:
    internal = re.compile(
        r"\b(import|from) ray\S*\._|\bray\._|\bray\.(experimental|core|tune\.(execution|search)|widgets)\b"
    )
    texts = {path.relative_to(ROOT).as_posix(): text for path, text in modules_of(ROOT).items()}
    ours = ["trainables/worker/ray_internals.py"]
    assert [name for name, text in texts.items() if internal.search(text)] == ours


def run_without(blocked: list[str], wanted: list[str], script: str = "", *arguments: str | Path) -> str:
    """Import modules in a process where packages are hidden, then run a script there; return what it printed."""
    command = [sys.executable, "-c", BLOCK + script, ",".join(blocked), ",".join(wanted), *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_training_needs_no_ray() -> None:
    wanted = [name for package in ("datasets", "trainables") for name in modules(package) if name not in NEEDS_RAY]
    run_without(["ray", "mlflow", "optuna", "pydantic", "torchvision", "sklearn"], wanted)


TWICE = """
import runpy
sys.argv[1:] = sys.argv[3:]
try:
    runpy.run_module("sweep", run_name="__main__", alter_sys=True)
except SystemExit as ended:
    ours = ("analysis", "common", "datasets", "sweep", "trainables")
    short = [name for name in sys.modules if name.split(".")[0] in ours]
    assert short == ["sweep"], short  # its __init__.py, which holds a docstring alone
    sys.exit(ended.code)
"""


def test_a_grid_needs_no_optuna_and_no_module_is_imported_by_two_names(tmp_path: Path) -> None:
    """`python -m sweep` in the checkout could import everything once more by its short name."""
    modules = ["lr_sweep.sweep.tune.run_study"]
    run_without(["optuna"], modules, TWICE, "plan", "quickstart", "--results", tmp_path)


SLOW = ["torch", "ray", "mlflow", "optuna", "matplotlib", "transformers", "sklearn", "huggingface_hub", "torchvision"]


def test_looking_is_quick(tmp_path: Path) -> None:
    """`show` and `plan` use the statistics of the report; the others need not even pandas."""
    study = write_study(tmp_path)
    record = SyntheticRecord(tmp_path / "results", "tiny")
    for run in runs_of(study, record.results):
        record.wanted.append(run.row())
    record.end(record.wanted[0], [(10, 0.5, 0.5)], "complete", 20)
    record.write()
    at = ["--results", str(record.results)]
    lines = [["status", str(study), *at], ["ls", *at]]
    printed = run_without([*SLOW, "pandas"], ["sys"], RUN, json.dumps(lines))
    assert all(text in printed for text in ("A small study", "  tiny"))
    assert "validation accuracy" in run_without(
        SLOW, ["sys"], RUN, json.dumps([["show", record.wanted[0]["run_id"], *at]])
    )
    planned = run_without(SLOW, ["sys"], RUN, json.dumps([["plan", str(study), *at]]))
    assert all(text in planned for text in ("1 complete", "finds"))


def test_analysis_and_judge_need_neither_torch_nor_ray(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("lr,seed,val_acc\n0.1,0,0.5\n0.01,0,0.6\n0.001,0,0.5\n")
    line = ["judge", str(tmp_path / "runs.csv"), "--out", str(tmp_path / "out")]
    hidden = ["torch", "ray", "mlflow", "sklearn", "transformers"]
    run_without(hidden, modules("analysis"), RUN, json.dumps([line]))
    assert (tmp_path / "out" / "index.html").exists()
