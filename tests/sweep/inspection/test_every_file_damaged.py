"""Every kind of file of a results directory, damaged in every way: `verify` notices it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lr_sweep.analysis.record.columns import PROPOSALS, RUNGS
from lr_sweep.common.files import hash_file, sealed, sealed_text
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.records import four_runs, run_id_of, verify_lines, write
from lr_sweep.tests.support.tiny_study import refused, said

RUN = run_id_of(0)
CHECKPOINT, WEIGHTS = "checkpoints/*/*.safetensors", "pretrained/*/model.safetensors"
CONTENT = {
    "empty": lambda content: b"",
    "flipped": lambda content: _flipped(content),
    "cut": lambda content: content[: len(content) // 2],
}
PLACE: dict[str, Callable[[Path], object]] = {
    "folder": lambda path: path.mkdir(),
    "looping": lambda path: path.symlink_to(path),
    "pipe": lambda path: os.mkfifo(path),
}
READ = [
    *(f"runs/{RUN}.parquet", f"curves/{RUN}.parquet", CHECKPOINT, WEIGHTS, "pretrained/*/config.json"),
    *("pretrained/*/generation_config.json", "pretrained/*/pretraining.json", "studies/first/first.yaml"),
    *("studies/first/study.json", "studies/first/wanted.parquet"),
    *("studies/first/proposals.parquet", "studies/first/rungs.parquet"),
]
"""Files whose content has a checksum."""
FOLDERS = ["runs", "curves", "studies", "checkpoints", f"checkpoints/{RUN}", "pretrained"]


def _flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results directory with every kind of file, written as a sweep writes it."""
    made = four_runs(tmp_path_factory.mktemp("sound") / "results")
    study, (weights,) = made.study("first"), made.pretrained.iterdir()
    cell = {"task": "digits", "model": "tiny", "variant": "unfrozen-random", "learning_rate": 1e-2}
    write(
        made.proposals("first"),
        [cell | {"number": 0, "round": 1, "sampler": "tpe", "options": None, "seed": None}],
        PROPOSALS,
    )
    write(study / "rungs.parquet", [cell | {"step": 10, "value": 0.5, "num_compared": 1, "kept": True}], RUNGS)
    (study / "first.yaml").write_bytes(sealed_text("study: first\nseeds: 10\n"))
    (study / "study.json").write_text(json.dumps(sealed(json.loads((study / "study.json").read_text()))))
    others = {f"{name}.json": hash_file(weights / f"{name}.json") for name in ("config", "generation_config")}
    facts = {"weights_sha256": hash_file(weights / "model.safetensors"), "files_sha256": others}
    (weights / "pretraining.json").write_text(json.dumps(sealed(facts)))
    return made.root


@pytest.fixture
def results(sound: Path, tmp_path: Path) -> Results:
    return Results(Path(shutil.copytree(sound, tmp_path / "results")))


def damage(path: Path, harm: str) -> None:
    if harm in CONTENT:
        path.write_bytes(CONTENT[harm](path.read_bytes()))
        return
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    PLACE[harm](path)


def test_a_directory_with_every_kind_of_file_is_sound(results: Results) -> None:
    (line,) = verify_lines(results)
    assert ": no problems" in line


@pytest.mark.parametrize("pattern", READ)
def test_verify_names_it(results: Results, pattern: str) -> None:
    path = min(results.root.glob(pattern))
    whole = path.read_bytes()
    for harm in (*CONTENT, *PLACE):
        damage(path, harm)
        lines = verify_lines(results)
        (problem,) = (line for line in lines[:-1] if str(path) in line or f"{path.parent}: " in line)
        assert problem.startswith("problem: "), harm
        if pattern == CHECKPOINT and harm == "cut":
            assert problem.startswith(f"problem: {path}: its sha256 begins with ")
            assert problem.endswith(": delete it; its run resumes from an earlier one, or from step 0")
        path.rmdir() if harm == "folder" else path.unlink()
        path.write_bytes(whole)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_is_a_link_to_nothing_does_not_count_as_empty(results: Results, name: str) -> None:
    shutil.rmtree(results.root / name)
    (results.root / name).symlink_to(results.root / "nothing")
    code, printed = said("verify", "--results", results.root)
    assert code == (2 if name in ("runs", "curves", "studies") else 1)
    assert f"cannot read {results.root / name}: " in printed


@pytest.mark.parametrize("name", ["runs", "curves", "studies", "studies/first"])
def test_a_folder_of_the_record_that_is_a_link_is_neither_read_nor_written(
    results: Results, tmp_path: Path, name: str
) -> None:
    (results.root / name).rename(tmp_path / "elsewhere")
    (results.root / name).symlink_to(tmp_path / "elsewhere")
    before = sorted(tmp_path.rglob("*"))
    for command in (["ls"], ["verify"], ["report", "first"], ["run", "quickstart"]):
        assert f"{results.root / name}: a link may lead anywhere" in refused(*command, "--results", results.root)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", [f"runs/{RUN}.parquet", "studies/first/study.json", "studies/first/wanted.parquet"])
def test_a_file_of_the_record_that_is_a_link_is_not_read(results: Results, tmp_path: Path, name: str) -> None:
    (results.root / name).rename(tmp_path / "elsewhere")
    (results.root / name).symlink_to(tmp_path / "elsewhere")
    assert f"cannot read {results.root / name}: it is no plain file" in refused("ls", "--results", results.root)


@pytest.mark.parametrize("harm", PLACE)
def test_readers_do_not_take_what_is_no_file_for_a_run_that_is_missing(results: Results, harm: str) -> None:
    damage(results.run(RUN), harm)
    assert f"cannot read {results.run(RUN)}: " in refused("ls", "first", "--results", results.root)
