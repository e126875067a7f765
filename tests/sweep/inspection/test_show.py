"""`show`: one run."""

from __future__ import annotations

import hashlib
import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.inspection.show import log_text, run_text
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.mirrored_record import write_curve, write_end, write_study
from lr_sweep.tests.support.records import SyntheticRecord
from lr_sweep.tests.support.tiny_study import refused, said

RUN = "abcd000000000000"
CONTENT = '{"task":"mnist","trained":["input","output"],"weights_checksum":null,"protocol":{"adam_eps":1e-08}}'


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """One run of a study, without a row so far; evaluations come from `mirrored_record`: accuracy 0.1, 0.2, ..."""
    SyntheticRecord(tmp_path)
    write_study(tmp_path, [RUN])
    return Results(tmp_path)


def facts(text: str, section: str | None = None) -> dict[str, str]:
    """Return the values of a section by name; the first section has no title."""
    parts = {part.splitlines()[0]: part.splitlines()[1:] for part in text.split("\n\n")}
    lines = text.split("\n\n")[0].splitlines() if section is None else parts[section]
    return {name: rest.strip() for name, _, rest in (line.strip().partition("  ") for line in lines)}


def write_checkpoint(results: Results, name: str = "step-{step:09d}-{digest}.safetensors", step: int = 100) -> Path:
    content = b"x" * 2_000_000
    name = name.format(step=step, digest=hashlib.sha256(content).hexdigest()[:16])
    path = results.checkpoints(RUN) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_complete_run(results: Results) -> None:
    write_curve(results.root, RUN, 4)
    write_end(results.root, RUN, content=CONTENT, pretrained_on="text", weights_checksum="beef", git_dirty=True)
    text = run_text(results, RUN)
    assert facts(text) == {
        **{"run": RUN, "status": "complete", "steps": "400 trained", "task": "mnist", "model": "tiny"},
        **{"variant": "frozen-random", "learning rate": "1e-3", "seed": "0"},
    }
    assert facts(text, "wanted by") == {"small": "up to step 400: complete"}
    assert facts(text, "content") == {
        **{"task": "mnist", "trained": '["input", "output"]', "weights_checksum": "null", "protocol.adam_eps": "1e-08"}
    }
    assert facts(text, "row") == {
        **{"pretrained_on": "text", "weights_checksum": "beef", "data_origin": "torchvision", "data_checksum": "d"},
        **{"git_commit": "abc123", "git_dirty": "True", "versions": "{}", "device": "CPU", "wall_s": "60.0"},
        **{"device_s": "60.0", "attempts": "1", "lost_steps": "0", "resumed": "never", "not_saved": "none"},
        **{"started_at": "2026-01-01 12:00:00+00:00", "finished_at": "2026-01-01 12:01:00+00:00"},
    }
    assert facts(text, "files") == {
        **{"row": str(results.run(RUN)), "evaluations": str(results.curve(RUN)), "log": "none", "checkpoint": "none"}
    }


def test_the_curve_is_a_table(results: Results) -> None:
    write_curve(results.root, RUN, 3)
    assert run_text(results, RUN).splitlines()[-4:] == [
        "  step  train loss  test accuracy  validation accuracy",
        "   100      2.0000         25.00%               10.00%",
        "   200      1.0000         25.00%               20.00%",
        "   300      0.6667         25.00%               30.00%",
    ]


