"""The command `judge`: its report, its folder, its exit codes; and that a record's table gives the record's numbers."""

from __future__ import annotations

import csv
import errno
import io
import math
from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.study_report import write_report
from lr_sweep.common.text import PROGRAM
from lr_sweep.sweep.api import judge
from lr_sweep.sweep.cli.parser import main
from lr_sweep.tests.support.records import SyntheticRecord

pytestmark = pytest.mark.usefixtures("undrawn")
RATES = (1e-4, 1e-3, 1e-2)
TABLE = "variant,lr,seed,val_acc,test_acc\n" + "".join(
    f"{variant},{rate},{seed},{0.5 + 0.1 * i * (variant == 'a') + seed / 64},{0.5 + i / 10}\n"
    for variant in "ab"
    for i, rate in enumerate(RATES)
    for seed in (0, 1)
)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text(TABLE)
    return tmp_path / "mine.csv"


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_report_is_written_and_replaced_whole(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", "mine.csv"]) == 0
    printed = capsys.readouterr().out
    for line in ("learning rate = lr", "12 runs in the table: all complete", "the largest tried"):
        assert line in printed
    folder = table.parent / "judged" / "mine"
    before = files(folder)
    assert b"Lu et al." not in before["index.html"].partition(b"<script>")[0]
    assert "`run" not in before["report.md"].decode()
    assert main(["judge", "mine.csv", "--strict"]) == 1  # the best is at an edge
    assert files(folder) == before
    table.write_text(TABLE.replace(",0.5", ",high", 1))
    assert main(["judge", "mine.csv"]) == 2
    assert capsys.readouterr().err.startswith("error: mine.csv:2: val_acc: got 'high")
    assert files(folder) == before
    (folder / "notes.txt").write_text("mine")
    table.write_text(TABLE)
    assert main(["judge", "mine.csv"]) == 2
    assert "it has files that are not of an earlier `judge`, such as notes.txt" in capsys.readouterr().err
    assert (folder / "notes.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mine.csv", "--columns", "lr"], "got 'lr', want MEANING=NAME"),
        (["mine.csv", "--columns", "rate=lr,seed=seed,seed=x"], "unknown meaning 'rate'"),
        (["mine.csv", "--columns", "test=tset_acc"], "unknown column 'tset_acc'"),
        (["mine.csv", "--select-on-test"], "the table has validation data"),
        *(
            (["mine.csv", f"--equal-within={limit}"], f"--equal-within: got {limit}, want a difference above 0")
            for limit in ("0", "nan", "inf", "-1")
        ),
        (["mine.csv", "--save", "mine.csv"], "--save mine.csv: want a name that ends in .yaml"),
        *(
            (["mine.csv", "--out", out], f"error: --out {out}: the report cannot be written there: ")
            for out in ("/proc/x", "/dev/null/x", "mine.csv", "x" * 300)
        ),
        (["mine.csv", "--out", "."], "it has files that are not of an earlier `judge`, such as mine.csv"),
        (["mine.cvs"], "no file mine.cvs; did you mean 'mine.csv'? name a CSV or Parquet file"),
    ],
)
def test_mistakes_end_with_code_2(
    table: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["judge", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in table.parent.iterdir()] == ["mine.csv"]


def test_a_full_disk_leaves_no_part_of_a_report_and_keeps_an_earlier_one(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    assert main(["judge", "mine.csv", "--out", "earlier"]) == 0
    before = files(Path("earlier"))
    monkeypatch.setattr("lr_sweep.analysis.study_report.write_csv", full)
    for out in ("out", "earlier"):
        assert main(["judge", "mine.csv", "--out", out]) == 2
        assert f"--out {out}: the report cannot be written there: No space left" in capsys.readouterr().err
    assert files(Path("earlier")) == before
    assert sorted(path.name for path in table.parent.iterdir()) == ["earlier", "mine.csv"]


def test_names_that_spreadsheets_would_run_are_quoted(table: Path) -> None:
    """In every file, as a variant, a heading, and text; and they are read back as they were."""
    rows = TABLE.replace("a,", "=a+1,").replace("b,", "-b,")
    table.write_text(rows.replace("variant", "task,variant").replace("\n=", "\n@t,=").replace("\n-", "\n@t,-"))
    assert main(["judge", "mine.csv", "--out", "out"]) == 0
    found = {path.name: path.read_text() for path in Path("out").glob("*.csv")}
    fields = {field for text in found.values() for line in csv.reader(text.splitlines()) for field in line}
    assert {"'=a+1", "'-b", "'@t"} <= fields
    assert {field for field in fields if field[:1] in ("=", "@") or field[:2] == "-b"} == set()
    assert main(["judge", "out/runs.csv", "--out", "again"]) == 0
    assert (Path("again") / "cells.csv").read_text().splitlines()[1].split(",")[:3] == ["'@t", "all", "'=a+1"]


def test_a_reading_is_saved_and_read_again(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A listing is answered by an option, which a file keeps, and which is read from that file."""
    table.write_text(TABLE.replace("variant", "what").replace("test_acc", "test_loss"))
    assert main(["judge", "mine.csv", "--out", "out"]) == 2
    command = capsys.readouterr().err.rpartition(f"{PROGRAM} ")[2]
    said = command.replace("...=what", "variant=what").replace("test_loss", "").split()
    assert main([*said, "--out", "out", "--equal-within", "2", "--save", "judge.yaml"]) == 0
    assert main(["judge", "mine.csv", "--out", "again", "--columns", "judge.yaml"]) == 0
    assert files(Path("again")).keys() == files(Path("out")).keys()
    assert Path("again/cells.csv").read_bytes() == Path("out/cells.csv").read_bytes()
    mistakes = [("- 1", "want a mapping"), ("colums: {}", "colums: got {}: Unexp"), ("columns: {rate: lr}", "'rate'")]
    mistakes += [("equal_within: -1", "greater than 0"), ("equal_within: true", "valid number")]
    for text, message in mistakes:
        Path("judge.yaml").write_text(text)
        assert main(["judge", "mine.csv", "--columns", "judge.yaml"]) == 2
        assert message in capsys.readouterr().err


def test_settings_are_tuned_as_the_learning_rate(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both settings have the mean 0.71, so the first is kept; its runs alone give the same numbers."""
    values = {0: (0.70, 0.60), 1: (0.72, 0.74), 2: (0.71, 0.79)}
    rows = [f"{g},{rate},{s},{v - rate}" for s, pair in values.items() for g, v in enumerate(pair) for rate in RATES]
    for name, columns, kept in (("tuned", "tuned=gamma", rows), ("alone", "", [row for row in rows if row[0] == "0"])):
        table.write_text("\n".join(["gamma,lr,seed,val_acc", *kept, ""]))
        assert main(["judge", "mine.csv", "--columns", columns, "--out", name]) == 0
    assert "9 runs of 18 in the table, at the best of the tuned settings" in capsys.readouterr().out
    assert Path("tuned/cells.csv").read_bytes() == Path("alone/cells.csv").read_bytes()


def test_standard_input_is_read(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for content in (TABLE.encode(), b'[{"lr": 0.1, "val_acc": 0.5}, {"lr": 0.2, "val_acc": 0.6}]'):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert main(["judge", "-", "--out", "out"]) == 0


def test_the_curves_and_the_runs_of_a_record_give_its_numbers(tmp_path: Path) -> None:
    """Two tasks; runs that diverged, failed and are missing. Steps are chosen again from the evaluations."""
    made = SyntheticRecord(tmp_path / "record")
    for (t, task), (v, variant), (i, rate), seed in product(
        enumerate(("mnist", "svhn")), enumerate(("x", "y", "z")), enumerate(RATES), range(3)
    ):
        top = 0.5 - 0.2 * t + (0.1 if i == (v + 1) % 3 else 0.02 * v) + seed / 128
        curve = [(100, top - 0.05, top - 0.1), (200, top, top - 0.03), (300, top - 0.01, top)]
        labels = {"task": task, "variant": variant}
        if (v, i, seed) == (1, 0, 2):
            made.add(rate, seed, curve[:1], "diverged", 150, 150, **labels)
        elif (v, i, seed) == (2, 1, 0):
            made.want(rate, seed, **labels)
        elif (v, i, seed) == (0, 2, 1):
            made.add(rate, seed, curve[:1], "failed", 120, failure="it broke", **labels)
        else:
            made.add(rate, seed, curve, **labels)
    results = made.write()
    report = write_report(results, made.study).folder
    runs = pd.read_csv(report / "runs.csv")
    curves = record.read_curves(results)[["run_id", "step", "validation", "test", "train"]]
    curves = curves.rename(columns={split: f"{split}_accuracy" for split in curves.columns[2:]})
    names = ["run_id", "task", "model", "variant", "learning_rate", "seed", "status"]
    runs[names].merge(curves, on="run_id", how="left").fillna({"step": 0}).to_csv(tmp_path / "t.csv", index=False)
    for table in (tmp_path / "t.csv", report / "runs.csv"):
        assert main(["judge", str(table), "--out", str(tmp_path / "out")]) == 0
        for name in ("comparisons", "orders", "comparisons-at-rates", "learning_rates"):
            assert (tmp_path / "out" / f"{name}.csv").read_bytes() == (report / f"{name}.csv").read_bytes(), name
        labels = ["task", "variant", "learning_rate"]
        in_both = [*labels, *["test_mean", "low", "high", "difference", "corrected_p", "is_best"]]
        cells = (pd.read_csv(folder / "cells.csv")[in_both] for folder in (tmp_path / "out", report))
        pd.testing.assert_frame_equal(*cells)
        numbers = [*names[1:], "validation_accuracy", "test_accuracy"]
        pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "out" / "runs.csv")[numbers], runs[numbers])


def test_fresh_seeds_in_a_second_table_are_what_the_report_rests_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two variants are equal and a third one is 20 points behind; b is best at its largest rate.

    The noise of four fresh seeds has a mean of 0.25 points (80.25 is written as 80.2) and a standard error of 0.48; by
    Student's t of 3 (3.182) that is 1.5 points.
    """
    monkeypatch.chdir(tmp_path)
    means, noise = {"a": 0.8, "b": 0.8, "c": 0.6}, (0.01, -0.01, 0.0, 0.01, -0.01, 0.01, 0.0)
    rows = {
        (variant, rate, seed): f"{variant},{rate},{seed},{mean + bonus + noise[seed]},{mean + bonus + noise[seed]}\n"
        for variant, mean in means.items()
        for rate, bonus in zip(RATES, (-0.2, -0.1, 0.0) if variant == "b" else (-0.1, 0.0, -0.1), strict=True)
        for seed in range(7)
    }
    head = TABLE.splitlines(keepends=True)[0]
    first = [row for (_, _, seed), row in rows.items() if seed < 3]
    fresh = [row for (_, rate, seed), row in rows.items() if seed >= 3 and rate in RATES[1:]]
    Path("first.csv").write_text(head + "".join(first))
    Path("fresh.csv").write_text(head + "".join(fresh))
    assert main(["judge", "first.csv", "--decide", "fresh.csv", "--equal-within", "1"]) == 0
    printed = capsys.readouterr().out
    assert "first: On fresh seeds, which chose no learning rate, a and b beat c by 20.0 points (p below 0.05" in printed
    assert ["a", "1e-3", "4", "80.2", "78.7", "to", "81.8"] in [line.split() for line in printed.splitlines()]
    assert "decided    2 of 3 pairs decided on fresh seeds, at most 32 runs to go" in printed
    assert "12 runs of no variant at its chosen rate" in printed
    assert "run next   first all a at 1e-3: 1 fresh seed\nrun next   first all b at 1e-2: 1 fresh seed\n" in printed
    assert main(["judge", "first.csv", "--decide", "first.csv"]) == 2
    assert "seed 0 of a at 1e-4 is in both tables" in capsys.readouterr().err


def test_runs_in_two_folders_are_two_variants_which_reach_a_target(tmp_path: Path) -> None:
    for name, at in (("fast", 100), ("slow", 200)):
        (tmp_path / name).mkdir()
        for seed, off in enumerate((-0.01, 0.01)):
            losses = ((step, 3 - 0.3 * math.log(step / at) + off) for step in range(20, 301, 20))
            lines = [f"step:{step}/300 val_loss:{loss:.5f} train_time:{step}s" for step, loss in losses]
            (tmp_path / name / f"{seed}.txt").write_text("\n".join(["import torch", *lines, ""]))
    columns = {"variant": "folder", "seed": "file"}
    found = judge(tmp_path / "fast", tmp_path / "slow", columns=columns, target=3.0)
    report = " ".join(found.report(tmp_path / "out").text.split())
    assert "fast reaches validation loss 3 first, in 100 steps" in report
