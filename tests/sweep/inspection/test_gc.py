"""What `gc` finds and removes of a record, and what it leaves."""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from lr_sweep.analysis.record.columns import RUNS
from lr_sweep.analysis.record.read import read_rows
from lr_sweep.common.errors import UserError
from lr_sweep.sweep.inspection import gc
from lr_sweep.sweep.inspection.gc import CHECKPOINTS, KINDS, LEFTOVERS, UNWANTED, collect
from lr_sweep.sweep.results.directory import Results, write_parquet
from lr_sweep.tests.support.records import SyntheticRecord
from lr_sweep.tests.support.tiny_study import refused, said, succeeds
from lr_sweep.trainables.own.command_line import KEPT

CURVE = [(100, 0.5, 0.5), (300, 0.6, 0.6)]


class Made:
    """A record of runs in different states, each with a checkpoint; `ids` names them."""

    def __init__(self, root: Path) -> None:
        self.results = Results(root)
        record = SyntheticRecord(root)
        self.ids = {
            "complete": record.add(1e-3, 0, CURVE),
            "diverged": record.add(1e-1, 0, CURVE[:1], status="diverged", trained=200, diverged_at=200),
            "failed": record.add(1e-3, 1, CURVE[:1], status="failed", trained=300, failure="out of memory"),
            "extended": record.add(1e-3, 2, CURVE, trained=300, budget=600),
            "started": record.want(1e-3, 3),
            "unwanted": record.add(1e-2, 0, CURVE),
            "unwanted, started": record.want(1e-2, 1),
        }
        record.wanted = [row for row in record.wanted if row["learning_rate"] != 1e-2]
        for name in ("started", "unwanted, started"):
            record.write_curve(self.ids[name], CURVE[:1])
        record.write()
        for run_id in self.ids.values():
            self.write(f"checkpoints/{run_id}/step-000000100-ab.safetensors", 1000)

    def write(self, name: str, size: int = 10) -> Path:
        path = self.results.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
        return path

    def files(self) -> set[str]:
        """What there is, without locks; runs by their names here."""
        names = {str(path.relative_to(self.results.root)) for path in self.results.root.rglob("*") if path.is_file()}
        for name, run_id in self.ids.items():
            names = {path.replace(run_id, name) for path in names}
        return {name for name in names if not name.startswith("writer.")}

    def gc(self, answers: Sequence[str] = KINDS, only: Sequence[str] = KINDS) -> tuple[list[str], list[str]]:
        """Agree to some kinds; return what was printed and which kinds were offered."""
        said: list[str] = []
        asked: list[str] = []
        collect(self.results, only, lambda kind: asked.append(kind) or kind in answers, said.append)  # type: ignore[func-returns-value]
        return said, asked


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path / "results")


def checkpoint(*names: str) -> set[str]:
    return {f"checkpoints/{name}/step-000000100-ab.safetensors" for name in names}


UNWANTED_FILES = {
    *{"runs/unwanted.parquet", "curves/unwanted.parquet", "curves/unwanted, started.parquet"},
    *checkpoint("unwanted", "unwanted, started"),
}


def test_leftovers(made: Made) -> None:
    run_id = made.ids["started"]
    before = made.files()
    left = (
        *("runs/.ab.parquet.77.partial", ".format.json.77.partial", "studies/small/.wanted.parquet.77.partial"),
        *(f"checkpoints/{run_id}/{name}" for name in ("partial-77", ".tmpAb", "damaged-step-000000090-cd.safetensors")),
        *("pretrained/gpt2.partial-77/model.safetensors", "tune/sweep/trial/params.json"),
    )
    for name in left:
        made.write(name)
    made.write("pretrained/gpt2/model.safetensors")
    said, _ = made.gc(only=[LEFTOVERS])
    assert said[-1] == "removed 8 files, 0.0 MB"
    assert made.files() == before | {"pretrained/gpt2/model.safetensors"}
    assert not made.results.tune.exists()
    assert not (made.results.pretrained / "gpt2.partial-77").exists()


def test_each_kind_is_asked_for_and_only_what_was_agreed_to_goes(made: Made) -> None:
    made.write("tune/params.json")
    before = made.files()
    said, asked = made.gc(answers=[UNWANTED])
    assert asked == list(KINDS)
    assert [line.split(":")[0] for line in said] == [*KINDS, "removed 5 files, 0.0 MB"]
    assert said[1].startswith("checkpoints: 3 files, 0.0 MB: checkpoints of complete and diverged runs. With a higher ")
    assert said[2].startswith("unwanted: 5 files, 0.0 MB: rows, curves and checkpoints of runs that no recorded study ")
    assert before - made.files() == UNWANTED_FILES
    said, _ = made.gc(answers=[])
    assert len(said) == 2
    assert made.files() == before - UNWANTED_FILES


