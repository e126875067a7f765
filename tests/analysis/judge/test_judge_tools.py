"""Tables that other tools really wrote: MLflow's search, Ray Tune's results, a plain PyTorch script."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from lr_sweep.analysis.judge.judge import judge
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.study_files import Study
from lr_sweep.sweep.cli.parser import main
from lr_sweep.tests.support.judged import run_script

ROOT = Path(__file__).parents[3]
RATES = (1e-3, 1e-2, 1e-1)

MLFLOW = """
import sys, mlflow
mlflow.set_tracking_uri(sys.argv[1])
mlflow.set_experiment("sweep")
for variant in "ab":
    for rate in (1e-3, 1e-2, 1e-1):
        for seed in (0, 1):
            with mlflow.start_run():
                mlflow.log_params({"variant": variant, "lr": rate, "seed": seed})
                mlflow.log_metrics({"val_acc": 0.75 - (rate != 1e-2) / 4 + seed / 8, "test_acc": 0.5, "val_loss": 1.0})
mlflow.search_runs(experiment_names=["sweep"]).to_csv("mlflow.csv")
"""

RAY = """
import sys
import ray
from ray import tune
ray.init(address="local", num_cpus=2)  # not a cluster of this machine
def train(config):
    for step in range(3):
        tune.report({"val_acc": 0.5 + config["lr"] * (step == 1), "test_acc": 0.25 + config["lr"]})
space = {"variant": tune.grid_search(["a", "b"]), "lr": tune.grid_search([1e-3, 1e-2, 1e-1]), "seed": 0}
run_config = tune.RunConfig(storage_path=sys.argv[1], name="sweep", verbose=0)
results = tune.Tuner(train, param_space=space, run_config=run_config).fit()
results.get_dataframe().to_csv("ray.csv")
import pandas
pandas.concat(
    result.metrics_dataframe.assign(**{f"config/{name}": value for name, value in result.config.items()})
    for result in results
).to_csv("ray-steps.csv")
"""


def judged(path: Path, metric: str | None = None) -> Study:
    return judge([path], Reading(metric=metric))


def chosen(study: Study) -> dict[str, float]:
    return dict(study.summary.cells[["variant", "learning_rate"]].itertuples(index=False, name=None))


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
    study = judged(tmp_path / "wandb.csv")
    assert chosen(study) == {"adam": 1e-1}
    assert study.summary.cells["test_mean"].tolist() == [0.625]


@pytest.mark.slow
def test_what_mlflow_wrote(tmp_path: Path) -> None:
    run_script(MLFLOW, f"sqlite:///{tmp_path}/mlflow.db", folder=tmp_path)
    study = judged(tmp_path / "mlflow.csv", "accuracy")
    assert chosen(study) == {"a": 1e-2, "b": 1e-2}
    assert study.summary.cells["validation_mean"].tolist() == [0.8125, 0.8125]
    assert set(study.summary.runs["status"]) == {"complete"}


@pytest.mark.slow
@pytest.mark.cluster
def test_what_ray_tune_wrote(tmp_path: Path) -> None:
    run_script(RAY, str(tmp_path / "results"), folder=tmp_path)
    last, every = (judged(tmp_path / name) for name in ("ray.csv", "ray-steps.csv"))
    assert set(last.summary.runs["validation_accuracy"]) == {0.5}
    assert chosen(every) == {"a": 1e-1, "b": 1e-1}
    assert set(every.summary.runs["best_step"]) == {2}
    assert every.summary.cells["test_mean"].tolist() == pytest.approx([0.35, 0.35])


@pytest.mark.slow
def test_what_the_starter_without_a_tool_wrote(tmp_path: Path) -> None:
    """At 1e-2 Adam is far ahead of SGD; with the learning rate swept they are close."""
    run_script((ROOT / "sweep" / "starters" / "judge" / "sweep.py").read_text(), folder=tmp_path)
    study = judged(tmp_path / "runs.csv")
    assert len(study.summary.runs) == 24
    at = study.summary.learning_rates.set_index(["variant", "learning_rate"])["test_mean"]
    tuned = study.summary.cells.set_index("variant")["test_mean"]
    assert at["adam", 1e-2] - at["sgd", 1e-2] > 0.5
    assert tuned["adam"] - tuned["sgd"] < 0.1


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
