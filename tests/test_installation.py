"""What `pip install` makes of the program, and that it leaves the name `datasets` to Hugging Face's package."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lr_sweep.analysis.record.read import read_runs
from lr_sweep.benchmarks.house import modules_of
from lr_sweep.sweep.cluster.jobs import SENT
from lr_sweep.tests.support.servers.local_head import local_head
from lr_sweep.tests.support.tiny_study import ROOT, environment, rows, write_study

SHIPPED = {".py", ".yaml", ".css", ".js", ".html", ".svg", ".csv", ".json", ".safetensors", ".sh", ".typed"}
BOTH_ORDERS = """
import sys
{first}
{second}
assert "lr_sweep" not in datasets.__file__, datasets.__file__
assert "digits" in lr_sweep.datasets.TASKS
print(datasets.load_dataset)
"""
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = {"sweep/starters/lightning/train.py": "lightning"}
"""What a module may import besides the dependencies that all have. Who imports it says which extra is missing."""


def undeclared(file: str, text: str) -> set[str]:
    """Return the distributions that a module imports, anywhere in it, and pyproject.toml does not name for it."""
    project = PYPROJECT["project"]
    extra = project["optional-dependencies"][EXTRAS[file]] if file in EXTRAS else []
    declared = {canonicalize_name(Requirement(each).name) for each in [*project["dependencies"], *extra]}
    ours_or_pythons = {*SENT, "lr_sweep", *sys.stdlib_module_names}
    return {
        name
        for name in top_level_imports(text) - ours_or_pythons
        if not declared & set(map(canonicalize_name, DISTRIBUTIONS.get(name, [name])))
    }


def top_level_imports(text: str) -> set[str]:
    nodes = list(ast.walk(ast.parse(text)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0]
    return {name.split(".")[0] for name in names}


DISTRIBUTIONS = metadata.packages_distributions()


def test_every_import_is_a_declared_dependency() -> None:
    """What another package brings along is missing where it does not, as Ray's own copy of psutil."""
    assert undeclared("sweep/a.py", "def f():\n    import pytest, ray.tune, lr_sweep.sweep, os") == {"pytest"}
    texts = {path.relative_to(ROOT).as_posix(): text for path, text in modules_of(ROOT).items()}
    texts.pop("analysis/judge/pytest_plugin.py")  # which pytest itself imports
    assert {file: found for file, text in texts.items() if (found := undeclared(file, text))} == {}


def test_pyproject_names_every_package() -> None:
    named = PYPROJECT["tool"]["setuptools"]["packages"]
    folders = [path.parent.relative_to(ROOT) for top in SENT for path in (ROOT / top).rglob("__init__.py")]
    there = {".".join(["lr_sweep", *folder.parts]) for folder in folders} | {"lr_sweep"}
    assert there - set(named) == set(), "[tool.setuptools] packages in pyproject.toml lacks these: add a line for each"
    assert set(named) - there == set(), "[tool.setuptools] packages in pyproject.toml names these, which do not exist"


@dataclass(frozen=True)
class Installed:
    """An environment with a wheel in it, and the packages of this one."""

    wheel: Path
    programs: Path
    elsewhere: Path
    """An empty folder."""

    def say(self, *words: str | Path, env: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            [self.programs / words[0], *words[1:]],
            cwd=self.elsewhere,
            env=environment() if env is None else env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


def pip(*words: str | Path) -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "--quiet", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Build and install a wheel without the network, from the files that a cluster's machines are given."""
    # Not find_spec("pip"): setuptools' finder then gives up its distutils in this process, and Inductor fails later.
    if not any(metadata.distributions(name="pip")):
        pytest.skip("needs pip in the environment")
    if int(metadata.version("setuptools").split(".")[0]) < 77:
        pytest.skip("needs setuptools 77 or newer in the environment")
    folder = tmp_path_factory.mktemp("installed")
    (folder / "source").mkdir()
    (folder / "elsewhere").mkdir()
    for source in yaml.safe_load((ROOT / "cluster.yaml").read_text())["file_mounts"].values():
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, folder / "source" / source, ignore=shutil.ignore_patterns("__pycache__"))
        elif (ROOT / source).is_file():
            shutil.copy(ROOT / source, folder / "source")
    pip("wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", folder / "dist", folder / "source")
    (wheel,) = (folder / "dist").iterdir()
    venv.create(folder / "env", symlinks=True)
    pip("--python", folder / "env" / "bin" / "python", "install", "--no-deps", "--no-index", wheel)
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    # Below a .pth file's folder other .pth files are not read: an editable install of the checkout has no effect.
    (site / "borrowed.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    (site / "datasets").mkdir()
    (site / "datasets" / "__init__.py").write_text("def load_dataset(path): ...\n")
    return Installed(wheel, folder / "env" / "bin", folder / "elsewhere")


@pytest.mark.slow
def test_the_wheel_has_the_program_and_nothing_else(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    sent = [path for name in SENT for path in (ROOT / name, *(ROOT / name).rglob("*"))]
    assert names == {f"lr_sweep/{path.relative_to(ROOT).as_posix()}" for path in sent if path.suffix in SHIPPED}


@pytest.mark.slow
def test_datasets_stays_the_other_package(installed: Installed) -> None:
    ours, theirs = "import lr_sweep.datasets", "import datasets"
    for first, second in ((ours, theirs), (theirs, ours)):
        assert "load_dataset" in installed.say("python", "-c", BOTH_ORDERS.format(first=first, second=second))


@pytest.mark.slow
@pytest.mark.cluster
def test_a_study_runs_in_an_empty_folder(installed: Installed) -> None:
    study = write_study(installed.wheel.parent)
    printed = installed.say("lr-sweep", "run", study, "--cpus", "2")
    assert "4 runs wanted: all complete" in printed
    assert len(rows(installed.elsewhere / "results")) == 4


@pytest.mark.slow
@pytest.mark.cluster
def test_a_cluster_runs_the_installed_program(installed: Installed, tmp_path: Path) -> None:
    """The program that is sent comes before the one in the environment of the cluster's machines, a checkout's."""
    study = write_study(tmp_path)
    with local_head(tmp_path) as head:
        paths = ("--results", tmp_path / "results", "--data-dir", tmp_path / "data", "--address", head.address)
        env = head.environment | {"PATH": f"{installed.programs}{os.pathsep}{head.environment['PATH']}"}
        printed = installed.say("lr-sweep", "submit", study, *paths, env=env)
    assert "4 runs wanted: all complete" in printed
    commits = read_runs(tmp_path / "results")["git_commit"]
    assert commits.isna().all(), commits  # the checkout's code would have recorded its commit
