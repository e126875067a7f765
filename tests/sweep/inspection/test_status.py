"""`ls` and `status`: what is in a results directory, by names of files and rows alone."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lr_sweep.analysis.record.columns import RUNGS
from lr_sweep.common.files import write_json
from lr_sweep.sweep.inspection.show import run_text
from lr_sweep.sweep.inspection.status import listing, listing_json, status_text
from lr_sweep.sweep.results.directory import Results, read_state
from lr_sweep.tests.support.records import SyntheticRecord, write
from lr_sweep.tests.support.tiny_study import refused, said

POINTS = [(100, 0.5, 0.4), (300, 0.6, 0.5)]


def save_checkpoint(results: Path, run_id: str, step: int) -> Path:
    """Write a file named as a checkpoint; its content does not matter here."""
    path = results / "checkpoints" / run_id / f"step-{step:09d}-{'0' * 16}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def words(text: str, start: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.startswith(start)]


@pytest.fixture
def ids(tmp_path: Path) -> dict[str, str]:
    """Two studies: `small` wants one run of each kind up to step 300, `zoom` the complete one up to step 600."""
    small = SyntheticRecord(tmp_path, "small")
    found = {
        "complete": small.add(1e-3, 0, POINTS),
        "diverged": small.add(1e-1, 0, [], status="diverged", trained=7, diverged_at=7),
        "failed": small.add(1e-2, 0, [], status="failed", trained=100, failure="no memory left"),
        "curve": small.want(1e-3, 1),
        "checkpoint": small.want(1e-2, 1),
        "waiting": small.want(1e-1, 1),
    }
    small.write_curve(found["curve"], POINTS)
    save_checkpoint(tmp_path, found["checkpoint"], 200)
    save_checkpoint(tmp_path, found["checkpoint"], 100)
    small.write()
    zoom = SyntheticRecord(tmp_path, "zoom")
    zoom.want(1e-3, 0, budget=600)
    zoom.write()
    dropped = SyntheticRecord(tmp_path, "dropped")  # a study that no longer wants it: never written
    return found | {"unwanted": dropped.add(1e-5, 0, POINTS, model="zz")}


def test_everything_is_listed(tmp_path: Path, ids: dict[str, str]) -> None:
    orphan = save_checkpoint(tmp_path, "ffff000011112222", 50)
    text = listing(Results(tmp_path), [])
    studies, runs = text.split("\n\n")
    assert [line.split() for line in studies.splitlines()] == [
        ["study", "title", "complete", "diverged", "failed", "started", "waiting"],
        ["small", "A", "small", "study", "1", "1", "1", "2", "1"],
        ["zoom", "A", "small", "study", "0", "0", "0", "1", "0"],
    ]
    model = ["mnist", "gpt2", "frozen-random"]
    assert [line.split() for line in runs.splitlines()[1:]] == [
        [ids["complete"], *model, "1e-3", "0", "complete", "300", "60.0%", "50.0%", "0:01:00", "small,", "zoom"],
        [ids["diverged"], *model, "1e-1", "0", "diverged", "7", "-", "-", "0:01:00", "small"],
        [ids["failed"], *model, "1e-2", "0", "failed", "100", "-", "-", "0:01:00", "small"],
        [ids["curve"], *model, "1e-3", "1", "started", "-", "-", "-", "-", "small"],
        [ids["checkpoint"], *model, "1e-2", "1", "started", "200", "-", "-", "-", "small"],
        [
            ids["unwanted"],
            "mnist",
            "zz",
            *model[2:],
            *["1e-5", "0", "complete", "300", "60.0%", "50.0%", "0:01:00", "-"],
        ],
        [orphan.parent.name, *"-----", "started", "50", "-", "-", "-", "-"],
    ]


def test_rows_of_earlier_versions_have_no_accuracy(tmp_path: Path, ids: dict[str, str]) -> None:
    path = Results(tmp_path).run(ids["complete"])
    pq.write_table(pq.read_table(path).drop_columns(["best_step", "validation_at_best", "test_at_best"]), path)
    assert words(listing(Results(tmp_path), []), ids["complete"])[0][6:11] == ["complete", "300", "-", "-", "0:01:00"]


def test_a_doubtful_resume_is_listed(tmp_path: Path) -> None:
    record = SyntheticRecord(tmp_path)
    record.want(1e-3, 0)
    record.end(record.wanted[0], POINTS, "complete", 300, resumed="inexactly", not_saved="average")
    record.write()
    assert " complete, resumed inexactly " in listing(Results(tmp_path), [])
    (run,) = listing_json(Results(tmp_path), [])["runs"]
    assert (run["status"], run["resumed"], run["not_saved"]) == ("complete", "inexactly", "average")


def test_a_chosen_study_gives_the_runs_and_their_order(tmp_path: Path, ids: dict[str, str]) -> None:
    last = SyntheticRecord(tmp_path, "z-reversed")
    last.want(1e-1, 0)
    last.want(1e-3, 0)
    last.wanted[0]["model"] = "its-own-name"
    last.write()
    text = listing(Results(tmp_path), ["z-reversed"])
    assert words(text, "small") == []
    assert [line.split()[0] for line in text.splitlines()[4:]] == [ids["diverged"], ids["complete"]]
    assert words(text, ids["complete"])[0][-3:] == ["z-reversed,", "small,", "zoom"]
    assert words(text, ids["diverged"])[0][2] == "its-own-name"
    everything = listing(Results(tmp_path), [])
    assert words(everything, ids["diverged"])[0][2] == "gpt2"
    assert words(everything, ids["complete"])[0][-3:] == ["small,", "z-reversed,", "zoom"]


def test_status_has_the_study_s_tags_and_notes(tmp_path: Path) -> None:
    record = SyntheticRecord(tmp_path, "small")
    record.want(1e-3, 0)
    record.write(tags={"baseline": "", "team": "red"}, notes="On my laptop,\nat night")
    lines = status_text(Results(tmp_path), "small").splitlines()
    assert lines[1:4] == ["tags: baseline, team=red", "On my laptop,", "at night"]


def test_no_curve_is_read_and_what_kills_left_is_no_run(tmp_path: Path, ids: dict[str, str]) -> None:
    before = listing(Results(tmp_path), [])
    for path in (tmp_path / "curves").iterdir():
        path.write_bytes(b"no Parquet")
    (tmp_path / "curves" / ".0123456789abcdef.parquet.7.partial").touch()
    (tmp_path / "curves" / ".0123456789abcdef.parquet").touch()
    (tmp_path / "checkpoints" / "note.txt").touch()
    assert listing(Results(tmp_path), []) == before


def test_an_empty_directory(tmp_path: Path) -> None:
    SyntheticRecord(tmp_path)
    assert listing(Results(tmp_path), []) == "no study was run here yet\n\nno runs yet"


def test_a_checkpoint_alone_counts_as_started(tmp_path: Path, ids: dict[str, str]) -> None:
    text = status_text(Results(tmp_path), "small")
    assert words(text, "mnist") == [["mnist", "gpt2", "frozen-random", "1", "1", "1", "2", "1"]]
    assert "failed: mnist gpt2 frozen-random 1e-2 seed 0: no memory left" in text
    for path in (tmp_path / "checkpoints" / ids["checkpoint"]).iterdir():
        path.unlink()
    path.parent.rmdir()
    assert words(status_text(Results(tmp_path), "small"), "all") == [["all", "1", "1", "1", "1", "2"]]


def test_a_run_that_the_study_stopped_early_is_listed_as_such(tmp_path: Path) -> None:
    """A fresh seed of a rate that was stopped is not: no rule applies to it."""
    record = SyntheticRecord(tmp_path)
    stopped = record.add(1e-3, 0, POINTS[:1], status="stopped", trained=100)
    fresh = record.want(1e-3, 1)
    record.wanted[1]["fresh"] = True
    record.write()
    cell = {name: record.wanted[0][name] for name in ("task", "model", "variant", "learning_rate")}
    rung = cell | {"step": 100, "value": 0.5, "num_compared": 2, "kept": False}
    write(tmp_path / "studies" / "small" / "rungs.parquet", [rung], RUNGS)
    facts = tmp_path / "studies" / "small" / "study.json"
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"stop_early": {"keep": 0.5}}))
    results = Results(tmp_path)
    for text in (listing(results, []), status_text(results, "small")):
        assert "stopped" in text.split("waiting")[0]
    assert "up to step 300: stopped" in run_text(results, stopped)
    assert "up to step 300: waiting" in run_text(results, fresh)


def test_a_failure_beyond_the_budget_is_another_study_s(tmp_path: Path) -> None:
    record = SyntheticRecord(tmp_path)
    record.add(1e-3, 0, POINTS, status="failed", trained=400, failure="no memory left", budget=300)
    record.write()
    text = status_text(Results(tmp_path), "small")
    assert words(text, "all") == [["all", "1", "0", "0", "0", "0"]]
    assert "failed:" not in text
    assert text.splitlines()[1] == "no sweep is running"  # and nothing is left to train


@pytest.mark.parametrize(("now", "age"), [(1007.0, "as of 7 s ago"), (960.0, "as of 0 s ago")])
def test_a_running_sweep_is_shown(tmp_path: Path, ids: dict[str, str], now: float, age: str) -> None:
    """It trains `zoom`; the old progress file of `small` does not matter."""
    results = Results(tmp_path)
    for study, updated_at, steps_per_s in [("small", 10.0, 9.0), ("zoom", 1000.0, 50.0)]:
        content = {"updated_at": updated_at, "steps_per_s": steps_per_s, "time_left_s": 600.0}
        results.progress(study).write_text(json.dumps(content))
    who = f"process {os.getpid()} on {socket.gethostname()}"
    with results.writing("zoom"):
        write_json(results.holder, read_state(results.holder) | {"since": 900.0})
        line = status_text(results, "small", now).splitlines()[1]
    assert line == f"{who} trains study zoom: 50 steps/s, about 0:10:00 left ({age})"
    with results.writing("gc"):
        line = status_text(results, "small", now).splitlines()[1]
    assert line == f"{who} is writing here (gc); it has trained nothing yet"
    with results.writing("zoom"):
        write_json(results.holder, read_state(results.holder) | {"since": 900.0})
        write_json(results.progress("zoom"), {"updated_at": 1000.0, "steps_per_s": 0.0, "time_left_s": 3.0})
        assert status_text(results, "small", now).splitlines()[1] == f"{who} runs study zoom"
        progress = {"updated_at": 1000.0, "steps_per_s": 0.0, "time_left_s": None, "failed_attempts": 2}
        write_json(results.progress("zoom"), progress)
        line = status_text(results, "small", now).splitlines()[1]
        assert line == f"{who} runs study zoom; 2 attempts failed so far"
    assert status_text(results, "small", now).splitlines()[1] == "no sweep is running; `run` trains what is left"


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("command", ["ls", "status", "report"])
def test_a_study_is_named_as_it_is_recorded(tmp_path: Path, ids: dict[str, str], command: str) -> None:
    """`small` is no shipped study; its file may lie elsewhere, or have mistakes by now."""
    file = tmp_path / "small.yaml"
    file.write_text("no: study")
    for given in ("small", str(file)):
        assert "A small study" in said(command, given, "--results", str(tmp_path))[1]


@pytest.mark.parametrize("command", ["ls", "status", "report"])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("smal", "unknown study 'smal'; did you mean 'small'? valid: bits-small, cifar10-converged, "),
        ("small.yaml", "small.yaml: No such file or directory"),
        ("quickstart", "no study 'quickstart' in {results}: it has small, zoom"),
    ],
)
def test_an_unknown_study_is_reported(
    tmp_path: Path, ids: dict[str, str], command: str, given: str, message: str
) -> None:
    assert message.format(results=tmp_path) in refused(command, given, "--results", str(tmp_path))


def test_a_run_that_trains_has_started_before_its_first_evaluation(tmp_path: Path, ids: dict[str, str]) -> None:
    results = Results(tmp_path)
    state = {"steps_per_s": 1.0, "time_left_s": None, "updated_at": 4e9, "training": {ids["waiting"]: 10}}
    for study, counts in (("zoom", ["2", "1"]), ("small", ["3", "0"])):
        with results.writing(study):
            write_json(results.progress(study), state)
            assert words(status_text(results, "small"), "all")[0][-2:] == counts
