"""Tables of a few rows judged, from their fields to the verdict; every number is worked out here."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lr_sweep.analysis.judge.judge import write_judged
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.common.errors import UserError
from lr_sweep.sweep.cli.parser import main
from lr_sweep.tests.support.judged import cases, chosen, judge, rows_of, study_of

pytestmark = pytest.mark.usefixtures("undrawn")
ROOT = Path(__file__).parents[3]
ACCURACY = rows_of(
    "variant,lr,seed,val_acc,test_acc",
    "a,1e-3,0,0.50,0.60 a,1e-3,1,0.60,0.60 a,1e-2,0,0.70,0.50 a,1e-2,1,0.60,0.54 "
    "b,1e-3,0,0.80,0.70 b,1e-3,1,0.80,0.72 b,1e-2,0,nan, b,1e-2,1,0.9,0.9",
)


def test_parquet_and_csv_say_the_same(tmp_path: Path) -> None:
    """At 1e-2 a seed of b diverged, so 1e-3 is chosen for it."""
    study = study_of(tmp_path, ACCURACY)
    assert chosen(study) == {"a": (1e-2, 0.52), "b": (1e-3, 0.71)}
    frame = pd.read_csv(tmp_path / "table.csv")
    columns = {name: pa.array(list(frame[name])) for name in frame}  # pandas would write NaN as nothing
    columns["lr"] = columns["lr"].cast(pa.float32())  # 1e-3 is 0.0010000000474974513
    pq.write_table(pa.table(columns), tmp_path / "table.parquet")
    pd.testing.assert_frame_equal(study.summary.cells, judge([tmp_path / "table.parquet"], Reading()).summary.cells)


def test_without_validation_nothing_is_chosen(tmp_path: Path) -> None:
    text = rows_of("lr,seed,test_acc", "0.3,0,0.61 0.3,1,0.63 0.03,0,0.72 0.03,1,0.74 0.003,0,0.66 0.003,1,0.65")
    study = study_of(tmp_path, text)
    assert math.isnan(study.summary.cells["learning_rate"].iloc[0])
    assert study.summary.learning_rates["test_mean"].tolist() == pytest.approx([0.655, 0.73, 0.62])
    assert {each.check for each in study.findings} == {"not-chosen"}
    assert "73.0 ± 1.0" in write_judged(study, tmp_path / "out").text
    asked = study_of(tmp_path, text, Reading(select_on_test=True))
    assert chosen(asked) == {"all": (0.03, 0.73)}
    assert {each.check for each in asked.findings} == {"chosen-on-test"}
    with pytest.raises(UserError, match="there is none"):
        study_of(tmp_path, text.replace("lr,", "x,"), Reading(columns={"tuned": "x"}))


RATES = (0.1, 0.01, 0.001)


FOUND = cases("""
with the rate | params_lr,seed,params_batch,params_follows,val_acc | 0.1,0,8,1,0.5 0.2,0,16,2,0.6 0.3,0,8,3,0.7 |
  problem: its learning rates differ in params_batch as well
in a single run a rate | lr,seed,rank,val_acc | 0.1,0,8,0.5 0.2,0,16,0.6 0.3,0,8,0.7 0.4,0,16,0.5 | note: its
  learning rates differ in rank as well
a text | variant,lr,seed,kind,val_acc | a,0.1,0,x,0.1 a,0.1,1,x,0.2 a,0.2,0,y,0.2 a,0.2,1,y,0.3 | problem: its
  learning rates differ in kind as well
""")


@pytest.mark.parametrize(("head", "rows", "found"), FOUND)
def test_settings_that_change_with_the_rate_are_a_finding(tmp_path: Path, head: str, rows: str, found: str) -> None:
    findings = [each for each in study_of(tmp_path, rows_of(head, rows)).findings if each.check == "settings"]
    assert [f"{each.level}: {each.message}"[: len(found)] for each in findings] == [found]


def test_without_rates_variants_are_compared_as_they_are_and_the_page_has_no_axis_of_rates(tmp_path: Path) -> None:
    rows = [f"{name},{seed},{value + seed / 100:g}" for name, value in (("a", 0.5), ("b", 0.505)) for seed in range(3)]
    study = study_of(tmp_path, rows_of("method,seed,val_acc", rows))
    assert study.summary.cells["validation_mean"].tolist() == pytest.approx([0.51, 0.515])
    assert "edge" not in {each.check for each in study.findings}
    assert any(line.startswith("NO LEARNING RATE") for line in study.about_table)
    page = write_judged(study, tmp_path / "out").page.read_text()
    assert "b leads a by" in page
    assert 'id="sweep"' not in page
    assert "1e0" not in page.partition("<script")[0].replace("it writes", "").partition("How the table was read")[0]


def test_the_best_step_of_runs_is_no_setting(tmp_path: Path) -> None:
    """Seeds that reach their best at the same few steps at every rate."""
    rows = [
        f"{rate},{seed},{100 + 100 * (seed % 2)},{0.5 + rate + seed / 100:g}" for rate in RATES for seed in range(4)
    ]
    study = study_of(tmp_path, rows_of("lr,seed,best_step,val_acc", rows))
    assert "settings" not in {finding.check for finding in study.findings}


def test_the_readme_s_export_of_wandb_gives_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The shipped runs of `optimizers-digits`, in the columns of W&B's table of runs."""
    runs = pd.read_csv(ROOT / "docs" / "results" / "optimizers-digits" / "runs.csv")
    names = {"variant": "optimizer", "learning_rate": "lr", "seed": "seed", "validation_accuracy": "val_acc"}
    frame = runs[[*names, "test_accuracy"]].rename(columns=names | {"test_accuracy": "test_acc"})
    frame["optimizer"] = frame["optimizer"].str.rpartition("-")[2]
    about = {"Name": [f"run-{i}" for i in range(len(runs))], "State": "finished", "User": "me", "Runtime": 12}
    pd.concat([pd.DataFrame(about), frame], axis=1).to_csv(tmp_path / "wandb_export.csv", index=False)
    monkeypatch.chdir(tmp_path)
    shown = (ROOT / "README.md").read_text().partition("$ lr-sweep judge")[2].partition("```")[0]
    command, *lines = shown.splitlines()
    assert main(["judge", *command.partition("#")[0].split()]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for part in " ".join(" ".join(lines).split()).split(" ... "):
        assert part.removesuffix(" ...") in printed


@pytest.mark.slow
def test_very_many_variants_make_a_bounded_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"v{number},{0.3 + number / 4000}" for number in range(1650)]
    Path("t.csv").write_text(rows_of("method,val_acc", rows))
    began = time.process_time()
    assert main(["judge", "t.csv"]) == 0
    assert time.process_time() - began < 60
    assert len(capsys.readouterr().out.splitlines()) <= 200
    assert sum(path.stat().st_size for path in Path("judged").rglob("*") if path.is_file()) < 20_000_000
