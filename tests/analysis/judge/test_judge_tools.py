"""Tables as other tools write them: W&B's table of runs, a plain PyTorch script."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.sweep.cli.parser import main
from lr_sweep.tests.support.judged import chosen, judge, run_script

ROOT = Path(__file__).parents[3]
RATES = (1e-3, 1e-2, 1e-1)


def test_the_columns_of_wandb(tmp_path: Path) -> None:
    """As its table of runs is downloaded: first what a run is, then its configuration, then its summary."""
    head = '"Name","State","Notes","User","Tags","Created","Runtime","Sweep",'
    head += '"ID","lr","method","seed","val/acc","test/acc"\n'
    about = '"finished","-","me","","2026-01-02T12:00:00.000Z","12","s"'
    rows = [
        f'"run-{i}",{about},"id{i}","{rate}","adam","0","{0.5 + i / 8}","{0.5 + i / 16}"'
        for i, rate in enumerate(RATES)
    ]
    (tmp_path / "wandb.csv").write_text(head + "\n".join(rows))
    assert chosen(judge([tmp_path / "wandb.csv"], Reading())) == {"adam": (1e-1, 0.625)}


@pytest.mark.slow
def test_what_the_starter_without_a_tool_wrote(tmp_path: Path) -> None:
    """At 1e-2 Adam is far ahead of SGD; with the learning rate swept they are close."""
    run_script((ROOT / "sweep" / "starters" / "judge" / "sweep.py").read_text(), folder=tmp_path)
    study = judge([tmp_path / "runs.csv"], Reading())
    assert len(study.summary.runs) == 24
    at = study.summary.learning_rates.set_index(["variant", "learning_rate"])["test_mean"]
    tuned = study.summary.cells.set_index("variant")["test_mean"]
    assert at["adam", 1e-2] - at["sgd", 1e-2] > 0.5
    assert tuned["adam"] - tuned["sgd"] < 0.1


@pytest.mark.usefixtures("undrawn")
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
