"""A task's identity covers its code: what counts as a change, and which files belong to a task."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from lr_sweep.common.source_code import code_of, source_versions, version_here
from lr_sweep.datasets import SHIPPED, TASKS, data_checksum, task_sources
from lr_sweep.sweep.results.changes import ENGINES
from lr_sweep.sweep.results.changes import code_of as code_of_runs
from lr_sweep.trainables.models import FAMILIES

LOADER = '''"""What I do."""

from lr_sweep.datasets import images


def shape(options, data_dir=None):
    """4 tokens."""
    return 4


def load(options, data_dir):
    from mine_package.parts import scaled  # late

    return scaled("a # b")


checksum = origin = fetch = shape
'''


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("x = 1", "x = 1  # one", True),
        ("x = 1", "\n# about x\n\nx = 1   \n", True),
        ('def f():\n    """Do."""\n    return 1', 'def f():\n    """Do\n\n    it.\n    """\n    return 1', True),
        ('x = 1\n"""About x."""', "x = 1", True),
        ("x = 1", "x = 2", False),
        ('x = "# a"', 'x = "# b"', False),
        ('f("a")', 'f("b")', False),
        ('x = (\n    "a"\n)', 'x = (\n    "b"\n)', False),
        ("if x:\n    f()\ng()", "if x:\n    f()\n    g()", False),
        ("x = 1", "x = (", False),  # half an edit
    ],
)
def test_what_counts_as_a_change(before: str, after: str, same: bool) -> None:
    assert (code_of(before) == code_of(after)) == same


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A task of the user's own, in a package of its own."""
    package = tmp_path / "mine_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text("from .more import factor\n\ndef scaled(x):\n    return x\n")
    (package / "more.py").write_text("factor = 1\n")
    (package / "unrelated.py").write_text("factor = 1\n")
    (package / "task.py").write_text(LOADER)
    monkeypatch.syspath_prepend(tmp_path)
    import importlib

    module = importlib.import_module("mine_package.task")
    monkeypatch.setitem(TASKS, "mine", module)  # type: ignore[arg-type]
    yield module
    for name in [name for name in sys.modules if name.split(".")[0] == "mine_package"]:
        del sys.modules[name]


def test_the_files_of_a_task_are_those_it_imports(mine: ModuleType) -> None:
    assert list(task_sources(TASKS["mine"])) == [
        "datasets/images.py",
        *(f"mine_package/{name}.py" for name in ("more", "parts", "task")),
    ]


def test_every_file_of_a_task_of_ones_own_changes_its_checksum(mine: ModuleType, tmp_path: Path) -> None:
    seen = [data_checksum("mine", None, tmp_path)]
    assert seen[0].startswith("4+")
    for name in ("task", "parts", "more"):
        path = tmp_path / "mine_package" / f"{name}.py"
        path.write_text(path.read_text() + f"{name}_changed = True\n")
        seen.append(data_checksum("mine", None, tmp_path))
        path.write_text(path.read_text() + "# and a comment\n")
        assert data_checksum("mine", None, tmp_path) == seen[-1]
    assert len(set(seen)) == 4
    (tmp_path / "mine_package" / "unrelated.py").write_text("factor = 2\n")
    assert data_checksum("mine", None, tmp_path) == seen[-1]


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_a_shipped_task_is_known_by_its_checksum_alone(name: str, tmp_path: Path) -> None:
    options = TASKS[name].Options()
    assert data_checksum(name, options, tmp_path) == TASKS[name].checksum(options, tmp_path)


def test_the_shipped_tasks_files() -> None:
    assert TASKS.keys() >= SHIPPED.keys()
    assert list(task_sources(TASKS["digits"])) == [f"datasets/{name}.py" for name in ("digits", "images", "task")]
    assert "datasets/cifar10.py" in task_sources(TASKS["cifar10-lra"])
    assert "datasets/listops_examples.py" in task_sources(TASKS["listops"])


@pytest.mark.parametrize("engine", ENGINES)
def test_the_engines_files(engine: str) -> None:
    assert find_spec(ENGINES[engine]) is not None
    found = code_of_runs("digits", [ENGINES[engine], FAMILIES["gpt2"]])
    assert {
        "trainables/plain/engine.py",
        "trainables/models/gpt2.py",
        "trainables/run.py",
        "datasets/digits.py",
    } <= found.keys()
    assert ("trainables/stacked/layers.py" in found) == (engine == "stacked")
    assert not {"trainables/worker/session.py", "trainables/worker/ray_trainable.py"} & found.keys()
    assert all(version_here(file) == version for file, version in found.items())


def test_a_version_of_no_file() -> None:
    assert version_here("trainables/no_such_file.py") == "gone"
    assert version_here("the examples of mine") is None
    assert source_versions(["no_such_module", "lr_sweep.trainables.no_such_module"]) == {}
