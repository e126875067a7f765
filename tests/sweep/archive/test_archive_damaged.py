"""An export of a results directory with damage: the rest can be imported, and the damage is named.

Every kind of file in every way is damaged in `tests/sweep/inspection/test_every_file_damaged.py`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lr_sweep.analysis.record.columns import RUNS
from lr_sweep.sweep.archive.exporter import Exported, export
from lr_sweep.sweep.archive.importer import import_archive
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.command_lines import refused, said, succeeds
from lr_sweep.tests.support.records import (
    Trained,
    add,
    add_study,
    add_weights,
    files,
    four_runs,
    new_results,
    row,
    run_id_of,
    write,
)

TWO = Trained(evaluations=2)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return four_runs(tmp_path_factory.mktemp("sound") / "results").root


def exported(results: Results, *names: str) -> tuple[Exported, Results]:
    """Export with checkpoints, and import into an empty directory."""
    archive = results.root.parent / "a.tar"
    archive.unlink(missing_ok=True)
    done, into = export(results, archive, names, checkpoints=True), results.root.parent / "into"
    shutil.rmtree(into, ignore_errors=True)
    import_archive(archive, Results(into))
    return done, Results(into)


def test_a_row_whose_curve_is_gone_is_left_out(sound: Path, tmp_path: Path) -> None:
    results = Results(Path(shutil.copytree(sound, tmp_path / "results")))
    results.curve(run_id_of(0)).unlink()
    done, into = exported(results)
    (named,) = done.left_out
    assert named.startswith(f"run {run_id_of(0)}: it has no evaluations")
    assert f"left out: {named}" in done.text.splitlines()
    assert files(sound).keys() - files(into.root).keys() >= {f"runs/{run_id_of(0)}.parquet"}


def test_a_plan_of_costs_is_left_out_alone(sound: Path, tmp_path: Path) -> None:
    results = Results(Path(shutil.copytree(sound, tmp_path / "results")))
    (results.study("first") / "planned.parquet").write_bytes(b"torn")
    done, into = exported(results, "first")
    assert sorted(path.name for path in into.study("first").iterdir()) == ["first.yaml", "study.json", "wanted.parquet"]
    assert len(done.left_out) == 1


def test_runs_of_a_study_whose_title_is_damaged_arrive(sound: Path, tmp_path: Path) -> None:
    results = Results(Path(shutil.copytree(sound, tmp_path / "results")))
    (results.study("first") / "study.json").write_text("{")
    done, into = exported(results, "first")
    assert into.holds(run_id_of(0))
    assert not list(into.root.glob("studies/*"))
    assert done.left_out[0].startswith("study first: cannot read ")


def test_damaged_weights_are_named_only_where_runs_began_from_them(tmp_path: Path) -> None:
    results = new_results(tmp_path / "results")
    folder, _ = add_weights(results)
    (folder / "model.safetensors").write_bytes(b"torn")
    add(results, 0, TWO)
    done, _ = exported(results)
    assert done.left_out == ()  # from random weights
    (folder / "pretraining.json").write_text('{"weights_sha256": "w"}')
    write(results.run(run_id_of(0, "unfrozen-pretrained")), [row(0, TWO, "unfrozen-pretrained")], RUNS)
    add(results, 0, TWO, "unfrozen-pretrained")
    began_from = row(0, TWO, "unfrozen-pretrained")["weights_checksum"]
    (folder / "pretraining.json").write_text(f'{{"weights_sha256": "{began_from}"}}')
    done, into = exported(results)
    (damaged,) = done.left_out
    assert damaged.startswith(f"weights {folder.name}: {folder}: ")
    assert "delete it; `run` and `pretrain` make it again" in damaged
    assert not list(into.pretrained.iterdir())
    (folder / "pretraining.json").write_text('{"weights_sha256": "of weights that no run began from"}')
    assert exported(results)[0].left_out == ()


def test_a_study_with_a_name_that_no_study_has_is_left_out(tmp_path: Path) -> None:
    results = new_results(tmp_path / "results")
    add(results, 0, TWO)
    add_study(results, "My copy", {0: 20})
    done, into = exported(results)
    assert into.holds(run_id_of(0))
    assert all(text.startswith("study My copy: ") for text in done.left_out)
    assert done.left_out


def test_exit_codes(sound: Path, tmp_path: Path) -> None:
    results, archive = Results(Path(shutil.copytree(sound, tmp_path / "results"))), tmp_path / "a.tar"
    succeeds("export", archive, "--results", results.root)
    archive.unlink()
    (results.study("first") / "wanted.parquet").write_bytes(b"torn")
    code, printed = said("export", archive, "--results", results.root)
    assert code == 1
    assert "\nleft out: study first: cannot read " in printed
    assert "1 left out, since they do not verify; the archive holds the rest and can be imported" in printed
    succeeds("import", archive, "--results", tmp_path / "into")
    archive.unlink()
    printed = refused("export", archive, "first", "--results", results.root)  # which runs it wants is not known
    assert "nothing was exported, since nothing verifies" in printed
    assert not archive.exists()