@pytest.mark.parametrize("harm", ["damaged", "missing", "no study"])
def test_nothing_is_unwanted_while_a_study_cannot_be_read(made: Made, harm: str) -> None:
    path = made.results.study("small") / "wanted.parquet"
    if harm == "damaged":
        path.write_bytes(b"no table")
    else:
        path.unlink()
    if harm == "no study":
        (path.parent / "study.json").unlink()
        path.parent.rmdir()
    made.write("tune/params.json")
    before = made.files()
    said, asked = made.gc()
    assert said[0].startswith("note: ")
    assert said[0].endswith("What studies want is unknown until then, so only leftovers are listed")
    assert asked == [LEFTOVERS]
    assert before - made.files() == {"tune/params.json"}


@pytest.mark.parametrize("name", ["complete", "unwanted"])
def test_a_run_whose_status_is_unknown_is_left_alone(made: Made, name: str) -> None:
    path = made.results.run(made.ids[name])
    rows = read_rows(path, RUNS)
    assert rows
    write_parquet(path, [rows[0] | {"status": "done"}], RUNS)
    before = made.files()
    said, _ = made.gc()
    assert said[0] == (
        f"note: {path}: got status 'done', want one of complete, diverged, failed, stopped: delete it and run the "
        "study again"
    )
    gone = before - made.files()
    assert gone
    assert not {file for file in gone if Path(file).stem == name or Path(file).parent.name == name}


@pytest.mark.parametrize("name", ["a", "z"])
def test_of_two_studies_the_higher_budget_counts(made: Made, name: str) -> None:
    """Read before `small`, which wants 600 steps of the run, or after it."""
    other = SyntheticRecord(made.results.root, name)
    other.want(1e-3, 2, budget=300)
    other.write()
    made.gc(only=[CHECKPOINTS])
    assert made.results.checkpoints(made.ids["extended"]).exists()


def test_a_kill_at_any_file_leaves_no_row_without_its_curve(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    real, removed = gc.remove_below, 0

    def remove(root: Path, path: Path) -> None:
        nonlocal removed
        real(root, path)
        removed += 1
        rows = {path.stem for path in (made.results.root / "runs").iterdir()}
        assert rows <= {path.stem for path in (made.results.root / "curves").iterdir()}

    monkeypatch.setattr(gc, "remove_below", remove)
    made.gc()
    assert removed > 6


def test_a_sweep_that_runs_is_not_disturbed(made: Made) -> None:
    before = made.files()
    with made.results.writing("small"), pytest.raises(UserError, match=r"is being written to by process \d+"):
        made.gc()
    assert made.files() == before


def test_without_a_terminal_nothing_goes_unless_yes_is_said(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\ny\ny\n"))
    before = made.files()
    at = ("--results", made.results.root)
    printed = refused("gc", *at)
    assert printed.startswith("checkpoints: 3 files, ")
    assert "Give --yes to remove what is listed" in printed
    assert made.files() == before
    succeeds("gc", *at, "--yes", "--only", "checkpoints", "--only", "leftovers")
    assert before - made.files() == checkpoint("complete", "diverged", "unwanted")
    succeeds("gc", *at, "--yes")
    assert said("gc", *at) == (0, "nothing to remove\n")


@pytest.mark.parametrize(("answers", "goes"), [("n\ny\n", "unwanted"), ("\n", ""), ("YES \n", "checkpoints")])
def test_answers_at_a_terminal(made: Made, monkeypatch: pytest.MonkeyPatch, answers: str, goes: str) -> None:
    """A run that a study wants trained further keeps its checkpoints, and so does a failed one."""
    terminal = io.StringIO(answers)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    before = made.files()
    succeeds("gc", "--results", made.results.root)
    expected = {"unwanted": UNWANTED_FILES, "checkpoints": checkpoint("complete", "diverged", "unwanted"), "": set()}
    assert before - made.files() == expected[goes]
    assert made.results.checkpoints(made.ids["complete"]).exists() == (goes != "checkpoints")


def test_the_folder_of_a_command_goes_with_its_checkpoints(made: Made) -> None:
    folder = made.results.checkpoints(made.ids["complete"])
    (folder / KEPT / "checkpoint").mkdir(parents=True)
    (folder / KEPT / "checkpoint" / "model.pt").write_bytes(b"1")
    made.gc(only=[CHECKPOINTS])
    assert not folder.exists()


@pytest.mark.parametrize("place", ["tune", "checkpoints", "checkpoints/{complete}", "curves/{unwanted}.parquet"])
def test_links_are_left_alone_and_named(made: Made, tmp_path: Path, place: str) -> None:
    """What they lead to belongs to something else, whatever its name."""
    link, outside = made.results.root / place.format(**made.ids), tmp_path / "outside"
    if link.exists():
        shutil.move(link, outside)
    else:
        outside.mkdir()
        (outside / "precious").write_text("years of work")
    before = {path: path.read_bytes() for path in (outside, *outside.rglob("*")) if path.is_file()}
    link.symlink_to(outside)
    said, _ = made.gc()
    assert f"note: {link} is a link: it and what it leads to are left alone" in said
    assert link.is_symlink()
    assert {path: path.read_bytes() for path in (outside, *outside.rglob("*")) if path.is_file()} == before