def test_a_long_curve_is_thinned_out(results: Results) -> None:
    write_curve(results.root, RUN, 1000)
    lines = run_text(results, RUN).splitlines()
    assert lines[-1] == "  980 evaluations between these are not shown"
    steps = [int(line.split()[0]) for line in lines[-21:-1]]
    assert (steps[0], steps[-1], len(steps)) == (100, 100_000, 20)
    gaps = {(late - early) // 100 for early, late in itertools.pairwise(steps)}
    assert gaps <= {52, 53}  # 999 / 19 = 52.6


def test_a_run_that_has_only_started(results: Results) -> None:
    assert facts(run_text(results, RUN))["status"] == "waiting"
    path = write_checkpoint(results)
    text = run_text(results, RUN)
    assert (facts(text)["status"], facts(text)["variant"]) == ("started", "frozen-random")
    assert facts(text, "wanted by") == {"small": "up to step 400: started"}
    assert facts(text, "files")["checkpoint"] == f"{path}  2.0 MB"
    assert text.endswith("curve\n  no evaluations yet")
    assert "wall_s" not in text


def test_an_unknown_run(results: Results) -> None:
    write_curve(results.root, "eeee000000000000", 1)
    text = run_text(results, "eeee")
    assert facts(text)["labels"] == "not known: no study here wants it, and its row is written when it ends"
    assert facts(text, "wanted by") == {"no study": "that is recorded here"}


@pytest.mark.parametrize(
    ("status", "changes", "named"),
    [
        ("complete", {"resumed": "inexactly", "not_saved": "average"}, "complete, resumed inexactly"),
        ("diverged", {"diverged_at_step": 37, "resumed": "unchecked"}, "diverged at step 37, resumed unchecked"),
        ("failed", {"failure": "no memory left", "git_commit": None}, "failed"),
    ],
)
def test_how_a_run_ended(results: Results, status: str, changes: dict[str, Any], named: str) -> None:
    write_end(results.root, RUN, status, content=CONTENT, num_steps=400 if status == "complete" else 37, **changes)
    text = run_text(results, RUN)
    assert facts(text)["status"] == named
    assert facts(text, "wanted by") == {"small": f"up to step 400: {status}"}
    shown = facts(text, "row") | facts(text)
    for name in changes.keys() - {"diverged_at_step"}:
        assert shown[name] == str(changes[name] or "none")


def test_a_prefix_names_a_run(results: Results) -> None:
    assert run_text(results, "abcd") == run_text(results, RUN)
    for prefix, message in [
        ("abc", "got 'abc' as a run, want its id or at least 4 of its first letters; `ls`"),
        ("zzzz", "no run 'zzzz'; `ls` lists all 1 runs"),
    ]:
        with pytest.raises(UserError) as caught:
            run_text(results, prefix)
        assert str(caught.value).startswith(message)


def test_a_prefix_of_several_names_them(results: Results) -> None:
    for number in range(11):
        write_end(results.root, f"abcd{number:012d}", seed=number)
    with pytest.raises(UserError) as caught:
        run_text(results, "abcd")
    text = str(caught.value)
    assert text.startswith("11 runs begin with 'abcd'; give more letters: abcd000000000000, abcd000000000001, ")
    assert (text.count("abcd0"), text.endswith("; `ls` lists all")) == (10, True)
    assert facts(run_text(results, RUN))["run"] == RUN


def test_the_log_of_a_run(results: Results) -> None:
    with pytest.raises(UserError, match=rf"run {RUN} \(waiting\) has no log; a log begins when a sweep starts a run"):
        log_text(results, RUN[:4])
    results.log(RUN).parent.mkdir(parents=True)
    results.log(RUN).write_text("2026-01-01 12:00:00  started\n")
    assert said("show", RUN[:4], "--log", "--results", results.root) == (0, "2026-01-01 12:00:00  started\n")


def test_of_a_log_larger_than_memory_the_end_is_printed(results: Results) -> None:
    results.log(RUN).parent.mkdir(parents=True)
    with results.log(RUN).open("wb") as log:
        log.truncate(10_000_000_000)
        log.seek(0, os.SEEK_END)
        log.write(b"\nlast\n")
    assert log_text(results, RUN).endswith("\nlast")


def test_a_log_that_has_no_end_or_lies_elsewhere_is_not_read(results: Results, tmp_path: Path) -> None:
    log = results.log(RUN)
    log.parent.mkdir(parents=True)
    (tmp_path / "secret").write_text("secret\n")
    for make, message in (
        (lambda: os.mkfifo(log), "no plain file"),
        (lambda: log.symlink_to("/dev/zero"), "is a link"),
        (lambda: log.symlink_to(tmp_path / "secret"), "is a link"),
    ):
        make()
        assert message in refused("show", RUN, "--log", "--results", results.root)
        log.unlink()
