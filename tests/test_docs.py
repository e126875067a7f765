from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.names import SYNONYMS
from lr_sweep.analysis.record.columns import markdown
from lr_sweep.sweep.study.file import load_study, shipped_studies
from lr_sweep.tests.support.tiny_study import arguments_of, said

ROOT = Path(__file__).parent.parent
PACKAGES = ("analysis", "common", "datasets", "sweep", "trainables")
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/RESULTS.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))


def test_each_version_of_the_changelog_is_short_and_the_newest_is_that_of_the_program() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    _, *sections = (ROOT / "CHANGELOG.md").read_text().split("\n## ")
    versions = [section for section in sections if not section.startswith("Unreleased")]
    assert versions[0].startswith(f"{version} (")
    assert [section[:40] for section in versions if not re.match(r"0\.\d+\.\d+ \(20\d\d-\d\d-\d\d\)\n", section)] == []
    assert [section[:40] for section in sections if len(section.splitlines()) > 60] == []


def test_the_record_s_page_is_what_the_schemas_say() -> None:
    page = (ROOT / "docs" / "record.md").read_text()
    assert page.endswith(markdown()), "run: python -m analysis.record.columns, and put it at the end of docs/record.md"


def test_the_study_of_the_readme_is_one(tmp_path: Path) -> None:
    (study,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    for name, text in {"mine.yaml": study, "train.py": "def train(): ...", "model.py": ""}.items():
        (tmp_path / name).write_text(text)
    assert load_study(tmp_path / "mine.yaml").study == "mine"


def test_the_study_for_those_who_come_from_elsewhere_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "coming-from.md").read_text()
    (study,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "train.py").write_text("def train(): ...")
    search, resources = (re.search(rf"`({key}: {{.*?}})`", page) for key in ("search", "resources"))
    assert search
    assert resources
    for text in (study, re.sub("learning_rates.*", f"{search[1]}\n{resources[1]}", study)):
        (tmp_path / "mine.yaml").write_text(text)
        assert load_study(tmp_path / "mine.yaml").study == "mine"


def test_the_page_of_judge_has_the_names_that_decide() -> None:
    page = re.sub(r"\s+", " ", (ROOT / "docs" / "judge.md").read_text())
    shown = [*SYNONYMS][: [*SYNONYMS].index("lower") + 1]
    lines = [f"- `{meaning}`: {', '.join(SYNONYMS[meaning].split())}" for meaning in shown]
    assert [line for line in lines if f"{line} " not in page] == []


def test_the_examples_of_judge_are_what_it_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    best = {"adam": (-3, 0.93), "muon": (-2, 0.955)}
    rows = [
        f"{name},1e{power},{seed},{top - 0.06 * (power - peak) ** 2 + ((seed + place) * 7 % 5 - 2) / 400:.4f}"
        for place, (name, (peak, top)) in enumerate(best.items())
        for power in range(-4, 0)
        for seed in range(3)
    ]
    text = "\n".join(rows) + "\n"
    Path("runs.csv").write_text(f"optimizer,lr,seed,val_acc\n{text}")
    Path("sweep.csv").write_text(f"setup,eta,rep,dev_f1\n{text.replace('adam', 'base').replace('muon', 'wide')}")
    page = (ROOT / "docs" / "judge.md").read_text()
    examples = re.findall(r"```console\n\$ lr-sweep (.*?)\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 3
    for command, output in examples:
        pattern = ".*".join(map(re.escape, output.strip().split("...")))
        assert re.search(pattern, said(*shlex.split(command))[1], re.DOTALL)


def test_the_messages_of_troubleshooting_are_messages() -> None:
    source = "\n".join(path.read_text() for top in PACKAGES for path in sorted((ROOT / top).rglob("*.py")))
    messages = re.findall(r"^- `(.*?)`: ", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE)
    assert len(messages) > 10
    assert [message for message in messages if message not in re.sub(r'"\s+f?"', "", source)] == []


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_the_tests_that_pages_name_are_there() -> None:
    named = {name for page in PAGES for name in re.findall(r"`(?:[\w/]+/)?(test_[a-z_*]+\.py)`", page.read_text())}
    assert len(named) > 20
    assert [name for name in sorted(named) if not any((ROOT / "tests").rglob(name))] == []


def test_the_tree_is_true_and_complete() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text().partition("## The tree")[2]
    tree = re.search(r"```text\n(.*?)```", text, re.DOTALL)
    assert tree is not None
    folders, named = [ROOT], set()
    for line in tree.group(1).splitlines():
        indent, name = re.match(r"( *)(\S+)", line).groups()  # type: ignore[union-attr]
        folders = [*folders[: len(indent) // 2 + 1], folders[len(indent) // 2] / name]
        assert folders[-1].exists(), line
        named.add(folders[-1])
    packages = [path.parent for top in PACKAGES for path in (ROOT / top).rglob("__init__.py")]
    assert {folder for folder in packages if folder not in named} == set()


def test_commands_in_the_docs_are_commands() -> None:
    commands = [command for page in PAGES for command in commands_in(page.read_text())]
    assert len(commands) > 8
    for command in commands:
        arguments_of(command.split())


def commands_in(text: str) -> list[str]:
    """Arguments of `lr-sweep` in code blocks and in running text."""
    blocks = "\n".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL))
    running = re.sub(r"\s+", " ", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    found = re.findall(r"lr-sweep ([a-z][^#&'\n]+)", blocks) + re.findall(r"`lr-sweep ([a-z][^`]+)`", running)
    return [command.strip() for command in found]


def test_checks_find_no_problem_in_results_of_shipped_studies() -> None:
    """docs/results also has studies of one learning rate, and two examples whose best rate is the largest tried.

    The quickstart's budget is so small that a variant still improves at its end.
    """
    found = {path.parent.name: json.loads(path.read_text()) for path in ROOT.glob("docs/results/*/checks.json")}
    assert len(found) >= 9
    shipped = {name: checks["num_problems"] for name, checks in found.items() if name in shipped_studies()}
    others = {"cifar10-at-one-rate", "listops-at-one-rate", "equal-digits", "lora-books", "league"}
    assert found.keys() - shipped.keys() == others
    assert {name for name, number in shipped.items() if number} == {"quickstart"}
