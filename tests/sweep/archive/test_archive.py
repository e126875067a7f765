"""`export` and `import`: what arrives, and how it joins what is there."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lr_sweep.analysis.record.columns import CURVES, RUNS
from lr_sweep.analysis.record.read import read_curves, read_runs, recorded_studies
from lr_sweep.sweep.archive import exporter
from lr_sweep.sweep.archive.exporter import export
from lr_sweep.sweep.archive.importer import _Merger, import_archive
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.archives import mtimes_ns, packed, refusal
from lr_sweep.tests.support.records import (
    Trained,
    add,
    add_checkpoint,
    add_study,
    add_weights,
    files,
    four_runs,
    new_results,
    points,
    row,
    run_id_of,
    write,
)

TWO = Trained(evaluations=2)
PRETRAINED = "unfrozen-pretrained"
FEW = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))

TRAINED = st.one_of(
    st.builds(Trained, evaluations=st.integers(1, 3), status=st.sampled_from(["complete", "failed", None])),
    st.just(Trained(evaluations=0, status="failed")),
)
"""Any two of one seed agree on their shared steps."""
RECORDS = st.dictionaries(st.integers(0, 3), TRAINED, max_size=3)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return four_runs(tmp_path / "results")


@pytest.fixture
def other(tmp_path: Path) -> Results:
    return new_results(tmp_path / "other")


def test_all_arrives_byte_for_byte(results: Results, tmp_path: Path) -> None:
    before = files(results.root)
    (results.study("first") / "progress.json").write_text("{}")
    (results.logs / "run.log").write_text("long")
    text = import_archive(packed(results), Results(tmp_path / "new"))
    assert files(tmp_path / "new") == before
    assert text.splitlines() == [
        "4 runs added, 0 replaced by longer ones, 0 already here",
        "1 checkpoint added",
        "studies added: first, second",
        "pretrained weights added: gpt2-2x16-000000000000",
        f"to show them in MLflow: lr-sweep mlflow sync --results {tmp_path / 'new'}",
    ]


def test_an_export_says_what_is_in_it(results: Results, tmp_path: Path) -> None:
    exported = export(results, tmp_path / "a.tar", [], checkpoints=True)
    holds = "4 runs (1 not ended), study first, study second, weights gpt2-2x16-000000000000"
    assert exported.text == f"{tmp_path / 'a.tar'}: {holds}, 1 checkpoint; 0.1 MB"
    assert exported.left_out == ()
    _, *notes = export(results, tmp_path / "b.tar", [], checkpoints=False).text.splitlines()
    assert notes == [
        "without the checkpoints of 1 run: to train these further where the archive is imported, export with "
        "--checkpoints"
    ]
    assert len(export(results, tmp_path / "c.tar", ["second"], checkpoints=False).text.splitlines()) == 1
    assert list(tmp_path.glob("*partial*")) == []


def test_of_chosen_studies_their_runs_alone_are_taken(results: Results, other: Results) -> None:
    import_archive(packed(results, "second"), other)
    assert set(read_runs(other.root)["run_id"]) == {run_id_of(2)}
    assert recorded_studies(other.root) == ["second"]
    assert not list(other.pretrained.iterdir())  # its one run is from random weights
    import_archive(packed(results, "first", checkpoints=False), other)
    assert set(read_curves(other.root)["run_id"]) == {run_id_of(0), run_id_of(1), run_id_of(2)}
    assert not (other.root / "checkpoints").exists()


def test_members_are_plain_and_say_nothing_of_who_made_them(results: Results) -> None:
    with tarfile.open(packed(results)) as first, tarfile.open(packed(results)) as second:
        one, two = first.getmembers(), second.getmembers()
        assert one[0].name == "manifest.json"
        assert [member.name for member in one] == [member.name for member in two]
        assert {(m.uid, m.gid, m.uname, m.gname, m.mtime, m.mode) for m in one} == {(0, 0, "", "", 0, 0o644)}
        manifest = first.extractfile("manifest.json")
        assert manifest
        assert json.load(manifest)["files"].keys() == {member.name for member in one[1:]}


@FEW
@given(RECORDS)
def test_importing_twice_changes_nothing_more(tmp_path_factory: pytest.TempPathFactory, record: Any) -> None:
    folder = tmp_path_factory.mktemp("twice")
    source, target = new_results(folder / "a"), new_results(folder / "b")
    for seed, trained in record.items():
        add_checkpoint(source, add(source, seed, trained), 10)
    add_study(source, "grid", {0: 20})
    archive = packed(source)
    import_archive(archive, target)
    assert files(target.root) == files(source.root)
    before = mtimes_ns(target.root)
    assert f"0 runs added, 0 replaced by longer ones, {len(record)} already here" in import_archive(archive, target)
    assert mtimes_ns(target.root) == before


@FEW
@given(RECORDS, RECORDS)
def test_either_way_round_gives_the_same_runs(tmp_path_factory: pytest.TempPathFactory, a: Any, b: Any) -> None:
    folder = tmp_path_factory.mktemp("ways")
    sides = [new_results(folder / name) for name in ("a", "b")]
    for side, record in zip(sides, (a, b), strict=True):
        add_study(side, side.root.name, {0: 20})
        for seed, trained in record.items():
            add(side, seed, trained)
    for archive, side in zip([packed(sides[1]), packed(sides[0])], sides, strict=True):
        import_archive(archive, side)
    assert sorted(recorded_studies(sides[0].root)) == sorted(recorded_studies(sides[1].root)) == ["a", "b"]
    for read in (read_runs, read_curves):
        assert read(sides[0].root).equals(read(sides[1].root))
    held = {path.stem for side in sides for path in side.root.glob("[rc]u*/*.parquet")}
    assert held == {run_id_of(seed) for seed in {*a, *b}}


def test_every_contradiction_is_reported(tmp_path: Path, other: Results) -> None:
    source = new_results(tmp_path / "source")
    for seed in range(23):
        add(source, seed, Trained(evaluations=2, changed_at=20))
        add(other, seed, Trained(evaluations=3) if seed != 5 else Trained(evaluations=1))
    message = refusal(packed(source), other)
    assert f"and {other.root} contradict each other in 22 places. Nothing was changed." in message
    lines = [line for line in message.splitlines() if " in the archive" in line]
    assert len(lines) == 20
    expected = next(point["test_loss"] for point in points(run_id_of(0), TWO) if point["step"] == 20)
    label = f"  {run_id_of(0)} (digits, tiny, unfrozen-random, lr 1e-2, seed 0): test_loss at step 20: "
    assert f"{label}{expected!r} here, 0.5 in the archive" in lines
    assert "  and 2 more" in message.splitlines()
    assert "--results" in message


def test_longer_runs_replace_shorter_ones(tmp_path: Path, other: Results) -> None:
    source = new_results(tmp_path / "source")
    for seed, theirs, ours in (
        (0, Trained(evaluations=3), TWO),
        (1, TWO, Trained(evaluations=3)),
        (2, Trained(evaluations=2, status=None), Trained(evaluations=1, status="failed")),
        (3, TWO, None),
    ):
        add(source, seed, theirs)
        if ours:
            add(other, seed, ours)
    text = import_archive(packed(source), other)
    assert text.startswith("1 run added, 2 replaced by longer ones, 1 already here\n")
    found = read_runs(other.root).set_index("run_id")["num_steps"].to_dict()
    assert found == {run_id_of(0): 30, run_id_of(1): 30, run_id_of(3): 20}
    assert not other.run(run_id_of(2)).exists()
    assert read_curves(other.root, [run_id_of(2)])["step"].tolist() == [10, 20]


def test_a_study_that_is_here_is_kept(results: Results, other: Results) -> None:
    add_study(other, "first", {0: 20, 1: 20, 9: 20})
    (other.study("first") / "first.yaml").write_text("ours")
    add_study(other, "second", {2: 40})
    text = import_archive(packed(results), other)
    assert "studies already here: first\n" in text
    assert "study second is here with another grid, which is kept; the runs were added\n" in text
    assert (other.study("first") / "first.yaml").read_text() == "ours"
    assert other.holds(run_id_of(2))


def test_weights_come_along_with_the_runs_that_began_from_them(tmp_path: Path, other: Results) -> None:
    source = new_results(tmp_path / "source")
    _, checksum = add_weights(source, 0, "wanted")
    add_weights(source, 1, "unwanted")
    run_id = run_id_of(0, PRETRAINED)
    add(source, 0, TWO, PRETRAINED)
    content = json.loads(row(0, TWO, PRETRAINED)["content"]) | {"weights_checksum": checksum}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    new_id = hashlib.sha256(text.encode()).hexdigest()[:16]
    source.run(run_id).unlink()
    source.curve(run_id).unlink()
    changed = {"run_id": new_id, "content": text, "weights_checksum": checksum}
    write(source.run(new_id), [row(0, TWO, PRETRAINED) | changed], RUNS)
    write(source.curve(new_id), points(new_id, TWO), CURVES)
    archive = packed(source)
    import_archive(archive, other)
    assert [path.name for path in other.pretrained.iterdir()] == ["gpt2-2x16-000000000000"]
    assert len(list(other.pretrained.glob("*/*"))) == 4
    shutil.rmtree(other.pretrained / "gpt2-2x16-000000000000")
    add_weights(other, 0, "of another machine")
    message = refusal(archive, other)
    assert "pretrained/gpt2-2x16-000000000000: sha256 of model.safetensors: " in message


def test_the_newest_intact_checkpoint_is_carried(tmp_path: Path, other: Results) -> None:
    source = new_results(tmp_path / "source")
    run_id = add(source, 0, TWO)
    add_checkpoint(source, run_id, 10)
    intact = add_checkpoint(source, run_id, 20)
    add_checkpoint(source, run_id, 30, content=b"torn")
    (source.checkpoints(run_id) / "partial-77").write_bytes(b"half")
    archive = packed(source)
    exported = export(source, tmp_path / "named.tar", [], checkpoints=True)
    (damaged,) = exported.left_out
    assert f"checkpoint of run {run_id}: {source.checkpoints(run_id)}/step-000000030-" in damaged
    assert ": delete it; its run resumes from an earlier one" in damaged
    ours = add_checkpoint(other, run_id, 40)
    import_archive(archive, other)
    assert list(other.checkpoints(run_id).iterdir()) == [ours]
    ours.unlink()
    import_archive(archive, other)
    assert [path.name for path in other.checkpoints(run_id).iterdir()] == [intact.name]


def test_a_checkpoint_without_a_curve_does_not_join_a_run_that_is_here(tmp_path: Path, other: Results) -> None:
    """Nothing would show that it continues this curve."""
    source, run_id = new_results(tmp_path / "source"), run_id_of(0)
    add_checkpoint(source, run_id, 15)
    archive = packed(source)
    import_archive(archive, other)
    assert len(list(other.checkpoints(run_id).iterdir())) == 1
    shutil.rmtree(other.checkpoints(run_id))
    add(other, 0, Trained(evaluations=1, status=None))
    import_archive(archive, other)
    assert not other.checkpoints(run_id).exists()


def test_an_import_that_is_stopped_anywhere_leaves_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = new_results(tmp_path / "source")
    add_checkpoint(source, add(source, 0, TWO), 20)
    add_study(source, "grid", {0: 20})
    archive, whole, move = packed(source), files(source.root), _Merger._move
    for survived in range(len(whole) - 1):
        target = new_results(tmp_path / f"target-{survived}")
        (target.root / ".import-77" / "runs").mkdir(parents=True)  # of one that was killed
        left = iter(range(survived))

        def mortal(merger: _Merger, path: Path, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            move(merger, path)

        with monkeypatch.context() as patch:
            patch.setattr(_Merger, "_move", mortal)
            with pytest.raises(KeyboardInterrupt):
                import_archive(archive, target)
        assert len(files(target.root)) == 1 + survived  # and format.json
        assert set(read_runs(target.root)["run_id"]) <= set(read_curves(target.root)["run_id"])
        assert not list(target.root.glob(".import-*"))
        for study in recorded_studies(target.root):
            assert (target.study(study) / "wanted.parquet").exists()
        import_archive(archive, target)
        assert files(target.root) == whole


def test_a_run_is_taken_as_it_was_at_one_time(tmp_path: Path, other: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep starts it over and ends it sooner, between the reading of its row and of its curve."""
    source = new_results(tmp_path / "source")
    add(source, 0, Trained(evaluations=3))
    read: Callable[[Path], bytes | None] = exporter._bytes
    calls: list[Path] = []

    def slow(path: Path) -> bytes | None:
        content = read(path)
        calls.append(path)
        if len(calls) == 1:
            add(source, 0, Trained(evaluations=1, status="diverged", diverged_at=13))
        return content

    monkeypatch.setattr(exporter, "_bytes", slow)
    import_archive(packed(source), other)
    (found,) = read_runs(other.root).to_dict("records")
    assert (found["status"], found["num_steps"]) == ("diverged", 13)
