"""`merge`: what arrives of another results directory, how it joins what is there, and what is refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lr_sweep.analysis.record.columns import CURVES, RUNS, schema
from lr_sweep.analysis.record.parquet import parquet_bytes
from lr_sweep.analysis.record.read import read_curves, read_runs, recorded_studies
from lr_sweep.common.errors import UserError
from lr_sweep.sweep.inspection.merge import _Merger, merge_results
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.records import (
    Trained,
    add,
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
FEW = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
TRAINED = st.one_of(
    st.builds(Trained, evaluations=st.integers(1, 3), status=st.sampled_from(["complete", "failed"])),
    st.just(Trained(evaluations=0, status="failed")),
)
"""Any two of one seed agree on their shared steps."""
RECORDS = st.dictionaries(st.integers(0, 3), TRAINED, max_size=3)


def merged(source: Results, target: Results) -> str:
    return merge_results(str(source.root), target)


def mtimes_ns(folder: Path) -> dict[str, int]:
    return {path: (folder / path).stat().st_mtime_ns for path in files(folder)}


def refusal(source: Results, into: Results) -> str:
    """Merge what must be refused, make sure that nothing changed in either, and return the message."""
    before = [(files(each.root), mtimes_ns(each.root)) for each in (source, into)]
    with pytest.raises(UserError) as caught:
        merged(source, into)
    assert [(files(each.root), mtimes_ns(each.root)) for each in (source, into)] == before
    assert not list(into.root.glob(".merge-*"))
    return str(caught.value)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return four_runs(tmp_path / "results")


@pytest.fixture
def other(tmp_path: Path) -> Results:
    return new_results(tmp_path / "other")


def test_all_arrives_byte_for_byte(results: Results, tmp_path: Path) -> None:
    unfinished = (f"curves/{run_id_of(1)}.parquet", "checkpoints/")
    before = {name: content for name, content in files(results.root).items() if not name.startswith(unfinished)}
    (results.study("first") / "progress.json").write_text("{}")
    (results.logs / "run.log").write_text("long")
    (results.root / "model.pkl").write_bytes(b"is not taken")
    text = merged(results, Results(tmp_path / "new"))
    assert files(tmp_path / "new") == before
    assert text.splitlines() == [
        "3 runs added, 0 replaced by longer ones, 0 already here",
        "studies added: first, second",
        "pretrained weights added: gpt2-2x16-000000000000",
        f"to show them in MLflow: lr-sweep export --mlflow --results {tmp_path / 'new'}",
    ]


def test_merging_twice_changes_nothing_more(results: Results, other: Results) -> None:
    merged(results, other)
    before = mtimes_ns(other.root)
    assert "0 runs added, 0 replaced by longer ones, 3 already here" in merged(results, other)
    assert mtimes_ns(other.root) == before


@FEW
@given(RECORDS, RECORDS)
def test_either_way_round_gives_the_same_runs(tmp_path_factory: pytest.TempPathFactory, a: Any, b: Any) -> None:
    folder = tmp_path_factory.mktemp("ways")
    sides = [new_results(folder / name) for name in ("a", "b")]
    for side, record in zip(sides, (a, b), strict=True):
        add_study(side, side.root.name, {0: 20})
        for seed, trained in record.items():
            add(side, seed, trained)
    copy = Results(Path(shutil.copytree(sides[0].root, folder / "copy")))
    merged(sides[1], sides[0])
    merged(copy, sides[1])
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
    message = refusal(source, other)
    assert f"{source.root} and {other.root} contradict each other in 22 places. Nothing was changed." in message
    lines = [line for line in message.splitlines() if line.endswith(" there")]
    assert len(lines) == 20
    expected = next(point["test_loss"] for point in points(run_id_of(0), TWO) if point["step"] == 20)
    label = f"  {run_id_of(0)} (digits tiny unfrozen-random 1e-2 seed 0): test_loss at step 20: "
    assert f"{label}{expected!r} here, 0.5 there" in lines
    assert "  and 2 more" in message.splitlines()


def test_longer_runs_replace_shorter_ones(tmp_path: Path, other: Results) -> None:
    source = new_results(tmp_path / "source")
    for seed, theirs, ours in (
        (0, Trained(evaluations=3), TWO),
        (1, TWO, Trained(evaluations=3)),
        (2, TWO, Trained(evaluations=1, status="failed")),
        (3, TWO, None),
    ):
        add(source, seed, theirs)
        if ours:
            add(other, seed, ours)
    text = merged(source, other)
    assert text.startswith("1 run added, 2 replaced by longer ones, 1 already here\n")
    found = read_runs(other.root).set_index("run_id")["num_steps"].to_dict()
    assert found == {run_id_of(0): 30, run_id_of(1): 30, run_id_of(2): 20, run_id_of(3): 20}
    assert read_curves(other.root, [run_id_of(2)])["step"].tolist() == [10, 20]


def test_a_study_that_is_here_is_kept(results: Results, other: Results) -> None:
    add_study(other, "first", {0: 20, 1: 20, 9: 20})
    (other.study("first") / "first.yaml").write_text("ours")
    add_study(other, "second", {2: 40})
    text = merged(results, other)
    assert "studies already here: first\n" in text
    assert "study second is here with another grid, which is kept; the runs were added\n" in text
    assert (other.study("first") / "first.yaml").read_text() == "ours"
    assert other.holds(run_id_of(2))


def test_other_weights_of_the_same_recipe_contradict(tmp_path: Path, other: Results) -> None:
    source = new_results(tmp_path / "source")
    add_weights(source, 0, "of one machine")
    add_weights(other, 0, "of another machine")
    assert "pretrained/gpt2-2x16-000000000000: sha256 of model.safetensors: " in refusal(source, other)


def test_a_merge_that_is_stopped_anywhere_leaves_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = new_results(tmp_path / "source")
    add(source, 0, TWO)
    add_weights(source)
    add_study(source, "grid", {0: 20})
    whole, move = files(source.root), _Merger._move
    for survived in range(len(whole) - 1):
        target = new_results(tmp_path / f"target-{survived}")
        (target.root / ".merge-77" / "runs").mkdir(parents=True)  # of one that was killed
        left = iter(range(survived))

        def mortal(merger: _Merger, path: Path, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            move(merger, path)

        with monkeypatch.context() as patch:
            patch.setattr(_Merger, "_move", mortal)
            with pytest.raises(KeyboardInterrupt):
                merged(source, target)
        assert len(files(target.root)) == 1 + survived  # and format.json
        assert set(read_runs(target.root)["run_id"]) <= set(read_curves(target.root)["run_id"])
        assert not list(target.root.glob(".merge-*"))
        for study in recorded_studies(target.root):
            assert (target.study(study) / "wanted.parquet").exists()
        merged(source, target)
        assert files(target.root) == whole


def test_a_running_sweep_in_either_directory_is_respected(results: Results, other: Results) -> None:
    for written in (other, results):
        with written.writing("a study"):
            assert f"{written.root} is being written to by process" in refusal(results, other)


def test_a_merge_that_cannot_be(results: Results, other: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "into itself" in refusal(results, results)
    assert "no results directory at" in refusal(Results(results.root / "none"), other)
    monkeypatch.setattr(Results, "free_bytes", lambda self: 1000)
    assert "has 0.0 MB free and" in refusal(results, other)


def test_a_link_is_not_followed(results: Results, other: Results, tmp_path: Path) -> None:
    results.run(run_id_of(0)).rename(secret := tmp_path / "secret")
    results.run(run_id_of(0)).symlink_to(secret)
    assert f"{results.run(run_id_of(0))} is a link, or in one, and none is followed" in refusal(results, other)


def test_few_bytes_that_stand_for_many_are_refused(results: Results, other: Results) -> None:
    """A curve of 200,000 equal rows in some 20 kB."""
    columns = {
        field.name: pa.array([1.0] * 200_000).cast(field.type) for field in schema(CURVES) if field.name != "run_id"
    }
    run_id = run_id_of(0)
    table = pa.table({"run_id": pa.repeat(run_id, 200_000), **columns}, schema(CURVES))
    results.curve(run_id).write_bytes(parquet_bytes(table))
    assert "it has 200,000 rows, want at most 100,000" in refusal(results, other)


@pytest.mark.parametrize(
    ("rows", "curve", "reason"),
    [
        ([row(0, TWO) | {"learning_rate": 0.5}], points(run_id_of(0), TWO), "learning_rate: got 0.5, content has 0.01"),
        ([row(0, TWO), row(1, TWO)], points(run_id_of(0), TWO), "got 2 rows, want 1"),
        ([row(0, TWO)], points(run_id_of(0), TWO)[::-1], "evaluation 1 is at step 20, want 10"),
    ],
)
def test_what_verify_would_name_is_refused(
    tmp_path: Path, other: Results, rows: list[dict[str, Any]], curve: list[dict[str, Any]], reason: str
) -> None:
    """What that is, is tested with `verify`, and for every kind of file with those that are damaged."""
    source = new_results(tmp_path / "source")
    write(source.run(run_id_of(0)), rows, RUNS)
    write(source.curve(run_id_of(0)), curve, CURVES)
    message = refusal(source, other)
    assert message.startswith(f"nothing was merged: {source.root}/")
    assert reason in message
